//! Stores with known service times for tests, on a virtual clock: measurements of them can be
//! compared with theory.
//!
//! Stores with a [`Law`] keep no records: every verb takes its time and succeeds.
//! [`DelayedStore`] keeps records and delays the visibility of writes. They need virtual time
//! ([`serval_runner::virtual_time::run`]); in real time they would wait for ever.

mod delayed;
mod laws;

pub use delayed::{DelayedStore, DelayedStoreClient, Staleness};

pub use laws::{Drift, Law, MultiServerQueue, Noisy, Service, ServiceDistribution, Stall, StepChange};

use serval_model::{Client, Execution, FieldSelection, Outcome, Record, Reply, Store, StoreError};
use serval_runner::virtual_time::VirtualTime;
use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
};

/// A store that obeys a law.
#[derive(Debug)]
pub struct Synthetic<L> {
    time: VirtualTime,
    law: Arc<Mutex<L>>,
}

impl<L: Law> Synthetic<L> {
    /// Returns a store that obeys `law` by this clock.
    pub fn new(time: &VirtualTime, law: L) -> Self {
        Synthetic { time: time.clone(), law: Arc::new(Mutex::new(law)) }
    }
}

/// One client of a [`Synthetic`].
#[derive(Debug)]
pub struct SyntheticClient<L> {
    time: VirtualTime,
    law: Arc<Mutex<L>>,
}

impl<L: Law> Store for Synthetic<L> {
    type Local = ();
    type Client = SyntheticClient<L>;

    fn execution(&self) -> Execution {
        Execution::EventLoops
    }

    fn describe(&self) -> Vec<(String, String)> {
        let law = self.law.lock().unwrap_or_else(PoisonError::into_inner);
        vec![("law".into(), law.describe())]
    }

    fn local(&self) -> Result<(), StoreError> {
        self.law.lock().unwrap_or_else(PoisonError::into_inner).begin_run();
        Ok(())
    }

    async fn connect(&self, (): &(), _client: usize) -> Result<SyntheticClient<L>, StoreError> {
        Ok(SyntheticClient { time: self.time.clone(), law: Arc::clone(&self.law) })
    }
}

impl<L: Law> SyntheticClient<L> {
    async fn serve(&self) -> Outcome {
        let now = self.time.now();
        let end = self.law.lock().unwrap_or_else(PoisonError::into_inner).serve(now);
        // Every operation takes some time, or a client would never yield to others.
        self.time.sleep_until(end.max(now + 1)).await;
        Outcome::OK
    }
}

impl<L: Law> Client for SyntheticClient<L> {
    fn read(&mut self, _: &str, _: &str, _: &FieldSelection, _: &mut Reply) -> impl Future<Output = Outcome> {
        self.serve()
    }
    fn update(&mut self, _: &str, _: &str, _: &Record) -> impl Future<Output = Outcome> {
        self.serve()
    }
    fn insert(&mut self, _: &str, _: &str, _: &Record) -> impl Future<Output = Outcome> {
        self.serve()
    }
    fn scan(
        &mut self,
        _: &str,
        _: &str,
        _: u64,
        _: &FieldSelection,
        _: &mut Reply,
    ) -> impl Future<Output = Outcome> {
        self.serve()
    }
    fn delete(&mut self, _: &str, _: &str) -> impl Future<Output = Outcome> {
        self.serve()
    }
}
