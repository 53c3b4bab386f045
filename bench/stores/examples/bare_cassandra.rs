//! What the driver alone costs: reads by key in a bare loop over scylla, with
//! the statement, the session and the concurrency of Serval's binding.
//!
//! ```text
//! cargo xtask serve cassandra --port 9042 &
//! serval load cassandra -P workloads/workloadc -p recordcount=10000 -p insertorder=ordered
//! serval run cassandra -P workloads/workloadc -p recordcount=10000 -p insertorder=ordered \
//!   -p requestdistribution=uniform -threads 16 -p operationcount=100000
//! cargo run --release -p serval-stores --features cassandra --example bare_cassandra -- 127.0.0.1:9042 16 100000 10000
//! ```

use rustix::time::{ClockId, clock_gettime};
use scylla::{
    client::{
        PoolSize, execution_profile::ExecutionProfile, session::Session, session_builder::SessionBuilder,
    },
    deserialize::row::ColumnIterator,
    policies::retry::FallthroughRetryPolicy,
    statement::{Consistency, prepared::PreparedStatement},
};
use std::{cell::Cell, error::Error, num::NonZeroUsize, rc::Rc, sync::Arc, time::Instant};
use tokio::task::LocalSet;

const STATEMENT: &str = "SELECT field0, field1, field2, field3, field4, field5, field6, field7, field8, field9 \
                         FROM ycsb.usertable WHERE y_id = ? LIMIT 1";

/// Processor time of this process, in seconds.
fn processor_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

async fn connect(address: &str) -> Result<(Session, PreparedStatement), Box<dyn Error>> {
    let profile = ExecutionProfile::builder()
        .request_timeout(None)
        .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
        .speculative_execution_policy(None)
        .build();
    let session = SessionBuilder::new()
        .known_node(address)
        .default_execution_profile_handle(profile.into_handle())
        .pool_size(PoolSize::PerHost(NonZeroUsize::MIN))
        .build()
        .await?;
    let mut statement = session.prepare(STATEMENT).await?;
    statement.set_consistency(Consistency::Quorum);
    statement.set_use_cached_result_metadata(true);
    Ok((session, statement))
}

async fn client(
    shared: Rc<(Session, PreparedStatement)>,
    records: u64,
    left: Rc<Cell<u64>>,
    mut random: u64,
) -> Result<(), Box<dyn Error>> {
    let (session, statement) = &*shared;
    let mut record = Vec::new();
    while let Some(next) = left.get().checked_sub(1) {
        left.set(next);
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = format!("user{}", (random >> 33) % records);
        let result = session.execute_unpaged(statement, (&key,)).await?.into_rows_result()?;
        let mut found = 0;
        for row in result.rows::<ColumnIterator<'_, '_>>()? {
            record.clear();
            for cell in row? {
                record.extend_from_slice(cell?.slice.map_or(&[], |value| value.as_slice()));
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
    let (elapsed, used) = LocalSet::new().block_on(&runtime, async {
        let shared = Rc::new(connect(address).await?);
        let (start, before) = (Instant::now(), processor_s());
        let tasks: Vec<_> = (0..clients)
            .map(|number| {
                tokio::task::spawn_local(client(Rc::clone(&shared), records, Rc::clone(&left), number))
            })
            .collect();
        for task in tasks {
            task.await??;
        }
        Ok::<_, Box<dyn Error>>((start.elapsed().as_secs_f64(), processor_s() - before))
    })?;
    println!(
        "{:.0} operations/s, {:.2} us of processor time an operation",
        operations as f64 / elapsed,
        used / operations as f64 * 1e6
    );
    Ok(())
}
