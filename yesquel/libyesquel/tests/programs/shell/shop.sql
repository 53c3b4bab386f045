-- Debian's sqlite3 on a database: sqlite3 NAME < shop.sql, in an empty folder.
-- The output must not depend on the engine, which engine.sql has printed before.
.bail on
CREATE TABLE kind(id INTEGER PRIMARY KEY, name TEXT UNIQUE);
INSERT INTO kind(name) VALUES ('tree'), ('table'), ('a "quoted" one');
CREATE TABLE thing(id INTEGER PRIMARY KEY, kind INTEGER REFERENCES kind, name TEXT COLLATE NOCASE, weight REAL, body BLOB);
CREATE INDEX thing_kind ON thing(kind, weight DESC);
CREATE INDEX heavy ON thing(name) WHERE weight > 5;
CREATE VIEW heavy_things AS SELECT name, weight FROM thing WHERE weight > 5;
CREATE TRIGGER named AFTER INSERT ON thing WHEN new.name IS NULL BEGIN
  UPDATE thing SET name = 'thing ' || new.id WHERE id = new.id;
END;
-- Integral values, since versions of SQLite print fractions with different digits.
WITH RECURSIVE n(x) AS (VALUES(1) UNION ALL SELECT x + 1 FROM n WHERE x < 60)
  INSERT INTO thing(kind, weight, body) SELECT x % 3 + 1, x * 2.0, CAST('body ' || x AS BLOB) FROM n;
CREATE VIRTUAL TABLE words USING fts5(text);
INSERT INTO words SELECT name || ' is ' || weight FROM thing;

.mode list
.headers on
SELECT kind.name, count(*), sum(weight) FROM thing JOIN kind ON kind.id = kind GROUP BY 1 ORDER BY 1;
.headers off
SELECT rowid FROM words WHERE words MATCH 'is AND 18';
.tables
.indexes
.schema thing
.schema heavy_things
.fullschema --indent
.mode csv
SELECT id, name, weight FROM thing WHERE kind = 2 ORDER BY weight DESC LIMIT 3;
.mode json
SELECT id, name, weight FROM thing LIMIT 2;
.mode box
SELECT * FROM heavy_things ORDER BY weight LIMIT 3;
.mode insert copy
SELECT * FROM kind;
.mode quote
SELECT id, body, NULL FROM thing WHERE id = 4;
.mode list

.print importing
.mode csv
.once rows.csv
SELECT id + 1000, 3, 'imported ' || id, weight * 2, NULL FROM thing WHERE id <= 20;
.import rows.csv thing
.import --schema temp rows.csv loaded
.mode list
SELECT count(*), max(id) FROM thing;
SELECT count(*) FROM loaded;
DROP TABLE temp.loaded;

.parameter init
.parameter set @limit 64.5
SELECT count(*) FROM thing WHERE weight > @limit;
.parameter clear
DROP TABLE IF EXISTS temp.sqlite_parameters;

.lint fkey-indexes
PRAGMA integrity_check;
PRAGMA foreign_key_check;
.sha3sum kind
.dump kind heavy_things
.once dump.sql
.dump
ANALYZE;
SELECT tbl, idx IS NOT NULL FROM sqlite_stat1 WHERE tbl IN ('thing', 'kind') ORDER BY 1, 2;
BEGIN;
DELETE FROM thing WHERE id > 5;
SELECT changes();
ROLLBACK;
SELECT count(*) FROM thing;
ALTER TABLE kind ADD COLUMN colour TEXT DEFAULT 'green';
ALTER TABLE kind RENAME COLUMN name TO title;
SELECT * FROM kind;
.schema kind
REINDEX;
VACUUM;

-- The dump and the backup are complete.
.print reading
.backup main backup.db
.open dumped.db
.read dump.sql
.open dumped.db
SELECT count(*), max(id), sum(weight) FROM thing;
SELECT count(*) FROM words WHERE words MATCH 'is';
.open backup.db
SELECT count(*), max(id), sum(weight) FROM thing;
SELECT count(*) FROM words WHERE words MATCH 'is';
PRAGMA integrity_check;
