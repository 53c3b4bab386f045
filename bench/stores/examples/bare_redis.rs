//! Cost of the driver alone: reads by key in a bare loop over redis, with
//! the command and the concurrency of Serval's binding. `cargo xtask bench
//! bindings` runs it next to Serval; by hand:
//!
//! ```text
//! cargo xtask serve redis --port 6379 &
//! serval load redis -p recordcount=10000 -p insertorder=ordered -P workloads/workloadc
//! cargo run --release -p serval-stores --example bare_redis -- 127.0.0.1:6379 16 400000 10000
//! ```

mod bare;

use redis::{Client, Value, cmd};
use std::error::Error;

async fn client(address: String, mut work: bare::ClientWork) -> Result<(), Box<dyn Error>> {
    let client = Client::open(format!("redis://{address}/"))?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    work.connected().await;
    let mut record = Vec::new();
    while let Some(key) = work.next() {
        let answer: Value = cmd("HGETALL").arg(&key).query_async(&mut connection).await?;
        let Value::Array(parts) = answer else { return Err(format!("no array: {key}").into()) };
        assert!(!parts.is_empty(), "no record {key}");
        record.clear();
        for part in &parts {
            if let Value::BulkString(bytes) = part {
                record.extend_from_slice(bytes);
            }
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    bare::run(client)
}
