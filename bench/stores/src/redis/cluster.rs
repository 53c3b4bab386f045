//! Redis Cluster: 16,384 slots of keys, each on one node.
//!
//! A key's slot is the CRC-16 (XMODEM) of the key, or of its part between the first `{`
//! and the next `}` if that is not empty, modulo 16,384. The map of slots is requested
//! when an event loop's first client connects, and again after a connection was lost. A
//! node that has moved a slot answers MOVED or ASK; the command is then sent to the
//! node of the answer.
//!
//! The driver's cluster client follows redirections only together with retries after a
//! lost connection, which could execute operations twice; hence this one.

use super::{
    INDEX,
    server::{ConnectOptions, NodeReply, RedisEndpoint, UNSPECIFIC, cluster_enabled},
    settings,
};
use crate::reconnecting::{RECONNECT_PAUSE, Reconnecting, Slot};
use futures_util::future::join_all;
use redis::{Cmd, RedisResult, Value};
use serval_model::{Outcome, Status, StoreError};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Instant,
};
use tokio::sync::Mutex;

const SLOTS: usize = 1 << 14;

/// Maximum redirections of one command. Usually at most two (MOVED, then ASK); more mean
/// that the nodes disagree.
const REDIRECTIONS_MAX: usize = 5;

/// Returns the slot of a key.
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

/// Map of slots of the clients of one event loop.
#[derive(Debug)]
pub(super) struct Topology {
    options: Arc<ConnectOptions>,
    /// All known nodes; those of the properties come first.
    nodes: RefCell<Vec<RedisEndpoint>>,
    /// Number of each slot's node.
    slots: RefCell<Vec<u16>>,
    /// Whether a connection was lost, so that the map must be requested again.
    stale: Cell<bool>,
    /// Limits requests to one client at a time, and their rate.
    asked: Mutex<Option<Instant>>,
}

