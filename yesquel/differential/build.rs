//! Compiles stock SQLite: the amalgamation that `yesquel-sqlite` slices, whole,
//! with the same settings. Its functions get other names, so that both can be
//! in one process.

#[path = "../sqlite/build/linting.rs"]
mod linting;

use std::{collections::BTreeSet, env, error::Error, fmt::Write as _, fs, path::PathBuf};

/// What the names of stock begin with.
const PREFIX: &str = "stock_";

/// Where the settings stand that ours is made with. That both have the same is
/// tested (`PRAGMA compile_options`).
const SETTINGS: &str = "../sqlite/build/main.rs";

fn main() -> Result<(), Box<dyn Error>> {
    let include =
        env::var_os("DEP_YESQUEL_SQLITE3_INCLUDE").ok_or("yesquel-sqlite does not say where SQLite is")?;
    let (include, out) = (PathBuf::from(include), PathBuf::from(env::var_os("OUT_DIR").ok_or("no OUT_DIR")?));
    let amalgamation = include.join("sqlite3.c");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../sqlite/build/linting.rs");
    println!("cargo::rerun-if-changed={SETTINGS}");
    println!("cargo::rerun-if-changed={}", amalgamation.display());
    // Not all of it is UTF-8.
    let text = String::from_utf8_lossy(&fs::read(&amalgamation)?).into_owned();
    let names = exported(&text);
    if names.len() < 250 {
        return Err(format!("only {} functions of SQLite were found", names.len()).into());
    }
    let mut renames = String::new();
    for name in names {
        writeln!(renames, "#define {name} {PREFIX}{name}")?;
    }
    // The amalgamation itself, to the last byte, behind the names.
    let source = out.join("stock-sqlite3.c");
    fs::write(&source, format!("{renames}#include \"{}\"\n", amalgamation.display()))?;
    let mut build = cc::Build::new();
    build.file(&source).include(&include).opt_level(2).warnings(false);
    let settings = fs::read_to_string(SETTINGS)?;
    for setting in settings.lines().filter_map(setting) {
        let (name, value) =
            setting.split_once('=').map_or((setting, None), |(name, value)| (name, Some(value)));
        build.define(name, value);
    }
    if !linting::is_linting() {
        build.compile("stock_sqlite3");
    }
    Ok(())
}

/// A line of a list of settings.
fn setting(line: &str) -> Option<&str> {
    let setting = line.trim().strip_prefix('"')?.strip_suffix("\",")?;
    (setting.starts_with("SQLITE_") || setting.starts_with("HAVE_")).then_some(setting)
}

/// The names that the amalgamation gives to the linker.
fn exported(text: &str) -> BTreeSet<&str> {
    let declared = text.lines().filter_map(|line| line.strip_prefix("SQLITE_API "));
    let words = declared.flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    words.filter(|word| word.starts_with("sqlite3") && !TYPES.contains(word)).collect()
}

/// Names that are types.
const TYPES: &[&str] = &[
    "sqlite3",
    "sqlite3_api_routines",
    "sqlite3_backup",
    "sqlite3_blob",
    "sqlite3_callback",
    "sqlite3_changegroup",
    "sqlite3_changeset_iter",
    "sqlite3_context",
    "sqlite3_destructor_type",
    "sqlite3_file",
    "sqlite3_filename",
    "sqlite3_index_info",
    "sqlite3_int64",
    "sqlite3_module",
    "sqlite3_mutex",
    "sqlite3_rebaser",
    "sqlite3_session",
    "sqlite3_snapshot",
    "sqlite3_stmt",
    "sqlite3_str",
    "sqlite3_syscall_ptr",
    "sqlite3_uint64",
    "sqlite3_value",
    "sqlite3_vfs",
    "sqlite3_vtab",
];
