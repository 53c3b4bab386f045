//! A client of a load: inserts the next records until all exist.
//!
//! A load that resumes checks each record before it inserts it. The first missing record
//! does not tell which others are missing, because clients do not progress in
//! lockstep.

use super::{CoreShared, Tools, around};
use crate::{
    random::Rng,
    workload::{ClientWorkload, End, Last, Place, Step},
};
use serval_model::{Operation, OperationKind, Outcome, Record, Status};
use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering::Relaxed},
};

/// Separates the random streams of records from those of clients.
const RECORDS: u64 = 0x5245_434f_5244_5321;

/// Makes the records of a load.
pub trait LoadRecords {
    /// Writes a record and its key, with random numbers from `rng`. Returns false on
    /// failure: [`failure`](Self::failure) returns why.
    fn write(&mut self, number: u64, key: &mut String, record: &mut Record, rng: Rng) -> bool;

    /// Writes the key only.
    fn write_key(&mut self, number: u64, key: &mut String, rng: Rng) -> bool;

    /// Returns why a record could not be made.
    fn failure(&mut self) -> Option<String> {
        None
    }
}

/// Makes the core workload's records.
impl LoadRecords for Tools {
    fn write(&mut self, number: u64, key: &mut String, record: &mut Record, mut rng: Rng) -> bool {
        Tools::write_key(self, key, number);
        self.push_all(record, key, &mut rng);
        true
    }

    fn write_key(&mut self, number: u64, key: &mut String, _: Rng) -> bool {
        Tools::write_key(self, key, number);
        true
    }
}

enum LoadState {
    Idle,
    /// Checking whether an interrupted load has inserted a record.
    Checking,
    Inserting,
    Pausing,
}

/// A client of a load.
pub struct Loader<R> {
    shared: Arc<CoreShared>,
    records: R,
    /// The client's own random numbers.
    rng: Rng,
    /// Seed of the records' values. They depend on the record's number, not on the
    /// client that happens to insert it.
    seed: u64,
    /// Number of records that this client has yet to insert.
    left: u64,
    state: LoadState,
    /// Records of the current step that were not checked yet.
    unchecked: Range<u64>,
    /// Records of the current step that must be inserted.
    missing: Vec<u64>,
    attempts: u64,
}

impl<R: LoadRecords> Loader<R> {
    pub(super) fn new(shared: Arc<CoreShared>, records: R, place: Place, rng: Rng) -> Self {
        Loader {
            records,
            shared,
            rng,
            seed: place.seed,
            left: place.units.unwrap_or(u64::MAX),
            state: LoadState::Idle,
            unchecked: 0..0,
            missing: Vec::new(),
            attempts: 0,
        }
    }

    fn begin(&mut self, operation: &mut Operation) -> Step {
        let shared = &self.shared;
        let size = shared.batch.min(self.left.max(1));
        let first = shared.next_load.fetch_add(size, Relaxed);
        self.left = self.left.saturating_sub(size);
        self.attempts = 0;
        self.missing.clear();
        operation.begin(OperationKind::Insert);
        if shared.resume {
            self.unchecked = first..first + size;
            return self.check_next(operation);
        }
        self.missing.extend(first..first + size);
        self.insert(operation)
    }

    /// Returns the random numbers of a record.
    fn of_record(&self, number: u64) -> Rng {
        Rng::stream(self.seed ^ RECORDS, number)
    }

    /// Checks the next record of the step, or inserts the missing ones.
    fn check_next(&mut self, operation: &mut Operation) -> Step {
        if let Some(number) = self.unchecked.clone().next() {
            operation.kind = OperationKind::Read;
            operation.key.clear();
            if !self.records.write_key(number, &mut operation.key, self.of_record(number)) {
                return Step::Stop;
            }
            // One field suffices for the check.
            operation.fields.all();
            if let Some(field) = self.shared.fields.first() {
                operation.fields.push(field);
            }
            self.state = LoadState::Checking;
            return Step::Probe;
        }
        if self.missing.is_empty() {
            return Step::End(End { composite: None, verified: None, ok: true, stop: false });
        }
        self.insert(operation)
    }

    fn checked(&mut self, outcome: &Outcome, operation: &mut Operation) -> Step {
        match outcome.status {
            Status::NotFound => self.missing.extend(self.unchecked.next()),
            _ if outcome.is_ok() => {
                self.unchecked.next();
                operation.skipped += 1;
            }
            _ => return self.inserted(outcome),
        }
        self.check_next(operation)
    }

    /// Fills in the insert of the missing records.
    fn insert(&mut self, operation: &mut Operation) -> Step {
        operation.kind = OperationKind::Insert;
        let shared = &self.shared;
        let batched = shared.batch > 1;
        for &number in &self.missing {
            let (key, record) = if batched {
                operation.push_batch()
            } else {
                operation.key.clear();
                operation.record.clear();
                (&mut operation.key, &mut operation.record)
            };
            let rng = Rng::stream(self.seed ^ RECORDS, number);
            if !self.records.write(number, key, record, rng) {
                return Step::Stop;
            }
        }
        self.state = LoadState::Inserting;
        Step::Issue { more: true }
    }

    fn inserted(&mut self, outcome: &Outcome) -> Step {
        if outcome.is_ok() {
            return Step::End(End::of(outcome));
        }
        self.attempts += 1;
        let retries = self.shared.retries;
        if self.attempts <= retries.limit {
            self.state = LoadState::Pausing;
            return Step::Wait(around(retries.interval, &mut self.rng));
        }
        Step::End(End { stop: !retries.keep_going, ..End::of(outcome) })
    }
}

impl<R: LoadRecords> ClientWorkload for Loader<R> {
    fn step(&mut self, last: Last<'_>, operation: &mut Operation) -> Step {
        match (last, &self.state) {
            (Last::Outcome(outcome, _), LoadState::Checking) => self.checked(outcome, operation),
            (Last::Outcome(outcome, _), _) => self.inserted(outcome),
            // The operation is still filled in.
            (Last::Waited, LoadState::Pausing) => {
                if operation.kind == OperationKind::Read {
                    self.state = LoadState::Checking;
                    return Step::Probe;
                }
                self.state = LoadState::Inserting;
                Step::Issue { more: true }
            }
            _ => self.begin(operation),
        }
    }

    fn failure(&mut self) -> Option<String> {
        self.records.failure()
    }
}
