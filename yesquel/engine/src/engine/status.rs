//! The engine's status report.

use super::Engine;
use crate::{effects::Now, node::Node};
use std::collections::BTreeMap;
use yesquel_model::{Key, KeyRange, NodeId, ServerId, Timestamp, TreeId};
use yesquel_wire::{
    NodeKind,
    status::{
        Bucket, CommitProtocolStatus, MemoryStatus, NodeStatus, RequestStatus, ServerStatus, SnapshotStatus,
        TransactionStatus, TreeNodes, TreeStatus,
    },
};

/// Nodes listed as the busiest.
const BUSIEST_MAX: usize = 10;

/// Lower bound for the bytes of a node's report: field names, two ids, some numbers.
const NODE_TOLD_BYTES: usize = 128;

/// Approximate bytes of a node's report.
fn told_bytes(node: &NodeStatus) -> usize {
    let ids = node.node.len() + node.id.len() + node.children.len() * (node.id.len() + 3);
    NODE_TOLD_BYTES + ids + node.low.len() + node.high.as_ref().map_or(0, String::len)
}

/// A histogram by powers of two.
#[derive(Default)]
struct Buckets(BTreeMap<u64, u64>);

impl Buckets {
    fn add(&mut self, number: u64) {
        let up_to = if number == 0 { 0 } else { number.checked_next_power_of_two().unwrap_or(u64::MAX) };
        *self.0.entry(up_to).or_default() += 1;
    }

