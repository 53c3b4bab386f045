//! A client of a run: the mix of operations.

use super::{Action, Shared};
use crate::{
    core::Values,
    distribution::{KeyChooser, LengthChooser},
    random::{Random, Rng},
    values,
    workload::{ClientWorkload, End, Last, Place, Step},
};
use serval_model::{Metric, Operation, OperationKind, Outcome, Reply, Status};
use std::sync::Arc;

enum State {
    Reading,
    Inserting(u64),
    /// The read of a read-modify-write; the update is in the operation.
    ReadToModify,
    Modifying {
        read_ok: bool,
    },
    Other,
}

pub(super) struct Mixer {
    shared: Arc<Shared>,
    client: usize,
    values: Values,
    chooser: KeyChooser,
    scan_lengths: LengthChooser,
    rng: Rng,
    state: State,
    scratch: Vec<u8>,
}

impl Mixer {
    pub(super) fn new(shared: Arc<Shared>, place: Place, rng: Rng) -> Self {
        Mixer {
            values: shared.values.clone(),
            chooser: shared.chooser.clone(),
            scan_lengths: shared.scan_lengths.clone(),
            client: place.index,
            shared,
            rng,
            state: State::Other,
            scratch: Vec::new(),
        }
    }

    fn choose_key(&mut self, operation: &mut Operation) {
        // Keys start at recordcount, which is at least 1: one is always there.
        let newest = self.shared.inserts.end() - 1;
        let number = self.chooser.draw(&mut self.rng, newest);
        self.shared.keys.write(&mut operation.key, number);
    }

    /// The fields of a read or scan: all, or one at random; reads may name all.
    fn choose_fields(&mut self, operation: &mut Operation, by_name: bool) {
        let fields = &self.shared.fields;
        if !self.shared.read_all {
            operation.fields.push(&fields[self.rng.below(fields.len() as u64) as usize]);
        } else if by_name {
            fields.iter().for_each(|field| operation.fields.push(field));
        }
    }

    /// The fields of an update: all, or one at random.
    fn write_values(&mut self, operation: &mut Operation) {
        let fields = &self.shared.fields;
        let Operation { key, record, .. } = operation;
        if self.shared.write_all {
            self.values.push_all(record, key, fields, &mut self.rng);
        } else {
            let field = &fields[self.rng.below(fields.len() as u64) as usize];
            self.values.push(record, key, field, &mut self.rng);
        }
    }

    fn begin(&mut self, operation: &mut Operation) -> Step {
        let action = self.shared.actions[self.shared.mix.draw(&mut self.rng)];
        let kind = match action {
            Action::Operation(kind) => kind,
            Action::ReadModifyWrite => OperationKind::Read,
        };
        operation.begin(kind);
        let integrity = self.values.integrity;
        self.state = State::Other;
        match action {
            Action::Operation(OperationKind::Insert) => {
                let number = self.shared.inserts.begin(self.client);
                self.shared.keys.write(&mut operation.key, number);
                let Operation { key, record, .. } = operation;
                self.values.push_all(record, key, &self.shared.fields, &mut self.rng);
                self.state = State::Inserting(number);
                return Step::Issue { more: true };
            }
            Action::Operation(OperationKind::Read) => {
                self.choose_key(operation);
                self.choose_fields(operation, integrity || self.shared.read_by_name);
                if integrity {
                    self.state = State::Reading;
                    return Step::Issue { more: true };
                }
            }
            Action::Operation(OperationKind::Update) => {
                self.choose_key(operation);
                self.write_values(operation);
            }
            Action::Operation(OperationKind::Scan) => {
                self.choose_key(operation);
                operation.scan_length = self.scan_lengths.draw(&mut self.rng);
                self.choose_fields(operation, false);
            }
            Action::Operation(OperationKind::Delete) => self.choose_key(operation),
            Action::ReadModifyWrite => {
                self.choose_key(operation);
                self.choose_fields(operation, false);
                // Made before the read, so that making it is in no time.
                self.write_values(operation);
                self.state = State::ReadToModify;
                return Step::Issue { more: true };
            }
        }
        Step::Issue { more: false }
    }

    /// Compares what was read with what must have been written.
    fn verify(&mut self, key: &str, reply: &Reply) -> Option<Status> {
        if !self.values.integrity {
            return None;
        }
        let mut cells = reply.records().iter().flat_map(|record| record.iter()).peekable();
        if cells.peek().is_none() {
            return Some(Status::Error);
        }
        let length = match self.values.lengths {
            LengthChooser::Constant(length) => length as usize,
            // Integrity needs constant lengths; opening has refused others.
            _ => return None,
        };
        for (field, value) in cells {
            self.scratch.clear();
            values::write_integrity(&mut self.scratch, key, field, length);
            if self.scratch != value {
                return Some(Status::UnexpectedState);
            }
        }
        Some(Status::Ok)
    }

    fn continued(&mut self, outcome: &Outcome, reply: &Reply, operation: &mut Operation) -> Step {
        match self.state {
            State::Inserting(number) => {
                // Failed inserts too, as in YCSB: later keys must not wait for ever.
                self.shared.inserts.acknowledge(self.client, number);
                Step::End(End::of(outcome))
            }
            State::Reading => {
                let verified = self.verify(&operation.key, reply);
                let ok = outcome.is_ok() && verified.is_none_or(Status::is_ok);
                Step::End(End { composite: None, verified, ok, stop: false })
            }
            State::ReadToModify => {
                self.state = State::Modifying { read_ok: outcome.is_ok() };
                operation.kind = OperationKind::Update;
                Step::Issue { more: true }
            }
            State::Modifying { read_ok } => {
                // The reply still holds what was read before the update.
                let verified = self.verify(&operation.key, reply);
                let ok = read_ok && outcome.is_ok() && verified.is_none_or(Status::is_ok);
                Step::End(End { composite: Some(Metric::READ_MODIFY_WRITE), verified, ok, stop: false })
            }
            State::Other => Step::End(End::of(outcome)),
        }
    }
}

impl ClientWorkload for Mixer {
    fn step(&mut self, last: Last<'_>, operation: &mut Operation) -> Step {
        match last {
            Last::Outcome(outcome, reply) => self.continued(outcome, reply, operation),
            Last::Begin | Last::Waited => self.begin(operation),
        }
    }
}
