//! What a server writes to its connections: the thread of its sockets writes the notices of all
//! steps so far before any reply.

use super::{Cluster, SimulationEvent, network::OWN, notices::place_of};
use crate::ProtocolPath;
use std::cell::RefCell;
use yesquel_engine::Caller;
use yesquel_node::{Filled, NoticeSockets, ReplySink, write_notices};
use yesquel_wire::frame::Inbox;

/// Bits of a reply's number that are the number of its call.
const CALL_BITS: u32 = 32;

/// Numbers by which replies travel on connections. A server answers a copy of a request as well, so
/// that two replies to one call may leave together, and the pieces of long ones take turns. Under the
/// number of the call, the pieces of both would form one message. A client of sockets uses no number
/// again before its reply is complete.
#[derive(Default)]
pub(super) struct ReplyNumbers(u64);

impl ReplyNumbers {
    /// Gives a reply a number that no other one of its server has.
    fn number(&mut self, caller: Caller) -> Caller {
        debug_assert_eq!(caller.request >> CALL_BITS, 0, "the number of a call");
        self.0 += 1;
        Caller { request: self.0 << CALL_BITS | caller.request, ..caller }
    }

    /// Returns the call of a reply.
    fn call(number: u64) -> u64 {
        number & ((1 << CALL_BITS) - 1)
    }
}

/// What a step leaves for a connection.
pub(super) enum StepOutput {
    Reply(Caller, Vec<u8>),
    Notice(u64, Vec<u8>),
}

/// What a step leaves for connections, in the order in which it does.
#[derive(Default)]
pub(super) struct StepOutputs(RefCell<Vec<StepOutput>>);

impl ReplySink for StepOutputs {
    fn deliver(&self, caller: Caller, reply: &[u8]) {
        self.0.borrow_mut().push(StepOutput::Reply(caller, reply.to_vec()));
    }

    fn notify(&self, connection: u64, notice: &[u8]) {
        self.0.borrow_mut().push(StepOutput::Notice(connection, notice.to_vec()));
    }
}

/// The sockets of a server.
struct ServerSockets<'a>(&'a mut Cluster);

impl NoticeSockets for ServerSockets<'_> {
    type Failure = ();

    fn write_notices(&mut self, connection: u64, notices: Vec<u8>) -> Result<(), ()> {
        place_of(connection).map_or(Ok(()), |place| self.0.write_to_pipe(place, &notices, true))
    }

    fn close(&mut self, connection: u64, (): ()) {
        self.0.count_path(ProtocolPath::NoticesBlocked);
        place_of(connection).into_iter().for_each(|place| self.0.close_notices(place));
    }
}

impl Cluster {
    /// Passes on what a step has left. The thread of the sockets runs when it wants: between two
    /// outputs, or some time after the step.
    pub(super) fn pass_on(&mut self, at: usize, outputs: StepOutputs) {
        let outputs = outputs.0.into_inner();
        if outputs.is_empty() {
            return;
        }
        self.servers[at].rounds += 1;
        let action = [11, at as u64, self.servers[at].epoch, self.servers[at].rounds];
        let (is_between, is_later) = self.sockets_run(action);
        for output in outputs {
            match output {
                StepOutput::Notice(connection, notice) => {
                    self.servers[at].outgoing.notify(connection, &notice);
                }
                StepOutput::Reply(caller, reply) => {
                    self.servers[at].laws.on_reply(caller, &reply);
                    if caller.connection == OWN {
                        self.complete(caller.request, Ok(reply));
                        continue;
                    }
                    let caller = match place_of(caller.connection) {
                        Some(place) => {
                            self.note_watch_reply(place, &reply);
                            caller
                        }
                        None => self.servers[at].reply_numbers.number(caller),
                    };
                    self.servers[at].outgoing.deliver(caller, &reply);
                }
            }
            if is_between && !self.servers[at].is_interrupted {
                self.write_outputs(at);
            }
        }
        match is_later {
            // It goes on later.
            _ if self.servers[at].is_interrupted => {}
            None => self.write_outputs(at),
            Some(us) => {
                let epoch = self.servers[at].epoch;
                self.after(us, SimulationEvent::Sockets { server: at, epoch });
            }
        }
    }

