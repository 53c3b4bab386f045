//! Lanes: further connections to a server, for few concurrent requests.
//!
//! On the shared connection the thread that receives another thread's reply must wake it, so that
//! most replies wait for two threads to be scheduled. With many requests, few system calls serve
//! them all; with few, each request is better off on a connection of its own, whose thread the reply
//! wakes directly. Only requests that may overtake others go by a lane: for the server, a new
//! connection of a client means that nothing more comes by the old one, and that holds for the
//! shared connection.

use super::lost_connection::LostConnection;
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicBool, AtomicU32,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    time::{Duration, Instant},
};
use yesquel_wire::greeting::LANES_MAX;

/// Lanes of a client; more concurrent requests are better sent together.
pub(super) const LANES: u32 = 16;
const _: () = assert!(LANES <= LANES_MAX, "each lane has a number of its own");

/// Time after which no further lane is connected by one call.
const PROVIDE_TIME: Duration = Duration::from_millis(50);

/// Pause after a server has refused a lane.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// A connection that may have lanes, or be one.
pub(super) trait LaneConnection: Sized {
    fn lanes(&self) -> &Lanes<Self>;
    /// Number of requests that wait for replies.
    fn under_way(&self) -> u32;
    fn is_closed(&self) -> bool;
    /// Whether the end of a request may be missing, because its sender has cancelled.
    fn is_cut(&self) -> bool;
    fn close_with(&self, why: LostConnection);
}

#[derive(Debug)]
struct Lane<C> {
    connection: Mutex<Option<Arc<C>>>,
    /// It is connected and unused.
    is_free: AtomicBool,
}

impl<C> Default for Lane<C> {
    fn default() -> Lane<C> {
        Lane { connection: Mutex::new(None), is_free: AtomicBool::new(false) }
    }
}

impl<C> Lane<C> {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<C>>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lanes to one machine, which belong to the client's shared connection to it.
#[derive(Debug)]
pub(super) struct Lanes<C> {
    lanes: [Lane<C>; LANES as usize],
    /// Number in use.
    taken: AtomicU32,
    /// Lanes that the requests since the last connection attempt would have used.
    wanted: AtomicU32,
    /// Earliest time for the next connection attempt.
    later: Mutex<Option<Instant>>,
}

/// A lane that a thread owns until this is dropped.
pub(super) struct LaneGuard<C: LaneConnection> {
    /// The connection whose lane it is.
    shared: Arc<C>,
    /// Index of the lane.
    lane: usize,
    connection: Option<Arc<C>>,
}

impl<C> Default for Lanes<C> {
    fn default() -> Lanes<C> {
        let (lanes, taken, wanted) = Default::default();
        Lanes { lanes, taken, wanted, later: Mutex::default() }
    }
}

impl<C: LaneConnection> Lanes<C> {
    /// Takes a free lane, if a request is better sent by it than by the shared connection. Only the
    /// number in flight at the moment counts: with an average, requests stay together after a pause
    /// of the process, since each takes longer together, so that more are in flight.
    pub(super) fn take(shared: &Arc<C>) -> Option<LaneGuard<C>> {
        let (lanes, under_way) = (shared.lanes(), shared.under_way());
        let others = under_way + lanes.taken.load(Relaxed);
        if under_way == 0 || others > LANES {
            return None;
        }
        let free = lanes.lanes.iter().position(|lane| {
            lane.is_free.load(Relaxed) && lane.is_free.compare_exchange(true, false, Acquire, Relaxed).is_ok()
        });
        match free {
            Some(lane) => {
                lanes.taken.fetch_add(1, Relaxed);
                let connection = lanes.lanes[lane].lock().clone();
                Some(LaneGuard { shared: Arc::clone(shared), lane, connection })
            }
            None => {
                if lanes.wanted.load(Relaxed) < others {
                    // Only a hint: a lost update is made good by the next request.
                    lanes.wanted.store(others, Relaxed);
                }
                None
            }
        }
    }

    /// Connects the lanes that were missed, as far as more are allowed. No request waits for them,
    /// and the caller has other work, so it stops after a while.
    pub(super) fn provide(&self, lanes_max: u32, connect: impl Fn(u64) -> Option<C>) {
        let wanted = self.wanted.swap(0, Relaxed).min(lanes_max);
        let mut later = self.later.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = Instant::now();
        if wanted == 0 || later.is_some_and(|later| begun < later) {
            return;
        }
        for (number, lane) in (0..u64::from(wanted)).zip(&self.lanes) {
            if lane.lock().as_ref().is_some_and(|connection| !connection.is_closed()) {
                continue;
            }
            if begun.elapsed() > PROVIDE_TIME {
                return;
            }
            let Some(connection) = connect(number) else {
                *later = Some(Instant::now() + AGAIN_AFTER);
                return;
            };
            *lane.lock() = Some(Arc::new(connection));
            lane.is_free.store(true, Release);
        }
    }

    /// Closes the unused lanes; they are connected again when they are missed.
    pub(super) fn forget_free(&self) {
        for lane in &self.lanes {
            if lane.is_free.swap(false, Acquire)
                && let Some(connection) = lane.lock().take()
            {
                connection.close_with(LostConnection::other("the server was connected to anew"));
            }
        }
    }

    /// Closes all lanes.
    pub(super) fn end(&self) {
        for lane in &self.lanes {
            if let Some(connection) = lane.lock().take() {
                connection.close_with(LostConnection::other("it was closed"));
            }
        }
    }
}

impl<C: LaneConnection> LaneGuard<C> {
    pub(super) fn connection(&self) -> Option<&Arc<C>> {
        self.connection.as_ref().filter(|connection| !connection.is_closed())
    }
}

impl<C: LaneConnection> Drop for LaneGuard<C> {
    fn drop(&mut self) {
        let lanes = self.shared.lanes();
        lanes.taken.fetch_sub(1, Relaxed);
        // On the shared connection another thread sends the rest of what was cut off; a lane may
        // have no next user, and the server would wait for it.
        if let Some(connection) = self.connection().filter(|connection| connection.is_cut()) {
            connection.close_with(LostConnection::other("what was sent was given up"));
        }
        // A closed lane is free again once it is reconnected.
        if self.connection().is_some() {
            lanes.lanes[self.lane].is_free.store(true, Release);
        }
    }
}
