//! Anomalies, and how they are reported.

use crate::history::{Element, ListKey};
use crate::model::{AnomalyOrder, ConsistencyModel};
use std::fmt;

/// Kind of anomaly. The names are Adya's and Elle's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AnomalyKind {
    /// A read returned an element that no transaction appended.
    PhantomElement,
    /// A read returned an element twice that was appended once.
    DuplicateElement,
    /// Two reads of a key neither of which is a prefix of the other.
    IncompatibleOrders,
    /// A transaction misses its own appends, or sees a key change that it has read: the axiom INT
    /// of Cerone, Bernardi & Gotsman.
    Internal,
    /// Aborted read: a read returned an element of an aborted transaction.
    G1a,
    /// Intermediate read: a read returned a list as it was between two appends of one transaction.
    G1b,
    /// Write cycle: a cycle of `ww` edges.
    G0,
    /// Cyclic information flow: a cycle of `ww` and `wr` edges.
    G1c,
    /// Two transactions wrote a key, and one had not seen the other's write: a G-single on one key.
    LostUpdate,
    /// Read skew: a cycle with one `rw` edge.
    GSingle,
    /// A cycle with several `rw` edges, no two of them adjacent, for example a long fork.
    /// Parallel snapshot isolation allows it.
    GNonadjacent,
    /// Write skew: a cycle that snapshot isolation allows.
    G2Item,
}

impl AnomalyKind {
    /// Returns the name used in the literature.
    pub fn name(self) -> &'static str {
        match self {
            AnomalyKind::PhantomElement => "phantom element",
            AnomalyKind::DuplicateElement => "duplicate element",
            AnomalyKind::IncompatibleOrders => "incompatible orders",
            AnomalyKind::Internal => "internal",
            AnomalyKind::G1a => "G1a",
            AnomalyKind::G1b => "G1b",
            AnomalyKind::G0 => "G0",
            AnomalyKind::G1c => "G1c",
            AnomalyKind::LostUpdate => "lost update",
            AnomalyKind::GSingle => "G-single",
            AnomalyKind::GNonadjacent => "G-nonadjacent",
            AnomalyKind::G2Item => "G2-item",
        }
    }

    /// Returns a short description.
    pub fn meaning(self) -> &'static str {
        match self {
            AnomalyKind::PhantomElement => "an element was read that no transaction appended",
            AnomalyKind::DuplicateElement => "an element is in a list twice, and was appended once",
            AnomalyKind::IncompatibleOrders => "two reads of a key, neither of which begins with the other",
            AnomalyKind::Internal => {
                "a transaction reads what does not agree with what it read or wrote before"
            }
            AnomalyKind::G1a => "aborted read: what was read was never committed",
            AnomalyKind::G1b => "intermediate read: the appender was not through with the key",
            AnomalyKind::G0 => "write cycle: writes of transactions follow each other in a cycle",
            AnomalyKind::G1c => {
                "cyclic information flow: each has seen or overwritten the one before, in a cycle"
            }
            AnomalyKind::LostUpdate => {
                "a write was overwritten by a transaction that had read the key and had not seen it"
            }
            AnomalyKind::GSingle => "read skew: a transaction saw a later state and missed an earlier write",
            AnomalyKind::GNonadjacent => {
                "fork: several missed each other's writes, and no order of snapshots has room for all"
            }
            AnomalyKind::G2Item => "write skew: each missed what another wrote, so none can have been first",
        }
    }
}

/// Reason for which one transaction is before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dependency {
    /// `ww`: it appended before the other did.
    WriteWrite {
        /// Key of the list.
        key: ListKey,
        /// Its element.
        first: Element,
        /// The element that the other appended after it.
        second: Element,
        /// Whether a read returned the two in this order. If not, no read returned the second
        /// element, which therefore comes after all that was read.
        seen: bool,
    },
    /// `wr`: the other saw its element.
    WriteRead {
        /// Key of the list.
        key: ListKey,
        /// Its element.
        element: Element,
    },
    /// `rw`: it did not see the other's element.
    ReadWrite {
        /// Key of the list.
        key: ListKey,
        /// The last element that it saw, if any.
        seen: Option<Element>,
        /// The other's element.
        missed: Element,
    },
    /// One process ran both in this order.
    Session {
        /// The process.
        process: u64,
    },
    /// It completed before the other was invoked.
    RealTime {
        /// Its completion.
        completed: u64,
        /// The other's invocation.
        invoked: u64,
    },
}

impl Dependency {
    /// Returns whether it is an `rw` edge.
    pub fn is_rw(&self) -> bool {
        matches!(self, Dependency::ReadWrite { .. })
    }

