//! Cost of the driver alone: reads by key in a bare loop over
//! tokio-postgres, with the statement and the concurrency of Serval's binding.
//! `cargo xtask bench bindings` runs it next to Serval; by hand:
//!
//! ```text
//! cargo xtask serve postgres --port 5432 &
//! serval load postgres -p recordcount=10000 -p insertorder=ordered -P workloads/workloadc
//! cargo run --release -p serval-stores --features postgres --example bare_postgres -- 127.0.0.1:5432 16 200000 10000
//! ```

mod bare;

use futures_util::TryStreamExt;
use std::{error::Error, pin::pin};
use tokio_postgres::{NoTls, types::Type};

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

async fn client(address: String, mut work: bare::ClientWork) -> Result<(), Box<dyn Error>> {
    let (host, port) = address.rsplit_once(':').unwrap_or((&address, "5432"));
    let config = format!("host={host} port={port} user=postgres dbname=postgres");
    let (client, connection) = tokio_postgres::connect(&config, NoTls).await?;
    tokio::spawn(connection);
    let statement = client.prepare("SELECT * FROM \"usertable\" WHERE \"ycsb_key\" = $1").await?;
    work.connected().await;
    let mut record = Vec::new();
    while let Some(key) = work.next() {
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
    bare::run(client)
}
