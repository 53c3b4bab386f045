//! One run from connecting to the last outcome.

use crate::{
    client_pool::ClientPool,
    clock::{ConductorClock, SystemClock, nanoseconds},
    conductor::RunConductor,
    options::{GATHER_RATE, GATHER_SLACK, RunOptions},
    record::{AbortCause, ClientExecution, Observer, RunError, RunRecord},
    run_barrier::RunBarrier,
};
use serval_measure::recorder::Recorder;
use serval_model::{Execution, Store};
use serval_workload::Workload;
use std::{
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

/// Ends a run from another thread, for example that of a signal handler.
#[derive(Debug, Clone, Default)]
pub struct Control(Arc<Mutex<(bool, Option<Arc<RunBarrier>>)>>);

impl Control {
    /// Asks the present or next run to end and to report.
    pub fn interrupt(&self) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.0 = true;
        if let Some(barrier) = &inner.1 {
            barrier.interrupt();
        }
    }

    /// Returns whether [`interrupt`](Self::interrupt) was called.
    pub fn interrupted(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    pub(crate) fn attach(&self, barrier: &Arc<RunBarrier>) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.0 {
            barrier.interrupt();
        }
        inner.1 = Some(Arc::clone(barrier));
    }
}

fn loops(options: &RunOptions) -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    // Half of the cores, and at least eight clients per loop: a loop with fewer clients sends and
    // receives operations one by one.
    let default = (cores / 2).min(options.clients.div_ceil(8)).max(1);
    options.event_loops.unwrap_or(default).clamp(1, options.clients)
}

/// A run that is ready to begin, in real or virtual time.
pub(crate) struct Prepared<S> {
    pub(crate) options: RunOptions,
    pub(crate) barrier: Arc<RunBarrier>,
    pub(crate) pool: Arc<ClientPool<S>>,
    slack: Duration,
}

impl<S: Store> Prepared<S> {
    /// Checks the options. `slack` returns the time for which operations that are due are held.
    pub(crate) fn new(
        store: &Arc<S>,
        workload: &Arc<dyn Workload>,
        options: &RunOptions,
        control: &Control,
        slack: impl FnOnce(&RunOptions) -> Duration,
    ) -> Result<Self, RunError> {
        if options.steady.is_some() && options.rate.as_ref().is_some_and(|rate| !rate.is_constant()) {
            return Err(RunError::ChangingRate);
        }
        let units = workload.units().or(options.units);
        let mut options = options.clone();
        options.clients =
            options.clients.clamp(1, units.unwrap_or(u64::MAX).clamp(1, usize::MAX as u64) as usize);
        // Response times differ from service times with intended starts, or if the store reports
        // service times itself.
        options.recorder.paced = options.rate.is_some() || store.times_itself();
        let slack = slack(&options);
        let barrier = Arc::new(RunBarrier::new(options.clients));
        control.attach(&barrier);
        let pool = Arc::new(ClientPool {
            barrier: Arc::clone(&barrier),
            store: Arc::clone(store),
            workload: Arc::clone(workload),
            table: workload.schema().table,
            clients: options.clients,
            units,
            seed: options.seed,
            recorder: options.recorder.clone(),
            slack: nanoseconds(slack),
        });
        Ok(Prepared { options, barrier, pool, slack })
    }

    pub(crate) fn conductor<'a, C: ConductorClock>(
        &'a self,
        clock: C,
        recorders: Vec<Arc<Recorder>>,
        observer: &'a mut dyn Observer,
    ) -> RunConductor<'a, C> {
        let Prepared { options, barrier, pool, slack } = self;
        RunConductor { clock, barrier, options, units: pool.units, slack: *slack, recorders, observer }
    }

    /// Completes the record with what is known only after the run.
    pub(crate) fn complete(
        self,
        mut record: RunRecord,
        store: &S,
        execution: ClientExecution,
    ) -> Result<RunRecord, RunError> {
        record.lost = record.lost.map(|lost| match lost {
            AbortCause::Store(error) => AbortCause::Store(store.explain(error)),
            lost => lost,
        });
        record.slack = self.slack;
        record.execution = execution;
        if self.options.finishes {
            record.totals.buffered.unsent += store.unsent();
            store.finish()?;
        }
        Ok(record)
    }
}

/// Runs a workload on a store. Returns when all units are done, the time is over, or `control`
/// interrupts the run. A store that hangs delays the return by the grace at most.
pub fn run<S: Store>(
    store: &Arc<S>,
    workload: &Arc<dyn Workload>,
    options: &RunOptions,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<RunRecord, RunError> {
    let threads = store.execution() == Execution::Threads;
    let loops_of = |options: &RunOptions| loops(options).min(store.event_loops_max().max(1));
    let prepared =
        Prepared::new(store, workload, options, control, |options| match (&options.rate, options.slack) {
            (None, _) => Duration::ZERO,
            _ if threads => Duration::ZERO,
            (_, Some(slack)) => slack,
            (Some(rate), None)
                if options.share.of_rate(rate.rate_max()) >= GATHER_RATE * loops_of(options) as f64 =>
            {
                GATHER_SLACK
            }
            _ => Duration::ZERO,
        })?;
    let Prepared { barrier, pool, options, .. } = &prepared;
    let loops = loops_of(options);
    let recorders = if threads { pool.on_threads() } else { pool.on_event_loops(loops) };
    let recorders = match recorders {
        Ok(recorders) => recorders,
        Err(error) => {
            barrier.cancel();
            return Err(error.into());
        }
    };
    let execution =
        if threads { ClientExecution::Threads(options.clients) } else { ClientExecution::EventLoops(loops) };
    let record = prepared.conductor(SystemClock, recorders, observer).conduct(workload.verifies())?;
    prepared.complete(record, store, execution)
}
