//! `yesquel shell` with scripts: its output compared with that of SQLite's own shell, and its exit
//! status.

use crate::program::Place;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::Stdio,
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::Duration,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// Input that both shells accept.
const COMMON: &str = r#"
CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT, c REAL, d BLOB);
INSERT INTO t VALUES(1,'one',0.5,X'0102'),(2,NULL,-3.0,NULL),(3,'it''s "q", x',1e22,X'4142'),(4,'two
lines',2,'z');
CREATE INDEX tb ON t(b);
CREATE VIEW v(x,y) AS SELECT a,b FROM t;
CREATE TABLE "odd name"(x, "y z" UNIQUE);
INSERT INTO "odd name" VALUES(1,'<&>');
CREATE TABLE counted(id INTEGER PRIMARY KEY AUTOINCREMENT, x);
INSERT INTO counted(x) VALUES(1),(2);
CREATE TRIGGER told AFTER INSERT ON counted BEGIN SELECT 1; END;
.tables
.tables t%
.indexes
.indexes t
.schema
.schema t
.mode list
SELECT * FROM t;
.headers on
SELECT * FROM t WHERE a<3;
.mode csv
SELECT a,b,c FROM t;
.mode column
SELECT a,b,c FROM t;
.headers off
SELECT a,b FROM t;
.mode table
SELECT a,b,c FROM t;
.mode box
SELECT a,b,c FROM t WHERE a<4;
SELECT a,b,c FROM t WHERE a<0;
SELECT 'a long text that goes on and on, further than sixty columns will hold, and then some more' AS long, 1 AS "very wide head";
.mode box --wrap 10
SELECT 'a long text that goes on' AS long, 1;
.mode markdown
SELECT a,b FROM t WHERE a<3;
.mode json
SELECT a,b,a*2 FROM t;
SELECT a FROM t WHERE a<0;
.mode line
SELECT a,b FROM t;
.mode html
.headers on
SELECT * FROM "odd name";
.mode insert tt
SELECT a,b,d FROM t WHERE a<>3;
.headers off
.mode insert
SELECT a,b FROM t;
.mode quote
SELECT a,b,d FROM t;
.mode tabs
SELECT a,b FROM t;
.mode ascii
SELECT a,b FROM t;
.mode list
.nullvalue NUL
SELECT b FROM t;
.separator ; "\n\n"
SELECT a,b FROM t;
.mode column
.width 5 -10
.headers on
SELECT a,b FROM t;
.width
.mode list
.print hello 'a  b' "c\td"
.changes on
UPDATE t SET c=1;
.changes off
.eqp on
SELECT * FROM t WHERE b='x' UNION ALL SELECT * FROM t;
.eqp off
EXPLAIN QUERY PLAN SELECT * FROM t WHERE a=1;
.parameter set :x 7
SELECT :x, :unset;
.parameter set @y 'text'
SELECT @y;
.parameter list
.parameter unset :x
SELECT :x;
SELECT 1
go
SELECT no_such;
INSERT INTO t(a) VALUES(1);
SELECT * FORM t;
SELECT 'a statement that is long enough for the mark to stand before it', nothing_there FROM t;
.dump
.fullschema
.echo on
SELECT 'echo';
.echo off
.once once.txt
SELECT 'once';
SELECT 'not once';
.once once_more.txt
.schema t
SELECT 'not once either';
.output off
SELECT 'off is standard output'; -- behind it
.print a comment ends no command
-- what comes next
.print is one
/* said
.print not run
*/
.print run
/* before */ SELECT 'a statement'; /* and behind */
.print and so on
.output stderr
SELECT 'told';
.output
.schema --indent
.schema --nosys
.schema --indent --nosys odd%
.dump --nosys
.indices t
.eqp full
.eqp off
SELECT value FROM generate_series(1,10,4);
SELECT 'abc' REGEXP '^a.c$', 'abc' REGEXP 'c.', NULL REGEXP 'a', regexpi('B','abc');
SELECT writefile('once_more.bin', X'00ff'), hex(readfile('once_more.bin')), readfile('nowhere');
.output output.txt
SELECT 'output';
.output
.read more.sql
SELECT 'at the end'
"#;

#[test]
fn scripts_print_the_same_as_sqlites_shell() {
    let (ours, theirs) = (Place::new(), Place::new());
    for place in [&ours, &theirs] {
        fs::write(place.path("more.sql"), "SELECT 'read';\nSELECT no_such;\nSELECT 'read on';\n").unwrap();
    }
    let Some(expected) = theirs.sqlite3(&[":memory:"], COMMON) else { return };
    for address in ["yesquel:", "yesquel:data", "plain.db", ":memory:"] {
        let ended = ours.runs_with(&["shell", address], COMMON);
        assert_eq!(ended.printed, expected.printed, "{address}");
        assert_eq!(ended.said, expected.said, "{address}");
        assert_eq!(ended.status, expected.status, "{address}");
        for file in ["once.txt", "output.txt", "once_more.txt", "once_more.bin"] {
            assert_eq!(fs::read(ours.path(file)).unwrap(), fs::read(theirs.path(file)).unwrap());
        }
    }
}

#[test]
fn rows_are_imported_like_by_sqlites_shell() {
    let (ours, theirs) = (Place::new(), Place::new());
    let rows = "a,b,a,\n1,\"x \"\"y\"\" z\",3,4\n2,\"multi\nline\",5\n007,3.50,6,7,8\n";
    let script = ".mode csv\n.import rows.csv t\n.schema t\n.mode quote\nSELECT * FROM t;\n\
        CREATE TABLE u(x INTEGER, y TEXT);\n.import --csv --skip 1 \"|printf 'h,h\\n1,2\\n\\\"3\\\",4\\n'\" u\n\
        SELECT * FROM u;\nCREATE TABLE k(x UNIQUE);\n.import --ascii ascii.txt k\nSELECT * FROM k;\n";
    for place in [&ours, &theirs] {
        fs::write(place.path("rows.csv"), rows).unwrap();
        fs::write(place.path("ascii.txt"), "a\x1eb \"\x1ec\n\x1e").unwrap();
    }
    let Some(expected) = theirs.sqlite3(&[":memory:"], script) else { return };
    let ended = ours.runs_with(&["shell"], script);
    assert_eq!((ended.status, &ended.printed), (0, &expected.printed));
    assert!(
        ended.said.contains("rows.csv:3: expected 4 columns but found 3 - filling the rest"),
        "{}",
        ended.said
    );
    // Malformed input is reported and handled as in SQLite's shell.
    let odd: [&[u8]; 9] = [
        b"v\na\n\nb\n",
        b"\n\n1,2\n",
        b"k,l\n1,\"unclosed\n2,b\n",
        b"\"x\"y,2,3\n4,5,6\n",
        b"a,b\n1\n2,3,4\n\n5,6",
        b"\xef\xbb\xbf\"a\",b\r\n1,\"2\"\r\n",
        b"a,b\n\"\"\"\",\"\"\n1,",
        b"a\xe9,b\ncaf\xe9,\xff\n",
        b"one\n",
    ];
    for (number, rows) in odd.iter().enumerate() {
        for place in [&ours, &theirs] {
            fs::write(place.path("odd.csv"), rows).unwrap();
        }
        for script in [
            ".mode csv\n.import odd.csv t\n.mode quote\nSELECT * FROM t;\n",
            "CREATE TABLE t(a, b);\n.import --csv odd.csv t\n.mode quote\nSELECT hex(a), b IS NULL, a FROM t;\n",
            "CREATE TABLE t(a, b);\n.separator ,\n.import --skip 1 odd.csv t\nSELECT count(*), hex(max(a)) FROM t;\n",
        ] {
            let Some(expected) = theirs.sqlite3(&[":memory:"], script) else { return };
            let ended = ours.runs_with(&["shell"], script);
            // SQLite's shell reports invalid UTF-8 differently.
            if number == 7 && script.contains("quote") {
                continue;
            }
            assert_eq!(ended.printed, expected.printed, "{number}: {script}");
            assert_eq!(ended.said, expected.said, "{number}: {script}");
        }
    }
    // All or nothing, with the line of the error.
    fs::write(ours.path("twice.csv"), "1\n2\n1\n").unwrap();
    let ended = ours.runs_with(
        &["shell"],
        "CREATE TABLE k(x UNIQUE);\n.import --csv twice.csv k\nSELECT count(*) FROM k;\n",
    );
    assert_eq!((ended.status, ended.printed.as_str()), (1, "0\n"));
    assert_eq!(ended.said, "Error near line 2: twice.csv:3: UNIQUE constraint failed: k.x\n");
}

#[test]
fn statements_are_arguments_and_failures_set_the_status() {
    let place = Place::new();
    assert_eq!(
        place.prints(&["shell", "a.db", "CREATE TABLE t(a)", "INSERT INTO t VALUES(7)", "SELECT * FROM t"]),
        "7\n"
    );
    assert_eq!(place.prints(&["shell", "--mode", "json", "a.db", "SELECT * FROM t"]), "[{\"a\":7}]\n");
    assert_eq!(
        place.prints(&["shell", "--headers", "--cmd", ".nullvalue -", "a.db", "SELECT a, NULL n FROM t"]),
        "a|n\n7|-\n"
    );
    let ended = place.runs(&["shell", "a.db", "SELECT 1", "SELEC", "SELECT 2"]);
    assert_eq!((ended.status, ended.printed.as_str()), (1, "1\n"));
    assert!(ended.said.starts_with("Parse error: near \"SELEC\": syntax error\n"), "{}", ended.said);
    // Same as SQLite's own shell.
    let query = "SELECT a, NULL n FROM t";
    assert_eq!(place.prints(&["shell", "-header", "-csv", "-nullvalue", "-", "a.db", query]), "a,n\n7,-\n");
    assert_eq!(
        place.prints(&["shell", "-separator", ";", "-cmd", ".headers on", "a.db", query]),
        "a;n\n7;\n"
    );
    assert_eq!(place.prints(&["shell", "--json", "--readonly", "a.db", "SELECT a FROM t"]), "[{\"a\":7}]\n");
    assert!(place.prints(&["shell", "-version"]).contains(env!("CARGO_PKG_VERSION")));
    // A script continues after an error, except with `--bail`.
    let script = "SELEC;\nSELECT 2;\n";
    assert_eq!(place.runs_with(&["shell"], script).printed, "2\n");
    assert_eq!(place.runs_with(&["shell", "--bail"], script).printed, "");
    assert_eq!(place.runs_with(&["shell"], ".exit 7\nSELECT 1;").status, 7);
    assert_eq!(place.fails(&["shell", "--mode", "wide"]).0, 2);
    assert_eq!(place.fails(&["shell", "yesquel:a?speed=9"]).0, 2);
    assert_eq!(place.fails(&["shell", "--readonly", "none.db"]).0, 3);
    assert_eq!(place.fails(&["shell", "--readonly", "yesquel:none"]).0, 3);
    assert_eq!(place.fails(&["shell", "yesquel:///nowhere/socket/shop"]).0, 4);
    for words in
        [&["shell", "db.example:7411/shop", "SELECT 1"][..], &["shell", "--readonly", "db.example/shop"]]
    {
        let (_, said) = place.fails(words);
        let at = said.contains(". A database at a server is yesquel://db.example");
        assert!(at && said.contains("/shop\n"), "{said}");
    }
    assert!(!place.fails(&["shell", "./none/file.db", "SELECT 1"]).1.contains("yesquel://"));
    fs::write(place.path("text.txt"), "no database, but something else that is long enough").unwrap();
    let (status, said) = place.fails(&["shell", "text.txt", "SELECT 1"]);
    assert_eq!((status, said.as_str()), (1, "error: text.txt: file is not a database\n"));
    assert_eq!(place.files(), ["a.db", "text.txt"]);
    assert_eq!(place.runs(&["shell", "--readonly", "a.db", "DELETE FROM t"]).status, 1);
    place.prints(&["shell", "yesquel:data", "CREATE TABLE t(a)"]);
    let (status, said) = place.fails(&["shell", "yesquel:data?mode=ro", "INSERT INTO t VALUES(1)"]);
    assert_eq!((status, said.contains("readonly")), (1, true), "{said}");
    assert_eq!(place.prints(&["shell", "yesquel:data?mode=rw", "SELECT count(*) FROM t"]), "0\n");
    assert_eq!(place.fails(&["shell", "yesquel:data?mode=memory", "SELECT 1"]).0, 2);
    for mode in ["ro", "rw"] {
        assert_eq!(place.fails(&["shell", &format!("yesquel:none?mode={mode}"), "SELECT 1"]).0, 3);
        assert_eq!(place.fails(&["shell", &format!("yesquel:data?database=b&mode={mode}"), "SELECT 1"]).0, 3);
    }
    fs::remove_dir_all(place.path("data")).unwrap();
    // Without an address the database is in memory, and no file remains.
    let trees = place.runs_with(&["shell"], "CREATE TABLE t(a);\n.databases\n.tree\n");
    assert_eq!(trees.printed.lines().next().unwrap(), "main: yesquel: r/w");
    assert_eq!(place.files(), ["a.db", "text.txt"]);
}

#[test]
fn text_of_a_script_keeps_its_bytes() {
    let place = Place::new();
    let script =
        b"CREATE TABLE t(a);\nINSERT INTO t VALUES('caf\xe9'),('it''s \xff'); -- \xe9\n.read more.sql\n\
        SELECT hex(a) FROM t;\n";
    fs::write(place.path("script.sql"), script).unwrap();
    fs::write(place.path("more.sql"), b"INSERT INTO t VALUES('a\n\xe8');").unwrap();
    assert_eq!(place.prints(&["shell", "yesquel:", ".read script.sql"]), "636166E9\n6974277320FF\n610AE8\n");
}

/// SQLite's own shell may lack parts: STAT4 samples are a compile-time option.
#[test]
fn statistics_of_the_planner_are_shown() {
    let script = "CREATE TABLE t(a, b);\nCREATE INDEX tb ON t(b);\nINSERT INTO t VALUES(1,'x'),(2,'y');\nANALYZE;\n\
        .headers on\n.mode box\n.fullschema\nSELECT 1;\n";
    let ended = Place::new().runs_with(&["shell"], script);
    let (shown, after) = ended.printed.split_once("ANALYZE sqlite_schema;\n").unwrap();
    assert_eq!(shown, "CREATE TABLE t(a, b);\nCREATE INDEX tb ON t(b);\n");
    let (rows, after) = after.split_once("ANALYZE sqlite_schema;\n").unwrap();
    assert!(rows.starts_with("INSERT INTO sqlite_stat1 VALUES('t','tb','2 1');\n"), "{rows}");
    assert!(after.contains('─'), "the mode is restored: {after}");
}

#[test]
fn a_file_may_contain_the_address() {
    let place = Place::new();
    fs::write(place.path("shop.db"), "yesquel:data?durability=none\n").unwrap();
    place.prints(&["shell", "shop.db", "CREATE TABLE t(a); INSERT INTO t VALUES(1)"]);
    assert_eq!(place.prints(&["shell", "yesquel:data", "SELECT * FROM t"]), "1\n");
}

#[test]
fn an_address_file_stands_for_a_database_and_tells_sqlite_what_it_is() {
    let place = Place::new();
    let write = |address: &str, file: &str| place.runs(&["address-file", address, file]).status;
    assert_eq!(write("yesquel:data?durability=none", "shop.db"), 0);
    place.prints(&["shell", "shop.db", "CREATE TABLE t(a); INSERT INTO t VALUES(1)"]);
    assert_eq!(place.prints(&["shell", "yesquel:data", "SELECT * FROM t"]), "1\n");
    assert_eq!(write("yesquel:other", "shop.db"), 1, "it replaces no file");
    assert_eq!(write("shop", "other.db"), 2);
    if let Some(ended) = place.sqlite3(&["shop.db"], "SELECT * FROM t;\n") {
        assert!(ended.said.contains("(this file holds the address of a Yesquel database"), "{}", ended.said);
    }
}

#[test]
fn trees_are_drawn_and_costs_are_shown() {
    let place = Place::new();
    let rows = "CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT); CREATE INDEX names ON t(name)";
    // The server splits leaves between commits.
    let more = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 4000)
        INSERT INTO t(name) SELECT printf('name%06d', x) FROM c";
    place.prints(&["shell", "yesquel:data", rows, more, more, more]);
    let drawn = place.prints(&["shell", "yesquel:data", ".tree t", ".tree names"]);
    assert!(drawn.starts_with("t: tree "), "{drawn}");
    assert!(drawn.contains("\n├─ ... to ") && drawn.contains(" keys, "), "{drawn}");
    assert!(drawn.contains("names, index of t: tree ") && drawn.contains("('name0"), "{drawn}");
    let output = place.prints(&["shell", "yesquel:data", ".stats on", "SELECT name FROM t WHERE id = 77"]);
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines[0], "name000077");
    assert!(lines[1].starts_with("Round trips:  ") && !lines[1].ends_with(" 0"), "{output}");
    assert!(lines[2].starts_with("Cache hits: ") && lines[3].starts_with("Bytes: "), "{output}");
    let (status, said) = place.fails(&["shell", "plain.db", ".tree"]);
    assert_eq!((status, said.contains("is on no trees")), (1, true), "{said}");
    assert_eq!(
        place.prints(&["shell", "plain.db", ".stats on", "SELECT 1"]),
        "1\nNo round trips: the database is on no trees.\n"
    );
    assert!(
        place
            .fails(&["shell", "yesquel:data", ".tree nothing"])
            .1
            .contains("no such table or index: nothing")
    );
}

