//! What the driver alone costs: reads by key in a bare loop over
//! tokio-postgres, with the statement and the concurrency of Serval's binding.
//!
//! ```text
//! cargo xtask serve postgres --port 5432 &
//! serval load postgres -p recordcount=10000 -p insertorder=ordered -P workloads/workloadc
//! serval run postgres -P workloads/workloadc -p requestdistribution=uniform -p insertorder=ordered -p recordcount=10000 \
//!   -threads 16 -p operationcount=200000
//! cargo run --release -p serval-stores --features postgres --example bare_postgres -- 127.0.0.1:5432 16 200000 10000
//! ```

use futures_util::TryStreamExt;
use rustix::time::{ClockId, clock_gettime};
use std::{cell::Cell, error::Error, pin::pin, rc::Rc, time::Instant};
use tokio::task::LocalSet;
use tokio_postgres::{NoTls, types::Type};

/// Processor time of this process, in seconds.
fn processor_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The bytes of a column.
struct Raw<'a>(&'a [u8]);

impl<'a> tokio_postgres::types::FromSql<'a> for Raw<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Raw(raw))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

async fn client(
    address: String,
    records: u64,
    left: Rc<Cell<u64>>,
    mut random: u64,
) -> Result<(), tokio_postgres::Error> {
    let (host, port) = address.rsplit_once(':').unwrap_or((&address, "5432"));
    let config = format!("host={host} port={port} user=postgres dbname=postgres");
    let (client, connection) = tokio_postgres::connect(&config, NoTls).await?;
    tokio::spawn(connection);
    let statement = client.prepare("SELECT * FROM \"usertable\" WHERE \"ycsb_key\" = $1").await?;
    let mut record = Vec::new();
    while let Some(next) = left.get().checked_sub(1) {
        left.set(next);
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = format!("user{}", (random >> 33) % records);
        let mut rows = pin!(client.query_raw(&statement, [&key]).await?);
        let mut found = 0;
        while let Some(row) = rows.try_next().await? {
            record.clear();
            for index in 1..row.len() {
                if let Some(Raw(value)) = row.try_get(index)? {
                    record.extend_from_slice(value);
                }
            }
            found += 1;
        }
        assert_eq!(found, 1, "no record {key}");
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, clients, operations, records] = &arguments[..] else {
        return Err("arguments: HOST:PORT CLIENTS OPERATIONS RECORDS".into());
    };
    let (clients, operations, records): (u64, u64, u64) =
        (clients.parse()?, operations.parse()?, records.parse()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let left = Rc::new(Cell::new(operations));
    let (start, before) = (Instant::now(), processor_s());
    LocalSet::new().block_on(&runtime, async {
        let tasks: Vec<_> = (0..clients)
            .map(|number| {
                tokio::task::spawn_local(client(address.clone(), records, Rc::clone(&left), number))
            })
            .collect();
        for task in tasks {
            task.await??;
        }
        Ok::<(), Box<dyn Error>>(())
    })?;
    let (elapsed, used) = (start.elapsed().as_secs_f64(), processor_s() - before);
    println!(
        "{:.0} operations/s, {:.2} us of processor time an operation",
        operations as f64 / elapsed,
        used / operations as f64 * 1e6
    );
    Ok(())
}
