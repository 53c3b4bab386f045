//! Deletes records, to restore a store's state before a load.

use super::{CoreWorkload, Tools};
use crate::{
    random::Rng,
    workload::{ClientWorkload, Demand, End, Last, Place, Step, Workload},
};
use serval_model::{Operation, OperationKind, Schema, Status};
use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Deletes the records of a range of numbers. A missing record counts as
/// deleted.
#[derive(Debug)]
pub struct Eraser {
    core: CoreWorkload,
    records: Range<u64>,
    next: Arc<AtomicU64>,
}

impl Eraser {
    /// Deletes the records of a workload.
    pub fn new(core: CoreWorkload, records: Range<u64>) -> Self {
        Eraser { core, next: Arc::new(AtomicU64::new(records.start)), records }
    }
}

impl Workload for Eraser {
    fn schema(&self) -> Schema {
        self.core.schema()
    }

    fn demands(&self) -> Vec<Demand> {
        vec![Demand { kind: OperationKind::Delete, because: "removing all records before a load".into() }]
    }

    fn units(&self) -> Option<u64> {
        Some(self.records.end.saturating_sub(self.records.start))
    }

    fn client(&self, place: Place, _: Rng) -> Box<dyn ClientWorkload> {
        Box::new(Erasing {
            tools: self.core.tools(place),
            next: Arc::clone(&self.next),
            end: self.records.end,
        })
    }
}

struct Erasing {
    tools: Tools,
    next: Arc<AtomicU64>,
    end: u64,
}

impl ClientWorkload for Erasing {
    fn step(&mut self, last: Last<'_>, operation: &mut Operation) -> Step {
        if let Last::Outcome(outcome, _) = last {
            let ok = outcome.is_ok() || outcome.status == Status::NotFound;
            return Step::End(End { ok, ..End::of(outcome) });
        }
        let number = self.next.fetch_add(1, Relaxed);
        if number >= self.end {
            return Step::Stop;
        }
        operation.begin(OperationKind::Delete);
        self.tools.write_key(&mut operation.key, number);
        Step::Issue { more: true }
    }
}
