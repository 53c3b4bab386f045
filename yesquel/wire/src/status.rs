//! Status of a server, as JSON, so that versions may differ: unknown fields are ignored, and
//! missing ones are zero.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A server.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerStatus {
    /// Server number.
    pub server: u16,
    /// Release.
    pub version: String,
    /// Milliseconds since the start.
    pub uptime_ms: u64,
    /// Highest timestamp that its clock has given or seen.
    pub clock: u64,
    /// Durability: `sync`, `interval MS`, `none`, or `memory`.
    pub durability: String,
    /// Memory.
    pub memory: MemoryStatus,
    /// The log.
    pub log: LogStatus,
    /// Transactions.
    pub transactions: TransactionStatus,
    /// The commit of transactions over several groups.
    pub commit_protocol: CommitProtocolStatus,
    /// Snapshots.
    pub snapshots: SnapshotStatus,
    /// Connections by sockets.
    pub connections: ConnectionStatus,
    /// Certificates and credentials.
    pub secrets: SecretsStatus,
    /// Other servers, and the comparison of clocks with them.
    pub peers: PeersStatus,
    /// Requests since the start.
    pub requests: RequestStatus,
    /// Trees, by number.
    pub trees: Vec<TreeStatus>,
    /// Histogram of nodes by cells; a bucket states the most cells that are counted in it.
    pub nodes_by_cells: Vec<Bucket>,
    /// Histogram of nodes by accesses in the last second.
    pub nodes_by_load: Vec<Bucket>,
    /// Nodes with the most accesses in the last second, in descending order.
    pub busiest: Vec<NodeStatus>,
}

/// Memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryStatus {
    /// Bytes of nodes, and of requests and transactions in progress.
    pub bytes: u64,
    /// Memory budget; none: unlimited.
    pub bytes_max: Option<u64>,
    /// Bytes of node versions that only a checkpoint still holds, part of `bytes`.
    pub copies: u64,
    /// Requests refused for lack of memory.
    pub refused: u64,
}

/// The log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LogStatus {
    /// Records since the creation of the data folder.
    pub lsn: u64,
    /// Records that are durable.
    pub synced_lsn: u64,
    /// Bytes of its files, including preallocated zeros.
    pub bytes: u64,
    /// The last checkpoint.
    pub checkpoint: Option<CheckpointStatus>,
    /// Why the log takes no more records.
    pub failed: Option<String>,
    /// The disk is full: the log continues when there is space.
    pub full: Option<DiskFullStatus>,
    /// How often the disk has become full since the start.
    pub full_count: u64,
}

/// A full disk.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskFullStatus {
    /// The error of the write that found no space.
    pub error: String,
    /// Milliseconds since that write.
    pub since_ms: u64,
}

/// A checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CheckpointStatus {
    /// Last log record that it covers.
    pub lsn: u64,
    /// Bytes of its file.
    pub bytes: u64,
    /// Milliseconds since it was completed.
    pub age_ms: u64,
}

/// Transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TransactionStatus {
    /// Prepared transactions without an outcome.
    pub undecided: u64,
    /// Milliseconds since the oldest of them voted, or since the start.
    pub undecided_oldest_ms: u64,
    /// Requests that wait for one.
    pub waiting: u64,
    /// Clients whose commits are remembered.
    pub clients: u64,
    /// Leases.
    pub leases: u64,
    /// Prepares that are queued behind other transactions.
    pub queued: u64,
    /// Prepares that were ever queued.
    pub queued_total: u64,
    /// Ends of transactions of several servers that are remembered.
    pub ends: u64,
    /// Ends that recovery has found.
    pub recovered: u64,
    /// Decisions that contradict the end: an alarm.
    pub contradictions: u64,
    /// Transactions born before this time may not vote any more.
    pub horizon: u64,
}

/// The commit of transactions over several groups.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CommitProtocolStatus {
    /// Undecided transactions by milliseconds since their votes, or since the start.
    pub undecided_by_age: Vec<Bucket>,
    /// Recoveries since the start.
    pub recoveries: RecoveryStatus,
    /// Messages received since the start.
    pub messages: CommitMessageCounts,
    /// Commits by the number of their groups, each counted at the first of them. Those of one group
    /// are [`RequestStatus::commits`].
    pub by_groups: Vec<Bucket>,
    /// Prepares that were refused because of another prepared transaction.
    pub refused_prepared: u64,
    /// How old transactions are that may not vote any more, in milliseconds.
    pub horizon_age_ms: u64,
    /// The oldest undecided transactions, oldest first: some hundreds at most.
    pub undecided: Vec<UndecidedTransaction>,
}

