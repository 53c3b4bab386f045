//! What the driver alone costs: reads by key in a bare loop over
//! mysql_async, with the statement and the concurrency of Serval's binding.
//!
//! ```text
//! cargo xtask serve mysql --port 3306 &
//! serval load mysql -p recordcount=10000 -p insertorder=ordered -P workloads/workloadc
//! serval run mysql -P workloads/workloadc -p requestdistribution=uniform -p insertorder=ordered -p recordcount=10000 \
//!   -threads 16 -p operationcount=200000
//! cargo run --release -p serval-stores --features mysql --example bare_mysql -- 127.0.0.1:3306 16 200000 10000
//! ```

use mysql_async::{Conn, OptsBuilder, Params, Row, Value, prelude::Queryable};
use rustix::time::{ClockId, clock_gettime};
use std::{cell::Cell, error::Error, rc::Rc, time::Instant};
use tokio::task::LocalSet;

/// Processor time of this process, in seconds.
fn processor_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

async fn client(
    address: String,
    records: u64,
    left: Rc<Cell<u64>>,
    mut random: u64,
) -> Result<(), mysql_async::Error> {
    let (host, port) = address.rsplit_once(':').unwrap_or((&address, "3306"));
    let options = OptsBuilder::default().ip_or_hostname(host).tcp_port(port.parse().unwrap_or(3306));
    let options = options.user(Some("root")).db_name(Some("ycsb")).prefer_socket(false);
    let mut conn = Conn::new(options).await?;
    let statement = conn.prep("SELECT * FROM `usertable` WHERE YCSB_KEY = ?").await?;
    let mut record = Vec::new();
    while let Some(next) = left.get().checked_sub(1) {
        left.set(next);
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = Value::Bytes(format!("user{}", (random >> 33) % records).into_bytes());
        let result = conn.exec_iter(&statement, Params::Positional(vec![key])).await?;
        let mut found = 0;
        let each = |row: Row| {
            record.clear();
            for index in 1..row.len() {
                if let Some(Value::Bytes(value)) = row.as_ref(index) {
                    record.extend_from_slice(value);
                }
            }
            found += 1;
        };
        result.for_each_and_drop(each).await?;
        assert_eq!(found, 1, "no record");
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
