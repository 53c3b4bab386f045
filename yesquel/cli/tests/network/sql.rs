//! The database that the clients of SQL share: its address, its tables, and the lists of a round.

use crate::{
    cluster::PATIENCE,
    lists::{GROUPS, Lists, SLOTS, group_of, list_key},
    load::SqlLevel,
    place::Place,
};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Result};
use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};
use yesquel_histories::{Element, ListKey};
use yesquel_sql_histories::{
    SqlErrorClass, class_of, compare_columns, compare_indexes, elements, first_schema,
};

/// Tables whose columns change.
pub(crate) const WIDE: usize = 2;
/// Lists of a slot, each of which is a row that exists when a round begins.
const LISTS_OF_SLOT: u64 = 100;
/// How long a statement waits for others: longer than the lease of a client that is dead.
const BUSY_TIMEOUT: Duration = Duration::from_secs(12);
/// SQLite's own text of an I/O error, to which a store adds a reason.
const WITHOUT_REASON: &str = "disk I/O error";
/// The database, at all groups.
const NAME: &str = "shop";

/// Opens the database. Connections of a process with one timeout are one client.
pub(crate) fn open(place: &Place, level: SqlLevel, timeout: Duration) -> Result<Connection> {
    assert!(yesquel_sqlite::is_linked());
    let addresses: Vec<String> = (0..GROUPS).map(|group| Place::address(group).to_string()).collect();
    let isolation = if level.is_serializable { "serializable" } else { "snapshot" };
    let consistency = if level.is_strict { "strict" } else { "session" };
    let name = format!(
        "file:yesquel://{}/{NAME}?placement=tables&isolation={isolation}&consistency={consistency}&timeout={}\
         &tls-ca={}&credential-file={}",
        addresses.join(","),
        timeout.as_millis(),
        place.certificate().display(),
        place.credential().display(),
    );
    let connection = Connection::open_with_flags(name, OpenFlags::default())?;
    assert!(connection.path().is_some_and(|path| path.starts_with("yesquel:")));
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // One statement for each table and act.
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Checks that a fault explains an error, and that an I/O error has a reason.
///
/// # Panics
///
/// If not.
#[track_caller]
pub(crate) fn expect(error: &rusqlite::Error, during: &dyn std::fmt::Debug) {
    match class_of(error) {
        Some(SqlErrorClass::Io) => {
            let has_reason = error.sqlite_error().is_some() && error.to_string() != WITHOUT_REASON;
            assert!(has_reason, "an I/O error without a reason: {error:?}, during {during:?}");
        }
        Some(_) => {}
        None => panic!("no fault explains this error: {error:?}, during {during:?}"),
    }
}

/// Repeats something until it succeeds, for servers that no fault affects.
#[track_caller]
fn persist<T>(what: &str, mut action: impl FnMut() -> Result<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        match action() {
            Ok(done) => return done,
            Err(error) => {
                expect(&error, &what);
                assert!(Instant::now() < until, "{what}: {error}");
            }
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Creates the database with its tables, at all groups.
pub(crate) fn set_up(place: &Place) {
    let connection = open(place, SqlLevel::default(), PATIENCE).unwrap();
    connection.execute_batch(&first_schema(GROUPS, 0, WIDE)).unwrap();
}

/// Replaces the lists of the former round by empty ones, and removes the rows; returns the number of
/// schema changes so far.
pub(crate) fn begin_round(place: &Place, round: u64) -> i64 {
    persist("beginning a round", || {
        let mut connection = open(place, SqlLevel::default(), PATIENCE)?;
        let transaction = connection.transaction()?;
        for table in 0..GROUPS {
            transaction.execute(&format!("DELETE FROM list{table}"), [])?;
            let mut insert = transaction.prepare(&format!("INSERT INTO list{table} VALUES (?1, '')"))?;
            for slot in (0..SLOTS).filter(|slot| group_of(list_key(round, *slot, 0)) == table) {
                for number in 0..LISTS_OF_SLOT {
                    insert.execute([list_key(round, slot, number) as i64])?;
                }
            }
        }
        transaction.execute("DELETE FROM rows", [])?;
        transaction.commit()?;
        schema_version(&connection)
    })
}

fn schema_version(connection: &Connection) -> Result<i64> {
    connection.query_row("PRAGMA schema_version", [], |row| row.get(0))
}

/// Returns the lists of a round that are in use now.
pub(crate) fn current_lists(connection: &Connection, round: u64) -> Result<Lists> {
    let mut lists = Lists::within(round, LISTS_OF_SLOT - 1);
    for slot in 0..SLOTS {
        let (first, end) = (list_key(round, slot, 0), list_key(round, slot, LISTS_OF_SLOT));
        let sql = format!(
            "SELECT k FROM list{} WHERE k >= ?1 AND k < ?2 AND v <> '' ORDER BY k DESC LIMIT 1",
            group_of(first)
        );
        let mut select = connection.prepare_cached(&sql)?;
        let found = select.query_row([first as i64, end as i64], |row| row.get::<_, i64>(0)).optional()?;
        if let Some(key) = found {
            lists.begin_at(slot, key as ListKey);
        }
    }
    Ok(lists)
}

/// Reads a list; returns its length.
pub(crate) fn read_list(connection: &Connection, key: ListKey) -> Result<usize> {
    let sql = format!("SELECT v FROM list{} WHERE k = ?1", group_of(key));
    let mut select = connection.prepare_cached(&sql)?;
    let list = select.query_row([key as i64], |row| row.get::<_, String>(0)).optional()?;
    Ok(elements(&list.unwrap_or_default()).len())
}

/// Reads all lists of a round that are not empty, at one snapshot that misses no commit. The keys are
/// those of the history.
pub(crate) fn read_all(place: &Place) -> BTreeMap<ListKey, Vec<Element>> {
    persist("reading the lists", || {
        let mut connection = open(place, SqlLevel { is_strict: true, ..SqlLevel::default() }, PATIENCE)?;
        let transaction = connection.transaction()?;
        let mut lists = BTreeMap::new();
        for table in 0..GROUPS {
            let mut select = transaction.prepare(&format!("SELECT k, v FROM list{table} WHERE v <> ''"))?;
            let rows = select.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)))?;
            for row in rows {
                let (key, list) = row?;
                lists.insert(yesquel_sql_histories::list_key(table, key), elements(&list));
            }
        }
        Ok(lists)
    })
}

/// Checks tables, indexes and the copies of the schema's cookies; returns the number of schema changes
/// so far.
///
/// # Panics
///
/// If anything is wrong.
pub(crate) fn verify(place: &Place) -> i64 {
    let level = SqlLevel { is_strict: true, ..SqlLevel::default() };
    let connection = persist("opening the database", || open(place, level, PATIENCE));
    let problems: Vec<String> = persist("PRAGMA integrity_check", || {
        connection.prepare("PRAGMA integrity_check")?.query_map([], |row| row.get(0))?.collect()
    });
    assert_eq!(problems, ["ok"]);
    (0..WIDE).for_each(|table| persist("comparing columns", || compare_columns(&connection, table)));
    persist("comparing indexes", || compare_indexes(&connection));
    let store = yesquel::Store::connect(&Place::address(0), place.options()).unwrap();
    let faults = yesquel_sqlite::copy_faults(&store.database(NAME).unwrap()).unwrap();
    assert_eq!(faults, [], "copies of the schema's cookies");
    persist("PRAGMA schema_version", || schema_version(&connection))
}
