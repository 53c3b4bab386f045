//! Clients: what a load does on its threads, and what is measured of it.

use hdrhistogram::Histogram;
use std::{
    error::Error,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use yesquel::{Store, TransportObject as _};
use yesquel_seeds::Random;
use yesquel_simulation::{BlockingNetwork, compute, is_alive, sleep};

/// Why a client cannot go on.
pub type LoadError = Box<dyn Error + Send + Sync>;

/// Interval at which a client that is ready looks whether the others are.
const POLL: Duration = Duration::from_millis(20);
/// Time in which clients begin once all are ready: each finds that out, and then draws its time.
pub(crate) const BEGIN: Duration = Duration::from_millis(40);

/// What clients do. Its code runs on a thread for each connection; one of them runs at a time.
pub trait VirtualLoad: Send + Sync + 'static {
    /// Creates the data.
    ///
    /// # Errors
    ///
    /// If it cannot be created; the run ends.
    fn set_up(&self, client: &VirtualClient) -> Result<(), LoadError>;

    /// Opens a connection, warms it up, and calls [`VirtualClient::run`] with its statement.
    ///
    /// # Errors
    ///
    /// If a statement fails; the run ends.
    fn connect(&self, client: &VirtualClient) -> Result<(), LoadError>;
}

/// What the clients of a run share.
pub(crate) struct Measurement {
    state: Mutex<MeasurementState>,
    /// Cost of a statement besides its requests.
    statement: Duration,
}

/// State of a measurement. Times are nanoseconds.
pub(crate) struct MeasurementState {
    /// Connections that are ready, and that have ended.
    pub(crate) ready: usize,
    pub(crate) ended: usize,
    /// Set when all are ready.
    pub(crate) window: Option<Range<u64>>,
    /// Response times of the statements that ended within the window.
    pub(crate) latencies: Histogram<u64>,
    pub(crate) latency_sum: u128,
    /// The first failure.
    pub(crate) failure: Option<String>,
}

impl Measurement {
    pub(crate) fn new(statement: Duration, latencies: Histogram<u64>) -> Arc<Measurement> {
        let state =
            MeasurementState { ready: 0, ended: 0, window: None, latencies, latency_sum: 0, failure: None };
        Arc::new(Measurement { state: Mutex::new(state), statement })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, MeasurementState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes how a client has ended.
    pub(crate) fn end(&self, ended: Result<(), LoadError>) {
        let mut state = self.lock();
        state.ended += 1;
        // A thread that is ended before its time fails.
        if let (Err(error), true) = (ended, is_alive()) {
            state.failure.get_or_insert_with(|| error.to_string());
        }
    }
}

/// A connection's place in the run, on its thread.
pub struct VirtualClient {
    pub(crate) network: Arc<BlockingNetwork>,
    pub(crate) store: Store,
    pub(crate) host: String,
    pub(crate) process: usize,
    pub(crate) number: usize,
    pub(crate) seed: u64,
    pub(crate) measurement: Arc<Measurement>,
}

impl VirtualClient {
    /// The store of the process, which all its connections share.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// A name of the process that no other one has, in any run of this program.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Number of the process.
    pub fn process(&self) -> usize {
        self.process
    }

    /// Number of the connection in its process.
    pub fn number(&self) -> usize {
        self.number
    }

    /// A seed that no other connection has.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Time since the start of the run, in nanoseconds.
    fn now(&self) -> u64 {
        u64::try_from(self.network.uptime().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Waits until all connections are ready. Returns when statements are measured.
    fn wait_for_others(&self) -> Option<Range<u64>> {
        self.measurement.lock().ready += 1;
        loop {
            if !is_alive() {
                return None;
            }
            let window = self.measurement.lock().window.clone();
            if window.is_some() {
                return window;
            }
            sleep(&self.network, POLL);
        }
    }

    /// Executes statements in a closed loop until the end of the run, and measures them.
    ///
    /// # Errors
    ///
    /// That of a statement.
    pub fn run(&self, mut statement: impl FnMut() -> Result<(), LoadError>) -> Result<(), LoadError> {
        let Some(window) = self.wait_for_others() else { return Ok(()) };
        // Not all at the same time.
        let offset = Random::new(self.seed).next((BEGIN - POLL).as_nanos() as u64);
        sleep(&self.network, Duration::from_nanos(offset));
        let half = self.measurement.statement / 2;
        while is_alive() {
            let begun = self.now();
            if begun >= window.end {
                break;
            }
            compute(half);
            statement()?;
            compute(half);
            let ended = self.now();
            if window.contains(&ended) {
                let mut state = self.measurement.lock();
                state.latencies.saturating_record((ended - begun).max(1));
                state.latency_sum += u128::from(ended - begun);
            }
        }
        Ok(())
    }
}
