//! Redis Cluster: 16,384 slots of keys, each on one node.
//!
//! The slot of a key is the CRC-16 (XMODEM) of the key, or of the part between
//! the first `{` and the next `}` if that is not empty, modulo 16,384. Which
//! node has which slot is asked for when the first client of an event loop
//! connects, and again after a connection was lost. A node that has given a
//! slot away answers MOVED or ASK instead of doing what was asked; the command
//! then goes where the answer points.
//!
//! The driver has a cluster client too. It follows such answers only if it may
//! also send commands again after a lost connection, which would do operations
//! twice; hence this one.

use super::{
    INDEX,
    server::{Answer, ConnectOptions, Server},
    settings,
};
use crate::reconnecting::{RECONNECT_PAUSE, Reconnecting, Slot};
use futures_util::future::join_all;
use redis::{Cmd, Value};
use serval_model::{Outcome, Status, StoreError};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Instant,
};
use tokio::sync::Mutex;

const SLOTS: usize = 1 << 14;

/// Redirections of one command. Two are usual at most (MOVED, then ASK); more
/// mean that the nodes disagree.
const REDIRECTIONS_MAX: usize = 5;

/// The slot of a key.
pub(super) fn slot(key: &[u8]) -> usize {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let length = key[open + 1..].iter().position(|&byte| byte == b'}')?;
        (length > 0).then(|| &key[open + 1..open + 1 + length])
    });
    usize::from(crc16(tag.unwrap_or(key))) % SLOTS
}

