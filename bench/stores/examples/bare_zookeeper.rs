//! Cost of the driver alone: reads by key in a bare loop over
//! zookeeper-client, with the request and the concurrency of Serval's binding.
//! `cargo xtask bench bindings` runs it next to Serval; by hand:
//!
//! ```text
//! cargo xtask serve zookeeper --port 2181 &
//! serval load zookeeper -p recordcount=10000 -p insertorder=ordered -P workloads/workloadc
//! cargo run --release -p serval-stores --features zookeeper --example bare_zookeeper -- 127.0.0.1:2181 16 200000 10000
//! ```

mod bare;

use std::{collections::HashMap, error::Error};
use zookeeper_client::Client;

async fn client(address: String, mut work: bare::ClientWork) -> Result<(), Box<dyn Error>> {
    let client = Client::connect(&address).await?;
    work.connected().await;
    while let Some(key) = work.next() {
        let (data, _) = client.get_data(&format!("/{key}")).await?;
        // As any user of YCSB's records must.
        let record: HashMap<String, String> = serde_json::from_slice(&data)?;
        assert!(!record.is_empty(), "no fields {key}");
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    bare::run(client)
}