#[test]
fn databases_are_saved_and_restored() {
    let place = Place::new();
    let script = "CREATE TABLE t(a); INSERT INTO t VALUES(1);\n.backup copy.db\n.save yesquel:other\nDELETE FROM t;\n\
        .restore copy.db\nSELECT * FROM t;\n.open copy.db\nINSERT INTO t VALUES(2);\n.open yesquel:other\n\
        SELECT count(*) FROM t;\nATTACH 'copy.db' AS c;\n.backup c twice.db\n.databases\n";
    let ended = place.runs_with(&["shell", "yesquel:data"], script);
    assert_eq!((ended.status, ended.said.as_str()), (0, ""));
    assert!(ended.printed.starts_with("1\n1\nmain: yesquel:"), "{}", ended.printed);
    assert!(ended.printed.ends_with("copy.db r/w\n"), "{}", ended.printed);
    assert_eq!(place.prints(&["shell", "twice.db", "SELECT sum(a) FROM t"]), "3\n");
    // `.clone` works too, but does not overwrite.
    assert_eq!(
        place.prints(&[
            "shell",
            "twice.db",
            ".clone yesquel:cloned",
            ".open yesquel:cloned",
            "SELECT sum(a) FROM t"
        ]),
        "3\n"
    );
    let (status, said) = place.fails(&["shell", "yesquel:other", ".clone yesquel:cloned"]);
    assert!(status == 1 && said.contains("yesquel:cloned has something in it already"), "{said}");
}

