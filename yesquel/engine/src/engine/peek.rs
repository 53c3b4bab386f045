//! Reads that change nothing in the engine, which most are: threads may perform them concurrently.

use super::Engine;
use crate::{
    answer::{self, AnswerBuffers, ReadContext},
    effects::Now,
    node::Found,
};
use std::cell::Cell;
use yesquel_model::Timestamp;
use yesquel_wire::{Question, Reply, Request};

thread_local! {
    /// Scratch space for parts of an answer.
    static BUFFERS: Cell<AnswerBuffers> = const { Cell::new(AnswerBuffers::NONE) };
}

/// One in so many accesses of a node over the load limit is sampled.
const SAMPLED: u64 = 8;

/// Bytes of the answers to several questions, without long values.
const ANSWERS_BYTES: usize = 128;

impl Engine {
    /// Appends the answer to `reply` if the request is a read for which nothing in the engine must
    /// change: the clock has reached the present and the client's highest timestamp, the ceiling
    /// need not be raised, and the nodes exist and are decided. Returns the log record that must be
    /// durable before the reply may leave.
    ///
    /// All other requests, and reads that must wait, are for [`handle`](Self::handle), which gives
    /// the same answers.
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

    /// The snapshot of a read, if the clock need not advance for it.
    fn present(&self, now: Now, snapshot: Option<Timestamp>, seen: Timestamp) -> Option<Timestamp> {
        let last = self.clock.last();
        match snapshot {
            _ if seen > last => None,
            None if Timestamp::from_ms(now.wall_ms) <= last => Some(last),
            Some(given) if given <= last && self.snapshots.serves(given) => Some(given),
            _ => None,
        }
    }

    /// Like [`peek`](Self::peek), for several questions or other ones than lookups.
    fn peek_questions(&self, now: Now, request: &[u8], reply: &mut Vec<u8>) -> Option<u64> {
        let Some(Request::Read { snapshot, seen, questions }) = Request::read(request) else { return None };
        let snapshot = self.present(now, snapshot, seen)?;
        if self.frozen.is_some() {
            return None;
        }
        let mut needs_lsn = self.is_under_ceiling(snapshot)?;
        let (start, second) = (reply.len(), self.samples.second);
        let all = ReadContext { store: &self.store, snapshot, second };
        let mut buffers = BUFFERS.take();
        let mut outcome = Some(());
        reply.reserve(ANSWERS_BYTES);
        Reply::write_answers(reply, snapshot, |mut writer| {
            outcome = questions.iter().try_for_each(|question| {
                if matches!(question, Question::Watch { .. }) {
                    return None;
                }
                let node = self.store.seen(question.node(), snapshot).ok()??;
                let load = node.load.now(second);
                if load >= self.settings.load_max() && load % SAMPLED == 0 {
                    return None;
                }
                node.load.touch(second);
                let others_lsn = all.write(node, &question, &mut buffers, &mut writer).ok()?;
                needs_lsn = needs_lsn.max(node.changed_at_lsn).max(others_lsn);
                Some(())
            });
        });
        BUFFERS.set(buffers);
        if outcome.is_none() {
            reply.truncate(start);
            return None;
        }
        self.lookups.add();
        self.extra_questions.add_many(questions.len().saturating_sub(1) as u64);
        Some(needs_lsn)
    }
}
