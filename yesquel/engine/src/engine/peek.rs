//! Reads that change nothing, which most are: threads may do them side by side.

use super::Engine;
use crate::{
    answer::{self, Asked, Room},
    effects::Now,
    node::Found,
};
use std::cell::Cell;
use yesquel_model::Timestamp;
use yesquel_wire::{Reply, Request};

thread_local! {
    /// Room for parts of an answer.
    static ROOM: Cell<Room> = const { Cell::new(Room::NONE) };
}

/// One of so many accesses of a node that is asked for too often is sampled.
const SAMPLED: u64 = 8;

impl Engine {
    /// Answers a read at the end of `reply`, if that is what the request is and
    /// nothing has to be changed for it: the clock knows the time and what the
    /// client has seen, no ceiling is to be raised, and what it asks for is there
    /// and decided. Returns the record that must be on disk before anybody
    /// may see the answer.
    ///
    /// All else, and where there is nothing to answer yet, is for
    /// [`handle`](Self::handle), which gives the same answers.
    pub fn peek(&self, now: Now, request: &[u8], reply: &mut Vec<u8>) -> Option<u64> {
        let Some(lookup) = Request::lookup(request) else { return self.peek_questions(now, request, reply) };
        let snapshot = self.present(now, lookup.snapshot, lookup.seen)?;
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
        let length = if let Found::Present(value) = found { value.bytes.len() } else { 0 };
        reply.reserve(answer::HEAD_BYTES + length);
        Reply::write_answers(reply, snapshot, |mut writer| {
            answer::found(node, lookup.key, found, &mut writer);
        });
        Some(needs_lsn.max(node.changed_at_lsn))
    }

    /// What a read sees, if the clock need not go on for it.
    fn present(&self, now: Now, snapshot: Option<Timestamp>, seen: Timestamp) -> Option<Timestamp> {
        let last = self.clock.last();
        match snapshot {
            _ if seen > last => None,
            None if Timestamp::from_ms(now.wall_ms) <= last => Some(last),
            Some(given) if given <= last && self.snapshots.readable().contains(given) => Some(given),
            _ => None,
        }
    }

    /// The same for several questions, or others than lookups.
    fn peek_questions(&self, now: Now, request: &[u8], reply: &mut Vec<u8>) -> Option<u64> {
        let Some(Request::Read { snapshot, seen, questions }) = Request::read(request) else { return None };
        let snapshot = self.present(now, snapshot, seen)?;
        if self.frozen.is_some() {
            return None;
        }
        let mut needs_lsn = self.is_under_ceiling(snapshot)?;
        let (start, second) = (reply.len(), self.samples.second);
        let all = Asked { store: &self.store, snapshot, second };
        let mut room = ROOM.take();
        let mut outcome = Some(());
        Reply::write_answers(reply, snapshot, |mut writer| {
            outcome = questions.iter().try_for_each(|question| {
                let node = self.store.seen(question.node(), snapshot).ok()??;
                let load = node.load.now(second);
                if load >= self.settings.load_max() && load % SAMPLED == 0 {
                    return None;
                }
                node.load.touch(second);
                let others_lsn = all.write(node, &question, &mut room, &mut writer).ok()?;
                needs_lsn = needs_lsn.max(node.changed_at_lsn).max(others_lsn);
                Some(())
            });
        });
        ROOM.set(room);
        if outcome.is_none() {
            reply.truncate(start);
            return None;
        }
        self.lookups.add();
        self.beside.add_many(questions.len().saturating_sub(1) as u64);
        Some(needs_lsn)
    }
}
