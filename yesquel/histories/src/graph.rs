//! Graph in which cycles are searched.
//!
//! For snapshot isolation each transaction is two nodes: its begin (when its snapshot is taken) and
//! its commit, the first before the second. `ww`, `wr`, session and real-time edges lead from a
//! commit to a begin: a transaction that overwrites, reads or must see a write has it in its
//! snapshot. `rw` edges lead from a begin to a commit: a snapshot that misses a write was taken
//! before it. Snapshot isolation holds if and only if all these events can be put in one order,
//! that is, if there is no cycle. This is equivalent to the result of Cerone & Gotsman ("Analysing
//! Snapshot Isolation", PODC 2016) that exactly the cycles with two adjacent `rw` edges are
//! allowed: an `rw` edge leads to a commit, the next one starts at a begin, and no edge leads from
//! a commit to its own begin. So a search that would have to remember the kind of the last edge
//! becomes a search for strongly connected components, which is linear (Tarjan, "Depth-First Search
//! and Linear Graph Algorithms", 1972).
//!
//! For serializability begin and commit are one node.
//!
//! Helper nodes keep the graph as small as the history. Real time is a chain of completion times:
//! each completed transaction has an arc into the chain, and the chain has an arc to each later
//! begin. A tail (see `dependencies.rs`) is a node between readers and appenders.

use crate::anomaly::{Dependency, Edge};
use crate::dependencies::Dependencies;
use crate::history::{RecordedOutcome, RecordedTransaction};
use std::collections::VecDeque;

/// Kinds of arcs, as bits of a mask.
pub(crate) const WW: u8 = 1;
pub(crate) const WR: u8 = 2;
pub(crate) const RW: u8 = 4;
/// `rw` edge of a lost update.
pub(crate) const RW_LOST: u8 = 8;
pub(crate) const SESSION: u8 = 16;
pub(crate) const REAL_TIME: u8 = 32;
/// Arc within a transaction or a tail, which has no cost and is always included.
pub(crate) const FREE: u8 = 64;

/// Number for nodes in no component.
pub(crate) const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Arc {
    to: u32,
    kind: u8,
    /// One for each edge between transactions, so that the shortest cycle has the fewest edges.
    weight: u8,
    /// Index of the edge between transactions, if it is one.
    edge: u32,
}

/// Strongly connected components of more than one node.
#[derive(Debug)]
pub(crate) struct Components {
    /// Component of each node, or `NONE`.
    pub(crate) of: Vec<u32>,
    /// Nodes of each component.
    pub(crate) nodes: Vec<Vec<u32>>,
}

/// Cycle as nodes and arcs.
type CyclePath = Vec<(u32, Arc)>;

/// Result of a search for a cycle.
pub(crate) struct CycleSearch {
    /// Edges of the shortest cycle found.
    pub(crate) cycle: Option<Vec<Edge>>,
    /// Whether the search was incomplete.
    pub(crate) gave_up: bool,
}

pub(crate) struct Graph<'a> {
    transactions: &'a [RecordedTransaction],
    dependencies: &'a Dependencies,
    /// Whether begin and commit are two nodes.
    split: bool,
    /// First node of the chain of completion times, and of the tails.
    moments: usize,
    tails: usize,
    /// Offset of each node's arcs.
    starts: Vec<u32>,
    arcs: Vec<Arc>,
    /// Number of arcs followed.
    pub(crate) steps: u64,
    /// Distances of a search from one node, valid if the round matches.
    distances: Vec<u32>,
    rounds: Vec<u32>,
    round: u32,
    /// Predecessor of each node, and the arc from it.
    came: Vec<(u32, u32)>,
}

