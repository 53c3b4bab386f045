//! Test suites of other programs: CPython's for its module, SQLAlchemy's for its dialect, a part of
//! Django's.

use crate::place::{Kind, Place, Ready, ready, script};
use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

/// Debian's Python, which uses the system's library; another one on PATH may contain a SQLite.
pub(crate) const PYTHON: &str = "/usr/bin/python3";

/// Differences on trees in CPython's tests, with their reasons.
const CPYTHON_ON_TREES: [(&str, &str); 7] = [
    (
        "test_backup.BackupTests.test_modifying_progress",
        "backups count pages; on trees a small database is one step",
    ),
    ("test_backup.BackupTests.test_progress", "backups count pages; on trees a small database is one step"),
    (
        "test_dbapi.OpenTests.test_open_unquoted_uri",
        "redirect.py creates the file that the test expects to be missing",
    ),
    (
        "test_dbapi.OpenTests.test_open_with_undecodable_path",
        "a file whose name is not UTF-8 holds no address",
    ),
    ("test_dbapi.SerializeTests.test_serialize_deserialize", "trees have no pages to serialize"),
    ("test_transactions.TransactionTests.test_locking", "a writer does not block other writers"),
    ("test_transactions.TransactionTests.test_raise_timeout", "a writer does not block other writers"),
];

/// Parts of Django's tests: models, migrations, schema changes, queries.
const DJANGO: [&str; 15] = [
    "aggregation",
    "backends",
    "basic",
    "bulk_create",
    "constraints",
    "delete",
    "expressions",
    "get_or_create",
    "indexes",
    "introspection",
    "lookup",
    "migrations",
    "model_fields",
    "schema",
    "transactions",
];

/// Those that change schemas and that depend on transactions most: all of them take too long where
/// each change of a schema is a commit of three servers.
const DJANGO_AT_THREE_SERVERS: [&str; 8] =
    ["basic", "bulk_create", "constraints", "delete", "get_or_create", "indexes", "schema", "transactions"];

/// Returns Python's module path: Django, SQLAlchemy, their dependencies, and modules of these
/// tests.
pub(crate) fn python_path(_place: &Place, more: &[PathBuf]) -> OsString {
    let programs = PathBuf::from(env::var_os("YESQUEL_TEST_PROGRAMS").unwrap());
    let sources = programs.join("sources");
    let folders = [
        script("python"),
        script("django"),
        sources.join("django"),
        sources.join("sqlalchemy/lib"),
        programs.join("python"),
    ];
    env::join_paths(folders.iter().chain(more)).unwrap()
}

/// Returns an address with braces in place of the name, for redirect.py.
fn databases(place: &Place) -> String {
    place.address("{}").unwrap()
}

/// Copies a source tree, so that tests may write to it.
fn copied(place: &Place, from: &Path) -> PathBuf {
    let to = place.folder.path().join("source");
    place.printed(place.command("cp").arg("-R").arg(from).arg(&to));
    to
}

/// Runs CPython's tests, and returns their outcomes.
fn cpython(ready: &Ready, kind: Kind) -> BTreeMap<String, String> {
    let place = Place::new(ready, kind);
    let mut command = place.command(PYTHON);
    command.arg(script("python/cpython.py")).arg(ready.programs.join("cpython"));
    if place.on_trees() {
        command.env("YESQUEL_TEST_DATABASES", databases(&place));
    }
    let printed = place.printed(&mut command);
    let outcomes = printed.lines().filter_map(|line| line.strip_prefix("test_")?.split_once(' '));
    let outcomes: BTreeMap<String, String> = outcomes
        .filter(|(_, outcome)| !outcome.contains(' '))
        .map(|(name, outcome)| (format!("test_{name}"), outcome.to_owned()))
        .collect();
    assert!(outcomes.len() > 400, "{kind:?}: {} tests", outcomes.len());
    outcomes
}

