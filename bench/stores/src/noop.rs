//! A store that does nothing, to measure the client itself: `serval run noop` gives the
//! highest throughput that this machine's client can generate.

use crate::StoreInfo;
use serval_model::{
    Client, Execution, FieldSelection, Outcome, Record, Reply, Store, StoreError,
    properties::{Faults, Properties, PropertyTable},
};

/// Description of this store.
pub const INFO: StoreInfo = StoreInfo {
    name: "noop",
    aliases: &[],
    summary: "Does nothing and returns OK: measures the client itself",
    details: "Every verb returns OK without looking at its arguments. Reads and scans return no record, \
              so a workload that verifies what it reads finds every record missing. A client is a thread.",
    time_series: true,
    keeps_records: false,
    batches: true,
    updates_insert: false,
    behind_driver: false,
    properties: PropertyTable { heading: "noop", properties: &[] },
};

/// The store.
#[derive(Debug)]
pub struct Noop;

impl Noop {
    /// Opens the store; it has no properties.
    pub fn open(_: &Properties) -> Result<Self, Faults> {
        Ok(Noop)
    }
}

impl Store for Noop {
    type Local = ();
    type Client = NoopClient;

    fn execution(&self) -> Execution {
        Execution::Threads
    }

    fn describe(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn local(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn connect(&self, (): &(), _: usize) -> Result<NoopClient, StoreError> {
        Ok(NoopClient)
    }
}

/// A client.
#[derive(Debug)]
pub struct NoopClient;

impl Client for NoopClient {
    #[inline]
    async fn read(&mut self, _: &str, _: &str, _: &FieldSelection, _: &mut Reply) -> Outcome {
        Outcome::OK
    }

    #[inline]
    async fn update(&mut self, _: &str, _: &str, _: &Record) -> Outcome {
        Outcome::OK
    }

    #[inline]
    async fn insert(&mut self, _: &str, _: &str, _: &Record) -> Outcome {
        Outcome::OK
    }

    #[inline]
    async fn scan(&mut self, _: &str, _: &str, _: u64, _: &FieldSelection, _: &mut Reply) -> Outcome {
        Outcome::OK
    }

    #[inline]
    async fn delete(&mut self, _: &str, _: &str) -> Outcome {
        Outcome::OK
    }

    #[inline]
    async fn insert_batch(&mut self, _: &str, _: &[(String, Record)]) -> Outcome {
        Outcome::OK
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Poll, Waker};

    fn now(future: impl Future<Output = Outcome>) -> Outcome {
        match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => panic!("nothing to wait for"),
        }
    }

    #[test]
    fn every_operation_succeeds_with_an_empty_reply() {
        let (all, record, mut reply) = (FieldSelection::default(), Record::new(), Reply::new());
        let mut client = NoopClient;
        assert_eq!(now(client.insert("t", "k", &record)), Outcome::OK);
        assert_eq!(now(client.insert_batch("t", &[])), Outcome::OK);
        assert_eq!(now(client.read("t", "k", &all, &mut reply)), Outcome::OK);
        assert_eq!(now(client.scan("t", "k", 10, &all, &mut reply)), Outcome::OK);
        assert_eq!(now(client.update("t", "k", &record)), Outcome::OK);
        assert_eq!(now(client.delete("t", "k")), Outcome::OK);
        assert_eq!(now(client.close()), Outcome::OK);
        assert!(reply.records().is_empty());
    }

    #[test]
    fn a_client_has_size_zero() {
        assert_eq!(size_of::<NoopClient>(), 0);
    }
}
