//! The interface of workloads: each client has a state machine that returns the
//! next step, given the outcome of the last operation.
//!
//! A *unit* is what `operationcount` counts (YCSB's transaction): one operation,
//! or several, such as a read and the following update.

use crate::random::Rng;
use serval_model::{Metric, Operation, OperationKind, Outcome, Reply, Schema, Status};
use std::time::Duration;

/// A client's position among the clients of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Number of the client, from 0.
    pub index: usize,
    /// Number of clients.
    pub count: usize,
    /// Number of units that the client will execute; `None` if the run is bounded by time
    /// or unbounded.
    pub units: Option<u64>,
    /// Seed of the run, for random numbers that must not depend on the client.
    pub seed: u64,
}

/// Event since the last step.
#[derive(Debug)]
pub enum Last<'a> {
    /// No event: a new unit starts.
    Begin,
    /// The issued operation has ended. The reply is the last read's or
    /// scan's; a workload may keep it by swapping in another.
    Outcome(&'a Outcome, &'a mut Reply),
    /// The requested wait is over.
    Waited,
}

/// A client's next step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// Send the filled-in operation.
    Issue {
        /// Whether to ask again once its outcome is known; otherwise the unit
        /// ends with the operation.
        more: bool,
    },
    /// Send the filled-in operation to check whether a record exists, and ask
    /// again once its outcome is known. Only a failure is measured, not a hit or
    /// miss.
    Probe,
    /// Send the filled-in read of a record that may not be visible yet, and ask again once its
    /// outcome is known. Measured if it finds the record; a miss is neither measured nor a
    /// failure.
    Seek,
    /// Ask again after a delay, which belongs to no operation.
    Wait(Duration),
    /// The unit is over.
    End(End),
    /// The client is done.
    Stop,
}

/// The end of a unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct End {
    /// Metric of the whole unit, from the first operation's start to the last
    /// one's end.
    pub composite: Option<Metric>,
    /// Result of verifying the data that was read.
    pub verified: Option<Status>,
    /// Whether the unit succeeded.
    pub ok: bool,
    /// Whether the client should stop here.
    pub stop: bool,
}

impl End {
    /// Returns the end of a unit of one operation.
    pub fn of(outcome: &Outcome) -> End {
        End { composite: None, verified: None, ok: outcome.is_ok(), stop: false }
    }
}

/// A verb that a workload uses, and the setting that asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// The verb.
    pub kind: OperationKind,
    /// The setting, for example `scanproportion=0.95`.
    pub because: String,
}

/// A workload, shared by all clients of a run.
pub trait Workload: Send + Sync {
    /// Returns the table and fields that it uses.
    fn schema(&self) -> Schema;

    /// Returns the verbs that it uses.
    fn demands(&self) -> Vec<Demand>;

    /// Returns the number of units of the whole run, if the workload bounds it: a load's.
    fn units(&self) -> Option<u64> {
        None
    }

    /// Returns the names of its own metrics; [`Metric::custom`] numbers them.
    fn metrics(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns whether it verifies the data that is read, so that VERIFY is
    /// measured.
    fn verifies(&self) -> bool {
        false
    }

    /// Returns a sample of the keys that a run needs. A store without any of them
    /// was not loaded. Empty if the run needs no records.
    fn sample_keys(&self) -> Vec<String> {
        Vec::new()
    }

    /// Creates a client's state machine with its own random numbers.
    fn client(&self, place: Place, rng: Rng) -> Box<dyn ClientWorkload>;

    /// Returns warnings to report after the run, such as an exhausted key range.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A client's state machine.
pub trait ClientWorkload {
    /// Returns the next step. Fills in `operation` for steps that send it; it
    /// keeps its contents between calls.
    fn step(&mut self, last: Last<'_>, operation: &mut Operation) -> Step;

    /// Called once the client has stopped. Returns why the run cannot continue, if
    /// so; that ends the run for all clients.
    fn failure(&mut self) -> Option<String> {
        None
    }
}
