//! Cost of the engine alone: reads by key in bare loops over rusqlite, one
//! thread and connection each, on the file that Serval has loaded.
//!
//! ```text
//! serval load sqlite -p sqlite.path=/tmp/bare.db -p recordcount=10000 -p insertorder=ordered -P workloads/workloadc
//! cargo run --release -p serval-stores --example bare_sqlite -- /tmp/bare.db 32 2000000 10000
//! ```

#[path = "bare/cost.rs"]
mod cost;

use cost::{BarePlan, MeasuredCost, next_key, plan};
use rusqlite::{Connection, OpenFlags, types::ValueRef};
use std::{error::Error, thread};

fn client(connection: &Connection, mut random: u64, operations: u64, records: u64) -> rusqlite::Result<()> {
    let mut statement = connection.prepare("SELECT * FROM usertable WHERE YCSB_KEY = ?")?;
    let columns = statement.column_count();
    let mut record = Vec::new();
    for _ in 0..operations {
        let mut rows = statement.query([next_key(&mut random, records)])?;
        record.clear();
        if let Some(row) = rows.next()? {
            for column in 1..columns {
                if let ValueRef::Text(bytes) = row.get_ref(column)? {
                    record.extend_from_slice(bytes);
                }
            }
        }
        assert!(!record.is_empty(), "no record");
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    // The engine that Serval links, not another one.
    assert!(yesquel_sqlite::is_linked());
    let BarePlan { address, clients, operations, records } = plan()?;
    let open = |_| {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&address, flags)?;
        connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "normal")?;
        Ok(connection)
    };
    let connections = (0..clients).map(open).collect::<rusqlite::Result<Vec<_>>>()?;
    let cost = MeasuredCost::start();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .zip(connections)
            .map(|(number, connection)| {
                scope.spawn(move || client(&connection, number, operations / clients, records))
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
    })?;
    cost.print(operations / clients * clients);
    Ok(())
}