    fn finish(self) -> Vec<Bucket> {
        self.0.into_iter().map(|(up_to, count)| Bucket { up_to, count }).collect()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn id(node: NodeId) -> String {
    format!("{:032x}", node.to_bits())
}

impl Engine {
    /// Number of nodes by the server in their ids: this one, unless it was started on another
    /// server's folder. Visits each node.
    pub fn nodes_by_server(&self) -> BTreeMap<ServerId, u64> {
        let mut nodes = BTreeMap::new();
        for node in self.store.iter() {
            *nodes.entry(node.id.server).or_default() += 1;
        }
        nodes
    }

    /// Number of requests of clients so far: reads, commits and votes.
    pub fn requests(&self) -> u64 {
        self.counts.reads + self.lookups.count() + self.counts.commits + self.counts.prepares
    }

    /// Returns the status. Visits each node.
    pub fn status(&mut self, now: Now) -> ServerStatus {
        // Only shown: the clock of a server that serves nothing must not advance.
        let clock = self.clock.last().max(Timestamp::from_ms(now.wall_ms));
        let age_ms =
            |of: Timestamp| if of == Timestamp::ZERO { 0 } else { clock.ms().saturating_sub(of.ms()) };
        let second = self.samples.second;
        let mut trees: BTreeMap<TreeId, TreeStatus> = BTreeMap::new();
        let (mut by_cells, mut by_load) = (Buckets::default(), Buckets::default());
        let mut busiest: Vec<(u64, &Node)> = Vec::new();
        for node in self.store.iter() {
            let Some(shape) = node.shape() else { continue };
            let tree = trees.entry(node.id.tree).or_default();
            let ((cells, bytes), load) = (node.size(), node.load.rate(second));
            tree.tree = node.id.tree.number();
            tree.memory += node.memory() as u64;
            tree.load += load;
            match shape.kind {
                NodeKind::Leaf => {
                    tree.leaves += 1;
                    tree.cells += cells as u64;
                    tree.bytes += bytes as u64;
                }
                NodeKind::Inner => tree.inner += 1,
                NodeKind::Value => {
                    tree.values += 1;
                    tree.bytes += bytes as u64;
                    continue;
                }
            }
            by_cells.add(cells as u64);
            by_load.add(load);
            if load > 0 {
                busiest.push((load, node));
            }
        }
        busiest.sort_unstable_by_key(|(load, node)| (std::cmp::Reverse(*load), node.id));
        busiest.truncate(BUSIEST_MAX);
        let busiest: Vec<NodeStatus> =
            busiest.into_iter().filter_map(|(_, node)| node_status(node, second)).collect();
        // While nothing has changed, the mark need not be raised.
        let is_quiet = self.last_change <= self.snapshots.low();
        let oldest = if is_quiet {
            self.oldest_snapshot().max(self.snapshots.proposed())
        } else {
            self.oldest_snapshot()
        };
        let bytes_max = self.settings.memory_bytes_max;
        ServerStatus {
            server: self.settings.server.0,
            uptime_ms: now.uptime_ms,
            clock: clock.0,
            memory: MemoryStatus {
                bytes: self.memory() as u64,
                bytes_max: (bytes_max != usize::MAX).then_some(bytes_max as u64),
                copies: self.store.checkpoint_copies() as u64,
                refused: self.counts.refused_memory,
            },
            transactions: TransactionStatus {
                undecided: self.prepared.len() as u64,
                undecided_oldest_ms: self.oldest_undecided_ms(now),
                leases: self.leases.count() as u64,
                waiting: self.waiting_count() as u64,
                clients: self.outcomes.clients() as u64,
                queued: self.queue.len() as u64,
                queued_total: self.counts.queued,
                ends: self.outcomes.ends() as u64,
                recovered: self.counts.recovered,
                contradictions: self.counts.contradictions,
                horizon: self.outcomes.horizon().0,
            },
            commit_protocol: CommitProtocolStatus {
                undecided_by_age: self.undecided_by_age(now),
                recoveries: self.commit_counts.recoveries(),
                messages: self.commit_counts.messages,
                by_groups: self.commit_counts.by_groups(),
                refused_prepared: self.commit_counts.refused_prepared,
                horizon_age_ms: age_ms(self.outcomes.horizon()),
                undecided: self.oldest_undecided(now),
            },
            snapshots: SnapshotStatus {
                oldest: oldest.0,
                oldest_age_ms: age_ms(oldest),
                holders: self.snapshots.holders() as u64,
                cancelled: self.snapshots.cancelled(),
            },
            requests: RequestStatus {
                reads: self.counts.reads + self.lookups.count(),
                questions: self.counts.questions + self.lookups.count() + self.extra_questions.count(),
                commits: self.counts.commits,
                prepares: self.counts.prepares,
                conflicts: self.counts.conflicts,
                moved: self.counts.moved,
                waits: self.counts.waits,
                recoveries: self.counts.recoveries,
                // The driver knows it.
                wrong_group: 0,
            },
            trees: trees.into_values().collect(),
            nodes_by_cells: by_cells.finish(),
            nodes_by_load: by_load.finish(),
            busiest,
            ..ServerStatus::default()
        }
    }

    /// Returns the nodes of a tree in id order: those after `after`, or all, up to the size of one
    /// report.
    pub fn nodes_of(&self, tree: TreeId, after: Option<NodeId>) -> TreeNodes {
        let (second, bytes_max) = (self.samples.second, self.settings.report_bytes_max);
        let is_value = |node: &Node| node.shape().is_some_and(|shape| shape.kind == NodeKind::Value);
        let is_next = |node: &&Node| node.id.tree == tree && after.is_none_or(|after| node.id > after);
        let mut nodes: Vec<&Node> =
            self.store.iter().filter(|node| is_next(node) && !is_value(node)).collect();
        // Sorts only as many nodes as may fit.
        let most = bytes_max / NODE_TOLD_BYTES + 1;
        if nodes.len() > most {
            nodes.select_nth_unstable_by_key(most, |node| node.id);
            nodes.truncate(most + 1);
        }
        nodes.sort_unstable_by_key(|node| node.id);
        let (mut page, mut bytes) = (TreeNodes::default(), 0);
        for status in nodes.into_iter().filter_map(|node| node_status(node, second)) {
            if bytes >= bytes_max {
                page.more = true;
                break;
            }
            bytes += told_bytes(&status);
            page.nodes.push(status);
        }
        page
    }

    /// Returns the leaves of a tree and their fences, for tests.
    pub fn leaves_of(&self, tree: TreeId) -> Vec<(NodeId, KeyRange)> {
        let of = self.store.iter().filter(|node| node.id.tree == tree);
        let mut leaves: Vec<(NodeId, KeyRange)> = of
            .filter_map(|node| Some((node.id, node.shape()?)))
            .filter(|(_, shape)| shape.kind == NodeKind::Leaf)
            .map(|(id, shape)| (id, shape.fence.clone()))
            .collect();
        leaves.sort_unstable_by_key(|(_, fence)| fence.low.clone());
        leaves
    }
}

fn node_status(node: &Node, second: u16) -> Option<NodeStatus> {
    let shape = node.shape()?;
    let (cells, bytes) = node.size();
    let leaf = shape.kind != NodeKind::Inner;
    let child = |value: &[u8]| Some(hex(&value.iter().rev().copied().collect::<Vec<u8>>()));
    let children = if leaf {
        Vec::new()
    } else {
        let seen = node.cells().iter().filter(|cell| shape.fence.contains(cell.key));
        seen.filter_map(|cell| cell.newest.and_then(|value| child(value.bytes))).collect()
    };
    let high: Option<&Key> = shape.fence.high.as_ref();
    Some(NodeStatus {
        node: node.id.to_string(),
        id: id(node.id),
        leaf,
        low: hex(&shape.fence.low),
        high: high.map(|high| hex(high)),
        cells: cells as u64,
        bytes: bytes as u64,
        load: node.load.rate(second),
        children,
    })
}
