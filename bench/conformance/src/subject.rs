//! A store under test and its clients.

use crate::{Differences, Executor, FIELDS, TABLE};
use serval_model::{
    Client, FieldSelection, OperationKind, Outcome, Purpose, Record, Reply, Schema, Status, Store,
};
use std::{any::Any, collections::BTreeMap};

/// A store under test.
pub struct Subject<S, E> {
    /// The store, empty; the suite prepares it.
    pub store: S,
    /// Executor of its clients' futures.
    pub executor: E,
    /// Its permitted differences.
    pub differences: Differences,
    /// What the store needs: its folder, its server, a lock guard. Dropped
    /// after the store.
    pub keep: Box<dyn Any>,
}

impl<S: Store, E: Executor> Subject<S, E> {
    /// Returns a subject with nothing to keep.
    pub fn new(store: S, executor: E, differences: Differences) -> Self {
        Subject { store, executor, differences, keep: Box::new(()) }
    }

    /// Returns whether the store's capabilities include scans.
    pub fn scans(&self) -> bool {
        self.store.capabilities().contains(OperationKind::Scan)
    }

    /// Returns the subject with something to keep.
    pub fn keeping(self, keep: impl Any) -> Self {
        Subject { keep: Box::new(keep), ..self }
    }

    /// Prepares the store for a load and runs a case with one client, then
    /// closes the client.
    pub fn with_client<T>(&self, case: impl AsyncFnOnce(&mut Handle<S>) -> T) -> T {
        self.store.prepare(&schema(), Purpose::Load).unwrap();
        self.with_another_client(0, case)
    }

    /// Runs a case with a client of a prepared store.
    pub fn with_another_client<T>(&self, number: usize, case: impl AsyncFnOnce(&mut Handle<S>) -> T) -> T {
        with_client_of(&self.store, self.executor, number, case)
    }
}

pub(crate) fn with_client_of<S: Store, E: Executor, T>(
    store: &S,
    executor: E,
    number: usize,
    case: impl AsyncFnOnce(&mut Handle<S>) -> T,
) -> T {
    executor.run(async {
        let local = store.local().unwrap();
        let client = store.connect(&local, number).await.unwrap();
        let mut handle = Handle { client, reply: Reply::new() };
        let result = case(&mut handle).await;
        assert_eq!(handle.client.close().await, Outcome::OK);
        result
    })
}

/// Returns the schema of the suite's records.
pub fn schema() -> Schema {
    Schema { table: TABLE.into(), fields: FIELDS.map(String::from).into() }
}

/// A record's fields, without their order.
pub type Fields = BTreeMap<String, Vec<u8>>;

/// Returns fields from pairs.
pub fn fields<const N: usize>(pairs: [(&str, &[u8]); N]) -> Fields {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect()
}

/// Returns all four fields, with values that contain the key.
pub fn full(key: &str) -> Fields {
    FIELDS.iter().map(|name| ((*name).to_owned(), format!("{name} of {key}").into())).collect()
}

fn record(fields: &Fields) -> Record {
    fields.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect()
}

fn selection(names: &[&str]) -> FieldSelection {
    let mut selection = FieldSelection::default();
    for name in names {
        selection.push(name);
    }
    selection
}

/// A client with a reply buffer.
pub struct Handle<S: Store> {
    /// The client.
    pub client: S::Client,
    reply: Reply,
}

impl<S: Store> Handle<S> {
    /// Inserts a record.
    pub async fn insert(&mut self, key: &str, fields: &Fields) -> Outcome {
        self.client.insert(TABLE, key, &record(fields)).await
    }

    /// Inserts a batch.
    pub async fn insert_batch(&mut self, records: &[(&str, Fields)]) -> Outcome {
        let records: Vec<_> =
            records.iter().map(|(key, fields)| ((*key).to_owned(), record(fields))).collect();
        self.client.insert_batch(TABLE, &records).await
    }

    /// Updates a record.
    pub async fn update(&mut self, key: &str, fields: &Fields) -> Outcome {
        self.client.update(TABLE, key, &record(fields)).await
    }

    /// Deletes a record.
    pub async fn delete(&mut self, key: &str) -> Outcome {
        self.client.delete(TABLE, key).await
    }

    /// Reads the named fields, or all if none is named. Returns `None` if there is
    /// no record. Any other failure fails the test.
    pub async fn read(&mut self, key: &str, names: &[&str]) -> Option<Fields> {
        self.reply.clear();
        let outcome = self.client.read(TABLE, key, &selection(names), &mut self.reply).await;
        let found = self.answer();
        match outcome.status {
            Status::NotFound => {
                assert!(found.is_empty(), "NOT_FOUND, and yet a record");
                None
            }
            _ => {
                assert_eq!(outcome, Outcome::OK, "read of {key:?}");
                assert_eq!(found.len(), 1, "read of {key:?}");
                found.into_iter().next()
            }
        }
    }

    /// Scans. Only for stores with scans.
    pub async fn scan(&mut self, start: &str, count: u64, names: &[&str]) -> Vec<Fields> {
        self.reply.clear();
        let selection = selection(names);
        let outcome = self.client.scan(TABLE, start, count, &selection, &mut self.reply).await;
        assert_eq!(outcome, Outcome::OK, "scan from {start:?}");
        self.answer()
    }

    fn answer(&self) -> Vec<Fields> {
        let records = self.reply.records().iter();
        records
            .map(|record| {
                let all: Fields = record.iter().map(|(n, v)| (n.to_owned(), v.to_vec())).collect();
                assert_eq!(all.len(), record.len(), "a field twice: {record:?}");
                all
            })
            .collect()
    }
}
