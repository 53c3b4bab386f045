//! Counts the SQLites in a program.

use std::{path::Path, process::Command};

/// Private functions of SQLite, of which each copy has its own. They are long or in function
/// tables, so that no compiler inlines them.
const PRIVATE: [&str; 6] =
    ["sqlite3VdbeExec", "sqlite3WhereBegin", "pcache1Init", "getPageNormal", "pcache1Fetch", "unixOpen"];

/// A function that only Yesquel's SQLite has.
const OURS: &str = "nativeBtreeOpen";

/// Checks that a program or library, possibly stripped of debug information, has one SQLite, and
/// that it is Yesquel's.
#[track_caller]
pub(crate) fn assert_one_and_ours(program: &Path) {
    let output = Command::new("nm").arg(program).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    // The compiler numbers the parts that it splits off a function.
    let count = |name: &str| text.lines().filter(|line| line.split(' ').next_back() == Some(name)).count();
    for name in PRIVATE.iter().chain(&[OURS, "sqlite3_sourceid", "sqlite3_open_v2"]) {
        assert_eq!(count(name), 1, "{name} in {}", program.display());
    }
}
