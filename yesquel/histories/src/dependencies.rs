//! Adya's dependencies between transactions, from the versions of keys.

use crate::anomaly::{Anomaly, Dependency, Edge, Kind};
use crate::history::{Element, Key, Outcome};
use crate::index::Index;
use crate::model::Order;
use crate::versions::Versions;
use crate::words;
use rustc_hash::FxHashSet;

/// `rw` edges from each of the readers to each of the appenders; nobody is
/// both. Kept as two lists so that many of both do not make many times many.
#[derive(Debug)]
pub(crate) struct Tail {
    pub(crate) key: Key,
    pub(crate) seen: Option<Element>,
    pub(crate) readers: Vec<u32>,
    pub(crate) appenders: Vec<(u32, Element)>,
}

/// What stands before what.
#[derive(Debug, Default)]
pub(crate) struct Dependencies {
    pub(crate) edges: Vec<Edge>,
    /// Of the edges, those `rw` that are half of a lost update.
    pub(crate) lost: Vec<bool>,
    pub(crate) tails: Vec<Tail>,
}

impl Dependencies {
    fn push(&mut self, from: u32, to: u32, dependency: Dependency) {
        self.edges.push(Edge { from: from as usize, to: to as usize, dependency });
        self.lost.push(false);
    }

    fn push_lost(&mut self, from: u32, to: u32, dependency: Dependency) {
        self.push(from, to, dependency);
        if let Some(lost) = self.lost.last_mut() {
            *lost = true;
        }
    }

    /// How many edges there are.
    pub(crate) fn count(&self) -> usize {
        let tails = self.tails.iter().map(|tail| tail.readers.len() + tail.appenders.len());
        self.edges.len() + tails.sum::<usize>()
    }

    /// The edges of reads and writes, and the lost updates among them.
    pub(crate) fn of_data(
        index: &Index<'_>,
        keys: &[Versions],
        anomalies: &mut Vec<Anomaly>,
    ) -> Dependencies {
        let mut dependencies = Dependencies::default();
        for versions in keys {
            dependencies.writes(versions);
            dependencies.reads(index, versions, anomalies);
        }
        dependencies
    }

    /// Each version is after the one before. What nobody saw is after the last.
    fn writes(&mut self, versions: &Versions) {
        let key = versions.key;
        for two in versions.order.windows(2) {
            let ((first, from), (second, to)) = (two[0], two[1]);
            if from != to {
                self.push(from, to, Dependency::WriteWrite { key, first, second, seen: true });
            }
        }
        if let Some((first, from)) = versions.order.last() {
            for (to, second) in versions.tail.iter().filter(|(to, _)| to != from) {
                let ww = Dependency::WriteWrite { key, first: *first, second: *second, seen: false };
                self.push(*from, *to, ww);
            }
        }
    }

