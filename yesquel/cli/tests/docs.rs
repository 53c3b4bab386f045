//! The commands of `yesquel` that the pages for users show: all of them parse.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "../../../xtask/src/docs/examples.rs"]
mod examples;

use examples::{blocks, commands, pages};
use std::{fs, path::Path, process::Command};

/// With `--help` the program parses the arguments before it and does nothing else.
fn parse(words: &[String]) -> Result<(), String> {
    let output = Command::new(env!("CARGO_BIN_EXE_yesquel")).args(words).arg("--help").output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

#[test]
fn every_command_of_the_pages_parses() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut refused = Vec::new();
    for page in pages(&root) {
        for block in blocks(&fs::read_to_string(&page).unwrap()) {
            for words in commands(&block, &["yesquel"]) {
                if let Err(error) = parse(&words) {
                    refused.push(format!("{}:{}: yesquel {words:?}: {error}", page.display(), block.line));
                }
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(parse(&["serve".to_owned(), "--no-such-option".to_owned()]).is_err());
}
