<?php
// The class SQLite3 on a file that contains an address: php address_file.php FILE.

require __DIR__ . '/engine.php';

$db = new SQLite3($argv[1]);
$db->enableExceptions(true);
assert_engine(fn($sql) => $db->querySingle($sql));
echo $db->querySingle('SELECT count(*) FROM item'), "\n";
