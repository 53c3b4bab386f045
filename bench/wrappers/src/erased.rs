//! Stores and clients as trait objects, so that the wrappers and the runner are compiled once
//! instead of once per store.

use serval_model::{
    Client, Execution, FieldSelection, Flush, OperationKind, OperationKinds, Outcome, Purpose, Record, Reply,
    Schema, Store, StoreError,
};
use std::{any::Any, pin::Pin};

/// A boxed future.
pub(super) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A boxed future of an outcome.
pub(super) type BoxOutcome<'a> = BoxFuture<'a, Outcome>;

/// The verbs of [`Client`], object-safe.
pub(super) trait ErasedVerbs {
    fn read<'a>(
        &'a mut self,
        table: &'a str,
        key: &'a str,
        fields: &'a FieldSelection,
        reply: &'a mut Reply,
    ) -> BoxOutcome<'a>;
    fn update<'a>(&'a mut self, table: &'a str, key: &'a str, fields: &'a Record) -> BoxOutcome<'a>;
    fn insert<'a>(&'a mut self, table: &'a str, key: &'a str, record: &'a Record) -> BoxOutcome<'a>;
    fn scan<'a>(
        &'a mut self,
        table: &'a str,
        start_key: &'a str,
        count: u64,
        fields: &'a FieldSelection,
        reply: &'a mut Reply,
    ) -> BoxOutcome<'a>;
    fn delete<'a>(&'a mut self, table: &'a str, key: &'a str) -> BoxOutcome<'a>;
    fn insert_batch<'a>(&'a mut self, table: &'a str, records: &'a [(String, Record)]) -> BoxOutcome<'a>;
}

/// Sends one write; without a record, a delete.
pub(super) async fn send(
    client: &mut dyn ErasedVerbs,
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

impl<C: Client> ErasedVerbs for C {
    fn read<'a>(
        &'a mut self,
        table: &'a str,
        key: &'a str,
        fields: &'a FieldSelection,
        reply: &'a mut Reply,
    ) -> BoxOutcome<'a> {
        Box::pin(Client::read(self, table, key, fields, reply))
    }

    fn update<'a>(&'a mut self, table: &'a str, key: &'a str, fields: &'a Record) -> BoxOutcome<'a> {
        Box::pin(Client::update(self, table, key, fields))
    }

    fn insert<'a>(&'a mut self, table: &'a str, key: &'a str, record: &'a Record) -> BoxOutcome<'a> {
        Box::pin(Client::insert(self, table, key, record))
    }

    fn scan<'a>(
        &'a mut self,
        table: &'a str,
        start_key: &'a str,
        count: u64,
        fields: &'a FieldSelection,
        reply: &'a mut Reply,
    ) -> BoxOutcome<'a> {
        Box::pin(Client::scan(self, table, start_key, count, fields, reply))
    }

    fn delete<'a>(&'a mut self, table: &'a str, key: &'a str) -> BoxOutcome<'a> {
        Box::pin(Client::delete(self, table, key))
    }

    fn insert_batch<'a>(&'a mut self, table: &'a str, records: &'a [(String, Record)]) -> BoxOutcome<'a> {
        Box::pin(Client::insert_batch(self, table, records))
    }
}

/// [`Client`], object-safe.
pub(super) trait ErasedClient: ErasedVerbs {
    fn service_ns(&self) -> Option<u64>;
    fn lost(&self) -> Option<StoreError>;
    fn buffers(&self) -> bool;
    fn send_at(&self) -> Option<u64>;
    fn send_buffered(&mut self) -> BoxFuture<'_, ()>;
    fn flushed(&mut self) -> Option<Flush>;
    fn close(&mut self) -> BoxOutcome<'_>;
}

impl<C: Client> ErasedClient for C {
    fn service_ns(&self) -> Option<u64> {
        Client::service_ns(self)
    }

    fn lost(&self) -> Option<StoreError> {
        Client::lost(self)
    }

    fn buffers(&self) -> bool {
        Client::buffers(self)
    }

    fn send_at(&self) -> Option<u64> {
        Client::send_at(self)
    }

    fn send_buffered(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(Client::send_buffered(self))
    }

    fn flushed(&mut self) -> Option<Flush> {
        Client::flushed(self)
    }

    fn close(&mut self) -> BoxOutcome<'_> {
        Box::pin(Client::close(self))
    }
}

/// [`Store`], object-safe.
pub(super) trait ErasedStore: Send + Sync {
    fn execution(&self) -> Execution;
    fn capabilities(&self) -> OperationKinds;
    fn times_itself(&self) -> bool;
    fn event_loops_max(&self) -> usize;
    fn prepare(&self, schema: &Schema, purpose: Purpose) -> Result<(), StoreError>;
    fn describe(&self) -> Vec<(String, String)>;
    fn local(&self) -> Result<Box<dyn Any>, StoreError>;
    /// `local` must be a value that this store's `local` returned.
    fn connect<'a>(
        &'a self,
        local: &'a dyn Any,
        client: usize,
    ) -> BoxFuture<'a, Result<Box<dyn ErasedClient>, StoreError>>;
    fn explain(&self, lost: StoreError) -> StoreError;
    fn unsent(&self) -> u64;
    fn finish(&self) -> Result<(), StoreError>;
}

impl<S: Store> ErasedStore for S {
    fn execution(&self) -> Execution {
        Store::execution(self)
    }

    fn capabilities(&self) -> OperationKinds {
        Store::capabilities(self)
    }

    fn times_itself(&self) -> bool {
        Store::times_itself(self)
    }

    fn event_loops_max(&self) -> usize {
        Store::event_loops_max(self)
    }

    fn prepare(&self, schema: &Schema, purpose: Purpose) -> Result<(), StoreError> {
        Store::prepare(self, schema, purpose)
    }

    fn describe(&self) -> Vec<(String, String)> {
        Store::describe(self)
    }

    fn local(&self) -> Result<Box<dyn Any>, StoreError> {
        Ok(Box::new(Store::local(self)?))
    }

    fn connect<'a>(
        &'a self,
        local: &'a dyn Any,
        client: usize,
    ) -> BoxFuture<'a, Result<Box<dyn ErasedClient>, StoreError>> {
        Box::pin(async move {
            let of_another = || StoreError::new("wrapped store", "what clients share is another store's");
            let local = local.downcast_ref::<S::Local>().ok_or_else(of_another)?;
            Ok(Box::new(Store::connect(self, local, client).await?) as Box<dyn ErasedClient>)
        })
    }

    fn explain(&self, lost: StoreError) -> StoreError {
        Store::explain(self, lost)
    }

    fn unsent(&self) -> u64 {
        Store::unsent(self)
    }

    fn finish(&self) -> Result<(), StoreError> {
        Store::finish(self)
    }
}
