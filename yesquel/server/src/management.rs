//! Commands for the cluster's machines, which a thread of the server performs.

use std::collections::VecDeque;
use yesquel_engine::Caller;
use yesquel_wire::{
    Reply,
    machines::{ManagementRefusal, ManagementReply},
};

/// Commands that wait. They are rare, and each is short.
const PENDING_MAX: usize = 64;

/// A command that waits for its performance.
#[derive(Debug)]
pub struct PendingCommand {
    pub(crate) caller: Caller,
    /// Bytes of the request.
    pub request: Vec<u8>,
}

/// The commands that wait. Unless it is opened, none is taken.
#[derive(Debug, Default)]
pub(crate) struct ManagementQueue(Option<VecDeque<PendingCommand>>);

/// Encodes the refusal of a command.
fn refused(refusal: ManagementRefusal) -> Vec<u8> {
    // Numbers and strings always convert to JSON.
    let json = serde_json::to_vec(&ManagementReply::Refused(refusal)).unwrap_or_default();
    let mut reply = Vec::new();
    Reply::Report(&json).write(&mut reply);
    reply
}

impl ManagementQueue {
    /// Takes commands from now on.
    pub(crate) fn open(&mut self) {
        self.0.get_or_insert_default();
    }

    /// Adds a command. Returns the reply if it is not taken.
    pub(crate) fn push(&mut self, caller: Caller, request: &[u8]) -> Option<Vec<u8>> {
        match &mut self.0 {
            None => Some(refused(ManagementRefusal::Unknown)),
            Some(pending) if pending.len() >= PENDING_MAX => Some(refused(ManagementRefusal::Busy)),
            Some(pending) => {
                pending.push_back(PendingCommand { caller, request: request.to_vec() });
                None
            }
        }
    }

    /// Takes the commands.
    pub(crate) fn take(&mut self) -> Vec<PendingCommand> {
        self.0.as_mut().map(|pending| pending.drain(..).collect()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_is_bounded() {
        let (mut queue, caller) = (ManagementQueue::default(), Caller { connection: 1, request: 2 });
        assert_eq!(queue.push(caller, b"a"), Some(refused(ManagementRefusal::Unknown)));
        queue.open();
        for _ in 0..PENDING_MAX {
            assert_eq!(queue.push(caller, b"a"), None);
        }
        assert_eq!(queue.push(caller, b"a"), Some(refused(ManagementRefusal::Busy)));
        assert_eq!(queue.take().len(), PENDING_MAX);
        assert_eq!(queue.push(caller, b"a"), None);
    }
}
