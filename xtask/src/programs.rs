//! Real programs for the tests of the shared library: from Debian's packages, otherwise from PyPI.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Result;
use crate::children::Children;
use crate::debian;
use crate::library;
use crate::setup::{self, Missing};

/// Debian's Python, whose module uses the system's library.
const PYTHON: &str = "/usr/bin/python3";

/// A command that succeeds where the packages are installed.
const NEEDED: &[(&[&str], &[&str])] = &[
    (
        &["php", "-r", "exit(extension_loaded('pdo_sqlite') && extension_loaded('sqlite3') ? 0 : 1);"],
        &["php-cli", "php-sqlite3"],
    ),
    (&["ruby", "-e", "require 'sqlite3'"], &["ruby", "ruby-sqlite3"]),
    (&["perl", "-MDBD::SQLite", "-e", "1"], &["perl", "libdbd-sqlite3-perl"]),
    (&["sqlite3", "--version"], &["sqlite3"]),
    (&["pkg-config", "--version"], &["pkg-config"]),
    (&["cc", "--version"], &["gcc", "libc6-dev"]),
    (&["nm", "--version"], &["binutils"]),
    (&["prlimit", "--version"], &["util-linux"]),
    (&[PYTHON, "-c", "import pip, pytest, sqlite3"], &["python3", "python3-pip", "python3-pytest"]),
];

/// Builds the library under its own name and as SQLite's, with these arguments
/// of Cargo's.
pub(crate) fn build(children: &Children, arguments: &[&str]) -> Result<(PathBuf, PathBuf)> {
    let root =
        fs::canonicalize(crate::root()).map_err(|error| format!("{}: {error}", crate::root().display()))?;
    let (own, stand_in) = (root.join("target/library"), root.join("target/library/stand-in"));
    library::install(children, &own, library::SONAME, arguments)?;
    library::install(children, &stand_in, library::STAND_IN, arguments)?;
    Ok((own, stand_in))
}

/// Makes sure that all programs are installed.
pub(crate) fn provide(children: &Children, missing: Missing) -> Result<PathBuf> {
    needed(children, NEEDED, missing)?;
    let (minor, version) = python_version(children)?;
    let testsuite = format!("libpython{minor}-testsuite");
    needed(children, &[(&[PYTHON, "-c", "import test.support"], &[&testsuite])], missing)?;
    let root =
        fs::canonicalize(crate::root()).map_err(|error| format!("{}: {error}", crate::root().display()))?;
    let folder = root.join("target/programs");
    fs::create_dir_all(&folder).map_err(failed(&folder))?;
    let lists = root.join("yesquel/libyesquel/tests/programs/python");
    let list = |name: &str| {
        let list = lists.join(name);
        fs::read_to_string(&list).map(|text| (list.clone(), text)).map_err(failed(&list))
    };
    let (requirements, pinned) = list("requirements.txt")?;
    once(&folder, "python", &pinned, missing, |to| {
        let mut pip = pip(&["install", "--require-hashes", "--only-binary=:all:", "--target"]);
        children.check(pip.arg(to).arg("-r").arg(&requirements))
    })?;
    let (sources, pinned) = list("sources.txt")?;
    once(&folder, "sources", &pinned, missing, |to| {
        let mut pip =
            pip(&["download", "--require-hashes", "--no-deps", "--no-binary=Django,SQLAlchemy", "--dest"]);
        children.check(pip.arg(to).arg("-r").arg(&sources))?;
        for program in ["django", "sqlalchemy"] {
            unpack(children, &found(to, program)?, &to.join(program), &[])?;
        }
        Ok(())
    })?;
    // Debian's package of Python's tests lacks these.
    once(&folder, "cpython", &version, missing, |to| {
        let archive = debian::archive(children, &folder, (&format!("python{minor}"), &version), None)?;
        unpack(children, &archive, to, &["--wildcards", "*/Lib/test/test_sqlite3"])?;
        let tests = to.join("Lib/test/test_sqlite3");
        let moved = to.join("test_sqlite3");
        fs::rename(&tests, &moved).map_err(failed(&tests))
    })?;
    Ok(folder)
}

/// Runs the commands, and installs the packages of those that fail.
pub(crate) fn needed(children: &Children, needed: &[(&[&str], &[&str])], missing: Missing) -> Result<()> {
    let works = |command: &[&str]| {
        let mut command = words(command);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        children.run(&mut command).is_ok_and(|status| status.success())
    };
    let mut wanted: Vec<&str> = Vec::new();
    for (_, packages) in needed.iter().filter(|(command, _)| !works(command)) {
        wanted.extend(packages.iter());
    }
    if wanted.is_empty() {
        return Ok(());
    }
    if missing == Missing::Report {
        return Err(format!("Debian packages that are not installed: {}", wanted.join(", ")));
    }
    setup::install(children, &wanted)?;
    match needed.iter().find(|(command, _)| !works(command)) {
        Some((command, _)) => {
            Err(format!("`{}` fails, although {} is installed", command.join(" "), wanted.join(", ")))
        }
        None => Ok(()),
    }
}

/// `3.11` and `3.11.2`.
fn python_version(children: &Children) -> Result<(String, String)> {
    let mut command = words(&[PYTHON, "-c", "import platform; print(platform.python_version())"]);
    let printed = children.printed(&mut command)?;
    let version = printed.trim().to_owned();
    let (minor, _) = version.rsplit_once('.').ok_or_else(|| format!("Python says that it is '{version}'"))?;
    Ok((minor.to_owned(), version))
}

/// Makes a folder with `of`, under a temporary name until it is complete.
fn once(
    folder: &Path,
    name: &str,
    of: &str,
    missing: Missing,
    make: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let (whole, part) = (folder.join(name), folder.join(format!("{name}.part")));
    let note = "made-of.txt";
    if fs::read_to_string(whole.join(note)).is_ok_and(|made| made == of) {
        return Ok(());
    }
    if missing == Missing::Report {
        return Err(format!("there is no target/programs/{name}, or an old one"));
    }
    for old in [&whole, &part] {
        let _ = fs::remove_dir_all(old);
    }
    fs::create_dir_all(&part).map_err(failed(&part))?;
    make(&part)?;
    fs::write(part.join(note), of).map_err(failed(&part))?;
    fs::rename(&part, &whole).map_err(failed(&whole))
}

/// The archive of a program in a folder.
fn found(folder: &Path, program: &str) -> Result<PathBuf> {
    let files = fs::read_dir(folder).map_err(failed(folder))?.flatten().map(|entry| entry.path());
    let is_its = |file: &PathBuf| {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with(&format!("{program}-")) && name.ends_with(".tar.gz")
    };
    files.into_iter().find(is_its).ok_or_else(|| format!("{}: no archive of {program}", folder.display()))
}

/// Unpacks an archive, or members of it, without its own top folder.
fn unpack(children: &Children, archive: &Path, to: &Path, members: &[&str]) -> Result<()> {
    fs::create_dir_all(to).map_err(failed(to))?;
    let mut tar = Command::new("tar");
    children.check(tar.arg("-xf").arg(archive).arg("-C").arg(to).arg("--strip-components=1").args(members))
}

fn pip(arguments: &[&str]) -> Command {
    let mut command = words(&[PYTHON, "-m", "pip", "--quiet", "--disable-pip-version-check"]);
    command.args(arguments);
    command
}

fn words(words: &[&str]) -> Command {
    let (program, arguments) = words.split_first().unwrap_or((&"true", &[]));
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> String {
    move |error| format!("{}: {error}", path.display())
}
