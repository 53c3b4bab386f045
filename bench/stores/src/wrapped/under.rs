//! A store's client as what stands before it knows it: behind a pointer, so that
//! what stands there is compiled once and not once a store.

use serval_model::{Client, FieldSelection, OperationKind, Outcome, Record, Reply};
use std::pin::Pin;

/// An outcome to come.
pub(super) type Answer<'a> = Pin<Box<dyn Future<Output = Outcome> + 'a>>;

/// The verbs of a client.
pub(super) trait Under {
    fn read<'a>(
        &'a mut self,
        table: &'a str,
        key: &'a str,
        fields: &'a FieldSelection,
        reply: &'a mut Reply,
    ) -> Answer<'a>;
    fn update<'a>(&'a mut self, table: &'a str, key: &'a str, fields: &'a Record) -> Answer<'a>;
    fn insert<'a>(&'a mut self, table: &'a str, key: &'a str, record: &'a Record) -> Answer<'a>;
    fn scan<'a>(
        &'a mut self,
        table: &'a str,
        start_key: &'a str,
        count: u64,
        fields: &'a FieldSelection,
        reply: &'a mut Reply,
    ) -> Answer<'a>;
    fn delete<'a>(&'a mut self, table: &'a str, key: &'a str) -> Answer<'a>;
    fn insert_batch<'a>(&'a mut self, table: &'a str, records: &'a [(String, Record)]) -> Answer<'a>;
}

/// Sends one write.
pub(super) async fn send(
    client: &mut dyn Under,
    kind: OperationKind,
    table: &str,
    key: &str,
    record: Option<&Record>,
) -> Outcome {
    match (kind, record) {
        (OperationKind::Insert, Some(record)) => client.insert(table, key, record).await,
        (_, Some(record)) => client.update(table, key, record).await,
        (_, None) => client.delete(table, key).await,
    }
}

impl<C: Client> Under for C {
    fn read<'a>(
        &'a mut self,
        table: &'a str,
        key: &'a str,
        fields: &'a FieldSelection,
        reply: &'a mut Reply,
    ) -> Answer<'a> {
        Box::pin(Client::read(self, table, key, fields, reply))
    }

    fn update<'a>(&'a mut self, table: &'a str, key: &'a str, fields: &'a Record) -> Answer<'a> {
        Box::pin(Client::update(self, table, key, fields))
    }

    fn insert<'a>(&'a mut self, table: &'a str, key: &'a str, record: &'a Record) -> Answer<'a> {
        Box::pin(Client::insert(self, table, key, record))
    }

    fn scan<'a>(
        &'a mut self,
        table: &'a str,
        start_key: &'a str,
        count: u64,
        fields: &'a FieldSelection,
        reply: &'a mut Reply,
    ) -> Answer<'a> {
        Box::pin(Client::scan(self, table, start_key, count, fields, reply))
    }

    fn delete<'a>(&'a mut self, table: &'a str, key: &'a str) -> Answer<'a> {
        Box::pin(Client::delete(self, table, key))
    }

    fn insert_batch<'a>(&'a mut self, table: &'a str, records: &'a [(String, Record)]) -> Answer<'a> {
        Box::pin(Client::insert_batch(self, table, records))
    }
}
