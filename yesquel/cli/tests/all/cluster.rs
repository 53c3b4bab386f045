//! `yesquel cluster status` and placements, at two servers.

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
