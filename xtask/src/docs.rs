//! `cargo xtask docs`: the reference pages, written from the tables of the
//! program, and the book.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use serde_json::Value;

use crate::Result;
use crate::children::{Children, line};
use crate::features::{FULL, features_of_full};
use crate::setup;

#[cfg(test)]
mod examples;
mod markdown;
mod reference;
#[cfg(test)]
mod tests;

/// The version of mdBook that is installed when none is on the path.
const MDBOOK: &str = "0.5.4";

#[derive(Args)]
pub(crate) struct DocsArguments {
    /// Write nothing; fail if a reference page differs from the tables
    #[arg(long)]
    check: bool,
    /// A serval with all stores [default: built from this workspace]
    #[arg(long, value_name = "FILE")]
    serval: Option<PathBuf>,
}

/// Writes or checks the reference pages, then builds the book; true if no page
/// that was checked differs.
pub(crate) fn docs(arguments: &DocsArguments, children: &Children) -> Result<bool> {
    if arguments.check {
        return check(arguments.serval.as_deref(), children);
    }
    for (name, text) in pages(arguments.serval.as_deref(), children)? {
        fs::write(crate::root().join(name), text).map_err(|error| format!("cannot write {name}: {error}"))?;
        println!("{name}");
    }
    build_book(children)?;
    Ok(true)
}

/// Compares the committed reference pages with the tables of this program, or of one that is built.
/// Returns whether all are equal.
pub(crate) fn check(serval: Option<&Path>, children: &Children) -> Result<bool> {
    let mut equal = true;
    for (name, text) in pages(serval, children)? {
        let path = crate::root().join(name);
        let committed =
            fs::read_to_string(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        if let Some(difference) = first_difference(&committed, &text) {
            println!("{name}{difference}");
            equal = false;
        }
    }
    if !equal {
        println!("the tables have changed: run 'cargo xtask docs' and commit docs/reference");
    }
    Ok(equal)
}

/// The first line in which two texts differ: `:LINE: is "...", must be "..."`.
fn first_difference(committed: &str, wanted: &str) -> Option<String> {
    let (mut old, mut new) = (committed.lines(), wanted.lines());
    for number in 1.. {
        match (old.next(), new.next()) {
            (None, None) => break,
            (old, new) if old == new => {}
            (old, new) => {
                let quoted =
                    |line: Option<&str>| line.map_or("no line".to_owned(), |line| format!("{line:?}"));
                return Some(format!(":{number}: is {}, must be {}", quoted(old), quoted(new)));
            }
        }
    }
    None
}

/// The reference pages, by path below the workspace's root.
fn pages(serval: Option<&Path>, children: &Children) -> Result<Vec<(&'static str, String)>> {
    let serval = match serval {
        Some(program) => program.to_owned(),
        None => build_serval(children)?,
    };
    let properties = reference::properties(&listed(&serval, "properties", children)?)?;
    let stores = reference::stores(&listed(&serval, "stores", children)?)?;
    let features = features_of_full();
    let lacking = reference::lacking(&stores, &features);
    if !lacking.is_empty() {
        return Err(format!(
            "{} lacks the stores {}: build it with --features full, for which etcd needs protoc",
            serval.display(),
            lacking.join(", ")
        ));
    }
    Ok(vec![
        ("docs/reference/properties.md", reference::properties_page(&properties)),
        ("docs/reference/stores.md", reference::stores_page(&stores, &properties, &features)),
    ])
}

/// Returns the list that `serval WHAT --json` prints.
fn listed(serval: &Path, what: &str, children: &Children) -> Result<Vec<Value>> {
    let mut command = Command::new(serval);
    command.args([what, "--json"]);
    let printed = children.printed(&mut command)?;
    serde_json::from_str(&printed).map_err(|error| format!("{} printed no list: {error}", line(&command)))
}

/// Builds serval with all stores, and returns its path.
///
/// The packages and features are those of `cargo xtask test`, so that nothing is compiled twice.
fn build_serval(children: &Children) -> Result<PathBuf> {
    let mut command = crate::cargo();
    command.args(["build", "--workspace", "--features", FULL, "--bin", "serval"]);
    command.arg("--message-format=json-render-diagnostics");
    let messages = children.printed(&mut command)?;
    let executable = |line: &str| {
        let message: Value = serde_json::from_str(line).ok()?;
        if message["target"]["name"] != "serval" {
            return None;
        }
        message["executable"].as_str().map(PathBuf::from)
    };
    messages.lines().find_map(executable).ok_or_else(|| format!("`{}` names no program", line(&command)))
}

/// Builds the book into `target/book`.
fn build_book(children: &Children) -> Result<()> {
    let mdbook = match setup::find("mdbook") {
        Some(program) => program,
        None => installed_mdbook(children)?,
    };
    children.check(Command::new(mdbook).arg("build").arg(crate::root()))?;
    println!("target/book/index.html");
    Ok(())
}

/// mdBook in `target/tools`, installed at the first use.
fn installed_mdbook(children: &Children) -> Result<PathBuf> {
    let folder = crate::root().join("target/tools");
    let program = folder.join("bin/mdbook");
    if !program.exists() {
        let mut command = crate::cargo();
        command.args(["install", "mdbook", "--locked", "--version", MDBOOK, "--root"]).arg(&folder);
        children.check(&mut command)?;
    }
    Ok(program)
}
