//! `yesquel upgrade`: folders of format 1 become folders of the present format.

use crate::program::Place;
use std::{fs, path::Path};

/// Copies a folder that the last version with format 1 wrote to `data`.
fn old_folder(place: &Place, name: &str) {
    let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/tests/data/format-1").join(name);
    fs::create_dir(place.path("data")).unwrap();
    for entry in fs::read_dir(old).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), place.path("data").join(entry.file_name())).unwrap();
    }
}

const QUESTIONS: [&str; 4] = [
    "SELECT count(*), sum(price), sum(length(name)) FROM items",
    "SELECT id FROM items INDEXED BY items_by_name WHERE name = 'item 49'",
    "SELECT id, length(body), substr(body, -9) FROM pages",
    "PRAGMA integrity_check",
];
/// The answers before the upgrade.
const ANSWERS: &str = "270|10123.25|2061\n7\n1|50000|one page \n2|9000| two two \n4|7000|our four \nok\n";

#[test]
fn an_old_folder_is_refused_with_the_command_that_upgrades_it() {
    let place = Place::new();
    old_folder(&place, "server-0");
    for (arguments, path) in [
        (&["serve", "--data", "data"][..], "data".to_owned()),
        (&["shell", "yesquel:data", "SELECT 1 FROM items"], place.path("data").display().to_string()),
        (&["dump", "yesquel:data"], place.path("data").display().to_string()),
    ] {
        let (status, said) = place.fails(arguments);
        assert_eq!(status, 1, "{said}");
        assert!(said.contains("the folder has format 1, and this version of Yesquel knows 2"), "{said}");
        let command = said.trim().rsplit_once("Convert it: ").unwrap().1;
        let is_it =
            command == format!("yesquel upgrade --data {path}") || command == "yesquel upgrade --data data";
        assert!(is_it, "{said}");
    }
}

#[test]
fn an_upgraded_folder_has_the_same_databases() {
    let place = Place::new();
    old_folder(&place, "server-0");
    let said = place.prints(&["upgrade", "--data", "data"]);
    assert!(
        said.starts_with("data: upgraded to format 2 in ") && said.contains(": group 0 of cluster "),
        "{said}"
    );
    let questions = [&["shell", "yesquel:data"], &QUESTIONS[..]].concat();
    assert_eq!(place.prints(&questions), ANSWERS);
    let letters = place.prints(&["shell", "yesquel:data?database=letters", "SELECT * FROM letters"]);
    assert_eq!(letters, "alpha|97\nbeta|98\nomega|969\n");
    place.prints(&["shell", "yesquel:data", "INSERT INTO items VALUES(1000, 'new', 1); CREATE TABLE u(x)"]);
    let said = place.prints(&["upgrade", "--data", "data"]);
    assert_eq!(said, "data: nothing to do: the folder has format 2\n");
    let count = place.prints(&["shell", "yesquel:data", "SELECT count(*) FROM items"]);
    assert_eq!(count, "271\n");
}

#[test]
fn the_summary_may_be_json() {
    let place = Place::new();
    old_folder(&place, "server-3");
    let upgrade = || {
        let printed = place.prints(&["upgrade", "--json", "--data", "data"]);
        serde_json::from_str::<serde_json::Value>(&printed).unwrap()
    };
    let said = upgrade();
    assert_eq!((&said["upgraded"], &said["group"], &said["nodes"]), (&true.into(), &3.into(), &1.into()));
    assert_eq!((&said["folder"], said["cluster"].as_str().map(str::len)), (&"data".into(), Some(36)));
    let old = place.path("data").join("log-00000000000000000001");
    fs::write(old, "left by an upgrade that was interrupted").unwrap();
    let said = upgrade();
    assert_eq!((&said["upgraded"], &said["deleted_files"]), (&false.into(), &1.into()));
    assert_eq!(place.prints(&["upgrade", "--quiet", "--data", "data"]), "");
}

#[test]
fn a_folder_that_cannot_be_upgraded_is_reported() {
    let place = Place::new();
    let (status, said) = place.fails(&["upgrade", "--data", "data"]);
    assert!(status == 3 && said.contains("data: there is no such folder"), "{said}");
    old_folder(&place, "server-0");
    let log = place.path("data").join("log-00000000000000000027");
    let mut bytes = fs::read(&log).unwrap();
    bytes[100] ^= 1;
    fs::write(&log, bytes).unwrap();
    let (status, said) = place.fails(&["upgrade", "--data", "data"]);
    assert!(status == 1 && said.contains("log-00000000000000000027: damaged at byte 24"), "{said}");
    fs::write(place.path("data").join("letter.txt"), "dear").unwrap();
    let (status, said) = place.fails(&["upgrade", "--data", "data"]);
    assert!(status == 1 && said.contains("has files that are not Yesquel's, such as 'letter.txt'"), "{said}");
}
