//! Lanes: further connections to a server, for few concurrent requests.
//!
//! On the shared connection the thread that receives another thread's reply must wake it. With many
//! threads, few system calls serve them all; with two or three, each reply costs one more context
//! switch. These threads therefore use a connection of their own while they wait. Only requests
//! that may overtake others go by a lane: for the server, a new connection of a client means that
//! nothing more comes by the old one, and that holds for the shared connection.

use super::{connection::ServerConnection, lost_connection::LostConnection};
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

/// Lanes of a client; more concurrent requests are better sent together.
pub(super) const LANES: u32 = 4;

/// Pause after a server has refused a lane.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Lane {
    connection: Mutex<Option<Arc<ServerConnection>>>,
    /// It is connected and unused.
    is_free: AtomicBool,
}

impl Lane {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<ServerConnection>>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lanes to one server.
#[derive(Default)]
pub(super) struct Lanes {
    lanes: [Lane; LANES as usize],
    /// Number in use.
    taken: AtomicU32,
    /// A request would have used another one.
    wanted: AtomicBool,
    /// Earliest time for the next connection attempt.
    later: Mutex<Option<Instant>>,
}

/// A lane that a thread owns until this is dropped.
pub(super) struct LaneGuard<'a> {
    lanes: &'a Lanes,
    lane: &'a Lane,
    connection: Option<Arc<ServerConnection>>,
}

impl Lanes {
    /// Takes a free lane, if a request is better sent by it than by the shared connection.
    pub(super) fn take(&self, shared: &ServerConnection) -> Option<LaneGuard<'_>> {
        let under_way = shared.under_way();
        if under_way == 0 || under_way + self.taken.load(Relaxed) > LANES {
            return None;
        }
        let free = self.lanes.iter().find(|lane| {
            lane.is_free.load(Relaxed) && lane.is_free.compare_exchange(true, false, Acquire, Relaxed).is_ok()
        });
        match free {
            Some(lane) => {
                self.taken.fetch_add(1, Relaxed);
                let connection = lane.lock().clone();
                Some(LaneGuard { lanes: self, lane, connection })
            }
            None => {
                if !self.wanted.load(Relaxed) {
                    self.wanted.store(true, Relaxed);
                }
                None
            }
        }
    }

    /// Connects a lane if one was missed and another one is allowed. No request waits for it, and
    /// the caller has other work, so only one is made per call.
    pub(super) fn provide(&self, lanes_max: u32, connect: impl Fn(u64) -> Option<ServerConnection>) {
        if !self.wanted.swap(false, Relaxed) {
            return;
        }
        let mut later = self.later.lock().unwrap_or_else(PoisonError::into_inner);
        if later.is_some_and(|later| Instant::now() < later) {
            return;
        }
        for (number, lane) in (0..u64::from(lanes_max)).zip(&self.lanes) {
            if lane.lock().as_ref().is_some_and(|connection| !connection.is_closed()) {
                continue;
            }
            let Some(connection) = connect(number) else {
                *later = Some(Instant::now() + AGAIN_AFTER);
                return;
            };
            *lane.lock() = Some(Arc::new(connection));
            lane.is_free.store(true, Release);
            return;
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

impl LaneGuard<'_> {
    pub(super) fn connection(&self) -> Option<&Arc<ServerConnection>> {
        self.connection.as_ref().filter(|connection| !connection.is_closed())
    }
}

impl Drop for LaneGuard<'_> {
    fn drop(&mut self) {
        self.lanes.taken.fetch_sub(1, Relaxed);
        // On the shared connection another thread sends the rest of what was cut off; a lane may
        // have no next user, and the server would wait for it.
        if let Some(connection) = self.connection().filter(|connection| connection.is_cut()) {
            connection.close_with(LostConnection::other("what was sent was given up"));
        }
        // A closed lane is free again once it is reconnected.
        if self.connection().is_some() {
            self.lane.is_free.store(true, Release);
        }
    }
}
