//! What the shared library shows: SQLite's interface, and nothing else.

use std::{env, error::Error, fs, path::PathBuf};

/// Of SQLite's functions and variables those that its headers declare.
const EXPORTS: &str = "{
  global:
    sqlite3_*;
    sqlite3changegroup_*;
    sqlite3changeset_*;
    sqlite3rebaser_*;
    sqlite3session_*;
};
";

/// The name by which the library is found at run time.
const SONAME: &str = "libyesquel.so.0";

fn main() -> Result<(), Box<dyn Error>> {
    let script = PathBuf::from(env::var_os("OUT_DIR").ok_or("no OUT_DIR")?).join("exports.map");
    fs::write(&script, EXPORTS)?;
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={}", script.display());
    // As libsqlite3.so.0 it stands in for SQLite's own.
    println!("cargo::rerun-if-env-changed=YESQUEL_SONAME");
    let soname = env::var("YESQUEL_SONAME").unwrap_or_else(|_| SONAME.to_owned());
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{soname}");
    // All of it is in one object, which comes with any of its names.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-u,sqlite3_libversion");
    Ok(())
}