    /// Whether the thread of the sockets runs between two outputs of a step, and how long after it.
    fn sockets_run(&self, action: [u64; 4]) -> (bool, Option<u64>) {
        let Some(mut random) = self.drawn(action) else { return (false, None) };
        let is_between = random.next(4) == 0;
        (is_between, (random.next(2) == 0).then(|| random.next(300)))
    }

    /// The thread of a server's sockets writes what waits.
    pub(super) fn sockets(&mut self, at: usize, epoch: u64) {
        if self.is_up(at, epoch) {
            self.write_outputs(at);
        }
    }

    fn write_outputs(&mut self, at: usize) {
        let mut out = Vec::new();
        loop {
            if self.servers[at].unwritten.is_empty() {
                if !self.servers[at].outgoing.is_flush_needed() {
                    self.servers[at].is_interrupted = false;
                    return;
                }
                let notices = self.servers[at].outgoing.take_notices();
                write_notices(notices, &mut ServerSockets(self));
                let of = &mut self.servers[at];
                of.outgoing.take_dirty(&mut of.unwritten);
                of.unwritten.reverse();
                if self.interrupt(at) {
                    return;
                }
            }
            while let Some(connection) = self.servers[at].unwritten.pop() {
                out.clear();
                while self.servers[at].outgoing.fill(connection, &mut out) == Filled::Replies {}
                self.write_replies(connection, &out);
                if self.interrupt(at) {
                    return;
                }
            }
        }
    }

    /// Whether the thread of the sockets is interrupted before or after a connection, and goes on later:
    /// other threads leave more for it meanwhile. After that it is often interrupted again.
    fn interrupt(&mut self, at: usize) -> bool {
        let of = &mut self.servers[at];
        of.rounds += 1;
        let (epoch, rounds, one_in) = (of.epoch, of.rounds, if of.is_interrupted { 2 } else { 5 });
        let us = self
            .drawn([12, at as u64, epoch, rounds])
            .and_then(|mut random| (random.next(one_in) == 0).then(|| random.next(6_000)));
        us.into_iter().for_each(|us| self.after(us, SimulationEvent::Sockets { server: at, epoch }));
        self.servers[at].is_interrupted = us.is_some();
        us.is_some()
    }

    /// Writes frames of replies to a connection.
    fn write_replies(&mut self, connection: u64, frames: &[u8]) {
        if let Some(place) = place_of(connection) {
            // The client finds the end of the connection.
            if !frames.is_empty() && self.write_to_pipe(place, frames, false).is_err() {
                self.close_notices(place);
            }
            return;
        }
        let mut inbox = Inbox::default();
        inbox.feed(frames);
        let taken = inbox.take(|number, reply| {
            let caller = Caller { connection, request: ReplyNumbers::call(number) };
            self.reply(caller, reply.to_vec());
        });
        assert_eq!(taken, Ok(()), "the frames of a server");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::network::connection_of;

    #[test]
    fn the_replies_to_a_request_and_its_copy_are_not_mixed() {
        let mut cluster = Cluster::new(&[]);
        cluster.start(0);
        let (call, link) = (cluster.new_call(None), cluster.link(0, 0).unwrap());
        let caller = Caller { connection: connection_of(link), request: call };
        // Several pieces each; the thread of the sockets runs after both.
        let sent: Vec<Vec<u8>> = [1, 2].map(|byte| vec![byte; 40_000]).into();
        let outputs = StepOutputs::default();
        sent.iter().for_each(|reply| outputs.deliver(caller, reply));
        cluster.pass_on(0, outputs);
        let mut arrived = Vec::new();
        while arrived.len() < sent.len() {
            match cluster.schedule.next() {
                Some(SimulationEvent::Reply { call: of, bytes, .. }) if of == call => arrived.push(bytes),
                Some(_) => {}
                None => break,
            }
        }
        assert!(arrived == sent, "{:?}", arrived.iter().map(Vec::len).collect::<Vec<_>>());
    }
}
