//! `yesquel dump`: a database as SQL that recreates it.

#[allow(dead_code, reason = "it ends by being dropped")]
use crate::program::Place;
use std::os::unix::fs::PermissionsExt;
use std::{
    fs,
    io::{BufRead, BufReader, Read},
    process::Stdio,
};

/// Omits what other versions of SQLite format differently: fractions, and values without a literal
/// in SQL.
const CONTENT: &str = "
    CREATE TABLE t(a INTEGER PRIMARY KEY, b, c);
    INSERT INTO t VALUES(1, 'it''s', X'00ff'), (2, 'a\nb\r\n\\n', 1e999), (3, '', -2.0), (-9223372036854775808, NULL, '1');
    CREATE TABLE \"order\"(\"a b\" TEXT, \"select\" INT, PRIMARY KEY(\"a b\")) WITHOUT ROWID -- said of it
    ;
    INSERT INTO \"order\" VALUES('x', 1);
    CREATE TABLE counted(id INTEGER PRIMARY KEY AUTOINCREMENT, x);
    INSERT INTO counted VALUES(41, 'a'), (42, NULL);
    CREATE INDEX tb ON t(b) WHERE b > '';
    CREATE VIEW v AS SELECT * FROM t;
    CREATE TRIGGER told AFTER INSERT ON t BEGIN SELECT 1; END;
    CREATE TABLE generated(a, b AS (a * 2), c AS (a + 1) STORED);
    INSERT INTO generated(a) VALUES(1), (2);
    CREATE VIRTUAL TABLE words USING fts5(body);
    INSERT INTO words VALUES('hello world');
    CREATE TABLE \"a'\"\"b\"(x); INSERT INTO \"a'\"\"b\" VALUES(7);";

#[test]
fn the_dump_equals_that_of_sqlites_shell() {
    let place = Place::new();
    let Some(made) = place.sqlite3(&["plain.db"], CONTENT) else { return };
    assert_eq!(made.said, "");
    place.prints(&["import", "--quiet", "plain.db", "yesquel:data"]);
    for tables in [&[][..], &["t"], &["%t%"], &["nothing"]] {
        let command = format!(".dump {}", tables.join(" "));
        let expected = place.sqlite3(&["plain.db", &command], "").unwrap();
        let shown = place.prints(&[&["dump", "yesquel:data"], tables].concat());
        // `yesquel dump` also includes the tables' indexes and triggers, whatever their names.
        let lines = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.starts_with("CREATE TRIGGER")).map(str::to_owned).collect()
        };
        if tables.is_empty() {
            assert_eq!(shown, expected.printed);
        } else {
            let ours = lines(&shown);
            assert!(lines(&expected.printed).iter().all(|line| ours.contains(line)), "{tables:?}: {shown}");
        }
    }
    let data = place.prints(&["dump", "--data-only", "yesquel:data", "t"]);
    assert!(data.starts_with("INSERT INTO t VALUES(-9223372036854775808,NULL,'1');\n"), "{data}");
    let schema = place.prints(&["dump", "--schema-only", "yesquel:data"]);
    assert!(!schema.contains("INSERT INTO t ") && schema.contains("CREATE TABLE t("), "{schema}");
}

#[test]
fn a_dump_restores_the_same_database() {
    let place = Place::new();
    let odd = "CREATE TABLE odd(a);
        INSERT INTO odd VALUES(0.1), (0.1 + 0.2), (5e-324), (1.7976931348623157e308), (-0.0), (9007199254740993.0), (123456789.125),
            (CAST(X'61ff62' AS TEXT)), ('a' || char(0) || 'b'), (-1e999), (1e-7), (3.0e15), (1e15);";
    place.prints(&["shell", "yesquel:data", CONTENT, odd]);
    place.prints(&["dump", "yesquel:data", "--output", "all.sql"]);
    let text = fs::read_to_string(place.path("all.sql")).unwrap();
    assert_eq!(text, place.prints(&["dump", "yesquel:data"]));
    for address in ["yesquel:again", "again.db"] {
        let made = place.runs_with(&["shell", "--bail", address], &text);
        assert_eq!((made.status, made.said.as_str()), (0, ""), "{address}");
        assert_eq!(text, place.prints(&["dump", address]), "{address}");
    }
    // Each value is identical to the last bit.
    let values = "SELECT typeof(a), hex(a), ieee FROM (SELECT a, printf('%!.26g', a) AS ieee FROM odd)";
    let expected = place.prints(&["shell", "yesquel:data", values]);
    assert_eq!(place.prints(&["shell", "yesquel:again", values]), expected);
    if let Some(theirs) = place.sqlite3(&["theirs.db"], &text) {
        assert_eq!((theirs.status, theirs.said.as_str()), (0, ""));
        assert_eq!(place.prints(&["shell", "theirs.db", values]), expected);
    }
}

