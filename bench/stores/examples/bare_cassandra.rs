//! Cost of the driver alone: reads by key in a bare loop over scylla, with
//! the statement, the session and the concurrency of Serval's binding.
//!
//! `cargo xtask bench bindings` runs it next to Serval; by hand:
//!
//! ```text
//! cargo xtask serve cassandra --port 9042 &
//! serval load cassandra -P workloads/workloadc -p recordcount=10000 -p insertorder=ordered
//! cargo run --release -p serval-stores --features cassandra --example bare_cassandra -- 127.0.0.1:9042 16 100000 10000
//! ```

mod bare;

use scylla::{
    client::{
        PoolSize, execution_profile::ExecutionProfile, session::Session, session_builder::SessionBuilder,
    },
    deserialize::row::ColumnIterator,
    policies::retry::FallthroughRetryPolicy,
    statement::{Consistency, prepared::PreparedStatement},
};
use std::{error::Error, num::NonZeroUsize, rc::Rc, sync::Arc};
use tokio::sync::OnceCell;

const STATEMENT: &str = "SELECT field0, field1, field2, field3, field4, field5, field6, field7, field8, field9 \
                         FROM ycsb.usertable WHERE y_id = ? LIMIT 1";

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

type Shared = Rc<OnceCell<(Session, PreparedStatement)>>;

async fn client(shared: Shared, address: String, mut work: bare::ClientWork) -> Result<(), Box<dyn Error>> {
    let (session, statement) = shared.get_or_try_init(|| connect(&address)).await?;
    work.connected().await;
    let mut record = Vec::new();
    while let Some(key) = work.next() {
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
    let shared = Shared::default();
    bare::run(move |address, work| client(Rc::clone(&shared), address, work))
}
