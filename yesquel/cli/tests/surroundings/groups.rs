//! Two servers that share transactions, in processes of their own, and a client of both.

use crate::{PROGRAM, metrics::MetricsAddress, support::Process};
use std::{collections::BTreeMap, net::TcpListener, process::Command};
use yesquel::{Address, ServerId, SocketOptions};
use yesquel_client::Client;
use yesquel_transport::{SocketTransport, block_on};
use yesquel_tree::{Tree, TreeError, Trees};

pub(crate) const SERVERS: [ServerId; 2] = [ServerId(0), ServerId(1)];

/// Trees of a client of both servers.
pub(crate) type SocketTrees = Trees<SocketTransport>;

pub(crate) struct GroupServer {
    pub(crate) process: Process,
    metrics: MetricsAddress,
}

pub(crate) struct Groups {
    pub(crate) servers: Vec<GroupServer>,
    pub(crate) addresses: Vec<Address>,
}

/// Returns an unused port.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Connects to servers as a client with a unique number.
pub(crate) fn connect(addresses: &[Address], client: u64, options: SocketOptions) -> SocketTrees {
    Trees::new(Client::new(SocketTransport::connect(addresses, client, options).unwrap(), client))
}

/// Writes a value under a key of each tree.
pub(crate) fn put_in_all(
    trees: &SocketTrees,
    all: &[Tree],
    key: &[u8],
    value: &[u8],
) -> Result<(), TreeError> {
    let mut transaction = trees.begin();
    all.iter().try_for_each(|tree| transaction.put(*tree, key, value))?;
    block_on(transaction.commit()).map(drop)
}

/// Reads a key of each tree at one snapshot.
pub(crate) fn get_from_all(
    trees: &SocketTrees,
    all: &[Tree],
    key: &[u8],
) -> Result<Vec<Option<Box<[u8]>>>, TreeError> {
    let mut transaction = trees.begin();
    all.iter().map(|tree| block_on(transaction.get(*tree, key))).collect()
}

impl GroupServer {
    /// Returns the metrics, by name and labels.
    pub(crate) fn metrics(&self) -> BTreeMap<String, f64> {
        self.metrics.read()
    }
}

impl Groups {
    pub(crate) fn start() -> Groups {
        let ports: Vec<u16> = SERVERS.iter().map(|_| free_port()).collect();
        let start = |server: &ServerId| {
            let number = usize::from(server.0);
            let mut command = Command::new(PROGRAM);
            command.args(["serve", "--in-memory", "--metrics", "127.0.0.1:0"]);
            command.args(["--server", &server.0.to_string()]);
            command.args(["--listen", &format!("127.0.0.1:{}", ports[number])]);
            for (other, port) in ports.iter().enumerate().filter(|(other, _)| *other != number) {
                command.args(["--peer", &format!("{other}=127.0.0.1:{port}")]);
            }
            Process::spawn(command.env("YESQUEL_LOG", "info"))
        };
        let processes: Vec<Process> = SERVERS.iter().map(start).collect();
        let served = |process: Process| {
            process.wait_until_ready();
            let metrics = MetricsAddress::of(&process);
            GroupServer { process, metrics }
        };
        let servers = processes.into_iter().map(served).collect();
        let addresses = ports.iter().map(|port| format!("127.0.0.1:{port}").parse().unwrap()).collect();
        Groups { servers, addresses }
    }

    pub(crate) fn client(&self, client: u64) -> SocketTrees {
        connect(&self.addresses, client, SocketOptions::default())
    }

    /// The sum of a metric over the servers.
    pub(crate) fn sum(&self, name: &str) -> u64 {
        let of = |server: &GroupServer| server.metrics().get(name).copied().unwrap_or_default() as u64;
        self.servers.iter().map(of).sum()
    }

    /// Waits until a metric has a sum.
    pub(crate) fn wait_for(&self, name: &str, sum: u64) {
        while self.sum(name) != sum {
            std::thread::yield_now();
        }
    }
}
