//! A store and its clients as what stands before them knows them: behind pointers, so that
//! what stands there, and the runner with it, is compiled once and not once a store.

use serval_model::{
    Client, Execution, FieldSelection, Flush, OperationKind, OperationKinds, Outcome, Purpose, Record, Reply,
    Schema, Store, StoreError,
};
use std::{any::Any, pin::Pin};

/// Something to come.
pub(super) type Later<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// An outcome to come.
pub(super) type Answer<'a> = Later<'a, Outcome>;

/// The verbs of a client.
pub(super) trait Verbs {
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
    client: &mut dyn Verbs,
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

impl<C: Client> Verbs for C {
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

/// A client: its verbs, and what else it can tell.
pub(super) trait Handle: Verbs {
    fn service_ns(&self) -> Option<u64>;
    fn lost(&self) -> Option<StoreError>;
    fn buffers(&self) -> bool;
    fn send_at(&self) -> Option<u64>;
    fn send_buffered(&mut self) -> Later<'_, ()>;
    fn flushed(&mut self) -> Option<Flush>;
    fn close(&mut self) -> Answer<'_>;
}

impl<C: Client> Handle for C {
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

    fn send_buffered(&mut self) -> Later<'_, ()> {
        Box::pin(Client::send_buffered(self))
    }

    fn flushed(&mut self) -> Option<Flush> {
        Client::flushed(self)
    }

    fn close(&mut self) -> Answer<'_> {
        Box::pin(Client::close(self))
    }
}

/// A store.
pub(super) trait Below: Send + Sync {
    fn execution(&self) -> Execution;
    fn capabilities(&self) -> OperationKinds;
    fn times_itself(&self) -> bool;
    fn event_loops_max(&self) -> usize;
    fn prepare(&self, schema: &Schema, purpose: Purpose) -> Result<(), StoreError>;
    fn describe(&self) -> Vec<(String, String)>;
    fn local(&self) -> Result<Box<dyn Any>, StoreError>;
    /// `local` is one that this store has made.
    fn connect<'a>(
        &'a self,
        local: &'a dyn Any,
        client: usize,
    ) -> Later<'a, Result<Box<dyn Handle>, StoreError>>;
    fn explain(&self, lost: StoreError) -> StoreError;
    fn unsent(&self) -> u64;
    fn finish(&self) -> Result<(), StoreError>;
}

impl<S: Store> Below for S {
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
    ) -> Later<'a, Result<Box<dyn Handle>, StoreError>> {
        Box::pin(async move {
            let of_another = || StoreError::new("wrapped store", "what clients share is another store's");
            let local = local.downcast_ref::<S::Local>().ok_or_else(of_another)?;
            Ok(Box::new(Store::connect(self, local, client).await?) as Box<dyn Handle>)
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
