//! Cost of the driver alone: reads by key in a bare loop over etcd-client,
//! with the request and the concurrency of Serval's binding.
//! `cargo xtask bench bindings` runs it next to Serval; by hand:
//!
//! ```text
//! cargo xtask serve etcd --port 2379 &
//! serval load etcd -p recordcount=10000 -p insertorder=ordered -P workloads/workloadc
//! cargo run --release -p serval-stores --features etcd --example bare_etcd -- 127.0.0.1:2379 16 200000 10000
//! ```

mod bare;

use etcd_client::Client;
use std::{collections::HashMap, error::Error};

async fn client(address: String, mut work: bare::ClientWork) -> Result<(), Box<dyn Error>> {
    let mut client = Client::connect([address], None).await?;
    // The driver connects with the first request.
    client.get("usertable/", None).await?;
    work.connected().await;
    while let Some(key) = work.next() {
        let key = format!("usertable/{key}");
        let answer = client.get(key.as_str(), None).await?;
        let item = answer.kvs().first().ok_or_else(|| format!("no record {key}"))?;
        // As any user of such records must.
        let record: HashMap<String, String> = serde_json::from_slice(item.value())?;
        assert!(!record.is_empty(), "no fields {key}");
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    bare::run(client)
}
