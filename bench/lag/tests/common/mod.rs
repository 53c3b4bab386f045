//! Producers and consumers on a store in virtual time.

use serval_lag::{
    Consumer, Consuming, Producer, Producing,
    analysis::{LagSettings, PartClock, ProcessJournal, result},
    journal::Journal,
    queue::InMemory,
};
use serval_model::{
    Operation, OperationKind, Schema,
    properties::{Origin, Properties, Reader},
};
use serval_result::lag::LagResult;
use serval_runner::{Control, RunOptions, virtual_time, virtual_time::VirtualTime};
use serval_synthetic::{DelayedStore, Service, ServiceDistribution, Staleness};
use serval_workload::{
    ClientWorkload, Demand, Last, Place, Rng, Step, Workload,
    core::{Circumstances, CoreWorkload, Phase},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Parameters of a run. Durations in ns.
pub(crate) struct Run {
    /// Shape and mean of the delay.
    pub(crate) delay: (ServiceDistribution, u64),
    pub(crate) staleness: Staleness,
    pub(crate) writers: usize,
    pub(crate) consumers: usize,
    /// Number of writes of each writer.
    pub(crate) writes: u64,
    pub(crate) update_share: f64,
    pub(crate) records: u64,
    pub(crate) read_back: f64,
    pub(crate) again: f64,
    pub(crate) queue_max: usize,
    /// Latest end.
    pub(crate) ends_after: u64,
}

impl Run {
    /// Returns a run with one writer that inserts, and one consumer.
    pub(crate) fn inserts(writes: u64) -> Run {
        Run {
            delay: (ServiceDistribution::Constant, 0),
            staleness: Staleness::default(),
            writers: 1,
            consumers: 4,
            writes,
            update_share: 0.0,
            records: 1,
            read_back: 0.0,
            again: 0.0,
            queue_max: 100_000,
            ends_after: 60_000_000_000,
        }
    }

    /// Returns a run with inserts, or with updates of a few records, of several fields.
    pub(crate) fn mixed(updates: bool) -> Run {
        Run { writes: 2000, update_share: if updates { 0.9 } else { 0.0 }, records: 20, ..Run::inserts(0) }
    }
}

pub(crate) struct Done {
    pub(crate) part: ProcessJournal,
    pub(crate) result: LagResult,
    pub(crate) log: Vec<(String, u64, u64)>,
}

/// The clients of one workload first, then those of the other.
struct Duo {
    writes: Arc<dyn Workload>,
    reads: Arc<dyn Workload>,
    run: (usize, usize, u64),
}

/// Writes a number of times, with a pause after each.
struct Bounded {
    inner: Box<dyn ClientWorkload>,
    left: u64,
    paused: bool,
}

impl ClientWorkload for Bounded {
    fn step(&mut self, last: Last<'_>, operation: &mut Operation) -> Step {
        match last {
            Last::Begin if self.left == 0 => Step::Stop,
            Last::Begin if !self.paused => {
                self.paused = true;
                Step::Wait(Duration::from_micros(300))
            }
            Last::Waited if self.paused => {
                (self.paused, self.left) = (false, self.left - 1);
                self.inner.step(Last::Begin, operation)
            }
            last => self.inner.step(last, operation),
        }
    }
}

impl Workload for Duo {
    fn schema(&self) -> Schema {
        self.writes.schema()
    }

    fn demands(&self) -> Vec<Demand> {
        vec![Demand { kind: OperationKind::Read, because: String::new() }]
    }

    fn client(&self, place: Place, rng: Rng) -> Box<dyn ClientWorkload> {
        let (writers, consumers, left) = self.run;
        if place.index < writers {
            let inner = self.writes.client(Place { count: writers, ..place }, rng);
            Box::new(Bounded { inner, left, paused: false })
        } else {
            self.reads.client(Place { index: place.index - writers, count: consumers, ..place }, rng)
        }
    }
}

/// Returns the core workload of these settings, with all of its keys sampled.
fn core(run: &Run) -> Arc<dyn Workload> {
    let mut properties = Properties::new();
    let settings = [
        ("recordcount", run.records.to_string()),
        ("readproportion", "0".to_owned()),
        ("updateproportion", run.update_share.to_string()),
        ("insertproportion", (1.0 - run.update_share).to_string()),
        ("fieldcount", "3".to_owned()),
        ("requestdistribution", "uniform".to_owned()),
    ];
    settings.into_iter().for_each(|(name, value)| properties.set(name, value, Origin::Program("a test")));
    let facts = Circumstances {
        phase: Phase::Run,
        clients: run.writers,
        operations: Some(run.writes * run.writers as u64),
        time: None,
        target: None,
        resume: false,
        batches: true,
        share: serval_model::Share::WHOLE,
    };
    let mut reader = Reader::new(&properties);
    let core = CoreWorkload::open(&mut reader, &facts, &BTreeMap::new());
    reader.finish().unwrap();
    Arc::new(core.unwrap())
}

pub(crate) fn run(run: &Run) -> Done {
    let time = VirtualTime::new();
    let service = Service::new(400_000.0, ServiceDistribution::Constant, 3);
    let delay = Service::new(run.delay.1 as f64, run.delay.0, 5);
    let store = Arc::new(DelayedStore::with(&time, service, delay, run.staleness));
    let clock = {
        let time = time.clone();
        Arc::new(move || time.now())
    };
    let queue = Arc::new(InMemory::new(run.queue_max));
    let journal = Arc::new(Mutex::new(Journal::new(77)));
    let mut producing = Producing::new(clock.clone(), queue.clone(), Arc::clone(&journal));
    (producing.sample, producing.read_back) = (1.0, run.read_back);
    producing.arm(true);
    let mut consuming = Consuming::new(clock, queue, Arc::clone(&journal));
    (consuming.again, consuming.idle) = (run.again, Some(1_000_000_000));
    consuming.drain = run.ends_after;
    let core = core(run);
    let consumer = Consumer::new(core.schema(), Arc::new(consuming));
    let producer = Producer::new(core, Arc::new(producing));
    let duo: Arc<dyn Workload> = Arc::new(Duo {
        writes: Arc::new(producer),
        reads: Arc::new(consumer),
        run: (run.writers, run.consumers, run.writes),
    });
    let options = RunOptions {
        clients: run.writers + run.consumers,
        time: Some(Duration::from_nanos(run.ends_after)),
        seed: 9,
        ..RunOptions::default()
    };
    let record = virtual_time::run(&time, &store, &duo, &options, &Control::default(), &mut ()).unwrap();
    assert!(record.lost.is_none());
    // Unsuccessful reads are expected and are not failures of the workload.
    let failed = record.totals.measured.keys().find(|(_, status)| !status.is_ok());
    assert!(failed.is_none() && record.totals.units_failed == 0, "{failed:?}");
    drop(duo);
    let journal = std::mem::take(&mut *journal.lock().unwrap_or_else(PoisonError::into_inner));
    let part = ProcessJournal { journal, clock: PartClock::Common, lost: false };
    let setting = LagSettings {
        queue: "memory".to_owned(),
        sample: 1.0,
        poll: 10_000_000,
        consumers: run.consumers as u64,
    };
    let result = result(std::slice::from_ref(&part), setting);
    Done { part, result, log: store.log() }
}
