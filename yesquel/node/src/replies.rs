//! Replies that wait for the disk.

use crate::ReplySink;
use std::collections::VecDeque;
use yesquel_engine::Caller;
use yesquel_model::Refusal;
use yesquel_wire::Reply;

/// Size in bytes above which a reply that waits for the disk is reported to the sink. Most replies
/// only say that something committed.
const REPORTED_REPLY_BYTES: usize = 1 << 10;

/// Reply that waits for the disk.
#[derive(Debug)]
struct HeldReply {
    needs_lsn: u64,
    caller: Caller,
    reply: Box<[u8]>,
}

impl HeldReply {
    fn report_release(&self, sink: &dyn ReplySink) {
        if self.reply.len() > REPORTED_REPLY_BYTES {
            sink.reply_released(self.caller, self.reply.len());
        }
    }
}

/// Returns the reply that replaces those whose effects cannot become durable.
pub(crate) fn refused() -> Vec<u8> {
    let mut bytes = Vec::new();
    Reply::Refused { operation: None, refusal: Refusal::DiskLost }.write(&mut bytes);
    bytes
}

/// The replies that wait, roughly in the order of the records that they need.
#[derive(Debug, Default)]
pub(crate) struct HeldReplies(VecDeque<HeldReply>);

impl HeldReplies {
    pub(crate) fn push(&mut self, caller: Caller, needs_lsn: u64, reply: &[u8], sink: &dyn ReplySink) {
        if reply.len() > REPORTED_REPLY_BYTES {
            sink.reply_held(caller, reply.len());
        }
        self.0.push_back(HeldReply { needs_lsn, caller, reply: reply.into() });
    }

    /// Delivers the replies whose records are on disk.
    pub(crate) fn release(&mut self, synced: u64, sink: &dyn ReplySink) {
        // Replies that need later records stay, in order.
        for _ in 0..self.0.len() {
            let Some(held) = self.0.pop_front() else { break };
            if held.needs_lsn <= synced {
                held.report_release(sink);
                sink.deliver(held.caller, &held.reply);
            } else {
                self.0.push_back(held);
            }
        }
    }

    /// Refuses all of them. Returns whether there were any.
    pub(crate) fn refuse(&mut self, sink: &dyn ReplySink) -> bool {
        let (refused, has_any) = (refused(), !self.0.is_empty());
        for held in std::mem::take(&mut self.0) {
            held.report_release(sink);
            sink.deliver(held.caller, &refused);
        }
        has_any
    }
}
