<?php
// PHP's class SQLite3: php sqlite3.php NAME. The class accepts paths only, so an
// address is attached.

require __DIR__ . '/engine.php';

$db = new SQLite3(':memory:');
$db->enableExceptions(true);
$attach = $db->prepare('ATTACH ? AS shop');
$attach->bindValue(1, $argv[1]);
$attach->execute();
assert_engine(fn($sql) => $db->querySingle($sql));

$db->exec('CREATE TABLE shop.item(name TEXT PRIMARY KEY, price REAL, picture BLOB) WITHOUT ROWID');
$insert = $db->prepare('INSERT INTO shop.item VALUES(:name, :price, :picture)');
$db->exec('BEGIN IMMEDIATE');
foreach (['bread' => 2.5, 'milk' => 1.25, 'tea' => 12] as $name => $price) {
    $insert->bindValue(':name', $name);
    $insert->bindValue(':price', $price, SQLITE3_FLOAT);
    $insert->bindValue(':picture', str_repeat($name, 1000), SQLITE3_BLOB);
    $insert->execute();
    $insert->reset();
}
$db->exec('COMMIT');
echo $db->changes(), ' ', $db->lastErrorCode(), "\n";
$result = $db->query('SELECT name, price, length(picture) FROM shop.item ORDER BY price');
while ($row = $result->fetchArray(SQLITE3_NUM)) {
    echo json_encode($row), "\n";
}
$db->createAggregate(
    'longest',
    fn($context, $row, $text) => strlen($text) > strlen($context ?? '') ? $text : $context,
    fn($context) => $context
);
echo $db->querySingle('SELECT longest(name) FROM shop.item'), "\n";
$db->createCollation('by_length', fn($a, $b) => strlen($a) <=> strlen($b));
echo $db->querySingle('SELECT group_concat(name) FROM (SELECT name FROM shop.item ORDER BY name COLLATE by_length, name)'), "\n";
try {
    $db->exec("INSERT INTO shop.item(name) VALUES('tea')");
} catch (Exception $error) {
    echo $db->lastErrorCode(), ' ', $db->lastExtendedErrorCode(), ' ', $db->lastErrorMsg(), "\n";
}
// A temporary table and a table on trees in one statement.
$db->exec("CREATE TEMP TABLE cart(name, number); INSERT INTO cart VALUES('tea', 2), ('milk', 6)");
echo $db->querySingle('SELECT sum(price * number) FROM cart JOIN shop.item USING(name)'), "\n";

$db->exec('CREATE TABLE shop.file(id INTEGER PRIMARY KEY, body BLOB)');
$db->exec('INSERT INTO shop.file VALUES(1, zeroblob(100000))');
$blob = $db->openBlob('file', 'body', 1, 'shop', SQLITE3_OPEN_READWRITE);
fseek($blob, 50000);
fwrite($blob, 'middle');
fclose($blob);
echo $db->querySingle('SELECT substr(body, 50001, 6) FROM shop.file'), "\n";