/// A prepared transaction without an outcome.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UndecidedTransaction {
    /// Number of its client.
    pub client: u64,
    /// Its number at the client.
    pub number: u64,
    /// When its commit began, as a timestamp.
    pub birth: u64,
    /// Milliseconds since the vote, or since the start.
    pub age_ms: u64,
    /// Groups that take part, in order.
    pub participants: Vec<u16>,
    /// Those of them whose votes this group does not know.
    pub unknown: Vec<u16>,
    /// Whether this group has asked the others for their votes.
    pub recovers: bool,
    /// Requests that wait for its end.
    pub waiting: u64,
}

/// Recoveries of prepared transactions, by what has started them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RecoveryStatus {
    /// A request waited for the transaction.
    pub waiter: RecoveryCounts,
    /// The connection of its client had ended.
    pub connection: RecoveryCounts,
    /// Another transaction of its client was recovered.
    pub client: RecoveryCounts,
    /// Its vote was old.
    pub age: RecoveryCounts,
}

/// Recoveries and their results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RecoveryCounts {
    /// Those that were started.
    pub started: u64,
    /// Those that have found a commit.
    pub committed: u64,
    /// Those that have found an abort.
    pub aborted: u64,
    /// Those whose transaction the client has decided meanwhile.
    pub by_client: u64,
}

/// Messages of commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CommitMessageCounts {
    /// Commits of this group alone.
    pub commits: u64,
    /// Requests for a vote.
    pub prepares: u64,
    /// Decisions.
    pub decisions: u64,
    /// Parts of large transactions, and their releases.
    pub stages: u64,
    /// Questions of clients and other groups for a vote.
    pub vote_questions: u64,
    /// Questions of clients for the outcome of a commit of this group alone.
    pub outcome_questions: u64,
}

/// Snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SnapshotStatus {
    /// Oldest readable snapshot, as a timestamp.
    pub oldest: u64,
    /// Its age in milliseconds.
    pub oldest_age_ms: u64,
    /// Connections that hold a snapshot.
    pub holders: u64,
    /// Held snapshots that were cancelled for lack of memory.
    pub cancelled: u64,
}

/// Connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectionStatus {
    /// Open connections.
    pub open: u64,
    /// Accepted since the start.
    pub accepted: u64,
    /// Turned away, or closed for a protocol violation.
    pub refused: u64,
    /// Connections that were closed because their credential was removed.
    pub revoked: u64,
    /// Times that reading from a connection paused because the client did not take its replies.
    pub paused: u64,
    /// Most bytes of replies that ever waited for one connection.
    pub queued_most: u64,
    /// Bytes of incomplete messages.
    pub unfinished: u64,
}

/// Role of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConnectionRole {
    /// A client.
    Client,
    /// Another server.
    Server,
    /// An operator, who presents a credential of servers.
    Operator,
    /// A machine that joins, by a token that is signed with a credential of servers.
    Joiner,
    /// A later release has another role.
    #[default]
    #[serde(other)]
    Unknown,
}

impl ConnectionRole {
    /// Returns the name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            ConnectionRole::Client => "client",
            ConnectionRole::Server => "server",
            ConnectionRole::Operator => "operator",
            ConnectionRole::Joiner => "joiner",
            ConnectionRole::Unknown => "unknown",
        }
    }
}

/// Open connections of one role that one credential has admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AdmittedConnections {
    /// Their role.
    pub role: ConnectionRole,
    /// The credential's line in the file of the role, from 1 on; `None`: the role needs no credential.
    pub line: Option<u64>,
    /// Their number.
    pub open: u64,
}

/// Certificates and credentials of a server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SecretsStatus {
    /// Reloads since the start.
    pub reloads: u64,
    /// Reloads that have failed, and changed nothing.
    pub failed_reloads: u64,
    /// When the certificate expires, in seconds of Unix time; `None`: the server has none.
    pub certificate_expires_s: Option<u64>,
    /// Open connections by role and credential, as of the last second.
    pub admitted: Vec<AdmittedConnections>,
}

