//! What a workload is: for each client a state machine that says what to do
//! next, given how the last operation ended.
//!
//! A *unit* is what `operationcount` counts (YCSB's transaction): one
//! operation, or several such as a read and the update that follows it.

use crate::random::Rng;
use serval_model::{Metric, Operation, OperationKind, Outcome, Reply, Schema, Status};
use std::time::Duration;

/// A client's place among all clients of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its number, from 0.
    pub index: usize,
    /// How many clients there are.
    pub count: usize,
    /// Units that it will do; `None` when the run is bounded by time or not
    /// at all.
    pub units: Option<u64>,
    /// The seed of the run, for what must not depend on which client does it.
    pub seed: u64,
}

/// What happened since the client was last asked.
#[derive(Debug)]
pub enum Last<'a> {
    /// Nothing: a new unit begins.
    Begin,
    /// The operation that was issued has ended. The reply is that of the
    /// last read or scan; whoever wants to keep it may swap it for another.
    Outcome(&'a Outcome, &'a mut Reply),
    /// The wait that was asked for is over.
    Waited,
}

/// What a client does next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// Send the operation that was filled in.
    Issue {
        /// Whether to ask again once its outcome is known. When not, the
        /// unit ends with the operation.
        more: bool,
    },
    /// Send the operation that was filled in, to learn whether a record is
    /// there, and ask again once its outcome is known. It is not measured,
    /// whether the record is found or not; only its failure is.
    Probe,
    /// Send the read that was filled in, of a record that may not be there yet, and ask again
    /// once its outcome is known. It is measured where it finds the record; that it does not is
    /// what is asked, and neither measured nor a failure.
    Seek,
    /// Ask again after a while; the time belongs to no operation.
    Wait(Duration),
    /// The unit is over.
    End(End),
    /// This client has nothing more to do.
    Stop,
}

/// The end of a unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct End {
    /// Times the unit as a whole, from the first operation's start to the
    /// last one's end, under this metric too.
    pub composite: Option<Metric>,
    /// What comparing the data read with the data expected came to.
    pub verified: Option<Status>,
    /// Whether the unit did what it should.
    pub ok: bool,
    /// Whether the client should stop here.
    pub stop: bool,
}

impl End {
    /// A unit of one operation that ended so.
    pub fn of(outcome: &Outcome) -> End {
        End { composite: None, verified: None, ok: outcome.is_ok(), stop: false }
    }
}

/// A verb that a workload will ask for, and the setting that makes it do so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// The verb.
    pub kind: OperationKind,
    /// For example `scanproportion=0.95`.
    pub because: String,
}

/// A workload, shared by all clients of a run.
pub trait Workload: Send + Sync {
    /// The table and fields it uses.
    fn schema(&self) -> Schema;

    /// The verbs it will ask for.
    fn demands(&self) -> Vec<Demand>;

    /// Units in the whole run, if the workload bounds them: those of a load.
    fn units(&self) -> Option<u64> {
        None
    }

    /// Names of its own metrics; [`Metric::custom`] numbers them.
    fn metrics(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether outcomes are compared with expectations, so that the time
    /// this takes is worth measuring (VERIFY).
    fn verifies(&self) -> bool {
        false
    }

    /// Keys all over the range of records that a run needs to be there; a
    /// store that has none of them was not loaded. Empty when nothing needs
    /// to be there.
    fn sample_keys(&self) -> Vec<String> {
        Vec::new()
    }

    /// One client's state machine. `rng` is the client's own.
    fn client(&self, place: Place, rng: Rng) -> Box<dyn ClientWorkload>;

    /// Things to report after the run, such as a key range that ran out.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// One client's part of a workload.
pub trait ClientWorkload {
    /// Says what to do next. For [`Step::Issue`] it has filled in
    /// `operation`, which keeps its contents between calls.
    fn step(&mut self, last: Last<'_>, operation: &mut Operation) -> Step;

    /// Asked once the client has stopped: why the run cannot go on, if that is
    /// why it did. Ends the run for all clients.
    fn failure(&mut self) -> Option<String> {
        None
    }
}