#[test]
fn the_output_follows_symbolic_links() {
    let place = Place::new();
    place.prints(&["shell", "yesquel:data", "CREATE TABLE t(a)"]);
    let text = place.prints(&["dump", "yesquel:data"]);
    assert_eq!(place.prints(&["dump", "yesquel:data", "-o", "/dev/stdout"]), text);
    fs::write(place.path("all.sql"), "before").unwrap();
    fs::set_permissions(place.path("all.sql"), fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::symlink("all.sql", place.path("link")).unwrap();
    std::os::unix::fs::symlink("link", place.path("again")).unwrap();
    place.prints(&["dump", "yesquel:data", "-o", "again"]);
    assert_eq!(fs::read_to_string(place.path("all.sql")).unwrap(), text);
    assert_eq!(fs::metadata(place.path("all.sql")).unwrap().permissions().mode() & 0o777, 0o600);
    // A dangling link.
    fs::remove_file(place.path("all.sql")).unwrap();
    place.prints(&["dump", "yesquel:data", "-o", "link"]);
    assert_eq!(fs::read_to_string(place.path("all.sql")).unwrap(), text);
    std::os::unix::fs::symlink("circle", place.path("circle")).unwrap();
    assert_eq!(place.fails(&["dump", "yesquel:data", "-o", "circle"]).0, 1);
    let (status, said) = place.fails(&["dump", "yesquel:data", "-o", "no/folder"]);
    assert_eq!((status, said.as_str()), (1, "error: no/folder: No such file or directory (os error 2)\n"));
    assert_eq!(place.files(), ["again", "all.sql", "circle", "data", "link"]);
}

#[test]
fn a_failed_dump_is_reported() {
    let place = Place::new();
    assert_eq!(place.fails(&["dump", "none.db"]).0, 3);
    assert_eq!(place.fails(&["dump", "yesquel:none"]).0, 3);
    fs::write(place.path("text.db"), "something that is no database at all").unwrap();
    assert_eq!(place.fails(&["dump", "text.db"]).0, 1);
    assert_eq!(place.fails(&["dump", "--data-only", "--schema-only", "text.db"]).0, 2);
    assert_eq!(place.files(), ["text.db"]);
}

/// A slow reader of the dump does not block writers.
#[test]
fn a_dump_is_a_consistent_snapshot() {
    let place = Place::new();
    let (data, socket) = (place.path("data"), place.path("socket"));
    let mut serve = place.program(&["serve", "--data"]);
    let server = crate::support::Process::spawn(serve.arg(&data).arg("--listen").arg(&socket));
    server.wait_until_ready();
    let address = format!("yesquel://{}/shop", socket.display());
    // More than the pipe and the buffers hold.
    let rows = "CREATE TABLE a(x); CREATE TABLE b(x); INSERT INTO b VALUES('old');
        WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 20000)
        INSERT INTO a SELECT hex(zeroblob(50)) FROM c;";
    place.prints(&["shell", &address, rows]);
    let mut child = place.program(&["dump", &address]).stdout(Stdio::piped()).spawn().unwrap();
    let mut text = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    text.read_line(&mut line).unwrap();
    assert_eq!(line, "PRAGMA foreign_keys=OFF;\n");
    place.prints(&[
        "shell",
        &address,
        "INSERT INTO b VALUES('new'); DELETE FROM a; CREATE VIEW c AS SELECT 1",
    ]);
    let mut rest = String::new();
    text.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(rest.matches("INSERT INTO a ").count(), 20_000);
    assert!(rest.ends_with("CREATE TABLE b(x);\nINSERT INTO b VALUES('old');\nCOMMIT;\n"));
}
