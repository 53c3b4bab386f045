//! Cost of the driver alone: reads by key in a bare loop over mongodb, with
//! the command, the pool and the concurrency of Serval's binding.
//! `cargo xtask bench bindings` runs it next to Serval; by hand:
//!
//! ```text
//! cargo xtask serve mongodb --port 27017 &
//! serval load mongodb -p recordcount=10000 -p insertorder=ordered -P workloads/workloadc
//! cargo run --release -p serval-stores --features mongodb --example bare_mongodb -- 127.0.0.1:27017 16 200000 10000
//! ```

mod bare;

use futures_util::TryStreamExt;
use mongodb::{
    Client,
    bson::{RawBsonRef, RawDocumentBuf, doc},
    options::ClientOptions,
};
use std::{cell::RefCell, error::Error, rc::Rc};

async fn client(
    pool: Rc<RefCell<Option<Client>>>,
    address: String,
    mut work: bare::ClientWork,
) -> Result<(), Box<dyn Error>> {
    let mut options = ClientOptions::parse(format!("mongodb://{address}/")).await?;
    options.max_pool_size = Some(u32::MAX);
    options.retry_reads = Some(false);
    if pool.borrow().is_none() {
        *pool.borrow_mut() = Some(Client::with_options(options)?);
    }
    let client = pool.borrow().clone().ok_or("no pool")?;
    let collection = client.database("ycsb").collection::<RawDocumentBuf>("usertable");
    client.database("ycsb").run_command(doc! { "ping": 1 }).await?;
    work.connected().await;
    let mut record = Vec::new();
    while let Some(key) = work.next() {
        let mut cursor = collection.find(doc! { "_id": key }).limit(-1).batch().await?;
        let batch = cursor.try_next().await?.ok_or("no answer")?;
        record.clear();
        let mut found = 0;
        for document in batch.doc_slices()? {
            let RawBsonRef::Document(document) = document? else { continue };
            for element in document {
                if let (_, RawBsonRef::Binary(value)) = element? {
                    record.extend_from_slice(value.bytes);
                }
            }
            found += 1;
        }
        assert_eq!(found, 1, "no record");
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let pool = Rc::default();
    bare::run(|address, work| client(Rc::clone(&pool), address, work))
}
