//! `cargo xtask library`: the shared library, its headers and its pkg-config
//! file, where compilers and programs find them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use serde_json::Value;

use crate::Result;
use crate::children::{Children, line};

/// SONAME of the library.
pub(crate) const SONAME: &str = "libyesquel.so.0";

/// SONAME of SQLite's library, for use in its place.
pub(crate) const STAND_IN: &str = "libsqlite3.so.0";

#[derive(Args)]
pub(crate) struct LibraryArguments {
    /// The folder in which lib/ and include/ are created [default: the workspace's target/library]
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
    /// The name by which programs load it; libsqlite3.so.0 replaces SQLite's own library
    #[arg(long, value_name = "NAME", default_value = SONAME, value_parser = soname)]
    soname: String,
}

/// `libNAME.so.NUMBER`.
fn soname(text: &str) -> std::result::Result<String, String> {
    let (stem, number) = text.rsplit_once('.').unwrap_or_default();
    let name = stem.strip_prefix("lib").and_then(|stem| stem.strip_suffix(".so")).unwrap_or_default();
    let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_+".contains(c));
    if plain && number.parse::<u32>().is_ok() {
        Ok(text.to_owned())
    } else {
        Err("it is libNAME.so.NUMBER, such as libyesquel.so.0".to_owned())
    }
}

pub(crate) fn library(arguments: &LibraryArguments, children: &Children) -> Result<()> {
    let prefix = arguments.prefix.clone().unwrap_or_else(|| crate::root().join("target/library"));
    fs::create_dir_all(&prefix).map_err(failed(&prefix))?;
    let prefix = fs::canonicalize(&prefix).map_err(failed(&prefix))?;
    let library = install(children, &prefix, &arguments.soname, RELEASED)?;
    println!(
        "{} ({} KiB)",
        library.display(),
        fs::metadata(&library).map_err(failed(&library))?.len() / 1024
    );
    println!("  headers         {}", prefix.join("include/yesquel").display());
    println!("  pkg-config      PKG_CONFIG_PATH={}", prefix.join("lib/pkgconfig").display());
    if arguments.soname == STAND_IN {
        println!("  programs on it  LD_LIBRARY_PATH={} PROGRAM", prefix.join("lib").display());
    }
    Ok(())
}

/// Builds the released library in the place of SQLite's; returns the folder in which programs find
/// it.
pub(crate) fn stand_in(children: &Children) -> Result<PathBuf> {
    let root = crate::root();
    let root = fs::canonicalize(&root).map_err(failed(&root))?;
    let prefix = root.join("target/library/stand-in");
    install(children, &prefix, STAND_IN, RELEASED)?;
    Ok(prefix.join("lib"))
}

/// Cargo's arguments for the released library.
const RELEASED: &[&str] = &["--release", "--package", "libyesquel"];

/// Builds the library with these arguments of Cargo's, installs it below
/// `prefix`, and returns its path.
pub(crate) fn install(
    children: &Children,
    prefix: &Path,
    soname: &str,
    arguments: &[&str],
) -> Result<PathBuf> {
    let built = build(children, soname, arguments)?;
    let (lib, include) = (prefix.join("lib"), prefix.join("include/yesquel"));
    let pkgconfig = lib.join("pkgconfig");
    for folder in [&include, &pkgconfig] {
        fs::create_dir_all(folder).map_err(failed(folder))?;
    }
    // By convention the file name has the full version, the SONAME its first number, and linkers
    // use the name without numbers.
    let (minor, patch) = (env!("CARGO_PKG_VERSION_MINOR"), env!("CARGO_PKG_VERSION_PATCH"));
    let whole = lib.join(format!("{soname}.{minor}.{patch}"));
    // A running program keeps its old library.
    let new = whole.with_extension("new");
    let mut strip = Command::new("strip");
    children.check(strip.args(["--strip-debug", "-o"]).arg(&new).arg(&built.library))?;
    fs::rename(&new, &whole).map_err(failed(&whole))?;
    let file = whole.file_name().unwrap_or_default();
    let unversioned = soname.rsplit_once('.').map_or(soname, |(stem, _)| stem);
    for (link, to) in [(soname, file), (unversioned, soname.as_ref())] {
        let link = lib.join(link);
        let _ = fs::remove_file(&link);
        symlink(to, &link).map_err(failed(&link))?;
    }
    for header in ["sqlite3.h", "sqlite3ext.h"] {
        fs::copy(built.headers.join(header), include.join(header)).map_err(failed(&include))?;
    }
    let name =
        unversioned.strip_prefix("lib").and_then(|name| name.strip_suffix(".so")).unwrap_or(unversioned);
    let header = built.headers.join("sqlite3.h");
    let text = fs::read_to_string(&header).map_err(failed(&header))?;
    let pc = pkgconfig.join("yesquel.pc");
    fs::write(&pc, pc_text(name, version(&text))).map_err(failed(&pc))?;
    Ok(whole)
}

