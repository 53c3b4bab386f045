//! More connections to one server, for requests of few threads.
//!
//! On the connection that all share, whoever receives a reply of another thread
//! has to wake it. With many threads at a time few system calls serve them all;
//! with two or three each reply costs a switch between threads more. These
//! therefore have a connection to themselves while they wait. Only what may
//! overtake goes there: that a client has connected anew means to a server that
//! nothing more comes by its old connection, and that is the shared one.

use super::line::{Dead, Line};
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
use yesquel_wire::greeting::LANE;

/// Connections beside the shared one; with more requests under way than that,
/// these are better sent together.
pub(super) const LANES: u32 = 4;

/// How long none is tried for after a server has taken none.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// The number by which a client's lane greets.
pub(super) fn number(client: u64, lane: u64) -> u64 {
    LANE | client.wrapping_mul(8).wrapping_add(lane)
}

#[derive(Default)]
struct Lane {
    line: Mutex<Option<Arc<Line>>>,
    /// It is connected, and nobody has it.
    is_free: AtomicBool,
}

impl Lane {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<Line>>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Those to one server.
#[derive(Default)]
pub(super) struct Lanes {
    lanes: [Lane; LANES as usize],
    /// How many are in use.
    taken: AtomicU32,
    /// Somebody would have used one more.
    wanted: AtomicBool,
    /// Not before then one is connected.
    later: Mutex<Option<Instant>>,
}

/// One that a thread has to itself until this is dropped.
pub(super) struct Taken<'a> {
    lanes: &'a Lanes,
    lane: &'a Lane,
    line: Option<Arc<Line>>,
}

impl Lanes {
    /// One that is free, if a request is better sent by it than by the
    /// connection that is shared.
    pub(super) fn take(&self, shared: &Line) -> Option<Taken<'_>> {
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
                let line = lane.lock().clone();
                Some(Taken { lanes: self, lane, line })
            }
            None => {
                if !self.wanted.load(Relaxed) {
                    self.wanted.store(true, Relaxed);
                }
                None
            }
        }
    }

    /// Has one connect if one was missed and there may be one more. Nobody waits
    /// for it, and who calls has other things to do too: the next one comes when
    /// it is missed in its turn.
    pub(super) fn provide(&self, lanes_max: u32, connect: impl Fn(u64) -> Option<Line>) {
        if !self.wanted.swap(false, Relaxed) {
            return;
        }
        let mut later = self.later.lock().unwrap_or_else(PoisonError::into_inner);
        if later.is_some_and(|later| Instant::now() < later) {
            return;
        }
        for (number, lane) in (0..u64::from(lanes_max)).zip(&self.lanes) {
            if lane.lock().as_ref().is_some_and(|line| !line.is_dead()) {
                continue;
            }
            let Some(line) = connect(number) else {
                *later = Some(Instant::now() + AGAIN_AFTER);
                return;
            };
            *lane.lock() = Some(Arc::new(line));
            lane.is_free.store(true, Release);
            return;
        }
    }

    /// Ends those that nobody has, to be made anew when they are missed.
    pub(super) fn forget_free(&self) {
        for lane in &self.lanes {
            if lane.is_free.swap(false, Acquire)
                && let Some(line) = lane.lock().take()
            {
                line.die(Dead::other("the server was connected to anew"));
            }
        }
    }

    /// Ends them all.
    pub(super) fn end(&self) {
        for lane in &self.lanes {
            if let Some(line) = lane.lock().take() {
                line.die(Dead::other("it was closed"));
            }
        }
    }
}

impl Taken<'_> {
    pub(super) fn line(&self) -> Option<&Arc<Line>> {
        self.line.as_ref().filter(|line| !line.is_dead())
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.lanes.taken.fetch_sub(1, Relaxed);
        // On the connection that is shared somebody goes on with what was not all
        // sent; here nobody need come, and the server would wait for it.
        if let Some(line) = self.line().filter(|line| line.is_cut()) {
            line.die(Dead::other("what was sent was given up"));
        }
        // A dead one is free again when it has been connected again.
        if self.line().is_some() {
            self.lane.is_free.store(true, Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_have_numbers_of_their_own() {
        let client = 0x7fff_0123_4567_89ab;
        let numbers: std::collections::HashSet<u64> =
            (0..u64::from(LANES)).map(|lane| number(client, lane)).collect();
        assert_eq!(numbers.len(), LANES as usize);
        assert!(numbers.iter().all(|number| number & LANE != 0 && *number != client));
    }
}
