//! Databases in memory, private or shared by name.

use rusqlite::Connection;

fn open(name: &str) -> Connection {
    assert!(yesquel_sqlite::is_linked());
    Connection::open(name).unwrap()
}

fn tables(connection: &Connection) -> i64 {
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).unwrap()
}

#[test]
fn connections_with_the_same_name_share_a_database_until_the_last_closes() {
    // As an address, and by SQLite's own parameters.
    let (plain, uri) = ("yesquel:?cache=shared&database=a", "file:yesquel:?database=a&cache=shared");
    let first = open(plain);
    let second = open(uri);
    first.execute_batch("CREATE TABLE t(a); INSERT INTO t VALUES(7)").unwrap();
    let found: i64 = second.query_row("SELECT a FROM t", [], |row| row.get(0)).unwrap();
    assert_eq!(found, 7);
    assert_eq!(tables(&open("yesquel:?cache=shared&database=b")), 0, "another name");
    assert_eq!(tables(&open("yesquel:?database=a")), 0, "not shared");
    drop(first);
    let third = open(plain);
    assert_eq!(tables(&third), 1);
    drop((second, third));
    assert_eq!(tables(&open(plain)), 0, "removed with the last connection");
}

#[test]
fn connections_of_several_threads_write_concurrently() {
    let name = "yesquel:?cache=shared&database=threads";
    let first = open(name);
    first.execute_batch("CREATE TABLE t(a INTEGER PRIMARY KEY, b)").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let own = open(name);
                for number in 0..250 {
                    own.execute("INSERT INTO t(b) VALUES(?1)", [number]).unwrap();
                }
            });
        }
    });
    let found: (i64, i64) =
        first.query_row("SELECT count(*), sum(b) FROM t", [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    assert_eq!(found, (1000, 4 * 249 * 250 / 2));
}
