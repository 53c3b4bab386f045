//! A client of a load: inserts the next records until all are there.

use super::{Shared, around};
use crate::{
    core::Values,
    random::Rng,
    workload::{ClientWorkload, End, Last, Place, Step},
};
use serval_model::{Operation, OperationKind, Outcome, Status};
use std::sync::{Arc, atomic::Ordering::Relaxed};

/// Sets the random numbers of records apart from those of clients.
const RECORDS: u64 = 0x5245_434f_5244_5321;

enum State {
    Idle,
    /// Looks whether a record is there that an interrupted load may have
    /// inserted.
    Looking,
    Inserting,
    Pausing,
}

pub(super) struct Loader {
    shared: Arc<Shared>,
    values: Values,
    /// For what is the client's own.
    rng: Rng,
    /// A record's values follow from the run's seed and its number: which of
    /// several clients inserts it is chance.
    seed: u64,
    /// Records that this client has yet to insert.
    left: u64,
    state: State,
    /// The record in hand.
    number: u64,
    attempts: u64,
}

impl Loader {
    pub(super) fn new(shared: Arc<Shared>, place: Place, rng: Rng) -> Self {
        let values = shared.values.clone();
        let left = place.units.unwrap_or(u64::MAX);
        Loader { shared, values, rng, seed: place.seed, left, state: State::Idle, number: 0, attempts: 0 }
    }

    fn begin(&mut self, operation: &mut Operation) -> Step {
        let shared = &self.shared;
        self.attempts = 0;
        operation.begin(OperationKind::Insert);
        if shared.batch == 1 {
            self.number = shared.next_load.fetch_add(1, Relaxed);
            self.left = self.left.saturating_sub(1);
            shared.keys.write(&mut operation.key, self.number);
            if shared.resume.is_some_and(|(_, certain)| self.number < certain) {
                operation.kind = OperationKind::Read;
                self.state = State::Looking;
                return Step::Probe;
            }
            return self.insert(operation);
        }
        let size = shared.batch.min(self.left.max(1));
        let first = shared.next_load.fetch_add(size, Relaxed);
        self.left = self.left.saturating_sub(size);
        for number in first..first + size {
            let (key, record) = operation.push_batch();
            shared.keys.write(key, number);
            let mut rng = Rng::stream(self.seed ^ RECORDS, number);
            self.values.push_all(record, key, &shared.fields, &mut rng);
        }
        self.state = State::Inserting;
        Step::Issue { more: true }
    }

    fn insert(&mut self, operation: &mut Operation) -> Step {
        operation.kind = OperationKind::Insert;
        let Operation { key, record, .. } = operation;
        record.clear();
        let mut rng = Rng::stream(self.seed ^ RECORDS, self.number);
        self.values.push_all(record, key, &self.shared.fields, &mut rng);
        self.state = State::Inserting;
        Step::Issue { more: true }
    }

    fn inserted(&mut self, outcome: &Outcome) -> Step {
        if outcome.is_ok() {
            return Step::End(End::of(outcome));
        }
        self.attempts += 1;
        let retries = self.shared.retries;
        if self.attempts <= retries.limit {
            self.state = State::Pausing;
            return Step::Wait(around(retries.interval, &mut self.rng));
        }
        Step::End(End { stop: !retries.keep_going, ..End::of(outcome) })
    }
}

impl ClientWorkload for Loader {
    fn step(&mut self, last: Last<'_>, operation: &mut Operation) -> Step {
        match (last, &self.state) {
            (Last::Outcome(outcome, _), State::Looking) => match outcome.status {
                Status::NotFound => self.insert(operation),
                _ if outcome.is_ok() => Step::End(End::of(outcome)),
                _ => self.inserted(outcome),
            },
            (Last::Outcome(outcome, _), _) => self.inserted(outcome),
            // The operation is still filled in.
            (Last::Waited, State::Pausing) => {
                if operation.kind == OperationKind::Read {
                    self.state = State::Looking;
                    return Step::Probe;
                }
                self.state = State::Inserting;
                Step::Issue { more: true }
            }
            _ => self.begin(operation),
        }
    }
}