impl Topology {
    /// Requests the map of slots from the nodes of the properties.
    pub(super) async fn learn(named: &[RedisEndpoint]) -> Result<Rc<Topology>, StoreError> {
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

    /// Requests the map from the nodes in turn until one answers.
    async fn ask(&self) -> Result<(), StoreError> {
        let nodes = self.nodes.borrow().clone();
        let mut failure = StoreError::new("redis", "no node");
        for node in nodes {
            let answer = match node.connect().await {
                Ok(mut connection) => {
                    let command = redis::cmd("CLUSTER").arg("SLOTS").to_owned();
                    match command.query_async(&mut connection).await {
                        Err(error) if error.code() == Some(UNSPECIFIC) => {
                            let command = redis::cmd("INFO").arg("cluster").to_owned();
                            let info: RedisResult<Value> = command.query_async(&mut connection).await;
                            Err(node.cluster_failed(&error, info.ok().and_then(cluster_enabled)))
                        }
                        answer => answer.map_err(|error| node.failed(&error)),
                    }
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

    /// Applies a reply to CLUSTER SLOTS: arrays of first slot, last slot, and nodes
    /// (master first), each an array of host, port and more. A node without a host is
    /// the one that replied.
    fn take(&self, reply: &Value, asked: &RedisEndpoint) -> Option<()> {
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

    /// Returns the number of the node at an address; adds a new node.
    fn node(&self, host: &str, port: u16) -> Option<u16> {
        let mut nodes = self.nodes.borrow_mut();
        let known = nodes.iter().position(|node| node.port == port && node.host == host);
        let number = known.unwrap_or(nodes.len());
        if known.is_none() {
            nodes.push(self.options.server(host, port).ok()?);
        }
        u16::try_from(number).ok()
    }

    /// Returns the node of a redirection; an address without a host means the host of
    /// the redirecting node.
    fn node_at(&self, address: &str, said_by: &RedisEndpoint) -> Option<u16> {
        match address.strip_prefix(':') {
            Some(port) => self.node(&said_by.host, port.parse().ok()?),
            None => settings::address(address, said_by.port).and_then(|(host, port)| self.node(&host, port)),
        }
    }

    /// Requests the map again after a lost connection, to find a node that has
    /// taken over.
    async fn refresh(&self) {
        if !self.stale.get() {
            return;
        }
        let mut asked = self.asked.lock().await;
        if self.stale.get() && asked.is_none_or(|at| at.elapsed() >= RECONNECT_PAUSE) {
            // The next operation reports a failure.
            let _ = self.ask().await;
            *asked = Some(Instant::now());
        }
    }

    /// Returns the numbers of the nodes with slots.
    fn masters(&self) -> Vec<u16> {
        let mut masters = self.slots.borrow().clone();
        masters.sort_unstable();
        masters.dedup();
        masters
    }
}

/// Connections to the nodes, of one client or shared.
#[derive(Debug)]
pub(super) struct Nodes {
    topology: Rc<Topology>,
    /// Connections by node number.
    slots: RefCell<Vec<Option<Rc<Slot<RedisEndpoint>>>>>,
}

impl Nodes {
    /// Connects to all nodes with slots.
    pub(super) async fn connect(topology: &Rc<Topology>) -> Result<Rc<Nodes>, StoreError> {
        let nodes = Nodes { topology: Rc::clone(topology), slots: RefCell::default() };
        for number in topology.masters() {
            let server = topology.nodes.borrow()[usize::from(number)].clone();
            nodes.put(number, Slot::connect(server).await?);
        }
        Ok(Rc::new(nodes))
    }

    fn put(&self, number: u16, slot: Rc<Slot<RedisEndpoint>>) {
        let (mut slots, number) = (self.slots.borrow_mut(), usize::from(number));
        if slots.len() <= number {
            slots.resize(number + 1, None);
        }
        slots[number] = Some(slot);
    }

    fn slot(&self, number: u16) -> Rc<Slot<RedisEndpoint>> {
        let known = self.slots.borrow().get(usize::from(number)).cloned().flatten();
        known.unwrap_or_else(|| {
            let slot = Slot::empty(self.topology.nodes.borrow()[usize::from(number)].clone());
            self.put(number, Rc::clone(&slot));
            slot
        })
    }

    /// Sends a command to the key's node.
    pub(super) async fn command(&self, key: &[u8], command: &Cmd) -> Result<Value, Outcome> {
        let topology = &*self.topology;
        topology.refresh().await;
        let slot = slot(key);
        let mut number = topology.slots.borrow()[slot];
        let mut asking = false;
        for _ in 0..=REDIRECTIONS_MAX {
            let mut link = Reconnecting::new(self.slot(number));
            let (address, moved) = match link.command_in_cluster(command, asking).await {
                Ok(NodeReply::Reply(value)) => return Ok(value),
                Ok(NodeReply::Moved(address)) => (address, true),
                Ok(NodeReply::Ask(address)) => (address, false),
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

    /// Sends commands to their keys' nodes, concurrently. Returns the replies in the
    /// order of the commands.
    pub(super) async fn commands(&self, commands: &[(&[u8], Cmd)]) -> Result<Vec<Value>, Outcome> {
        let all = commands.iter().map(|(key, command)| self.command(key, command));
        join_all(all).await.into_iter().collect()
    }

    /// Sends a command to the index's node.
    pub(super) async fn index(&self, command: &Cmd) -> Result<Value, Outcome> {
        self.command(INDEX.as_bytes(), command).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_agree_with_the_specification() {
        // CRC-16/XMODEM's check value, and answers of CLUSTER KEYSLOT.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12182);
        assert_eq!(slot(b"{foo}bar"), 12182);
        assert_eq!(slot(b"a{foo}{bar}"), 12182);
        assert_eq!(slot(b"{}foo"), usize::from(crc16(b"{}foo")) % SLOTS);
        assert_eq!(slot(b"{foo"), usize::from(crc16(b"{foo")) % SLOTS);
        assert_eq!(slot(b""), 0);
    }
}
