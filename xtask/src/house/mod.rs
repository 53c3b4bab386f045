//! `cargo xtask house`: the structure of the workspace's source code.
//!
//! It prints lines of code by crate, cycles of files, long functions, long
//! files, and type names that are defined more than once. `--check` fails if a
//! file joins a cycle that `xtask/house.txt` does not list, or if one product
//! imports the other.
//!
//! # Arrows
//!
//! An arrow leads from file A to file B of one package if A names an item that
//! B defines: by `use` or by a path in its code. A cycle is a set of files each
//! of which reaches all others by arrows.
//! * A re-export (`pub use`) is followed to the file that defines the item, and
//!   makes no arrow of its own. Neither does `mod`, nor the import of a module:
//!   only what is named through it counts.
//! * What is named inside an item (a variant, an associated function) counts as
//!   the item. A method call names nothing; the import of a trait does.
//! * A file's use of items of a file around it (its parent module, or a module
//!   further out) makes no arrow.
//! * Code that only tests compile makes no arrow: `#[cfg(test)]`, `#[test]`.
//!
//! Ignored: what the expansion of a macro or a derive names (the arguments of a
//! macro and of an attribute are read for paths), macros that are named without
//! a path or `use`, strings that hold paths (`#[serde(with = "...")]`), names in
//! a format string, and all conditions of `cfg` other than tests: every feature
//! is on.
//!
//! # Lines
//!
//! Lines of code are counted without comments and blank lines. Tests are
//! items that only tests compile, and the files of test targets. `cfg(test)` on
//! a field, a statement or an expression is not looked at. Only the workspace's
//! Rust is counted: `yesquel/fuzz` is outside it.

use std::fs;

use clap::Args;

use crate::Result;

mod allowed;
mod cycles;
mod facts;
mod lines;
mod names;
mod packages;
mod print;
mod products;
mod read;
mod survey;
#[cfg(test)]
mod tests;
mod tokens;
mod tree;

#[derive(Args)]
pub(crate) struct HouseArguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print only what breaks the rules, and fail if anything does
    #[arg(long, conflicts_with = "json")]
    check: bool,
}

/// Prints the survey, or checks it; false if the check fails.
pub(crate) fn house(arguments: &HouseArguments) -> Result<bool> {
    if arguments.check {
        return check().map(|problems| problems == 0);
    }
    let survey = survey::workspace()?;
    if arguments.json {
        println!("{:#}", print::document(&survey));
    } else {
        print!("{}", print::text(&survey));
    }
    Ok(true)
}

/// Prints what breaks the rules, and returns how many places do.
pub(crate) fn check() -> Result<usize> {
    let survey = survey::workspace()?;
    let list = crate::root().join(allowed::LIST);
    let list = fs::read_to_string(&list).map_err(|error| format!("{}: {error}", list.display()))?;
    let mut problems = allowed::compare(&list, &survey.cycles)?;
    problems.extend(survey.mixed.iter().map(|place| format!("one product imports the other: {place}")));
    problems.iter().for_each(|problem| eprintln!("{problem}"));
    Ok(problems.len())
}
