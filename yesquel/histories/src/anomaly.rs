//! What is found, and how it is told.

use crate::history::{Element, Key};
use crate::model::{Model, Order};
use std::fmt;

/// What a history must not show. The names are Adya's and Elle's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// An element was read that nobody ever appended.
    PhantomElement,
    /// An element was read twice in one list, though it was appended once.
    DuplicateElement,
    /// Two reads of a key of which neither begins with the other.
    IncompatibleOrders,
    /// A transaction does not see its own appends, or sees a key change that it
    /// has read: the axiom INT of Cerone, Bernardi & Gotsman.
    Internal,
    /// Aborted read: an element of a transaction that failed was read.
    G1a,
    /// Intermediate read: a list was read as it was between two appends of one
    /// transaction.
    G1b,
    /// Write cycle: transactions wrote one after the other in a circle.
    G0,
    /// Cyclic information flow: the same, with one who read what another wrote.
    G1c,
    /// Two transactions wrote a key of which one had not seen the other's
    /// write: a G-single on one key.
    LostUpdate,
    /// Read skew: a cycle with one read that missed a write.
    GSingle,
    /// A cycle with several reads that each missed a write, and none of which
    /// follows right upon another. A long fork is one. Parallel snapshot
    /// isolation allows it.
    GNonadjacent,
    /// Write skew: a cycle that snapshot isolation allows.
    G2Item,
}

impl Kind {
    /// The name by which the literature knows it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::PhantomElement => "phantom element",
            Kind::DuplicateElement => "duplicate element",
            Kind::IncompatibleOrders => "incompatible orders",
            Kind::Internal => "internal",
            Kind::G1a => "G1a",
            Kind::G1b => "G1b",
            Kind::G0 => "G0",
            Kind::G1c => "G1c",
            Kind::LostUpdate => "lost update",
            Kind::GSingle => "G-single",
            Kind::GNonadjacent => "G-nonadjacent",
            Kind::G2Item => "G2-item",
        }
    }

    /// What it is in a few words.
    pub fn meaning(self) -> &'static str {
        match self {
            Kind::PhantomElement => "an element was read that nobody appended",
            Kind::DuplicateElement => "an element is in a list twice, and was appended once",
            Kind::IncompatibleOrders => "two reads of a key of which neither begins with the other",
            Kind::Internal => "a transaction reads what does not agree with what it read or wrote before",
            Kind::G1a => "aborted read: what was read was never committed",
            Kind::G1b => "intermediate read: the writer was not through with the key",
            Kind::G0 => "write cycle: writes of transactions follow each other in a circle",
            Kind::G1c => "cyclic information flow: each has seen or overwritten the one before, in a circle",
            Kind::LostUpdate => "a write was overwritten by one who had read the key and had not seen it",
            Kind::GSingle => "read skew: a transaction saw a later state and missed an earlier write",
            Kind::GNonadjacent => {
                "fork: several missed each other's writes, and no order of snapshots has room for all"
            }
            Kind::G2Item => "write skew: each missed what another wrote, so none can have been first",
        }
    }
}

/// Why a transaction stands before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dependency {
    /// `ww`: it appended before the other did.
    WriteWrite {
        /// To which list.
        key: Key,
        /// What it appended.
        first: Element,
        /// What the other appended after it.
        second: Element,
        /// Whether anyone read the two in this order. If not, nobody read what
        /// the other appended, so that it can only be after all that was read.
        seen: bool,
    },
    /// `wr`: the other saw what it appended.
    WriteRead {
        /// To which list.
        key: Key,
        /// What it appended.
        element: Element,
    },
    /// `rw`: it did not see what the other appended.
    ReadWrite {
        /// To which list.
        key: Key,
        /// The last that it saw there, if anything.
        seen: Option<Element>,
        /// What the other appended.
        missed: Element,
    },
    /// Its process ran the other after it.
    Session {
        /// The process.
        process: u64,
    },
    /// It had ended before the other began.
    RealTime {
        /// When it ended.
        completed: u64,
        /// When the other began.
        invoked: u64,
    },
}

impl Dependency {
    /// Whether it is an `rw` edge.
    pub fn is_rw(&self) -> bool {
        matches!(self, Dependency::ReadWrite { .. })
    }

    pub(crate) fn order(&self) -> Order {
        match self {
            Dependency::Session { .. } => Order::Session,
            Dependency::RealTime { .. } => Order::RealTime,
            _ => Order::Data,
        }
    }
}

/// One transaction stands before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// The one that is before, by its place in the history.
    pub from: usize,
    /// The one that is after.
    pub to: usize,
    /// Why.
    pub dependency: Dependency,
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Edge { from, to, dependency } = self;
        match dependency {
            Dependency::WriteWrite { key, first, second, seen } => {
                let why = if *seen { "" } else { ", or else who read so far would have seen it" };
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

/// One thing that a history must not show, with its proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anomaly {
    /// What it is.
    pub kind: Kind,
    /// The order that it needs; one that needs none is wrong in every model.
    pub order: Order,
    /// Who takes part, by their places in the history.
    pub transactions: Vec<usize>,
    /// What they are to each other; a circle where the kind is one.
    pub edges: Vec<Edge>,
    /// The proof in words.
    pub explanation: String,
}

impl Anomaly {
    /// The name, with Elle's ending for the order that it needs.
    pub fn name(&self) -> String {
        let ending = match self.order {
            Order::Data => "",
            Order::Session => "-process",
            Order::RealTime => "-realtime",
        };
        format!("{}{ending}", self.kind.name())
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})\n{}", self.name(), self.kind.meaning(), self.explanation)
    }
}

/// How much work a check was; the same for the same history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Transactions that count as committed.
    pub transactions: u64,
    /// Elements of lists that were looked at.
    pub elements: u64,
    /// Edges between transactions, each counted once.
    pub edges: u64,
    /// Edges followed in search of circles.
    pub steps: u64,
}

/// What a check has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What the history was held against.
    pub model: Model,
    /// What it must not show and does, the plainest first.
    pub anomalies: Vec<Anomaly>,
    /// How much work it was.
    pub counts: Counts,
}

impl Report {
    /// Whether the history shows nothing that the model forbids.
    pub fn is_clean(&self) -> bool {
        self.anomalies.is_empty()
    }

    /// Whether an anomaly of the kind was found, whatever order it needs.
    pub fn found(&self, kind: Kind) -> bool {
        self.anomalies.iter().any(|anomaly| anomaly.kind == kind)
    }

    /// The names of what was found, each once, in order.
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

/// So many anomalies are told in full.
const TOLD_MAX: usize = 10;

impl fmt::Display for Report {
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
