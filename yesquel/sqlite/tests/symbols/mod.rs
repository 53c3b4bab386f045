//! How many SQLites a program has in it, for the tests of all that have one.

use std::{path::Path, process::Command};

/// Functions that SQLite keeps to itself: each copy of it has its own. Long ones,
/// and such as stand in tables, which no compiler makes a part of another.
const PRIVATE: [&str; 6] =
    ["sqlite3VdbeExec", "sqlite3WhereBegin", "pcache1Init", "getPageNormal", "pcache1Fetch", "unixOpen"];

/// One that only ours has.
const OURS: &str = "nativeBtreeOpen";

/// Sees that a program or library, which may have lost its debug information
/// but not the names of its functions, has one SQLite, and that it is ours.
#[track_caller]
pub(crate) fn assert_one_and_ours(program: &Path) {
    let output = Command::new("nm").arg(program).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    // The compiler numbers pieces that it takes out of a function.
    let count = |name: &str| text.lines().filter(|line| line.split(' ').next_back() == Some(name)).count();
    for name in PRIVATE.iter().chain(&[OURS, "sqlite3_sourceid", "sqlite3_open_v2"]) {
        assert_eq!(count(name), 1, "{name} in {}", program.display());
    }
}
