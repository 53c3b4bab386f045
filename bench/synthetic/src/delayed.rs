//! A store with delayed visibility of writes.

use crate::Service;
use serval_model::{Client, Execution, FieldSelection, Outcome, Record, Reply, Status, Store, StoreError};
use serval_runner::virtual_time::VirtualTime;
use serval_workload::{Random, Rng};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Anomalies of reads besides the delay.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Staleness {
    /// Share of reads that miss the last visible write.
    pub one_behind: f64,
    /// Share of reads that see the last visible write, but not the one before it.
    pub torn: f64,
}

/// A write and when it becomes visible.
struct Written {
    visible_at: u64,
    /// Its fields; `None` for a delete.
    fields: Option<Vec<(String, Vec<u8>)>>,
    /// Whether it replaced the whole record.
    whole: bool,
}

#[derive(Default)]
struct Records {
    written: HashMap<String, Vec<Written>>,
    /// Each write in the order of acknowledgements: key, time of the acknowledgement, and delay.
    log: Vec<(String, u64, u64)>,
}

/// Records on a virtual clock. Each operation takes a service time. A write becomes visible, to its
/// writer too, a delay after its end, and never before earlier acknowledged writes.
pub struct DelayedStore {
    time: VirtualTime,
    shared: Arc<DelayedRecords>,
}

struct DelayedRecords {
    records: Mutex<Records>,
    chance: Mutex<Chance>,
    staleness: Staleness,
}

struct Chance {
    service: Service,
    delay: Service,
    rng: Rng,
}

impl DelayedStore {
    /// Returns a store with these service times and delays.
    pub fn new(time: &VirtualTime, service: Service, delay: Service) -> DelayedStore {
        DelayedStore::with(time, service, delay, Staleness::default())
    }

    /// Returns a store that also serves old versions.
    pub fn with(time: &VirtualTime, service: Service, delay: Service, staleness: Staleness) -> DelayedStore {
        let chance = Mutex::new(Chance { service, delay, rng: Rng::new(11) });
        let shared = DelayedRecords { records: Mutex::default(), chance, staleness };
        DelayedStore { time: time.clone(), shared: Arc::new(shared) }
    }

    /// Returns each write's key, time of acknowledgement, ns, and delay, ns, in the order of acknowledgements.
    pub fn log(&self) -> Vec<(String, u64, u64)> {
        self.shared.records().log.clone()
    }
}

impl DelayedRecords {
    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn chance(&self) -> MutexGuard<'_, Chance> {
        self.chance.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for DelayedStore {
    type Local = ();
    type Client = DelayedStoreClient;

    fn execution(&self) -> Execution {
        Execution::EventLoops
    }

    fn describe(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn local(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn connect(&self, (): &(), _: usize) -> Result<DelayedStoreClient, StoreError> {
        Ok(DelayedStoreClient { time: self.time.clone(), shared: Arc::clone(&self.shared) })
    }
}

/// One client of a [`DelayedStore`].
pub struct DelayedStoreClient {
    time: VirtualTime,
    shared: Arc<DelayedRecords>,
}

impl DelayedStoreClient {
    async fn serve(&self) {
        let span = self.shared.chance().service.draw(1.0).max(1);
        self.time.sleep_until(self.time.now() + span).await;
    }

    async fn write(&self, key: &str, record: Option<&Record>, whole: bool) -> Outcome {
        self.serve().await;
        let now = self.time.now();
        let delay = self.shared.chance().delay.draw(1.0);
        let fields = record
            .map(|record| record.iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect());
        let mut records = self.shared.records();
        records.log.push((key.to_owned(), now, delay));
        let of_key = records.written.entry(key.to_owned()).or_default();
        let last = of_key.last().map_or(0, |last| last.visible_at);
        let visible_at = (now + delay).max(last);
        of_key.push(Written { visible_at, fields, whole });
        Outcome::OK
    }
}

/// Applies writes. Returns the fields in the order in which they were first written.
fn apply<'a>(writes: impl Iterator<Item = &'a Written>) -> Option<Vec<(&'a str, &'a [u8])>> {
    let mut record: Option<Vec<(&str, &[u8])>> = None;
    for write in writes {
        let Some(fields) = &write.fields else {
            record = None;
            continue;
        };
        if write.whole {
            record = None;
        }
        let record = record.get_or_insert_default();
        for (name, value) in fields {
            match record.iter_mut().find(|(other, _)| other == name) {
                Some((_, old)) => *old = value,
                None => record.push((name, value)),
            }
        }
    }
    record
}

impl Client for DelayedStoreClient {
    async fn read(&mut self, _: &str, key: &str, _: &FieldSelection, reply: &mut Reply) -> Outcome {
        self.serve().await;
        let now = self.time.now();
        let (behind, torn) = {
            let Staleness { one_behind, torn } = self.shared.staleness;
            let chance = self.shared.chance().rng.next_f64();
            (chance < one_behind, chance >= one_behind && chance < one_behind + torn)
        };
        let records = self.shared.records();
        let writes = records.written.get(key).map(Vec::as_slice).unwrap_or_default();
        let mut visible: Vec<&Written> = writes.iter().filter(|write| write.visible_at <= now).collect();
        if behind {
            visible.pop();
        }
        if torn && visible.len() > 1 {
            visible.remove(visible.len() - 2);
        }
        let record = apply(visible.into_iter());
        let Some(record) = record else { return Outcome::NOT_FOUND };
        let out = reply.begin_record();
        record.iter().for_each(|(name, value)| out.push(name, value));
        Outcome::OK
    }

    async fn update(&mut self, _: &str, key: &str, fields: &Record) -> Outcome {
        self.write(key, Some(fields), false).await
    }

    async fn insert(&mut self, _: &str, key: &str, record: &Record) -> Outcome {
        self.write(key, Some(record), true).await
    }

    async fn scan(&mut self, _: &str, _: &str, _: u64, _: &FieldSelection, _: &mut Reply) -> Outcome {
        self.serve().await;
        Outcome::failed(Status::NotImplemented, "there are no scans here")
    }

    async fn delete(&mut self, _: &str, key: &str) -> Outcome {
        self.write(key, None, true).await
    }
}