/// Returns the SQLite version of `sqlite3.h`.
fn version(header: &str) -> &str {
    header.split("#define SQLITE_VERSION ").nth(1).and_then(|rest| rest.split('"').nth(1)).unwrap_or("0")
}

/// Paths are relative to the file, so the folder can be moved.
fn pc_text(name: &str, sqlite: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "prefix=${{pcfiledir}}/../..\n\
         libdir=${{prefix}}/lib\n\
         includedir=${{prefix}}/include/yesquel\n\
         sqlite_version={sqlite}\n\
         \n\
         Name: yesquel\n\
         Description: SQLite's C interface over Yesquel's trees\n\
         Version: {version}\n\
         Libs: -L${{libdir}} -l{name}\n\
         Cflags: -I${{includedir}}\n"
    )
}

/// Files that Cargo has built.
struct Built {
    library: PathBuf,
    /// The folder of SQLite's headers.
    headers: PathBuf,
}

fn build(children: &Children, soname: &str, arguments: &[&str]) -> Result<Built> {
    let mut command = crate::cargo();
    command.args(["build", "--message-format=json-render-diagnostics"]).args(arguments);
    command.env("YESQUEL_SONAME", soname);
    println!("    {}", line(&command));
    let output = children.printed(&mut command)?;
    let messages: Vec<Value> = output.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    made(&messages).ok_or_else(|| "cargo does not say where it has put the library".to_owned())
}

/// Paths from Cargo's messages.
fn made(messages: &[Value]) -> Option<Built> {
    let ours = |message: &&Value| message["package_id"].as_str().is_some_and(|id| id.contains("libyesquel"));
    let ours: Vec<&Value> = messages.iter().filter(ours).collect();
    let files = ours.iter().filter_map(|message| message["filenames"].as_array()).flatten();
    let library = files.filter_map(Value::as_str).find(|file| file.ends_with(".so"));
    let out = ours.iter().find_map(|message| message["out_dir"].as_str());
    Some(Built { library: library?.into(), headers: Path::new(out?).join("include") })
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> String {
    move |error| format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_name_of_a_library_has_its_parts() {
        assert!(soname(SONAME).is_ok() && soname(STAND_IN).is_ok());
        for wrong in ["", "libyesquel.so", "yesquel.so.0", "lib.so.0", "liba/b.so.0", "libyesquel.so.x"] {
            assert!(soname(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn cargo_says_where_things_are() {
        let messages = [
            json!({"reason": "build-script-executed", "package_id": "path+x/other#0.1.0", "out_dir": "/no"}),
            json!({"reason": "build-script-executed", "package_id": "path+x/libyesquel#0.1.0", "out_dir": "/out"}),
            json!({"reason": "compiler-artifact", "package_id": "path+x/libyesquel#0.1.0",
                   "filenames": ["/target/libyesquel/build-script"]}),
            json!({"reason": "compiler-artifact", "package_id": "path+x/libyesquel#0.1.0",
                   "filenames": ["/target/libyesquel_c.a", "/target/libyesquel_c.so"]}),
        ];
        let built = made(&messages).expect("both are there");
        assert_eq!(built.library, Path::new("/target/libyesquel_c.so"));
        assert_eq!(built.headers, Path::new("/out/include"));
        assert!(made(&messages[..2]).is_none());
    }

    #[test]
    fn the_header_says_its_version() {
        assert_eq!(version("#define SQLITE_VERSION        \"3.54.1\"\n"), "3.54.1");
        assert!(pc_text("yesquel", "3.54.1").contains("\nLibs: -L${libdir} -lyesquel\n"));
    }
}
