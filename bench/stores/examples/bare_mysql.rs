//! Cost of the driver alone: reads by key in a bare loop over
//! mysql_async, with the statement and the concurrency of Serval's binding.
//! `cargo xtask bench bindings` runs it next to Serval; by hand:
//!
//! ```text
//! cargo xtask serve mysql --port 3306 &
//! serval load mysql -p recordcount=10000 -p insertorder=ordered -P workloads/workloadc
//! cargo run --release -p serval-stores --features mysql --example bare_mysql -- 127.0.0.1:3306 16 200000 10000
//! ```

mod bare;

use mysql_async::{Conn, OptsBuilder, Params, Row, Value, prelude::Queryable};
use std::error::Error;

async fn client(address: String, mut work: bare::ClientWork) -> Result<(), Box<dyn Error>> {
    let (host, port) = address.rsplit_once(':').unwrap_or((&address, "3306"));
    let options = OptsBuilder::default().ip_or_hostname(host).tcp_port(port.parse()?);
    let options = options.user(Some("root")).db_name(Some("ycsb")).prefer_socket(false);
    let mut conn = Conn::new(options).await?;
    let statement = conn.prep("SELECT * FROM `usertable` WHERE YCSB_KEY = ?").await?;
    work.connected().await;
    let mut record = Vec::new();
    while let Some(key) = work.next() {
        let key = Value::Bytes(key.into_bytes());
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
    bare::run(client)
}
