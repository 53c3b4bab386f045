//! The pages hold together: links resolve, every page is in the book, lines are
//! short, and the commands of `cargo xtask` exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use clap::Parser;
use clap::error::ErrorKind;

use super::examples;
use super::first_difference;
use super::markdown::read;

/// Longest line of prose, characters.
const WIDTH: usize = 100;

/// The READMEs and all pages of the book, with their text.
fn pages() -> BTreeMap<PathBuf, String> {
    let root = crate::root();
    let mut pages = BTreeMap::new();
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder is there") {
            let path = entry.expect("it can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.insert(path.clone(), fs::read_to_string(&path).expect("it is text"));
            }
        }
    }
    for name in ["README.md", "yesquel/README.md", "CHANGELOG.md"] {
        let path = root.join(name);
        if let Ok(text) = fs::read_to_string(&path) {
            pages.insert(path, text);
        }
    }
    pages
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if plain.file_name().is_some() && !plain.ends_with("..") => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

#[test]
fn every_relative_link_leads_somewhere() {
    let pages = pages();
    let by_plain_path: BTreeMap<PathBuf, &String> =
        pages.iter().map(|(path, text)| (plain(path), text)).collect();
    let mut broken = Vec::new();
    for (path, text) in &pages {
        for (line, target) in read::links(text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let file = match file {
                "" => path.clone(),
                file => path.parent().expect("a file has a folder").join(file),
            };
            let found = match by_plain_path.get(&plain(&file)) {
                Some(text) => anchor.is_empty() || read::anchors(text).contains(anchor),
                None => file.exists() && anchor.is_empty(),
            };
            if !found {
                broken.push(format!("{}:{line}: {target}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn every_page_is_in_the_book() {
    let book = crate::root().join("docs");
    let summary = fs::read_to_string(book.join("SUMMARY.md")).expect("the book has a summary");
    let listed: BTreeSet<PathBuf> =
        read::links(&summary).into_iter().map(|(_, target)| book.join(target)).collect();
    let pages: BTreeSet<PathBuf> = pages().into_keys().filter(|path| path.starts_with(&book)).collect();
    let missing: Vec<_> = pages.difference(&listed).filter(|path| !path.ends_with("SUMMARY.md")).collect();
    assert!(missing.is_empty(), "not in docs/SUMMARY.md: {missing:?}");
}

#[test]
fn lines_of_prose_are_short() {
    let mut long = Vec::new();
    for (path, text) in pages() {
        long.extend(read::long_lines(&text, WIDTH).iter().map(|line| format!("{}:{line}", path.display())));
    }
    assert!(long.is_empty(), "more than {WIDTH} columns:\n{}", long.join("\n"));
}

/// Most lines of a README.
const README_LINES: usize = 120;

/// Longest table cell of a README, characters.
const README_CELL: usize = 60;

#[test]
fn readmes_are_short_and_their_tables_hold_phrases() {
    for name in ["README.md", "yesquel/README.md"] {
        let text = fs::read_to_string(crate::root().join(name)).expect("the README is there");
        let lines = text.lines().count();
        assert!(lines <= README_LINES, "{name} has {lines} lines, more than {README_LINES}");
        let cells = read::cells(&text).into_iter();
        let long: Vec<_> = cells.filter(|(_, cell)| cell.chars().count() > README_CELL).collect();
        assert!(long.is_empty(), "{name}: table cells above {README_CELL} characters: {long:?}");
    }
}

#[test]
fn the_commands_of_xtask_exist() {
    let mut refused = Vec::new();
    for path in examples::pages(&crate::root()) {
        let text = fs::read_to_string(&path).expect("it is text");
        for block in examples::blocks(&text) {
            for words in examples::commands(&block, &["cargo", "xtask"]) {
                let all = ["cargo xtask".to_owned()].into_iter().chain(words);
                if let Err(error) = crate::CommandLine::try_parse_from(all)
                    && !matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion)
                {
                    refused.push(format!("{}:{}: {error}", path.display(), block.line));
                }
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn a_difference_is_shown_by_its_line() {
    assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
    assert_eq!(first_difference("a\nb\n", "a\nc\n").as_deref(), Some(":2: is \"b\", must be \"c\""));
    assert_eq!(first_difference("a\n", "a\nc\n").as_deref(), Some(":2: is no line, must be \"c\""));
}
