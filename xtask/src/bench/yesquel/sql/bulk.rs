//! A million rows into an empty table of a server, in transactions of 100, by one connection over
//! its Unix socket. The peer is SQLite's own file, in WAL mode with `synchronous=NORMAL` and
//! without a server.

use super::{Programs, ROWS, ServerStorage, SystemUnderTest, anew, beside_sqlite, options, row};
use crate::Result;
use crate::bench::BenchContext;

/// Rows of a transaction.
const TRANSACTION: u64 = 100;

/// Twenty times the throughput of the authors' prototype, which is 5,000.
const WANTED: &str = "100000 rows/s";

/// Storage of the rows, and its name.
const PLACES: [(ServerStorage, &str); 3] = [
    (ServerStorage::InMemory, "in memory"),
    (ServerStorage::Durability("none"), "a log, never waited for"),
    (ServerStorage::Durability("sync"), "a log, each commit synced"),
];

pub(in crate::bench) fn bulk(bench: &BenchContext) -> Result<()> {
    let programs = Programs::build(bench)?;
    let rows = if bench.quick { ROWS / 10 } else { ROWS };
    let mut table = beside_sqlite("rows by one connection");
    for (kept, place) in PLACES {
        for (numbered, keys) in [(false, "keys given"), (true, "keys by the database")] {
            eprintln!("{place}, {keys}: {} pairs", bench.pairs);
            let mut more = options(&[
                ("threads", "1".to_owned()),
                ("keys", rows.to_string()),
                ("warm-up", "0".to_owned()),
                ("batch", TRANSACTION.to_string()),
            ]);
            more.extend(numbered.then(|| "--numbered".to_owned()));
            let ours = || SystemUnderTest::sql_on_a_socket(bench, &programs, kept);
            let seen = anew(bench, &programs.load, &ours, ("load", 1), &more)?;
            row(&mut table, &format!("{place}; {keys}"), WANTED, &seen);
        }
    }
    print!("{table}");
    println!(
        "{rows} rows of 100 bytes, {TRANSACTION} a transaction; p99 is a transaction's, CPU and requests a row's"
    );
    Ok(())
}