impl<'a> Graph<'a> {
    /// Builds the graph of the counted transactions. Nothing follows the commit of one with an
    /// unknown outcome, which may have been later.
    pub(crate) fn new(
        transactions: &'a [RecordedTransaction],
        dependencies: &'a Dependencies,
        counted: &[bool],
        split: bool,
        real_time: bool,
    ) -> Graph<'a> {
        let begin = |at: usize| at as u32;
        let commit = |at: usize| (if split { transactions.len() + at } else { at }) as u32;
        let moments = if split { 2 * transactions.len() } else { transactions.len() };
        let mut links: Vec<(u32, Arc)> = Vec::with_capacity(dependencies.count() + 3 * transactions.len());
        let mut link = |from: u32, to: u32, kind, weight, edge| {
            links.push((from, Arc { to, kind, weight, edge }));
        };
        if split {
            for at in (0..transactions.len()).filter(|at| counted[*at]) {
                link(begin(at), commit(at), FREE, 0, NONE);
            }
        }
        for (edge, Edge { from, to, dependency }) in dependencies.edges.iter().enumerate() {
            let number = edge as u32;
            match dependency {
                Dependency::WriteWrite { .. } => link(commit(*from), begin(*to), WW, 1, number),
                Dependency::WriteRead { .. } => link(commit(*from), begin(*to), WR, 1, number),
                Dependency::Session { .. } => link(commit(*from), begin(*to), SESSION, 1, number),
                Dependency::RealTime { .. } => link(commit(*from), begin(*to), REAL_TIME, 1, number),
                Dependency::ReadWrite { .. } => {
                    let kind = if dependencies.lost[edge] { RW_LOST } else { RW };
                    link(begin(*from), commit(*to), kind, 1, number);
                }
            }
        }
        let mut tails = moments;
        if real_time {
            let is_end = |at: &usize| counted[*at] && transactions[*at].outcome == RecordedOutcome::Committed;
            let mut ends: Vec<usize> = (0..transactions.len()).filter(is_end).collect();
            ends.sort_by_key(|at| transactions[*at].completed);
            for (moment, at) in ends.iter().enumerate() {
                let node = (moments + moment) as u32;
                link(commit(*at), node, REAL_TIME, 1, NONE);
                if moment + 1 < ends.len() {
                    link(node, node + 1, REAL_TIME, 0, NONE);
                }
            }
            for at in (0..transactions.len()).filter(|at| counted[*at]) {
                let invoked = transactions[at].invoked;
                let before = ends.partition_point(|end| transactions[*end].completed < invoked);
                if before > 0 {
                    link((moments + before - 1) as u32, begin(at), REAL_TIME, 0, NONE);
                }
            }
            tails += ends.len();
        }
        for (number, tail) in dependencies.tails.iter().enumerate() {
            let node = (tails + number) as u32;
            for reader in &tail.readers {
                link(begin(*reader as usize), node, RW, 1, NONE);
            }
            for (place, (appender, _)) in tail.appenders.iter().enumerate() {
                link(node, commit(*appender as usize), FREE, 0, place as u32);
            }
        }
        let nodes = tails + dependencies.tails.len();
        let (starts, arcs) = by_node(nodes, &links);
        Graph {
            transactions,
            dependencies,
            split,
            moments,
            tails,
            starts,
            arcs,
            steps: 0,
            distances: vec![0; nodes],
            rounds: vec![0; nodes],
            round: 0,
            came: vec![(NONE, NONE); nodes],
        }
    }

    fn nodes(&self) -> usize {
        self.starts.len() - 1
    }

    fn places(&self, node: u32) -> std::ops::Range<usize> {
        self.starts[node as usize] as usize..self.starts[node as usize + 1] as usize
    }

    /// Returns the components of a transaction's two nodes.
    pub(crate) fn components_of(&self, components: &Components, transaction: usize) -> [u32; 2] {
        let commit = if self.split { self.transactions.len() + transaction } else { transaction };
        [components.of[transaction], components.of[commit]]
    }

    /// Returns the components of the arcs in the mask, within those given. Tarjan's algorithm with
    /// an explicit stack, for paths may be as long as the history.
    pub(crate) fn components(&mut self, mask: u8, within: Option<&Components>) -> Components {
        let region = |node: u32| within.map_or(0, |within| within.of[node as usize]);
        let count = self.nodes();
        let mut found = Components { of: vec![NONE; count], nodes: Vec::new() };
        let mut index = vec![NONE; count];
        let mut low = vec![0_u32; count];
        let mut next = 0_u32;
        // Nodes in no component yet; nodes entered, with the next arc of each.
        let mut open: Vec<u32> = Vec::new();
        let mut is_open = vec![false; count];
        let mut calls: Vec<(u32, usize)> = Vec::new();
        for root in 0..count as u32 {
            if index[root as usize] != NONE || region(root) == NONE {
                continue;
            }
            calls.push((root, self.places(root).start));
            while let Some((node, place)) = calls.last_mut() {
                let (at, here) = (*node, *node as usize);
                if index[here] == NONE {
                    (index[here], low[here]) = (next, next);
                    next += 1;
                    open.push(at);
                    is_open[here] = true;
                }
                if *place < self.starts[here + 1] as usize {
                    let arc = self.arcs[*place];
                    *place += 1;
                    self.steps += 1;
                    let there = arc.to as usize;
                    if arc.kind & mask == 0 || region(arc.to) != region(at) {
                        continue;
                    }
                    if index[there] == NONE {
                        let first = self.starts[there] as usize;
                        calls.push((arc.to, first));
                    } else if is_open[there] {
                        low[here] = low[here].min(index[there]);
                    }
                    continue;
                }
                calls.pop();
                if let Some((parent, _)) = calls.last() {
                    let parent = *parent as usize;
                    low[parent] = low[parent].min(low[here]);
                }
                if low[here] == index[here] {
                    let from = open.iter().rposition(|node| *node == at).unwrap_or(0);
                    let mut nodes = open.split_off(from);
                    nodes.iter().for_each(|node| is_open[*node as usize] = false);
                    if nodes.len() > 1 {
                        nodes.sort_unstable();
                        let number = found.nodes.len() as u32;
                        nodes.iter().for_each(|node| found.of[*node as usize] = number);
                        found.nodes.push(nodes);
                    }
                }
            }
        }
        found
    }

    /// Returns the shortest cycle in a component with one arc of the kinds `through` and otherwise
    /// arcs of the kinds `along`.
    ///
    /// Does a breadth-first search from the head of each such arc back to its tail. Stops after
    /// `SEARCHES` times the size of the component in steps, but not before the first search is
    /// complete.
    pub(crate) fn cycle(
        &mut self,
        components: &Components,
        number: u32,
        through: u8,
        along: u8,
    ) -> CycleSearch {
        let nodes = &components.nodes[number as usize];
        let mut heads: Vec<u32> = Vec::new();
        let mut size = 0;
        for node in nodes {
            for arc in &self.arcs[self.places(*node)] {
                let inside = components.of[arc.to as usize] == number;
                size += u64::from(inside);
                if inside && arc.kind & through != 0 {
                    heads.push(arc.to);
                }
            }
        }
        heads.sort_unstable();
        heads.dedup();
        let limit = self.steps + SEARCHES * size + SEARCH_MIN;
        let mut best: Option<(u32, CyclePath)> = None;
        let mut gave_up = false;
        for head in heads {
            let bound = best.as_ref().map_or(NONE, |(length, _)| *length);
            // No cycle is shorter.
            if bound <= 2 {
                break;
            }
            if self.steps > limit {
                gave_up = true;
                break;
            }
            if let Some(shorter) = self.cycle_from(components, number, head, through, along, bound) {
                best = Some(shorter);
            }
        }
        CycleSearch { cycle: best.map(|(_, cycle)| self.edges_of(&cycle)), gave_up }
    }

    /// Returns the shortest path from a node to one with an arc back to it, and that arc, if
    /// together they are shorter than the bound.
    fn cycle_from(
        &mut self,
        components: &Components,
        number: u32,
        head: u32,
        through: u8,
        along: u8,
        bound: u32,
    ) -> Option<(u32, CyclePath)> {
        self.round += 1;
        self.rounds[head as usize] = self.round;
        self.distances[head as usize] = 0;
        self.came[head as usize] = (NONE, NONE);
        // Arcs cost one or nothing, so that a double-ended queue suffices.
        let mut queue = VecDeque::from([(head, 0)]);
        while let Some((node, distance)) = queue.pop_front() {
            if distance > self.distances[node as usize] {
                continue;
            }
            for place in self.places(node) {
                let arc = self.arcs[place];
                self.steps += 1;
                if components.of[arc.to as usize] != number {
                    continue;
                }
                let there = distance + u32::from(arc.weight);
                if arc.to == head && arc.kind & through != 0 && there < bound {
                    return Some((there, self.path(head, node, arc)));
                }
                let known = self.rounds[arc.to as usize] == self.round;
                let shorter = !known || there < self.distances[arc.to as usize];
                // At least one more arc is needed.
                if arc.kind & along == 0 || !shorter || there + 1 >= bound {
                    continue;
                }
                self.rounds[arc.to as usize] = self.round;
                self.distances[arc.to as usize] = there;
                self.came[arc.to as usize] = (node, place as u32);
                if arc.weight == 0 {
                    queue.push_front((arc.to, there));
                } else {
                    queue.push_back((arc.to, there));
                }
            }
        }
        None
    }

    fn path(&self, head: u32, last: u32, arc: Arc) -> CyclePath {
        let mut cycle = vec![(last, arc)];
        let mut node = last;
        while node != head {
            let (from, place) = self.came[node as usize];
            cycle.push((from, self.arcs[place as usize]));
            node = from;
        }
        cycle.reverse();
        cycle
    }

    /// Returns the transaction of a node, if it has one.
    fn transaction(&self, node: u32) -> Option<usize> {
        let node = node as usize;
        (node < self.moments).then(|| node % self.transactions.len())
    }

    /// Returns the edges between transactions on a cycle.
    fn edges_of(&self, cycle: &CyclePath) -> Vec<Edge> {
        let first = cycle.iter().position(|(from, _)| self.transaction(*from).is_some()).unwrap_or(0);
        let mut edges = Vec::new();
        let mut left = 0;
        for step in 0..cycle.len() {
            let (from, arc) = &cycle[(first + step) % cycle.len()];
            if let Some(transaction) = self.transaction(*from) {
                left = transaction;
            }
            let Some(to) = self.transaction(arc.to) else { continue };
            if self.transaction(*from).is_some() {
                edges.extend(self.dependencies.edges.get(arc.edge as usize));
            } else if (*from as usize) < self.tails {
                let (completed, invoked) = (self.transactions[left].completed, self.transactions[to].invoked);
                edges.push(Edge { from: left, to, dependency: Dependency::RealTime { completed, invoked } });
            } else {
                let tail = &self.dependencies.tails[*from as usize - self.tails];
                let missed = tail.appenders[arc.edge as usize].1;
                let dependency = Dependency::ReadWrite { key: tail.key, seen: tail.seen, missed };
                edges.push(Edge { from: left, to, dependency });
            }
        }
        edges
    }
}

/// Searches may take this multiple of a component's size in steps,
const SEARCHES: u64 = 32;
/// and at least so many, so that small components are searched completely.
const SEARCH_MIN: u64 = 10_000;

/// Sorts arcs by their first node.
fn by_node(nodes: usize, links: &[(u32, Arc)]) -> (Vec<u32>, Vec<Arc>) {
    let mut starts = vec![0_u32; nodes + 1];
    for (from, _) in links {
        starts[*from as usize + 1] += 1;
    }
    for node in 0..nodes {
        starts[node + 1] += starts[node];
    }
    let mut next = starts.clone();
    let mut arcs = vec![Arc { to: 0, kind: 0, weight: 0, edge: NONE }; links.len()];
    for (from, arc) in links {
        let place = &mut next[*from as usize];
        arcs[*place as usize] = *arc;
        *place += 1;
    }
    (starts, arcs)
}
