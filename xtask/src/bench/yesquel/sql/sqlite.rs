//! Yesquel through SQLite's interface compared with SQLite itself, on a file in WAL mode with
//! `synchronous=NORMAL`: point reads in the process, and inserts of single rows, each a
//! transaction, by eight threads of one process and by eight processes. Both use the same library,
//! which opens plain paths with SQLite's own code.
//!
//! | | lost if a process is killed | lost if the power fails |
//! |---|---|---|
//! | SQLite, WAL, NORMAL | nothing | commits since the last checkpoint |
//! | `durability=none` | commits not yet written by the log's thread | commits not yet written by the system |
//! | `durability` interval, 100 ms | 100 ms | 100 ms |
//!
//! None of them waits for the disk.

use super::{
    Programs, ROWS, ServerStorage, SystemUnderTest, anew, beside_sqlite, options, row, seconds, turns,
};
use crate::Result;
use crate::bench::BenchContext;

/// Concurrent writers.
const WRITERS: u64 = 8;

/// The same durability, as an option of a folder's address and of a server.
const IN_A_FOLDER: [(&str, &str); 2] = [("none", "?durability=none"), ("100 ms", "?durability=100")];
const AT_A_SERVER: [(&str, ServerStorage); 3] = [
    ("none", ServerStorage::Durability("none")),
    ("100 ms", ServerStorage::Durability("interval")),
    ("in memory", ServerStorage::InMemory),
];

pub(in crate::bench) fn sqlite(bench: &BenchContext) -> Result<()> {
    let programs = Programs::build(bench)?;
    reads(bench, &programs)?;
    inserts(bench, &programs)
}

/// Measures reads of rows by their keys, with one thread.
fn reads(bench: &BenchContext, programs: &Programs) -> Result<()> {
    let program = programs.load.as_path();
    let rows = if bench.quick { ROWS / 20 } else { ROWS };
    let ours = SystemUnderTest::in_clients("folder", "?durability=none")?;
    let stock = SystemUnderTest::in_clients("sqlite", "")?;
    let filling = options(&[
        ("threads", "1".to_owned()),
        ("keys", rows.to_string()),
        ("warm-up", "0".to_owned()),
        ("batch", super::BATCH.to_string()),
    ]);
    for side in [&ours, &stock] {
        side.load_by(bench, program, "load", &filling, 1)?;
    }
    let reading = options(&[
        ("threads", "1".to_owned()),
        ("keys", rows.to_string()),
        ("seconds", seconds(bench).to_string()),
    ]);
    let mut table = beside_sqlite("one thread in the process");
    let cached = stock.same_files("sqlite-cached");
    for (name, theirs, wanted) in
        [("point reads", &stock, "0.5 or more"), ("point reads, SQLite's cache for all rows", &cached, "-")]
    {
        eprintln!("{name}: {} pairs", bench.pairs);
        let measure = |which: usize| [&ours, theirs][which].load_by(bench, program, "read", &reading, 1);
        row(&mut table, name, wanted, &turns(bench, measure, |seen| seen.throughput)?);
    }
    print!("{table}");
    println!(
        "{rows} rows of 100 bytes; SQLite's cache is 2 MB unless said otherwise, and the system's behind it"
    );
    Ok(())
}

/// Measures threads and processes that insert rows with automatic keys into an empty table, one a
/// transaction.
fn inserts(bench: &BenchContext, programs: &Programs) -> Result<()> {
    let program = programs.load.as_path();
    let writing =
        |threads: u64| options(&[("threads", threads.to_string()), ("seconds", seconds(bench).to_string())]);
    let mut table = beside_sqlite("single inserts");
    for (durability, option) in IN_A_FOLDER {
        let name = format!("{WRITERS} threads, a folder, {durability}");
        eprintln!("{name}: {} pairs", bench.pairs);
        let ours = || SystemUnderTest::in_clients("folder", option);
        let seen = anew(bench, program, &ours, ("insert-mono", 1), &writing(WRITERS))?;
        row(&mut table, &name, "1.0 or more", &seen);
    }
    for (durability, kept) in AT_A_SERVER {
        let name = format!("{WRITERS} processes, a server, {durability}");
        eprintln!("{name}: {} pairs", bench.pairs);
        let ours = || SystemUnderTest::sql_on_a_socket(bench, programs, kept);
        let seen = anew(bench, program, &ours, ("insert-mono", WRITERS), &writing(1))?;
        row(&mut table, &name, "0.5 or more", &seen);
    }
    print!("{table}");
    println!(
        "rows of 100 bytes, a connection a writer; servers by Unix socket; processor time is user's and system's"
    );
    Ok(())
}
