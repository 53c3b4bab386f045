//! The commands on the pages for users: all of them parse, and those in blocks
//! marked `sh test` run and print what the page shows.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "../../../xtask/src/docs/examples.rs"]
mod examples;

use examples::{Block, blocks, commands, pages};
use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

const SERVAL: &str = env!("CARGO_BIN_EXE_serval");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// With `--help` the program parses the arguments before it and does nothing else.
fn parse(words: &[String]) -> Result<(), String> {
    let (before, after) = words.split_at(words.iter().position(|word| word == "--").unwrap_or(words.len()));
    let output = Command::new(SERVAL).args(before).arg("--help").args(after).output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

#[test]
fn every_command_of_the_pages_parses() {
    let mut refused = Vec::new();
    for page in pages(&root()) {
        for block in blocks(&fs::read_to_string(&page).unwrap()) {
            let installed = commands(&block, &["serval"]);
            let from_source = commands(&block, &["cargo", "run", "--release", "--"]);
            for words in installed.iter().chain(&from_source) {
                if let Err(error) = parse(words) {
                    refused.push(format!("{}:{}: serval {words:?}: {error}", page.display(), block.line));
                }
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(parse(&["bench".to_owned(), "--no-such-option".to_owned()]).is_err());
}

/// Returns the first word of each line, with all numbers replaced. A line `...` matches any
/// number of lines.
fn first_words(text: &str) -> Vec<&str> {
    let words = text.lines().filter_map(|line| line.split_whitespace().next());
    words
        .filter(|word| *word != "...")
        .map(|word| if word.starts_with(|c: char| c.is_ascii_digit()) { "0" } else { word })
        .collect()
}

/// Returns the first of these words that does not follow the others in order.
fn missing<'a>(shown: &'a str, printed: &str) -> Option<&'a str> {
    let printed = first_words(printed);
    let mut rest = printed.iter();
    first_words(shown).into_iter().find(|word| !rest.any(|printed| printed == word))
}

/// Runs a block in a folder and returns its output.
fn run(block: &Block, folder: &Path) -> Result<String, String> {
    let programs = Path::new(SERVAL).parent().unwrap().display();
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("sh")
        .args(["-ec", &format!("exec 2>&1\n{}", block.text)])
        .current_dir(folder)
        .env("PATH", format!("{programs}:{path}"))
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(printed) } else { Err(format!("{}: {printed}", output.status)) }
}

#[test]
fn the_examples_of_the_pages_run_with_the_output_shown() {
    for page in pages(&root()) {
        // The blocks of a page run in one folder, one after another.
        let folder = tempfile::tempdir().unwrap();
        for name in ["workloads", "experiments", "drivers"] {
            symlink(root().join(name), folder.path().join(name)).unwrap();
        }
        let all = blocks(&fs::read_to_string(&page).unwrap());
        for (index, block) in all.iter().enumerate().filter(|(_, block)| block.info == "sh test") {
            let place = format!("{}:{}", page.display(), block.line);
            let printed = run(block, folder.path()).unwrap_or_else(|error| panic!("{place}: {error}"));
            let shown = all.get(index + 1).filter(|next| next.info == "text");
            if let Some(word) = shown.and_then(|shown| missing(&shown.text, &printed)) {
                panic!("{place}: the page shows a line with '{word}' that was not printed:\n{printed}");
            }
        }
    }
}

#[test]
fn output_is_compared_by_the_first_words_of_its_lines() {
    assert_eq!(missing("READ 1\n...\n12 a\n", "run\nREAD 2\nUPDATE\n13 b\n"), None);
    assert_eq!(missing("READ 1\nrun\n", "run\nREAD 2\n"), Some("run"));
}
