//! Numbers of trees and issuers, which are unique in the cluster: the home group counts them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use yesquel_client::{Client, RequestError};
use yesquel_model::{LocalId, NodeId, TreeId};
use yesquel_transport::Transport;

/// Numbers that are taken at a time. Those that are not used are lost.
const RANGE: u64 = 64;

/// Returns a counter of the cluster.
pub(crate) fn counter<T: Transport>(client: &Client<T>, counter: LocalId) -> NodeId {
    NodeId { tree: TreeId::default(), server: client.home_group(), local: counter }
}

/// Numbers of one counter that this client has taken.
#[derive(Debug)]
pub(crate) struct NumberRange {
    counter: LocalId,
    taken: Arc<Mutex<TakenNumbers>>,
}

#[derive(Debug, Default)]
struct TakenNumbers {
    next: u64,
    end: u64,
    /// First number of the range after this one.
    following: Option<u64>,
    /// Whether that range has been requested.
    is_requested: bool,
}

/// A number, or what the range needs.
#[derive(Debug, PartialEq, Eq)]
enum Draw {
    Number(u64),
    /// The following range is to be requested.
    Half(u64),
    Empty,
}

impl TakenNumbers {
    fn draw(&mut self) -> Draw {
        if self.next == self.end
            && let Some(first) = self.following.take()
        {
            (self.next, self.end) = (first, first.saturating_add(RANGE));
        }
        if self.next == self.end {
            return Draw::Empty;
        }
        let number = self.next;
        self.next += 1;
        let is_low = self.end - self.next <= RANGE / 2;
        if is_low && self.following.is_none() && !self.is_requested {
            self.is_requested = true;
            return Draw::Half(number);
        }
        Draw::Number(number)
    }

    fn add(&mut self, first: u64) {
        if self.next == self.end {
            (self.next, self.end) = (first, first.saturating_add(RANGE));
        } else if self.following.is_none() {
            self.following = Some(first);
        }
    }
}

fn lock(taken: &Mutex<TakenNumbers>) -> MutexGuard<'_, TakenNumbers> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

impl NumberRange {
    pub(crate) fn new(counter: LocalId) -> NumberRange {
        NumberRange { counter, taken: Arc::default() }
    }

    /// Returns a number that no other client has got, or will get. The next range is requested when
    /// half of one is used, so that a process goes on for a while without the home group.
    pub(crate) async fn next<T: Transport>(&self, client: &Client<T>) -> Result<u64, RequestError> {
        loop {
            // The lock is free again before anything is sent.
            let drawn = lock(&self.taken).draw();
            match drawn {
                Draw::Number(number) => return Ok(number),
                Draw::Half(number) => {
                    let taken = Arc::clone(&self.taken);
                    client.take_in_background(counter(client, self.counter), RANGE, move |first| {
                        let mut taken = lock(&taken);
                        taken.is_requested = false;
                        if let Some(first) = first {
                            taken.add(first);
                        }
                    });
                    return Ok(number);
                }
                Draw::Empty => {
                    let first = client.take(counter(client, self.counter), RANGE, 0).await?;
                    lock(&self.taken).add(first);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_following_range_is_requested_once_at_half() {
        let mut taken = TakenNumbers::default();
        assert_eq!(taken.draw(), Draw::Empty);
        taken.add(1);
        for number in 1..32 {
            assert_eq!(taken.draw(), Draw::Number(number));
        }
        assert_eq!(taken.draw(), Draw::Half(32));
        for number in 33..=64 {
            assert_eq!(taken.draw(), Draw::Number(number));
        }
        // It has not come: the caller waits, and the one that comes later is used after that.
        assert_eq!(taken.draw(), Draw::Empty);
        taken.add(200);
        taken.is_requested = false;
        taken.add(100);
        assert_eq!(taken.draw(), Draw::Number(200));
        for _ in 1..64 {
            assert!(matches!(taken.draw(), Draw::Number(201..264)));
        }
        assert_eq!(taken.draw(), Draw::Number(100));
    }
}
