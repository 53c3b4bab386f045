//! Reads that change nothing, which most are: threads may do them side by side.

use crate::{
    answer,
    engine::{Engine, Now},
};
use yesquel_model::Timestamp;
use yesquel_wire::{Reply, Request};

/// One of so many accesses of a node that is asked for too often is sampled.
const SAMPLED: u64 = 8;

impl Engine {
    /// Answers a lookup at the end of `reply`, if that is what the request is
    /// and nothing has to be changed for it: the clock knows the time and what
    /// the client has seen, no ceiling is to be raised, and what it asks for is
    /// there and decided. Returns the record that must be on disk before anybody
    /// may see the answer.
    ///
    /// All else, and where there is nothing to answer yet, is for
    /// [`handle`](Self::handle), which gives the same answers.
    pub fn peek(&self, now: Now, request: &[u8], reply: &mut Vec<u8>) -> Option<u64> {
        let lookup = Request::lookup(request)?;
        let last = self.clock.last();
        if lookup.seen > last {
            return None;
        }
        let snapshot = match lookup.snapshot {
            None if Timestamp::from_ms(now.wall_ms) <= last => last,
            Some(given) if (self.snapshots.low()..=last).contains(&given) => given,
            _ => return None,
        };
        let needs_lsn = self.is_under_ceiling(snapshot)?;
        let node = self.store.seen(lookup.node, snapshot).ok()??;
        let second = self.samples.second;
        let load = node.load.now(second);
        if load >= self.settings.load_max() && load % SAMPLED == 0 {
            return None;
        }
        let found = node.lookup(snapshot, lookup.key).ok()?;
        node.load.touch(second);
        self.lookups.add();
        let length = found.flatten().map_or(0, |value| value.bytes.len());
        reply.reserve(answer::HEAD_BYTES + length);
        Reply::write_answers(reply, snapshot, |mut writer| {
            answer::found(node, lookup.key, found, &mut writer);
        });
        Some(needs_lsn.max(node.changed_at_lsn))
    }
}
