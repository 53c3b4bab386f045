//! `yesquel cluster status` and `check`, and placements, at two servers.

use crate::commands::{Server, serve};
use std::path::Path;
use tempfile::TempDir;

fn socket(place: &Path) -> String {
    place.join("socket").display().to_string()
}

/// Starts a server that knows another one.
fn start(places: &[TempDir; 2], server: usize) -> Server {
    let other = 1 - server;
    let peer = format!("{other}={}", socket(places[other].path()));
    serve(places[server].path(), &["--server", &server.to_string(), "--peer", &peer])
}

#[test]
fn a_cluster_shows_its_groups() {
    let places = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let home = start(&places, 0);
    let other = start(&places, 1);
    home.prints(&["databases", "create", "SOCKET", "near"]);
    home.prints(&["databases", "create", "SOCKET", "far", "--placement", "spread"]);
    home.prints(&["databases", "create", "SOCKET", "wide", "--placement", "tables"]);
    let (status, said) = home.fails(&["databases", "create", "SOCKET", "none", "--placement", "0,7"]);
    assert_eq!(status, 1, "{said}");
    assert!(said.contains("group 7 is not known"), "{said}");
    let (status, said) = home.fails(&["databases", "create", "SOCKET", "none", "--placement", "best"]);
    assert_eq!(status, 2, "{said}");
    assert_eq!(other.prints(&["databases", "list", "SOCKET"]), "far  \nnear  \nwide (groups 0,1)  \n");

    let shown = other.prints(&["cluster", "status", "SOCKET"]);
    let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(shown.starts_with("cluster "), "{shown}");
    let at = |place: &TempDir| format!("unix:{}", socket(place.path()));
    assert_eq!(lines[3][..4], ["0", "(home)", &*at(&places[0]), "2"], "{shown}");
    assert_eq!(lines[4][..3], ["1", &*at(&places[1]), "2"], "{shown}");
    let json = other.prints(&["cluster", "status", "SOCKET", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["home_group"], 0);
    assert_eq!(json["groups"][1]["group"], 1);
    assert_eq!(json["groups"][1]["status"]["server"], 1);
    assert_eq!(json["groups"][0]["databases"], 2);

    drop(home);
    let output = other.run(&["cluster", "status", "SOCKET", "--connect-timeout", "0.3"]);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(shown.contains("does not answer") && shown.contains("\ngroup 0: "), "{shown}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("1 of 2 groups does not serve"), "{said}");
}

/// Runs `yesquel cluster check` with `--json`; returns its status and what it prints.
fn check(server: &Server, more: &[&str]) -> (Option<i32>, serde_json::Value) {
    let arguments = [&["cluster", "check", "SOCKET"], more, &["--json"]].concat();
    let output = server.run(&arguments);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let json = serde_json::from_str(&shown);
    (output.status.code(), json.unwrap_or_else(|error| panic!("{error}: {shown}, {output:?}")))
}

/// The codes of faults, and their databases.
fn codes(checked: &serde_json::Value) -> Vec<(String, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let found = checked["found"].as_array().unwrap().iter();
    found.map(|fault| (text(&fault["code"]), text(&fault["database"]))).collect()
}

#[test]
fn a_cluster_is_checked() {
    let places = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let home = start(&places, 0);
    let _other = start(&places, 1);
    let address = |name: &str| format!("yesquel://{}/{name}", socket(places[0].path()));
    let sql = "CREATE TABLE a(id INTEGER PRIMARY KEY, n INT UNIQUE); CREATE TABLE b(a REFERENCES a(id)); \
        INSERT INTO a VALUES (1, 10), (2, 20); INSERT INTO b VALUES (1); CREATE INDEX i ON b(a)";
    home.prints(&["databases", "create", "SOCKET", "wide", "--placement", "tables"]);
    home.prints(&["shell", &address("wide"), sql]);
    home.prints(&["shell", &address("near"), sql]);
    let (status, checked) = check(&home, &["--sql"]);
    assert_eq!((status, codes(&checked)), (Some(0), vec![]), "{checked}");
    assert_eq!((&checked["databases"], &checked["faults"]), (&2.into(), &0.into()));
    let text = home.prints(&["cluster", "check", "SOCKET", "near"]);
    assert!(text.starts_with("checked ") && text.contains(" in 1 database: "), "{text}");
    // A row without its entry in an index, and a reference to nothing.
    let store =
        yesquel::Store::connect(&socket(places[0].path()).parse().unwrap(), Default::default()).unwrap();
    let near = store.database("near").unwrap();
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_a_1'";
    let root = home.prints(&["shell", &address("near"), root]);
    let damaged = near.existing_map(&format!("sql/{}", root.trim())).unwrap().unwrap();
    near.run(|transaction| {
        transaction.delete_range::<&[u8]>(damaged, ..);
        Ok(())
    })
    .unwrap();
    home.prints(&["shell", &address("near"), "INSERT INTO b VALUES (7)"]);
    let (status, checked) = check(&home, &["--sql", "near"]);
    assert_eq!(status, Some(1), "{checked}");
    let found = codes(&checked);
    for code in ["integrity_check", "foreign_key_check"] {
        assert!(found.contains(&(code.to_owned(), "near".to_owned())), "{checked}");
    }
    // Trees alone are whole.
    assert_eq!(check(&home, &["near"]).0, Some(0));
    // Copies of the cookies with a wrong number of groups, one that differs, and one that is missing.
    let wide = store.database("wide").unwrap();
    let copies = ["sql/cookies", "sql/cookies@1"].map(|map| wide.existing_map(map).unwrap().unwrap());
    let right = wide.get(copies[0], b"").unwrap().unwrap();
    let write = |value: &[u8]| copies.iter().for_each(|copy| _ = wide.put(*copy, b"", value).unwrap());
    write(&[&right[..], &9_u32.to_be_bytes()].concat());
    assert_eq!(codes(&check(&home, &[]).1), [("different_groups".to_owned(), "wide".to_owned())]);
    write(&right);
    let copy = copies[1];
    wide.put(copy, b"", b"other").unwrap();
    assert_eq!(codes(&check(&home, &[]).1), [("different_cookies".to_owned(), "wide".to_owned())]);
    assert!(wide.drop_map("sql/cookies@1").unwrap());
    assert_eq!(codes(&check(&home, &["wide"]).1), [("missing_cookies".to_owned(), "wide".to_owned())]);
    let (status, said) = home.fails(&["cluster", "check", "SOCKET", "wide"]);
    assert!(status == 1 && said.contains("1 fault was found"), "{said}");
    assert_eq!(home.fails(&["cluster", "check", "SOCKET", "none"]).0, 3);
}
