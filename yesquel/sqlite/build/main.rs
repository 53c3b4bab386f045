//! Compiles SQLite with another b-tree layer in its middle.
//!
//! `docs/yesquel/sql.md` describes the changes. The sources are those of `libsqlite3-sys`; this
//! repository contains no copy.

mod linting;
mod slice;

use std::{env, error::Error, fs, path::PathBuf};

/// What SQLite is made with: the features that Debian's library has.
const FEATURES: &[&str] = &[
    "SQLITE_ENABLE_COLUMN_METADATA",
    "SQLITE_ENABLE_DBSTAT_VTAB",
    "SQLITE_ENABLE_FTS3",
    "SQLITE_ENABLE_FTS3_PARENTHESIS",
    "SQLITE_ENABLE_FTS3_TOKENIZER",
    "SQLITE_ENABLE_FTS4",
    "SQLITE_ENABLE_FTS5",
    "SQLITE_ENABLE_LOAD_EXTENSION",
    "SQLITE_ENABLE_MATH_FUNCTIONS",
    "SQLITE_ENABLE_PREUPDATE_HOOK",
    "SQLITE_ENABLE_RTREE",
    "SQLITE_ENABLE_SESSION",
    "SQLITE_ENABLE_STMTVTAB",
    "SQLITE_ENABLE_UNLOCK_NOTIFY",
    "SQLITE_LIKE_DOESNT_MATCH_BLOBS",
    "SQLITE_MAX_DEFAULT_PAGE_SIZE=32768",
    "SQLITE_MAX_SCHEMA_RETRY=25",
    "SQLITE_MAX_VARIABLE_NUMBER=250000",
    "SQLITE_SECURE_DELETE",
    "SQLITE_SOUNDEX",
    "SQLITE_THREADSAFE=1",
    "SQLITE_USE_URI",
];

/// Additional compile options.
const SETTINGS: &[&str] = &[
    // As libsqlite3-sys has them, so that rusqlite finds what it declares.
    "SQLITE_CORE",
    "SQLITE_ENABLE_API_ARMOR",
    "SQLITE_ENABLE_STAT4",
    // The memory counters are under one lock for all threads. Programs that read them enable them
    // by sqlite3_config.
    "SQLITE_DEFAULT_MEMSTATUS=0",
    "HAVE_USLEEP=1",
    "HAVE_ISNAN",
    "HAVE_FDATASYNC=1",
    "HAVE_GMTIME_R=1",
    "HAVE_LOCALTIME_R=1",
    "HAVE_MALLOC_USABLE_SIZE=1",
    "HAVE_STRCHRNUL=1",
];

fn main() -> Result<(), Box<dyn Error>> {
    let include = env::var_os("DEP_SQLITE3_INCLUDE").ok_or("libsqlite3-sys does not say where SQLite is")?;
    let (include, out) = (PathBuf::from(include), PathBuf::from(env::var_os("OUT_DIR").ok_or("no OUT_DIR")?));
    let (border, copy) = ("c/border.c", "c/copy.c");
    for changed in ["build", "c"] {
        println!("cargo::rerun-if-changed={changed}");
    }
    let amalgamation = include.join("sqlite3.c");
    println!("cargo::rerun-if-changed={}", amalgamation.display());
    // Not all of it is UTF-8.
    let text = String::from_utf8_lossy(&fs::read(&amalgamation)?).into_owned();
    let sliced = slice::slice(&text, &fs::read_to_string(border)?, &fs::read_to_string(copy)?)?;
    let source = out.join("yesquel-sqlite3.c");
    fs::write(&source, sliced)?;

    let mut build = cc::Build::new();
    // This level in every profile, as distributions build SQLite: nothing here is debugged by steps,
    // all tests run on it, and level 3 takes a third more of the first build.
    build.file(&source).include(&include).include("c").opt_level(2).warnings(false);
    // For SQLite's own tests, which compile it with additional settings.
    fs::write(out.join("yesquel-sqlite3.defines"), [FEATURES, SETTINGS].concat().join("\n"))?;
    for define in FEATURES.iter().chain(SETTINGS) {
        let (name, value) =
            define.split_once('=').map_or((*define, None), |(name, value)| (name, Some(value)));
        build.define(name, value);
    }
    if !linting::is_linting() {
        build.compile("yesquel_sqlite3");
    }
    println!("cargo::rustc-link-lib=m");
    println!("cargo::metadata=include={}", include.display());
    println!("cargo::metadata=source={}", source.display());
    Ok(())
}
