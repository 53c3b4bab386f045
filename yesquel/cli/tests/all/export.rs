//! `yesquel export`: a database becomes a file, complete or absent.

#[allow(dead_code, reason = "it ends by being dropped")]
use crate::program::{PROGRAM, Place};
use std::{
    fs,
    os::unix::fs::{FileTypeExt, PermissionsExt},
    process::Command,
};

const CONTENT: &str = "CREATE TABLE t(a INTEGER PRIMARY KEY, b);
    WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 30000)
    INSERT INTO t SELECT x, hex(randomblob(50)) FROM c; CREATE INDEX tb ON t(b)";

#[test]
fn an_existing_file_is_replaced_only_with_force() {
    let place = Place::new();
    place.prints(&["shell", "yesquel:data", CONTENT]);
    fs::write(place.path("out.db"), "precious").unwrap();
    let (status, said) = place.fails(&["export", "yesquel:data", "out.db"]);
    assert_eq!((status, said.as_str()), (2, "error: out.db is there already; --force replaces it\n"));
    assert_eq!(fs::read(place.path("out.db")).unwrap(), b"precious");
    place.prints(&["export", "--force", "yesquel:data", "out.db"]);
    assert_eq!(
        place.prints(&["shell", "out.db", "SELECT count(*) FROM t", "PRAGMA integrity_check"]),
        "30000\nok\n"
    );
    // Permissions of any new file.
    fs::write(place.path("new"), "").unwrap();
    let mode = |name: &str| fs::metadata(place.path(name)).unwrap().permissions().mode();
    assert_eq!(mode("out.db"), mode("new"));
    // An existing file keeps its restricted permissions, and a link is followed.
    fs::set_permissions(place.path("out.db"), fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::symlink("out.db", place.path("link.db")).unwrap();
    place.prints(&["export", "--force", "yesquel:data", "link.db"]);
    assert_eq!(mode("out.db") & 0o777, 0o600);
    assert!(fs::symlink_metadata(place.path("link.db")).unwrap().is_symlink());
    assert_eq!(place.prints(&["shell", "out.db", "SELECT count(*) FROM t"]), "30000\n");
    fs::remove_file(place.path("link.db")).unwrap();
    // A device is not replaced.
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place.path("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let (status, said) = place.fails(&["export", "--force", "yesquel:data", "pipe"]);
    assert_eq!((status, said.contains("pipe is a pipe or a device")), (2, true), "{said}");
    assert!(fs::symlink_metadata(place.path("pipe")).unwrap().file_type().is_fifo());
    fs::remove_file(place.path("pipe")).unwrap();
    // SQLite would apply the journal of another database.
    fs::write(place.path("out.db-journal"), "x").unwrap();
    let (status, said) = place.fails(&["export", "--force", "yesquel:data", "out.db"]);
    assert_eq!((status, said.contains("out.db-journal is there")), (2, true), "{said}");
    assert_eq!(place.files(), ["data", "new", "out.db", "out.db-journal"]);
}

#[test]
fn a_failed_export_leaves_no_file() {
    let place = Place::new();
    for (arguments, status, expected) in [
        (["yesquel:none", "out.db"], 3, "yesquel:none: there is no such folder"),
        (["none.db", "out.db"], 3, "none.db: there is no such file"),
        (["yesquel:none?speed=9", "out.db"], 2, "there is no such option"),
        (["yesquel://127.0.0.1:1/shop", "out.db"], 4, "127.0.0.1:1"),
        (["yesquel:none", "yesquel:other"], 2, "'yesquel:other' is an address"),
        (["yesquel:none", "."], 2, ". is a folder"),
    ] {
        let (found, said) = place.fails(&["export", arguments[0], arguments[1]]);
        assert_eq!(found, status, "{arguments:?}: {said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
    place.prints(&["shell", "yesquel:data", CONTENT]);
    assert_eq!(place.fails(&["export", "yesquel:data", "no/folder/out.db"]).0, 1);
    assert_eq!(place.fails(&["export", "yesquel:data?database=other", "out.db"]).0, 3);
    assert_eq!(place.files(), ["data"]);
}

/// A file size limit simulates a full disk; the server has another limit.
#[test]
fn a_full_disk_keeps_the_existing_file() {
    let place = Place::new();
    let (data, socket) = (place.path("data"), place.path("socket"));
    let mut serve = place.program(&["serve", "--data"]);
    let server = crate::support::Process::spawn(serve.arg(&data).arg("--listen").arg(&socket));
    server.wait_until_ready();
    let address = format!("yesquel://{}/shop", socket.display());
    place.prints(&["shell", &address, CONTENT]);
    fs::write(place.path("out.db"), "precious").unwrap();
    for (command, file) in
        [("export --force ADDRESS out.db", "out.db"), ("dump ADDRESS --output out.db", "out.db")]
    {
        let command = command.replace("ADDRESS", &address);
        let line = format!("ulimit -f 1000; exec {PROGRAM} {command}");
        let output = Command::new("sh").arg("-c").arg(line).current_dir(place.folder()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command}: {said}");
        assert!(said.starts_with(&format!("error: {file}: ")), "{command}: {said}");
        assert_eq!(fs::read(place.path("out.db")).unwrap(), b"precious");
        assert_eq!(place.files(), ["data", "out.db", "socket"]);
    }
    // The database is otherwise intact.
    place.prints(&["export", "--force", &address, "out.db"]);
    assert_eq!(place.prints(&["shell", "out.db", "SELECT count(*) FROM t"]), "30000\n");
}

#[test]
fn an_empty_database_becomes_an_empty_file() {
    let place = Place::new();
    place.prints(&["shell", "yesquel:data", "PRAGMA user_version = 3"]);
    place.prints(&["export", "--quiet", "yesquel:data", "out.db"]);
    assert_eq!(
        place.prints(&["shell", "out.db", "PRAGMA user_version", "PRAGMA integrity_check", ".tables"]),
        "3\nok\n"
    );
}
