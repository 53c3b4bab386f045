//! Statements that are compiled again, and statements that are not.

use rusqlite::{Connection, Statement, StatementStatus};

fn shop(name: &str) -> Connection {
    assert!(yesquel_sqlite::is_linked());
    let connection = Connection::open(name).unwrap();
    let is_ours = connection.path().is_some_and(|path| path.starts_with("yesquel:"));
    assert_eq!(is_ours, name.contains("yesquel:"));
    connection
        .execute_batch(
            "CREATE TABLE t(id INTEGER PRIMARY KEY, v, w);
             CREATE INDEX by_v ON t(v);
             WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 100)
             INSERT INTO t SELECT i, 'v' || (i % 10), i FROM c;",
        )
        .unwrap();
    connection
}

fn ids(statement: &mut Statement<'_>, first: i64, limit: i64) -> Vec<i64> {
    statement.query_map([first, limit], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

#[test]
fn a_new_limit_does_not_recompile_a_simple_query() {
    for name in [":memory:", "file:yesquel:"] {
        let shop = shop(name);
        for sql in [
            "SELECT id FROM t WHERE id >= ?1 LIMIT ?2",
            "SELECT id, (v || w) FROM t WHERE v >= 'v' AND id >= ?1 AND w > 0 LIMIT ?2",
        ] {
            let mut range = shop.prepare(sql).unwrap();
            for limit in [1, 5, 0, 3, -1, 200, 1] {
                let all = 100 - 40 + 1;
                let expected = if limit < 0 { all } else { all.min(limit) };
                assert_eq!(ids(&mut range, 40, limit).len() as i64, expected, "{name}: {sql}, {limit}");
            }
            assert_eq!(range.get_status(StatementStatus::RePrepare), 0, "{name}: {sql}");
        }
    }
}

#[test]
fn a_new_limit_of_a_sort_recompiles_the_query() {
    for name in [":memory:", "file:yesquel:"] {
        let shop = shop(name);
        let mut sorted = shop.prepare("SELECT id FROM t WHERE id >= ?1 ORDER BY w DESC LIMIT ?2").unwrap();
        assert_eq!(ids(&mut sorted, 1, 2), [100, 99]);
        assert_eq!(ids(&mut sorted, 1, 3), [100, 99, 98]);
        assert!(sorted.get_status(StatementStatus::RePrepare) > 0, "{name}");
    }
}

#[test]
fn a_limit_that_is_not_a_number_is_refused() {
    for name in [":memory:", "file:yesquel:"] {
        let shop = shop(name);
        let mut range = shop.prepare("SELECT id FROM t WHERE id >= ?1 LIMIT ?2").unwrap();
        let message = range.query(("1", "many")).unwrap().next().unwrap_err().to_string();
        assert_eq!(message, "datatype mismatch", "{name}");
        assert_eq!(ids(&mut range, 99, 5), [99, 100]);
    }
}