/// The other servers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PeersStatus {
    /// Why the server serves nothing, if its clock differs from the others or is not compared yet.
    pub not_serving: Option<String>,
    /// How far the clock of each server is ahead of this one's, by the last comparison.
    pub clocks: Vec<PeerClock>,
}

/// The clock of another server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PeerClock {
    /// Server number.
    pub server: u16,
    /// Milliseconds; negative: behind.
    pub ahead_ms: i64,
    /// Time since the last comparison, in milliseconds.
    pub age_ms: u64,
}

/// Requests since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestStatus {
    /// Read requests.
    pub reads: u64,
    /// Questions in them.
    pub questions: u64,
    /// Commits of transactions of this server alone.
    pub commits: u64,
    /// Votes for yes.
    pub prepares: u64,
    /// Refusals because another transaction committed first.
    pub conflicts: u64,
    /// Refusals because a key had moved.
    pub moved: u64,
    /// Times that a request waited for a prepared transaction.
    pub waits: u64,
    /// Times that the other participants of a prepared transaction were asked for their votes.
    pub recoveries: u64,
    /// Requests for another group, or with another epoch of the group.
    pub wrong_group: u64,
}

/// A tree.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TreeStatus {
    /// Tree number.
    pub tree: u64,
    /// Leaves at this server.
    pub leaves: u64,
    /// Inner nodes at this server.
    pub inner: u64,
    /// Nodes of long values at this server.
    pub values: u64,
    /// Cells in leaves.
    pub cells: u64,
    /// Bytes of keys and values, including long values.
    pub bytes: u64,
    /// Bytes of memory of all its nodes.
    pub memory: u64,
    /// Accesses in the last second.
    pub load: u64,
}

/// The groups of a cluster, as one machine knows them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DirectoryStatus {
    /// The groups, by number.
    pub groups: Vec<GroupStatus>,
    /// Version of the machine's copy of the directory; zero: the cluster has none.
    pub version: u64,
    /// The machines in it, by number, removed ones too.
    pub machines: Vec<MachineStatus>,
}

/// A machine in the directory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineStatus {
    /// Its number.
    pub machine: u32,
    /// The group that it hosts, or the first one of several.
    pub group: u16,
    /// All groups that it hosts, if there are several.
    pub groups: Vec<u16>,
    /// Its address; empty: none is known.
    pub address: String,
    /// Its state.
    pub state: MachineState,
    /// Number of its last start.
    pub incarnation: u64,
}

impl MachineStatus {
    /// Returns all groups that it hosts, the first one first.
    pub fn all_groups(&self) -> impl Iterator<Item = u16> {
        all_groups(self.group, &self.groups)
    }
}

/// Returns all groups of a machine with this group, or these, if there are several.
pub fn all_groups(group: u16, groups: &[u16]) -> impl Iterator<Item = u16> {
    std::iter::once(group).chain(groups.iter().copied().filter(move |other| *other != group))
}

/// State of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MachineState {
    /// It has its number, and has not started yet.
    Joining,
    /// It has started since it joined. It may be down.
    Serving,
    /// It was removed. Its number and its group are never used again.
    Removed,
    /// A later release has set another state.
    #[default]
    #[serde(other)]
    Unknown,
}

impl fmt::Display for MachineState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MachineState::Joining => "joining",
            MachineState::Serving => "serving",
            MachineState::Removed => "removed",
            MachineState::Unknown => "unknown",
        })
    }
}

/// A group.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupStatus {
    /// Group number.
    pub group: u16,
    /// Its address; empty: none is known.
    pub address: String,
}

/// A histogram bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Bucket {
    /// Largest value in the bucket.
    pub up_to: u64,
    /// Number of values.
    pub count: u64,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// Its id.
    pub node: String,
    /// Its id as a hexadecimal number.
    pub id: String,
    /// Whether it is a leaf.
    pub leaf: bool,
    /// Lower bound of its keys, in hexadecimal.
    pub low: String,
    /// Exclusive upper bound of its keys, in hexadecimal; none: unbounded.
    pub high: Option<String>,
    /// Cells that are not deleted.
    pub cells: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Accesses in the last second.
    pub load: u64,
    /// Children of an inner node, by [`id`](Self::id).
    pub children: Vec<String>,
}

/// Nodes of a tree at one server, all of one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TreeNodes {
    /// The nodes.
    pub nodes: Vec<NodeStatus>,
    /// Whether there are more nodes, after the last one's [`id`](NodeStatus::id).
    pub more: bool,
}
