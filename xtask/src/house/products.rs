//! The border between the two products: neither imports the other, but for
//! the store bindings that open Yesquel.

use std::path::{Path, PathBuf};

use super::cycles::Uses;
use super::packages::Package;

/// The package that may depend on the other product's.
const BINDINGS: &str = "serval-stores";

/// The modules of that package that may name crates of the other product, and
/// which: two open Yesquel, and the store `sqlite` is on Yesquel's SQLite, so
/// that a process has one.
const MAY_NAME: [(&str, &[&str]); 3] = [
    ("bench/stores/src/sqlite", &["yesquel_sqlite"]),
    ("bench/stores/src/yesquel_sql", &["yesquel", "yesquel_sqlite"]),
    ("bench/stores/src/yesquel_tree", &["yesquel"]),
];

/// Finds where a package names packages of the other product: in its manifest,
/// and in the code of its library and programs. Tests and examples of the
/// package with the bindings may name Yesquel, to compare with it.
pub(super) fn mixed(package: &Package, uses: &Uses, path: impl Fn(usize) -> PathBuf) -> Vec<String> {
    let Some(own) = product(&package.name) else {
        return Vec::new();
    };
    let other = |name: &str| product(name).is_some_and(|product| product != own);
    let mut mixed = Vec::new();
    if package.name != BINDINGS {
        let dependencies = package.dependencies.iter().filter(|name| other(name));
        mixed.extend(dependencies.map(|name| format!("{} depends on {name}", package.name)));
    }
    let is_dependency =
        |name: &str| package.dependencies.iter().any(|dependency| dependency.replace('-', "_") == *name);
    for ((file, name), line) in &uses.crates {
        let file = path(*file);
        if other(name) && is_dependency(name) && !may_name(&file, name) {
            mixed.push(format!("{}:{line} names {name}", file.display()));
        }
    }
    mixed
}

fn may_name(file: &Path, name: &str) -> bool {
    MAY_NAME.iter().any(|(module, crates)| file.starts_with(module) && crates.contains(&name))
}

/// The product of a package or crate by its name.
fn product(name: &str) -> Option<&'static str> {
    let first = name.split(['-', '_']).next();
    ["serval", "yesquel"].into_iter().find(|product| first == Some(product))
}
