//! A client of a run: the mix of operations.

use super::{Action, Tools};
use crate::{
    distribution::KeyChooser,
    random::Rng,
    workload::{ClientWorkload, End, Last, Step},
};
use serval_model::{Metric, Operation, OperationKind, Outcome, Reply, Status};

enum State {
    Reading,
    Inserting(u64),
    /// Reading in a read-modify-write; the operation holds the update.
    ReadToModify,
    Modifying {
        read_ok: bool,
    },
    Other,
}

pub(super) struct Mixer {
    tools: Tools,
    chooser: KeyChooser,
    rng: Rng,
    state: State,
}

impl Mixer {
    pub(super) fn new(tools: Tools, rng: Rng) -> Self {
        Mixer { chooser: tools.request_chooser(), tools, rng, state: State::Other }
    }

    fn choose_key(&mut self, operation: &mut Operation) {
        let number = self.chooser.draw(&mut self.rng, self.tools.newest());
        self.tools.write_key(&mut operation.key, number);
    }

    fn choose_fields(&mut self, operation: &mut Operation, by_name: bool) {
        self.tools.choose_fields(&mut operation.fields, by_name, &mut self.rng);
    }

    fn write_values(&mut self, operation: &mut Operation) {
        self.tools.push_some(&mut operation.record, &operation.key, &mut self.rng);
    }

    fn begin(&mut self, operation: &mut Operation) -> Step {
        let shared = &self.tools.shared;
        let action = shared.actions[shared.mix.draw(&mut self.rng)];
        let kind = match action {
            Action::Operation(kind) => kind,
            Action::ReadModifyWrite => OperationKind::Read,
        };
        operation.begin(kind);
        self.state = State::Other;
        match action {
            Action::Operation(OperationKind::Insert) => {
                let number = self.tools.begin_insert();
                self.tools.write_key(&mut operation.key, number);
                self.tools.push_all(&mut operation.record, &operation.key, &mut self.rng);
                self.state = State::Inserting(number);
                return Step::Issue { more: true };
            }
            Action::Operation(OperationKind::Read) => {
                self.choose_key(operation);
                self.choose_fields(operation, self.tools.reads_by_name());
                if self.tools.verifies() {
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
                operation.scan_length = self.tools.scan_length(&mut self.rng);
                self.choose_fields(operation, false);
            }
            Action::Operation(OperationKind::Delete) => self.choose_key(operation),
            Action::ReadModifyWrite => {
                self.choose_key(operation);
                self.choose_fields(operation, false);
                // Made before the read, so that no measured time includes it.
                self.write_values(operation);
                self.state = State::ReadToModify;
                return Step::Issue { more: true };
            }
        }
        Step::Issue { more: false }
    }

    fn continued(&mut self, outcome: &Outcome, reply: &Reply, operation: &mut Operation) -> Step {
        match self.state {
            State::Inserting(number) => {
                self.tools.acknowledge(number);
                Step::End(End::of(outcome))
            }
            State::Reading => {
                let verified = self.tools.verify(&operation.key, reply);
                let ok = outcome.is_ok() && verified.is_none_or(Status::is_ok);
                Step::End(End { composite: None, verified, ok, stop: false })
            }
            State::ReadToModify => {
                self.state = State::Modifying { read_ok: outcome.is_ok() };
                operation.kind = OperationKind::Update;
                Step::Issue { more: true }
            }
            State::Modifying { read_ok } => {
                // The reply still holds the record before the update.
                let verified = self.tools.verify(&operation.key, reply);
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
