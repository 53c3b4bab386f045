//! Cost of the driver alone: reads by key in a bare loop over
//! async-memcached, with the command and the concurrency of Serval's binding.
//! `cargo xtask bench bindings` runs it next to Serval; by hand:
//!
//! ```text
//! cargo xtask serve memcached --port 11211 &
//! serval load memcached -p recordcount=10000 -p insertorder=ordered -P workloads/workloadc
//! cargo run --release -p serval-stores --features memcached --example bare_memcached -- 127.0.0.1:11211 16 200000 10000
//! ```

mod bare;

use async_memcached::{Client, MetaProtocol};
use std::{collections::HashMap, error::Error};

async fn client(address: String, mut work: bare::ClientWork) -> Result<(), Box<dyn Error>> {
    let mut client = Client::new(format!("tcp://{address}")).await?;
    work.connected().await;
    while let Some(key) = work.next() {
        let key = format!("usertable-{key}");
        let item = client.meta_get(&key, false, None, Some(&["v"])).await?;
        let data = item.and_then(|item| item.data).ok_or_else(|| format!("no record {key}"))?;
        // As any user of YCSB's records must.
        let record: HashMap<String, String> = serde_json::from_slice(&data)?;
        assert!(!record.is_empty(), "no fields {key}");
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    bare::run(client)
}
