//! The installed shared library: its exported symbols, its compile options, and a C program
//! compiled and run with it.
//!
//! `cargo xtask test` builds it and sets its path in the environment; without it these tests are
//! ignored.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "../../sqlite/tests/symbols/mod.rs"]
mod symbols;

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Functions that SQLite's header declares and a library built like Debian's lacks: they are for
/// other systems, for SQLite's own tests, or for features that are off.
const ABSENT: [&str; 17] = [
    "sqlite3_activate_cerod",
    "sqlite3_carray_bind",
    "sqlite3_carray_bind_v2",
    "sqlite3_mutex_held",
    "sqlite3_mutex_notheld",
    "sqlite3_normalized_sql",
    "sqlite3_snapshot_cmp",
    "sqlite3_snapshot_free",
    "sqlite3_snapshot_get",
    "sqlite3_snapshot_open",
    "sqlite3_snapshot_recover",
    "sqlite3_stmt_scanstatus",
    "sqlite3_stmt_scanstatus_reset",
    "sqlite3_stmt_scanstatus_v2",
    "sqlite3_win32_set_directory",
    "sqlite3_win32_set_directory16",
    "sqlite3_win32_set_directory8",
];

/// Features that Debian's library may have and Yesquel's has not; docs/yesquel/library.md has the
/// reasons.
const ONLY_DEBIAN: [&str; 2] = ["ENABLE_UPDATE_DELETE_LIMIT", "OMIT_LOOKASIDE"];

/// Features that Yesquel's library has and Debian's may not have.
const ONLY_OURS: [&str; 4] =
    ["DEFAULT_MEMSTATUS=0", "DIRECT_OVERFLOW_READ", "ENABLE_API_ARMOR", "ENABLE_STAT4"];

fn folder(name: &str) -> Option<PathBuf> {
    let folder = env::var_os(name).map(PathBuf::from);
    if folder.is_none() {
        panic!("{name} is not set: 'cargo xtask test' builds the library and sets it");
    }
    folder
}

#[track_caller]
fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the names that a library exports.
fn shown(library: &Path) -> BTreeSet<String> {
    let printed = printed(Command::new("nm").args(["--dynamic", "--defined-only"]).arg(library));
    // A symbol is followed by its version.
    let name =
        |line: &str| line.split(' ').next_back().unwrap_or_default().split('@').next().map(str::to_owned);
    printed.lines().filter_map(name).collect()
}

/// Returns the names that a header declares with SQLITE_API.
fn declared(header: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(header).unwrap();
    // The last name of `SQLITE_API sqlite3_stmt *sqlite3_next_stmt(`.
    let name = |declaration: &str| {
        let head = declaration.split(['(', ';']).next().unwrap_or_default();
        let mut words = head.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.find(|word| is_public(word)).map(str::to_owned)
    };
    text.split("SQLITE_API ").skip(1).filter_map(name).collect()
}

/// Returns whether a name belongs to SQLite's interface: internal names have no underscore.
fn is_public(name: &str) -> bool {
    name.strip_prefix("sqlite3").is_some_and(|rest| {
        let (word, rest) = rest.split_once('_').unwrap_or(("A", ""));
        word.chars().all(|c| c.is_ascii_lowercase()) && !rest.is_empty()
    })
}