fn crc16(bytes: &[u8]) -> u16 {
    const TABLE: [u16; 256] = {
        let mut table = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let mut crc = (byte as u16) << 8;
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
                bit += 1;
            }
            table[byte] = crc;
            byte += 1;
        }
        table
    };
    bytes.iter().fold(0, |crc, byte| (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

/// Which node has which slot, as the clients of one event loop know it.
#[derive(Debug)]
pub(super) struct Topology {
    options: Arc<ConnectOptions>,
    /// Every node ever heard of; those named by the properties come first.
    nodes: RefCell<Vec<Server>>,
    /// The number of each slot's node.
    slots: RefCell<Vec<u16>>,
    /// A connection was lost: ask again before the next command.
    stale: Cell<bool>,
    /// One client at a time asks, and no more often than this allows.
    asked: Mutex<Option<Instant>>,
}

impl Topology {
    /// Asks the nodes named for all nodes and their slots.
    pub(super) async fn learn(named: &[Server]) -> Result<Rc<Topology>, StoreError> {
        let topology = Topology {
            options: Arc::clone(&named[0].options),
            nodes: RefCell::new(named.to_vec()),
            slots: RefCell::new(vec![0; SLOTS]),
            stale: Cell::default(),
            asked: Mutex::default(),
        };
        topology.ask().await?;
        Ok(Rc::new(topology))
    }

    /// Asks one node after the other until one answers.
    async fn ask(&self) -> Result<(), StoreError> {
        let nodes = self.nodes.borrow().clone();
        let mut failure = StoreError::new("redis", "no node");
        for node in nodes {
            let answer = match node.connect().await {
                Ok(mut connection) => {
                    let command = redis::cmd("CLUSTER").arg("SLOTS").to_owned();
                    command.query_async(&mut connection).await.map_err(|error| node.failed(&error))
                }
                Err(error) => Err(error),
            };
            match answer {
                Ok(value) if self.take(&value, &node).is_some() => return Ok(()),
                Ok(_) => {
                    failure = StoreError::new(&node.name, "cannot tell slots from its reply to CLUSTER SLOTS")
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Takes over a reply to CLUSTER SLOTS: arrays of first slot, last slot,
    /// and nodes, the master first, each an array of host, port and more. A
    /// node that does not know its host is the one that was asked.
    fn take(&self, reply: &Value, asked: &Server) -> Option<()> {
        let Value::Array(ranges) = reply else { return None };
        let mut slots = vec![0; SLOTS];
        for range in ranges {
            let Value::Array(range) = range else { return None };
            let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = &range[..] else {
                return None;
            };
            let [host, Value::Int(port), ..] = &master[..] else { return None };
            let host = match host {
                Value::BulkString(host) if !host.is_empty() => std::str::from_utf8(host).ok()?,
                _ => &asked.host,
            };
            let node = self.node(host, u16::try_from(*port).ok()?)?;
            slots.get_mut(usize::try_from(*first).ok()?..=usize::try_from(*last).ok()?)?.fill(node);
        }
        *self.slots.borrow_mut() = slots;
        self.stale.set(false);
        (!ranges.is_empty()).then_some(())
    }

    /// The number of the node at an address, which may be a new one.
    fn node(&self, host: &str, port: u16) -> Option<u16> {
        let mut nodes = self.nodes.borrow_mut();
        let known = nodes.iter().position(|node| node.port == port && node.host == host);
        let number = known.unwrap_or(nodes.len());
        if known.is_none() {
            nodes.push(self.options.server(host, port).ok()?);
        }
        u16::try_from(number).ok()
    }

    /// The node that a redirection points to; an address without a host means
    /// the host of the node that said so.
    fn node_at(&self, address: &str, said_by: &Server) -> Option<u16> {
        match address.strip_prefix(':') {
            Some(port) => self.node(&said_by.host, port.parse().ok()?),
            None => settings::address(address, said_by.port).and_then(|(host, port)| self.node(&host, port)),
        }
    }

    /// Asks again if a connection was lost since, so that a node that took
    /// over from a dead one is found.
    async fn refresh(&self) {
        if !self.stale.get() {
            return;
        }
        let mut asked = self.asked.lock().await;
        if self.stale.get() && asked.is_none_or(|at| at.elapsed() >= RECONNECT_PAUSE) {
            // A failure shows in the operation that comes next.
            let _ = self.ask().await;
            *asked = Some(Instant::now());
        }
    }

    /// The numbers of the nodes that have slots.
    fn masters(&self) -> Vec<u16> {
        let mut masters = self.slots.borrow().clone();
        masters.sort_unstable();
        masters.dedup();
        masters
    }
}

/// The connections to the nodes, of one client or shared by several.
#[derive(Debug)]
pub(super) struct Nodes {
    topology: Rc<Topology>,
    /// By the number of the node.
    slots: RefCell<Vec<Option<Rc<Slot<Server>>>>>,
}

impl Nodes {
    /// Connects to all nodes that have slots.
    pub(super) async fn connect(topology: &Rc<Topology>) -> Result<Rc<Nodes>, StoreError> {
        let nodes = Nodes { topology: Rc::clone(topology), slots: RefCell::default() };
        for number in topology.masters() {
            let server = topology.nodes.borrow()[usize::from(number)].clone();
            nodes.put(number, Slot::connect(server).await?);
        }
        Ok(Rc::new(nodes))
    }

    fn put(&self, number: u16, slot: Rc<Slot<Server>>) {
        let (mut slots, number) = (self.slots.borrow_mut(), usize::from(number));
        if slots.len() <= number {
            slots.resize(number + 1, None);
        }
        slots[number] = Some(slot);
    }

    fn slot(&self, number: u16) -> Rc<Slot<Server>> {
        let known = self.slots.borrow().get(usize::from(number)).cloned().flatten();
        known.unwrap_or_else(|| {
            let slot = Slot::empty(self.topology.nodes.borrow()[usize::from(number)].clone());
            self.put(number, Rc::clone(&slot));
            slot
        })
    }

    /// Sends a command to the node that has the key.
    pub(super) async fn command(&self, key: &[u8], command: &Cmd) -> Result<Value, Outcome> {
        let topology = &*self.topology;
        topology.refresh().await;
        let slot = slot(key);
        let mut number = topology.slots.borrow()[slot];
        let mut asking = false;
        for _ in 0..=REDIRECTIONS_MAX {
            let mut link = Reconnecting::new(self.slot(number));
            let (address, moved) = match link.command_in_cluster(command, asking).await {
                Ok(Answer::Reply(value)) => return Ok(value),
                Ok(Answer::Moved(address)) => (address, true),
                Ok(Answer::Ask(address)) => (address, false),
                Err(outcome) => {
                    if outcome.status == Status::ServiceUnavailable {
                        topology.stale.set(true);
                    }
                    return Err(outcome);
                }
            };
            let Some(next) = topology.node_at(&address, link.connector()) else {
                return Err(Outcome::failed(Status::UnexpectedState, format!("redirected to '{address}'")));
            };
            if moved {
                topology.slots.borrow_mut()[slot] = next;
            }
            (number, asking) = (next, !moved);
        }
        let problem =
            format!("slot {slot}: redirected more than {REDIRECTIONS_MAX} times; do the nodes agree?");
        Err(Outcome::failed(Status::ServiceUnavailable, problem))
    }

    /// Sends commands to the nodes that have their keys, all at once; replies
    /// come in the order of commands.
    pub(super) async fn commands(&self, commands: &[(&[u8], Cmd)]) -> Result<Vec<Value>, Outcome> {
        let all = commands.iter().map(|(key, command)| self.command(key, command));
        join_all(all).await.into_iter().collect()
    }

    /// The command to the node that has the index.
    pub(super) async fn index(&self, command: &Cmd) -> Result<Value, Outcome> {
        self.command(INDEX.as_bytes(), command).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        // CRC-16/XMODEM's check value, and what CLUSTER KEYSLOT answers.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12182);
        assert_eq!(slot(b"{foo}bar"), 12182);
        assert_eq!(slot(b"a{foo}{bar}"), 12182);
        assert_eq!(slot(b"{}foo"), usize::from(crc16(b"{}foo")) % SLOTS);
        assert_eq!(slot(b"{foo"), usize::from(crc16(b"{foo")) % SLOTS);
        assert_eq!(slot(b""), 0);
    }
}
