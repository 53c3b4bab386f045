//! The copy of the sources into which the mutants are built.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::{MUTANTS, VARIABLE};
use crate::Result;

/// What is copied of the workspace.
const COPIED: [&str; 5] = ["Cargo.toml", "Cargo.lock", "bench", "xtask", "yesquel"];

/// Makes the copy, or brings it up to date; returns its folder. Files that are the same are left
/// alone, so that builds are incremental.
pub(super) fn make() -> Result<PathBuf> {
    let root = crate::root();
    let folder = target().join("mutants");
    let mut files = Vec::new();
    for name in COPIED {
        collect(&root, Path::new(name), &mut files)?;
    }
    let mutated = mutated(&root)?;
    for file in &files {
        let bytes = match mutated.get(file) {
            Some(text) => text.clone().into_bytes(),
            None => fs::read(root.join(file)).map_err(|error| format!("{}: {error}", file.display()))?,
        };
        let to = folder.join(file);
        if fs::read(&to).is_ok_and(|known| known == bytes) {
            continue;
        }
        let parent = to.parent().unwrap_or(&folder);
        fs::create_dir_all(parent).map_err(|error| format!("{}: {error}", parent.display()))?;
        fs::write(&to, bytes).map_err(|error| format!("{}: {error}", to.display()))?;
    }
    let mut old = Vec::new();
    for name in COPIED.iter().filter(|name| folder.join(name).exists()) {
        collect(&folder, Path::new(name), &mut old)?;
    }
    for file in old.iter().filter(|file| !files.contains(file)) {
        let path = folder.join(file);
        fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(folder)
}

/// The folder of build products.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| crate::root().join("target"), PathBuf::from)
}

/// Lists the files of a folder, by their paths below `root`.
fn collect(root: &Path, below: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let path = root.join(below);
    if !path.is_dir() {
        files.push(below.to_owned());
        return Ok(());
    }
    let entries = fs::read_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    for entry in entries {
        let name = entry.map_err(|error| format!("{}: {error}", path.display()))?.file_name();
        if name != "target" && name != "corpus" && name != "artifacts" {
            collect(root, &below.join(name), files)?;
        }
    }
    Ok(())
}

/// The changed files: those with mutants, and the roots of their crates.
fn mutated(root: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let mut texts: BTreeMap<PathBuf, String> = BTreeMap::new();
    let mut change = |file: &Path, change: &dyn Fn(String) -> Result<String>| -> Result<()> {
        let known = texts.remove(file).map_or_else(|| fs::read_to_string(root.join(file)), Ok);
        let text = known.map_err(|error| format!("{}: {error}", file.display()))?;
        texts.insert(file.to_owned(), change(text)?);
        Ok(())
    };
    let mut roots = Vec::new();
    for (place, mutant) in MUTANTS.iter().enumerate() {
        let file = Path::new(mutant.file);
        change(file, &|text| match text.matches(mutant.find).count() {
            1 => Ok(text.replacen(mutant.find, &mutant.replacement(place + 1), 1)),
            count => Err(format!("{}: its text occurs {count} times in {}", mutant.name, mutant.file)),
        })?;
        let source = file.ancestors().find(|folder| folder.ends_with("src"));
        roots.push(source.ok_or_else(|| format!("{}: not in a crate's src", mutant.file))?.join("lib.rs"));
    }
    roots.sort_unstable();
    roots.dedup();
    for crate_root in roots {
        change(&crate_root, &|text| Ok(text + &switch()))?;
    }
    Ok(texts)
}

/// What a crate with mutants has in addition.
fn switch() -> String {
    format!(
        r#"
/// Whether a mutant is chosen.
pub(crate) fn mutant(number: u32) -> bool {{
    static CHOSEN: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    let chosen = || std::env::var("{VARIABLE}").ok().and_then(|value| value.parse().ok()).unwrap_or(0);
    *CHOSEN.get_or_init(chosen) == number
}}
"#
    )
}