#[test]
#[ignore = "needs YESQUEL_TEST_LIBRARY"]
fn the_library_exports_exactly_the_declared_functions() {
    let Some(prefix) = folder("YESQUEL_TEST_LIBRARY") else { return };
    let shown = shown(&prefix.join("lib/libyesquel.so.0"));
    let declared = declared(&prefix.join("include/yesquel/sqlite3.h"));
    assert!(declared.len() > 300, "{declared:?}");
    let absent: Vec<&str> = declared.difference(&shown).map(String::as_str).collect();
    assert_eq!(absent, ABSENT);
    let others: Vec<&String> = shown.difference(&declared).collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
#[ignore = "needs YESQUEL_TEST_LIBRARY"]
fn the_library_contains_one_sqlite() {
    let Some(prefix) = folder("YESQUEL_TEST_LIBRARY") else { return };
    symbols::assert_one_and_ours(&prefix.join("lib/libyesquel.so.0"));
}

/// Returns the path of the system's library.
fn system_s() -> PathBuf {
    let known = printed(Command::new("/sbin/ldconfig").arg("-p"));
    let line =
        known.lines().find(|line| line.trim().starts_with("libsqlite3.so.0 ")).expect("Debian has a SQLite");
    line.split("=> ").nth(1).unwrap().into()
}

#[test]
#[ignore = "needs YESQUEL_TEST_STAND_IN"]
fn the_library_exports_all_symbols_of_the_systems_library() {
    let Some(stand_in) = folder("YESQUEL_TEST_STAND_IN") else { return };
    let ours = shown(&stand_in.join("lib/libsqlite3.so.0"));
    let theirs: BTreeSet<String> = shown(&system_s()).into_iter().filter(|name| is_public(name)).collect();
    assert!(theirs.len() > 250, "{theirs:?}");
    let missing: Vec<&String> = theirs.difference(&ours).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Returns the result of `PRAGMA compile_options` on a library.
fn features(library: &Path) -> BTreeSet<String> {
    let place = tempfile::tempdir().unwrap();
    let (source, program) = (place.path().join("features.c"), place.path().join("features"));
    fs::write(
        &source,
        "#include <stdio.h>\n\
         const char *sqlite3_compileoption_get(int);\n\
         int main(void){ for(int i=0; sqlite3_compileoption_get(i); i++) puts(sqlite3_compileoption_get(i)); }\n",
    )
    .unwrap();
    printed(Command::new("cc").arg("-o").arg(&program).arg(&source).arg(library));
    let run = printed(Command::new(&program).env("LD_LIBRARY_PATH", library.parent().unwrap()));
    run.lines().map(str::to_owned).collect()
}

#[test]
#[ignore = "needs YESQUEL_TEST_STAND_IN"]
fn the_library_has_the_features_of_the_systems_library() {
    let Some(stand_in) = folder("YESQUEL_TEST_STAND_IN") else { return };
    let ours = features(&stand_in.join("lib/libsqlite3.so.0"));
    let theirs = features(&system_s());
    assert!(theirs.contains("ENABLE_FTS5") && ours.contains("ENABLE_FTS5"), "{theirs:?} {ours:?}");
    // Without the compiler's name and limits, which depend on the version.
    let of_version =
        |name: &str| ["COMPILER=", "ATOMIC_INTRINSICS", "MAX_"].iter().any(|word| name.starts_with(word));
    let single = |these: &BTreeSet<String>, those: &BTreeSet<String>, listed: &[&str]| -> Vec<String> {
        let more =
            these.difference(those).filter(|name| !of_version(name) && !listed.contains(&name.as_str()));
        more.cloned().collect()
    };
    assert_eq!(single(&theirs, &ours, &ONLY_DEBIAN), [""; 0]);
    assert_eq!(single(&ours, &theirs, &ONLY_OURS), [""; 0]);
}

#[test]
#[ignore = "needs YESQUEL_TEST_LIBRARY"]
fn a_c_program_compiles_and_runs() {
    let Some(prefix) = folder("YESQUEL_TEST_LIBRARY") else { return };
    let place = tempfile::tempdir().unwrap();
    let (source, program) = (place.path().join("program.c"), place.path().join("program"));
    fs::write(
        &source,
        r#"
        #include <sqlite3.h>
        #include <stdio.h>
        #include <string.h>
        static int print(void *unused, int n, char **values, char **names){
          for(int i=0; i<n; i++) printf("%s\n", values[i]);
          return 0;
        }
        int main(void){
          sqlite3 *db;
          if( strcmp(sqlite3_sourceid(), SQLITE_SOURCE_ID) ) return 2;
          if( sqlite3_open("file:yesquel:", &db) ) return 3;
          return sqlite3_exec(db,
            "CREATE TABLE t(a, b); INSERT INTO t VALUES(1, 'one'), (2, 'two');"
            "SELECT file FROM pragma_database_list; SELECT group_concat(b) FROM t", print, 0, 0);
        }
        "#,
    )
    .unwrap();
    let mut pkg_config = Command::new("pkg-config");
    pkg_config.args(["--cflags", "--libs", "yesquel"]).env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    let options = printed(&mut pkg_config);
    printed(Command::new("cc").arg("-o").arg(&program).arg(&source).args(options.split_whitespace()));
    let run = printed(Command::new(&program).env("LD_LIBRARY_PATH", prefix.join("lib")));
    assert_eq!(run, "yesquel:\none,two\n");
}

#[test]
#[ignore = "needs YESQUEL_TEST_LIBRARY YESQUEL_TEST_STAND_IN"]
fn the_library_has_a_soname_and_no_debug_information() {
    for (variable, name) in
        [("YESQUEL_TEST_LIBRARY", "libyesquel.so.0"), ("YESQUEL_TEST_STAND_IN", "libsqlite3.so.0")]
    {
        let Some(prefix) = folder(variable) else { return };
        let library = prefix.join("lib").join(name);
        let dynamic =
            printed(Command::new("readelf").args(["--dynamic", "--section-headers", "--wide"]).arg(&library));
        assert!(dynamic.contains(&format!("Library soname: [{name}]")), "{dynamic}");
        assert!(!dynamic.contains(".debug_info"), "{dynamic}");
        assert!(
            !fs::symlink_metadata(library.with_extension("")).unwrap().is_file(),
            "a symbolic link for linkers"
        );
    }
}
