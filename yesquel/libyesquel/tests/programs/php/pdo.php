<?php
// PHP's PDO on a database: php pdo.php NAME. The output must not depend on the
// engine.

require __DIR__ . '/engine.php';

$db = new PDO('sqlite:' . $argv[1], null, null, [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
assert_engine(fn($sql) => $db->query($sql)->fetchColumn());

$db->exec('CREATE TABLE customer(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, note BLOB)');
$db->exec('CREATE TABLE sale(id INTEGER PRIMARY KEY AUTOINCREMENT, customer INTEGER REFERENCES customer, day TEXT, cents INTEGER)');
$db->exec('CREATE INDEX sale_day ON sale(day, cents DESC)');
$db->exec('PRAGMA foreign_keys = ON');

$insert = $db->prepare('INSERT INTO customer(name, note) VALUES(:name, :note)');
$db->beginTransaction();
foreach (['Ada', 'Bob', 'Čeněk'] as $name) {
    $insert->bindValue(':name', $name);
    $insert->bindValue(':note', "\0\xff" . $name, PDO::PARAM_LOB);
    $insert->execute();
}
$db->commit();
echo 'last id ', $db->lastInsertId(), "\n";

$sale = $db->prepare('INSERT INTO sale(customer, day, cents) VALUES(?, ?, ?)');
$db->beginTransaction();
for ($n = 0; $n < 100; $n++) {
    $sale->execute([$n % 3 + 1, sprintf('2026-01-%02d', $n % 28 + 1), $n * 17 % 1000]);
}
$db->commit();
$db->beginTransaction();
$db->exec('DELETE FROM sale');
$db->rollBack();

echo json_encode($db->query(
    'SELECT name, count(*) AS sales, sum(cents) AS cents FROM sale JOIN customer ON customer.id = customer
     GROUP BY name ORDER BY name'
)->fetchAll(PDO::FETCH_ASSOC), JSON_UNESCAPED_UNICODE), "\n";
echo json_encode($db->query("SELECT id, cents FROM sale WHERE day = '2026-01-05' ORDER BY cents DESC")
    ->fetchAll(PDO::FETCH_NUM)), "\n";
foreach ($db->query('SELECT note FROM customer ORDER BY id') as $row) {
    echo bin2hex($row['note']), "\n";
}
foreach ([
    "INSERT INTO customer(name) VALUES('Bob')",
    'INSERT INTO sale(customer) VALUES(99)',
    'DELETE FROM customer WHERE id = 1',
    'INSERT INTO customer(id) VALUES(9)',
    'SELECT nothing FROM nowhere',
] as $wrong) {
    try {
        $db->exec($wrong);
        echo "no error: $wrong\n";
    } catch (PDOException $error) {
        echo $error->getCode(), ' ', $error->errorInfo[1], ' ', $error->errorInfo[2], "\n";
    }
}
$db->sqliteCreateFunction('backwards', 'strrev', 1);
echo $db->query("SELECT backwards(name) FROM customer WHERE id = 2")->fetchColumn(), "\n";
echo $db->exec('UPDATE sale SET cents = cents + 1 WHERE customer = 2'), " changed\n";

// Another connection sees committed changes only.
$other = new PDO('sqlite:' . $argv[1], null, null, [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
echo $other->query('SELECT sum(cents) FROM sale')->fetchColumn(), "\n";