/// Long results are streamed in every mode.
#[test]
fn tables_continue_beyond_the_buffered_rows() {
    let place = Place::new();
    let rows = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 25000) \
        SELECT x, CASE x WHEN 20000 THEN 'wider than before' ELSE 'row' END AS t FROM c";
    let table = place.prints(&["shell", "--mode", "table", ":memory:", rows]);
    let lines: Vec<&str> = table.lines().collect();
    // Three lines above, one below, and five for wrapped text.
    assert_eq!(lines.len(), 25_000 + 4 + 5);
    assert!(lines.iter().all(|line| line.len() == lines[0].len()));
    assert_eq!(lines[3], "| 1     | row |");
}

#[test]
fn ctrl_c_stops_a_script() {
    let place = Place::new();
    let mut child = place
        .program(&["shell", "yesquel:"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let endless = "SELECT 'begun'; WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) \
        SELECT count(*) FROM c;\nSELECT 'after';\n";
    input.write_all(endless.as_bytes()).unwrap();
    let mut printed = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    printed.read_line(&mut line).unwrap();
    assert_eq!(line, "begun\n");
    // The shell does not wait for a query that ignores the interrupt.
    let pid = Pid::from_child(&child);
    let (end, ended) = channel::<()>();
    let watch = thread::spawn(move || {
        if ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            kill_process(pid, Signal::KILL).unwrap();
        }
    });
    kill_process(pid, Signal::INT).unwrap();
    line.clear();
    printed.read_line(&mut line).unwrap();
    assert_eq!(line, "", "it goes on");
    drop(end);
    watch.join().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"));
}