#[test]
#[ignore = "needs YESQUEL_TEST_PROGRAMS YESQUEL_TEST_STAND_IN"]
fn cpythons_sqlite_tests() {
    let Some(ready) = ready() else { return };
    let expected = cpython(&ready, Kind::Debian);
    assert!(expected.values().all(|outcome| outcome != "failed"), "{expected:?}");
    assert_eq!(cpython(&ready, Kind::File), expected);
    for kind in [Kind::Folder, Kind::Unix, Kind::Cluster] {
        let found = cpython(&ready, kind);
        let differs = |(name, outcome): &(&String, &String)| expected.get(*name) != Some(outcome);
        let differing: Vec<&str> = found.iter().filter(differs).map(|(name, _)| name.as_str()).collect();
        let listed: Vec<&str> = CPYTHON_ON_TREES.iter().map(|(name, _)| *name).collect();
        assert_eq!(differing, listed, "{kind:?}: what is listed must differ, and nothing else may");
        assert_eq!(found.len(), expected.len());
    }
}

#[test]
#[ignore = "needs YESQUEL_TEST_PROGRAMS YESQUEL_TEST_STAND_IN"]
fn sqlalchemys_dialect_tests() {
    let Some(ready) = ready() else { return };
    let passed = [Kind::Debian, Kind::File, Kind::Folder, Kind::Unix, Kind::Cluster].map(|kind| {
        let place = Place::new(&ready, kind);
        let source = copied(&place, &ready.programs.join("sources/sqlalchemy"));
        let mut command = place.command(PYTHON);
        command.current_dir(&source).env("PYTHONPATH", python_path(&place, &[]));
        command.args(["-m", "pytest", "-q", "-r", "fE", "-p", "no:logging", "-p", "no:cacheprovider"]);
        command.args(["-p", if place.on_trees() { "redirect" } else { "engine" }]);
        if place.on_trees() {
            command.env("YESQUEL_TEST_DATABASES", databases(&place));
        }
        let said = place.printed(command.args(["test/dialect/test_suite.py", "test/dialect/sqlite"]));
        let words: Vec<&str> = said.lines().next_back().unwrap().split_whitespace().collect();
        let count = words.iter().position(|word| word.starts_with("passed")).unwrap();
        words[count - 1].parse::<u32>().unwrap()
    });
    assert!(passed[0] > 1500 && passed.iter().all(|count| *count == passed[0]), "{passed:?}");
}

#[test]
#[ignore = "needs YESQUEL_TEST_PROGRAMS YESQUEL_TEST_STAND_IN"]
fn a_part_of_djangos_tests() {
    djangos_tests(Kind::Unix, &DJANGO, 2_500);
}

#[test]
#[ignore = "needs YESQUEL_TEST_PROGRAMS YESQUEL_TEST_STAND_IN"]
fn a_part_of_djangos_tests_at_three_servers() {
    djangos_tests(Kind::Cluster, &DJANGO_AT_THREE_SERVERS, 500);
}

/// Runs Django's tests of these names, more than `least`.
fn djangos_tests(kind: Kind, names: &[&str], least: u32) {
    let Some(ready) = ready() else { return };
    let place = Place::new(&ready, kind);
    let source = copied(&place, &ready.programs.join("sources/django"));
    let mut command = place.command(PYTHON);
    command.current_dir(source.join("tests")).env("PYTHONPATH", python_path(&place, &[]));
    command.env("YESQUEL_TEST_DATABASES", databases(&place));
    // Django's test runner would remove the database's file.
    command.args(["runtests.py", "--keepdb", "--parallel", "1", "--settings", "suite_settings"]).args(names);
    let errors = place.folder.path().join("said");
    command.stderr(fs::File::create(&errors).unwrap());
    let status = command.status().unwrap();
    let said = fs::read_to_string(&errors).unwrap();
    let ran = said.lines().find_map(|line| line.strip_prefix("Ran ")?.split(' ').next()?.parse::<u32>().ok());
    assert!(status.success() && ran.is_some_and(|ran| ran > least), "{said}");
}