    pub(crate) fn order(&self) -> AnomalyOrder {
        match self {
            Dependency::Session { .. } => AnomalyOrder::Session,
            Dependency::RealTime { .. } => AnomalyOrder::RealTime,
            _ => AnomalyOrder::Data,
        }
    }
}

/// Dependency between two transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// Index of the earlier transaction in the history.
    pub from: usize,
    /// Index of the later transaction.
    pub to: usize,
    /// Kind of dependency.
    pub dependency: Dependency,
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Edge { from, to, dependency } = self;
        match dependency {
            Dependency::WriteWrite { key, first, second, seen } => {
                let why = if *seen { "" } else { ", otherwise a reader of this prefix would have seen it" };
                write!(
                    f,
                    "T{from} before T{to} (ww): T{from} appended {first} to key {key}, T{to} appended {second} after it{why}"
                )
            }
            Dependency::WriteRead { key, element } => {
                write!(
                    f,
                    "T{from} before T{to} (wr): T{to} saw {element} in key {key}, which T{from} appended"
                )
            }
            Dependency::ReadWrite { key, seen: Some(seen), missed } => {
                write!(
                    f,
                    "T{from} before T{to} (rw): T{from} read key {key} up to {seen} and missed {missed}, which T{to} appended"
                )
            }
            Dependency::ReadWrite { key, seen: None, missed } => {
                write!(
                    f,
                    "T{from} before T{to} (rw): T{from} read key {key} as empty and missed {missed}, which T{to} appended"
                )
            }
            Dependency::Session { process } => {
                write!(f, "T{from} before T{to} (session): process {process} ran T{from}, then T{to}")
            }
            Dependency::RealTime { completed, invoked } => {
                write!(
                    f,
                    "T{from} before T{to} (real time): T{from} had ended at {completed}, T{to} began at {invoked}"
                )
            }
        }
    }
}

/// Anomaly with its proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anomaly {
    /// Kind of anomaly.
    pub kind: AnomalyKind,
    /// The order that the proof uses; without one, the anomaly violates every model.
    pub order: AnomalyOrder,
    /// Indices of the transactions involved.
    pub transactions: Vec<usize>,
    /// Edges between them; a cycle for the kinds that are one.
    pub edges: Vec<Edge>,
    /// The proof in words.
    pub explanation: String,
}

impl Anomaly {
    /// Returns the name, with Elle's suffix for the order used.
    pub fn name(&self) -> String {
        let ending = match self.order {
            AnomalyOrder::Data => "",
            AnomalyOrder::Session => "-process",
            AnomalyOrder::RealTime => "-realtime",
        };
        format!("{}{ending}", self.kind.name())
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})\n{}", self.name(), self.kind.meaning(), self.explanation)
    }
}

/// Amount of work of a check, which is deterministic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CheckCounts {
    /// Transactions that count as committed.
    pub transactions: u64,
    /// Elements of lists examined.
    pub elements: u64,
    /// Edges between transactions.
    pub edges: u64,
    /// Edges followed in searches for cycles.
    pub steps: u64,
}

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryReport {
    /// The model checked.
    pub model: ConsistencyModel,
    /// Anomalies that the model forbids, the plainest first.
    pub anomalies: Vec<Anomaly>,
    /// Amount of work.
    pub counts: CheckCounts,
}

impl HistoryReport {
    /// Returns whether there is no anomaly that the model forbids.
    pub fn is_clean(&self) -> bool {
        self.anomalies.is_empty()
    }

    /// Returns whether there is an anomaly of a kind, in any order.
    pub fn found(&self, kind: AnomalyKind) -> bool {
        self.anomalies.iter().any(|anomaly| anomaly.kind == kind)
    }

    /// Returns the names of the anomalies, sorted and without duplicates.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for anomaly in &self.anomalies {
            let name = anomaly.name();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

/// Maximum number of anomalies that are printed in full.
const TOLD_MAX: usize = 10;

impl fmt::Display for HistoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let model = self.model.name();
        if self.is_clean() {
            return write!(f, "{} transactions show nothing against {model}", self.counts.transactions);
        }
        write!(f, "{} anomalies against {model}: {}", self.anomalies.len(), self.names().join(", "))?;
        for anomaly in self.anomalies.iter().take(TOLD_MAX) {
            write!(f, "\n\n{anomaly}")?;
        }
        if self.anomalies.len() > TOLD_MAX {
            write!(f, "\n\n... and {} more", self.anomalies.len() - TOLD_MAX)?;
        }
        Ok(())
    }
}
