//! Cost of the engine alone: reads by key in bare loops over fjall, one thread
//! each, on the database that Serval has loaded.
//!
//! ```text
//! serval load fjall -p fjall.path=/tmp/bare -p recordcount=10000 -p insertorder=ordered -P workloads/workloadc
//! cargo run --release -p serval-stores --features fjall --example bare_fjall -- /tmp/bare 16 2000000 10000
//! ```

#[path = "bare/cost.rs"]
mod cost;

use cost::{BarePlan, MeasuredCost, next_key, plan};
use fjall::{Database, Keyspace, KeyspaceCreateOptions};
use std::{error::Error, thread};

/// Returns the next name or value of a record, which follows its length.
fn part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, behind) = rest.split_first_chunk()?;
    let (part, behind) = behind.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    *rest = behind;
    Some(part)
}

fn client(keyspace: &Keyspace, mut random: u64, operations: u64, records: u64) -> Result<(), fjall::Error> {
    let mut record = Vec::new();
    for _ in 0..operations {
        let value = keyspace.get(next_key(&mut random, records))?;
        record.clear();
        let mut rest = value.as_deref().unwrap_or_default();
        while let Some((name, value)) = part(&mut rest).zip(part(&mut rest)) {
            record.extend_from_slice(std::str::from_utf8(name).unwrap_or_default().as_bytes());
            record.extend_from_slice(value);
        }
        assert!(!record.is_empty(), "no record");
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let BarePlan { address, clients, operations, records } = plan()?;
    let database = Database::builder(address).open()?;
    let keyspace = database.keyspace("usertable", KeyspaceCreateOptions::default)?;
    let cost = MeasuredCost::start();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .map(|number| {
                let keyspace = &keyspace;
                scope.spawn(move || client(keyspace, number, operations / clients, records))
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
    })?;
    cost.print(operations / clients * clients);
    Ok(())
}
