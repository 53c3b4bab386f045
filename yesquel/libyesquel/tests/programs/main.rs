//! Unmodified programs on Yesquel's library in place of SQLite's: their output and the results of
//! their own tests must be the same as with the system's library, on plain files, in a folder, at
//! a server, and at three servers over which tables are distributed.
//!
//! `cargo xtask test` installs the programs and builds the library; without it these tests are
//! ignored. Each program first checks which engine it uses.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod address;
mod place;
mod suites;

use place::{Place, same_everywhere, script};
use std::{
    fs::{self, File},
    process::Command,
};

/// Runs a script with the name of a database.
fn run(place: &Place, program: &str, file: &str) -> String {
    place.printed(place.command(program).arg(script(file)).arg(place.name("shop")))
}

#[test]
#[ignore = "needs YESQUEL_TEST_PROGRAMS YESQUEL_TEST_STAND_IN"]
fn php_pdo() {
    same_everywhere(|place| run(place, "php", "php/pdo.php"));
}

#[test]
#[ignore = "needs YESQUEL_TEST_PROGRAMS YESQUEL_TEST_STAND_IN"]
fn php_sqlite3() {
    same_everywhere(|place| run(place, "php", "php/sqlite3.php"));
}

#[test]
#[ignore = "needs YESQUEL_TEST_PROGRAMS YESQUEL_TEST_STAND_IN"]
fn ruby() {
    same_everywhere(|place| run(place, "ruby", "ruby/shop.rb"));
}

#[test]
#[ignore = "needs YESQUEL_TEST_PROGRAMS YESQUEL_TEST_STAND_IN"]
fn perl() {
    same_everywhere(|place| run(place, "perl", "perl/shop.pl"));
}

/// Debian's shell runs only if `sqlite3_sourceid()` equals the value that it was compiled with, so
/// that it rejects even other versions of SQLite. A library that is loaded first replaces this
/// function.
#[test]
#[ignore = "needs YESQUEL_TEST_PROGRAMS YESQUEL_TEST_STAND_IN"]
fn shell() {
    same_everywhere(|place| {
        let folder = place.folder.path();
        let said = place.printed(Command::new("sqlite3").arg("--version").env_remove("LD_LIBRARY_PATH"));
        let (_, id) = said.trim().split_once(' ').unwrap();
        let shim = folder.join("id.so");
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-o"]).arg(&shim).arg(script("shell/source_id.c"));
        compile.arg(format!("-DSOURCE_ID=\"{}\"", id.split(" (").next().unwrap_or(id)));
        place.printed(&mut compile);
        let shell = |file: &str| {
            let mut command = place.command("sqlite3");
            if place.kind != place::Kind::Debian {
                command.env("LD_PRELOAD", &shim);
            }
            place.printed(command.arg(place.name("shop")).stdin(File::open(script(file)).unwrap()))
        };
        let engine = shell("shell/engine.sql");
        let (version, on) = engine.trim().split_once('\n').unwrap();
        assert_eq!(on, if place.on_trees() { "on trees" } else { "on pages" });
        assert_eq!(said.starts_with(version), place.kind == place::Kind::Debian, "{version}");
        let printed = shell("shell/shop.sql");
        // The dump is a script that recreates the database.
        let dump = fs::read_to_string(folder.join("dump.sql")).unwrap();
        assert!(dump.ends_with("COMMIT;\n"), "{dump}");
        printed + &dump
    });
}

#[test]
#[ignore = "needs YESQUEL_TEST_PROGRAMS YESQUEL_TEST_STAND_IN"]
fn django_application() {
    let python_path = |place: &Place| suites::python_path(place, &[]);
    same_everywhere(|place| {
        let mut command = place.command(suites::PYTHON);
        command.arg(script("django/application.py")).arg(place.name("shop"));
        place.printed(command.env("PYTHONPATH", python_path(place)))
    });
}
