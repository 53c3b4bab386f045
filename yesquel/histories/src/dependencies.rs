//! Adya's dependencies between transactions, derived from the versions of keys.

use crate::anomaly::{Anomaly, AnomalyKind, Dependency, Edge};
use crate::history::{Element, ListKey, RecordedOutcome};
use crate::index::HistoryIndex;
use crate::model::AnomalyOrder;
use crate::versions::KeyVersions;
use crate::words;
use rustc_hash::FxHashSet;

/// `rw` edges from each reader to each appender; no transaction is both. Two lists instead of their
/// product.
#[derive(Debug)]
pub(crate) struct Tail {
    pub(crate) key: ListKey,
    pub(crate) seen: Option<Element>,
    pub(crate) readers: Vec<u32>,
    pub(crate) appenders: Vec<(u32, Element)>,
}

/// Dependencies between transactions.
#[derive(Debug, Default)]
pub(crate) struct Dependencies {
    pub(crate) edges: Vec<Edge>,
    /// For each edge, whether it is an `rw` edge of a lost update.
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

    /// Returns the number of edges.
    pub(crate) fn count(&self) -> usize {
        let tails = self.tails.iter().map(|tail| tail.readers.len() + tail.appenders.len());
        self.edges.len() + tails.sum::<usize>()
    }

    /// Adds the edges of reads and writes, and finds lost updates.
    pub(crate) fn of_data(
        index: &HistoryIndex<'_>,
        keys: &[KeyVersions],
        anomalies: &mut Vec<Anomaly>,
    ) -> Dependencies {
        let mut dependencies = Dependencies::default();
        for versions in keys {
            dependencies.writes(versions);
            dependencies.reads(index, versions, anomalies);
        }
        dependencies
    }

    /// Each version follows the one before. Appends that no read saw follow the last version.
    fn writes(&mut self, versions: &KeyVersions) {
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

    /// Each read follows the last append that it saw and precedes the next one. Other edges follow
    /// from those between appends.
    fn reads(&mut self, index: &HistoryIndex<'_>, versions: &KeyVersions, anomalies: &mut Vec<Anomaly>) {
        let (key, order) = (versions.key, &versions.order);
        let mut tail = Tail { key, seen: order.last().map(|it| it.0), readers: vec![], appenders: vec![] };
        // If reads contradict each other, appenders are known for the ordered elements only.
        let in_order: Option<FxHashSet<Element>> =
            (!versions.compatible).then(|| order.iter().map(|it| it.0).collect());
        let known = |own: &Element| in_order.as_ref().is_none_or(|in_order| in_order.contains(own));
        // Readers of the last version that appended an element that no read saw.
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
                // An appender of an ordered element has seen it, or is reported for not having done
                // so.
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
            // All of them read the same version and appended to it: one was first, and the others
            // lost its update. One edge each suffices.
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

    /// Each transaction follows the earlier ones of its process. One with an unknown outcome may
    /// have committed at any time, so that nothing follows it.
    pub(crate) fn of_sessions(&mut self, index: &HistoryIndex<'_>, sessions: &[Vec<u32>]) {
        for session in sessions {
            let mut before: Option<u32> = None;
            for at in session.iter().filter(|at| index.counted[**at as usize]) {
                let transaction = &index.transactions[*at as usize];
                if let Some(before) = before {
                    self.push(before, *at, Dependency::Session { process: transaction.process });
                }
                if transaction.outcome == RecordedOutcome::Committed {
                    before = Some(*at);
                }
            }
        }
    }
}

/// Adds a lost update: `loser` did not see the append of `other`, and appended after it, or in
/// unknown order.
fn lost_update(
    index: &HistoryIndex<'_>,
    versions: &KeyVersions,
    (loser, rw): (u32, Dependency),
    (other, back): (u32, Dependency),
    anomalies: &mut Vec<Anomaly>,
) {
    let (loser, other) = (loser as usize, other as usize);
    let edges = vec![
        Edge { from: loser, to: other, dependency: rw },
        Edge { from: other, to: loser, dependency: back },
    ];
    let (key, transactions) = (versions.key, words::transactions(index.transactions, &[loser, other]));
    let what = if back.is_rw() {
        format!(
            "T{loser} and T{other} read the same of key {key} and both appended to it: the second had not seen the first's append."
        )
    } else {
        format!(
            "T{loser} read key {key} without what T{other} appended to it, and appended to it after T{other}."
        )
    };
    let explanation = format!("{transactions}{what}\n{}\n{}", edges[0], edges[1]);
    anomalies.push(Anomaly {
        kind: AnomalyKind::LostUpdate,
        order: AnomalyOrder::Data,
        transactions: vec![loser, other],
        edges,
        explanation,
    });
}