    /// Each read is after the last append that it saw and before the next one.
    /// Edges to the others follow from those between the appends.
    fn reads(&mut self, index: &Index<'_>, versions: &Versions, anomalies: &mut Vec<Anomaly>) {
        let (key, order) = (versions.key, &versions.order);
        let mut tail = Tail { key, seen: order.last().map(|it| it.0), readers: vec![], appenders: vec![] };
        // Where reads contradict each other, who appended when is known of what
        // is in order only.
        let in_order: Option<FxHashSet<Element>> =
            (!versions.compatible).then(|| order.iter().map(|it| it.0).collect());
        let known = |own: &Element| in_order.as_ref().is_none_or(|in_order| in_order.contains(own));
        // Who read the last version and appended what nobody saw.
        let mut both: Vec<u32> = Vec::new();
        for read in &versions.reads {
            let by = read.transaction;
            let seen = read.seen.checked_sub(1).map(|last| order[last]);
            if let Some((element, from)) = seen.filter(|(_, from)| *from != by) {
                self.push(from, by, Dependency::WriteRead { key, element });
            }
            let own = versions.appenders.get(&by);
            match order.get(read.version) {
                Some((missed, to)) if *to != by => {
                    let rw = Dependency::ReadWrite { key, seen: seen.map(|it| it.0), missed: *missed };
                    match own.filter(|own| read.base && known(own)) {
                        None => self.push(by, *to, rw),
                        Some(own) => {
                            self.push_lost(by, *to, rw);
                            let seen = versions.tail.binary_search_by_key(&by, |it| it.0).is_err();
                            let ww = Dependency::WriteWrite { key, first: *missed, second: *own, seen };
                            lost_update(index, versions, (by, rw), (*to, ww), anomalies);
                        }
                    }
                }
                Some(_) => {}
                None if own.is_none() => tail.readers.push(by),
                // Whose element is in order has seen it, or is reported for not
                // having.
                None if versions.tail.binary_search_by_key(&by, |it| it.0).is_err() => {}
                None if read.base => both.push(by),
                None => {}
            }
        }
        let missed = |(to, missed): (u32, Element)| {
            let rw = Dependency::ReadWrite { key, seen: tail.seen, missed };
            (to, rw)
        };
        match both.as_slice() {
            [] => {}
            [reader] => {
                for (to, rw) in versions.tail.iter().copied().map(missed).filter(|(to, _)| to != reader) {
                    self.push(*reader, to, rw);
                }
            }
            // All of them read the same and appended to it: one was first, and
            // the others have lost his update. One edge each is enough.
            [first, others @ ..] => {
                let own = |by: &u32| (*by, versions.appenders[by]);
                let (_, from_first) = missed(own(&others[0]));
                self.push_lost(*first, others[0], from_first);
                for other in others {
                    let (to, rw) = missed(own(first));
                    self.push_lost(*other, to, rw);
                    let (_, back) = missed(own(other));
                    lost_update(index, versions, (*other, rw), (to, back), anomalies);
                }
            }
        }
        tail.readers.dedup();
        tail.appenders.clone_from(&versions.tail);
        if !tail.readers.is_empty() && !tail.appenders.is_empty() {
            self.tails.push(tail);
        }
    }

    /// Each that counts is after what its process ran before. What had no known
    /// end may have been committed at any time, so nothing is after it.
    pub(crate) fn of_sessions(&mut self, index: &Index<'_>, sessions: &[Vec<u32>]) {
        for session in sessions {
            let mut before: Option<u32> = None;
            for at in session.iter().filter(|at| index.counted[**at as usize]) {
                let transaction = &index.transactions[*at as usize];
                if let Some(before) = before {
                    self.push(before, *at, Dependency::Session { process: transaction.process });
                }
                if transaction.outcome == Outcome::Committed {
                    before = Some(*at);
                }
            }
        }
    }
}

/// `loser` did not see what `other` appended, and appended after it, or one
/// cannot tell who was first.
fn lost_update(
    index: &Index<'_>,
    versions: &Versions,
    (loser, rw): (u32, Dependency),
    (other, back): (u32, Dependency),
    anomalies: &mut Vec<Anomaly>,
) {
    let (loser, other) = (loser as usize, other as usize);
    let edges = vec![
        Edge { from: loser, to: other, dependency: rw },
        Edge { from: other, to: loser, dependency: back },
    ];
    let (key, who) = (versions.key, words::transactions(index.transactions, &[loser, other]));
    let what = if back.is_rw() {
        format!(
            "T{loser} and T{other} read the same of key {key} and both appended to it: who was second had not seen the first."
        )
    } else {
        format!(
            "T{loser} read key {key} without what T{other} appended to it, and appended to it after T{other}."
        )
    };
    let explanation = format!("{who}{what}\n{}\n{}", edges[0], edges[1]);
    anomalies.push(Anomaly {
        kind: Kind::LostUpdate,
        order: Order::Data,
        transactions: vec![loser, other],
        edges,
        explanation,
    });
}
