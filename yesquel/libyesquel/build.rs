//! Exports of the shared library, SQLite's interface and nothing else, and the headers that belong
//! to it.

use std::{env, error::Error, fs, path::PathBuf};

/// The functions and variables that SQLite's headers declare.
const EXPORTS: &str = "{
  global:
    sqlite3_*;
    sqlite3changegroup_*;
    sqlite3changeset_*;
    sqlite3rebaser_*;
    sqlite3session_*;
};
";

/// Name of the library at run time.
const SONAME: &str = "libyesquel.so.0";

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("no OUT_DIR")?);
    let script = out.join("exports.map");
    fs::write(&script, EXPORTS)?;
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={}", script.display());
    // For installation: the headers with which its C was compiled.
    let include =
        PathBuf::from(env::var_os("DEP_YESQUEL_SQLITE3_INCLUDE").ok_or("yesquel-sqlite has no headers")?);
    let headers = out.join("include");
    fs::create_dir_all(&headers)?;
    for header in ["sqlite3.h", "sqlite3ext.h"] {
        fs::copy(include.join(header), headers.join(header))?;
    }
    // Under the name libsqlite3.so.0 it replaces SQLite's own.
    println!("cargo::rerun-if-env-changed=YESQUEL_SONAME");
    println!("cargo::rerun-if-changed=build.rs");
    let soname = env::var("YESQUEL_SONAME").unwrap_or_else(|_| SONAME.to_owned());
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{soname}");
    // A thread may run in it after the program has closed it (`dlclose`).
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Everything is in one object, which any of its symbols pulls in.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-u,sqlite3_libversion");
    Ok(())
}
