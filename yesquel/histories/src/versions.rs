//! Versions of a key's list, and the version that each read saw.
//!
//! A list contains all earlier appends in order, so that the longest read is the order of versions,
//! and every other read is a prefix of it (Elle, section 4). Impossible elements are reported and
//! left out, so that one fault is not reported several times.

use crate::anomaly::{Anomaly, AnomalyKind, Dependency, Edge};
use crate::history::{Element, ListKey, RecordedOutcome};
use crate::index::HistoryIndex;
use crate::model::AnomalyOrder;
use crate::reads::ExternalRead;
use crate::words;
use rustc_hash::{FxHashMap, FxHashSet};

/// Version that a transaction saw.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed {
    pub(crate) transaction: u32,
    /// Number of elements seen.
    pub(crate) seen: usize,
    /// The same, extended by the elements that the last writer seen appended next: the first missed
    /// element comes after these.
    pub(crate) version: usize,
    /// Whether the transaction knew this version when it appended to the key.
    pub(crate) base: bool,
}

/// Versions of a key.
#[derive(Debug, Default)]
pub(crate) struct KeyVersions {
    pub(crate) key: ListKey,
    /// Elements in the order of their appends, with their appenders.
    pub(crate) order: Vec<(Element, u32)>,
    /// Versions seen.
    pub(crate) reads: Vec<Placed>,
    /// Appends that no read saw, which follow all others; the first of each transaction.
    pub(crate) tail: Vec<(u32, Element)>,
    /// First append to the key of each counted transaction.
    pub(crate) appenders: FxHashMap<u32, Element>,
    /// Whether no two reads contradict each other.
    pub(crate) compatible: bool,
}

/// Finds the versions of every key.
pub(crate) fn all(
    index: &mut HistoryIndex<'_>,
    reads: Vec<Vec<ExternalRead<'_>>>,
    anomalies: &mut Vec<Anomaly>,
) -> Vec<KeyVersions> {
    let mut appends: Vec<Vec<(u32, Element)>> = vec![Vec::new(); index.keys.len()];
    for (at, transaction) in index.counted() {
        for (key, element) in transaction.appends() {
            appends[index.number(key)].push((at as u32, element));
        }
    }
    let mut all = Vec::with_capacity(reads.len());
    for (number, (reads, appends)) in reads.iter().zip(&appends).enumerate() {
        let mut sieve = Sieve {
            index,
            number,
            anomalies,
            reported: FxHashSet::default(),
            seen: FxHashSet::default(),
            elements: 0,
        };
        all.push(sieve.versions(reads, appends));
        let elements = sieve.elements;
        index.elements += elements;
    }
    all
}

/// Processes the reads of one key.
struct Sieve<'a, 'h> {
    index: &'a HistoryIndex<'h>,
    number: usize,
    anomalies: &'a mut Vec<Anomaly>,
    /// Faults reported already, once for each element.
    reported: FxHashSet<(AnomalyKind, Element)>,
    /// Elements of the current list.
    seen: FxHashSet<Element>,
    elements: u64,
}

impl Sieve<'_, '_> {
    fn key(&self) -> ListKey {
        self.index.keys[self.number]
    }

    fn versions(&mut self, reads: &[ExternalRead], appends: &[(u32, Element)]) -> KeyVersions {
        let mut versions = KeyVersions { key: self.key(), ..KeyVersions::default() };
        for (by, element) in appends {
            versions.appenders.entry(*by).or_insert(*element);
        }
        let bases = bases(reads, &versions.appenders);
        let (order, placed, compatible) = self.place(reads);
        versions.compatible = compatible;
        if versions.appenders.len() < appends.len() {
            self.own_orders(&order, appends);
        }
        versions.order = order
            .into_iter()
            .filter_map(|element| Some((element, self.index.appender(self.number, element)?.transaction)))
            .collect();
        for (at, (read, version)) in reads.iter().zip(placed).enumerate() {
            let partial = self.intermediate(read);
            let Some(seen) = version else { continue };
            let mut version = seen;
            // A reader of a part of a transaction's appends depends on that transaction. The
            // missing part is already reported.
            if partial && seen > 0 {
                let of = versions.order[seen - 1].1;
                while versions.order.get(version).is_some_and(|(_, by)| *by == of) {
                    version += 1;
                }
            }
            versions.reads.push(Placed { transaction: read.transaction, seen, version, base: bases[at] });
        }
        // If reads contradict each other, no order is known.
        if compatible && appends.len() > versions.order.len() {
            let seen: FxHashSet<Element> = versions.order.iter().map(|(element, _)| *element).collect();
            let last = versions.order.last().map(|(_, by)| *by);
            for (by, element) in appends {
                // Partial read of the last writer's appends: G1b.
                let new = Some(*by) != last && versions.tail.last().is_none_or(|(other, _)| other != by);
                if new && !seen.contains(element) {
                    versions.tail.push((*by, *element));
                }
            }
        }
        versions
    }

    /// Returns the longest list without impossible elements; for each read the number of its
    /// elements seen, unless it contradicts; and whether no read does.
    fn place(&mut self, reads: &[ExternalRead]) -> (Vec<Element>, Vec<Option<usize>>, bool) {
        let Some(longest) = (0..reads.len()).rev().max_by_key(|at| reads[*at].list.len()) else {
            return (Vec::new(), Vec::new(), true);
        };
        let raw = reads[longest].list;
        let (order, kept) = self.sift(&reads[longest]);
        // Most reads are prefixes of the longest one, and need no check of their own.
        let mut others: Vec<(usize, Vec<Element>)> = Vec::new();
        let mut placed: Vec<Option<usize>> = vec![None; reads.len()];
        for (at, read) in reads.iter().enumerate() {
            self.elements += read.list.len() as u64;
            if raw.starts_with(read.list) {
                placed[at] = Some(kept[read.list.len()]);
            } else {
                others.push((at, self.sift(read).0));
            }
        }
        // Without the impossible elements, another list may be the longest one.
        let winner = others.iter().rev().max_by_key(|(_, list)| list.len());
        let (reader, order) = match winner {
            Some((at, list)) if list.len() > order.len() => {
                for version in &mut placed {
                    *version = version.filter(|version| list.starts_with(&order[..*version]));
                }
                (*at, list.clone())
            }
            _ => (longest, order),
        };
        for (at, list) in &others {
            placed[*at] = order.starts_with(list).then_some(list.len());
        }
        let wrong: Vec<usize> = (0..reads.len()).filter(|at| placed[*at].is_none()).collect();
        if let Some(first) = wrong.first() {
            self.incompatible(&reads[reader], &reads[*first], wrong.len() - 1);
        }
        (order, placed, wrong.is_empty())
    }

    /// Removes the impossible elements of a read and reports them. The second list has the number
    /// of elements left in each prefix.
    fn sift(&mut self, read: &ExternalRead) -> (Vec<Element>, Vec<usize>) {
        self.seen.clear();
        let mut order = Vec::with_capacity(read.list.len());
        let mut kept = Vec::with_capacity(read.list.len() + 1);
        kept.push(0);
        self.elements += read.list.len() as u64;
        for element in read.list {
            let (key, by) = (self.key(), read.transaction as usize);
            let appender =
                self.index.appender(self.number, *element).map(|appender| appender.transaction as usize);
            if !self.seen.insert(*element) {
                self.report(AnomalyKind::DuplicateElement, *element, &[by], || {
                    format!("T{by} read key {key} with {element} in it more than once.")
                });
            } else if let Some(appender) = appender {
                if self.index.transactions[appender].outcome == RecordedOutcome::Aborted {
                    self.report(AnomalyKind::G1a, *element, &[by, appender], || {
                        format!("T{by} read key {key} with {element} in it, which T{appender} appended, and T{appender} aborted.")
                    });
                } else {
                    order.push(*element);
                }
            } else {
                self.report(AnomalyKind::PhantomElement, *element, &[by], || {
                    format!("T{by} read key {key} with {element} in it, which no transaction appended.")
                });
            }
            kept.push(order.len());
        }
        (order, kept)
    }

    /// Reports a read that ends between the appends of one transaction. Returns whether it does.
    fn intermediate(&mut self, read: &ExternalRead) -> bool {
        let Some(element) = read.list.last() else { return false };
        let Some(appender) = self.index.appender(self.number, *element) else { return false };
        let (by, of) = (read.transaction as usize, appender.transaction as usize);
        if appender.last || !self.index.counted[of] {
            return false;
        }
        let key = self.key();
        self.report(AnomalyKind::G1b, *element, &[by, of], || {
            format!(
                "T{by} read key {key} up to {element}, after which T{of}, which appended it, appended more."
            )
        });
        true
    }

    fn incompatible(&mut self, one: &ExternalRead, other: &ExternalRead, more: usize) {
        let common = one.list.iter().zip(other.list).take_while(|(one, other)| one == other).count();
        let (first, second) = (one.transaction as usize, other.transaction as usize);
        let show = |list: &[Element]| words::list(&list[common..list.len().min(common + 8)]);
        let (shows, shown, key) = (show(one.list), show(other.list), self.key());
        let mut explanation = words::transactions(self.index.transactions, &[first, second]);
        explanation += &format!(
            "Key {key}: after {common} elements in common T{first} read {shows} and T{second} {shown}; a list that only grows \
             cannot have been both."
        );
        if more > 0 {
            explanation += &format!(" {more} more reads of it do not agree with T{first}'s.");
        }
        self.anomalies.push(Anomaly {
            kind: AnomalyKind::IncompatibleOrders,
            order: AnomalyOrder::Data,
            transactions: vec![first, second],
            edges: Vec::new(),
            explanation,
        });
    }

    /// Checks that the appends of one transaction are in its order and without a gap.
    fn own_orders(&mut self, order: &[Element], appends: &[(u32, Element)]) {
        let mut places: FxHashMap<Element, usize> = FxHashMap::default();
        for (place, element) in order.iter().enumerate() {
            places.insert(*element, place);
        }
        for run in appends.chunk_by(|(one, _), (other, _)| one == other) {
            // Elements not seen come last.
            let place = |element: &Element| places.get(element).copied().unwrap_or(order.len());
            let Some(two) = run.windows(2).find(|two| place(&two[1].1) < place(&two[0].1)) else { continue };
            let ((by, first), (_, second), key) = (two[0], two[1], self.key());
            let by = by as usize;
            let what = if places.contains_key(&first) { "only then" } else { "not" };
            let explanation = format!(
                "{}T{by} appended {first} to key {key} and then {second}; reads of it show {second}, and {first} {what}.",
                words::transactions(self.index.transactions, &[by])
            );
            self.anomalies.push(Anomaly {
                kind: AnomalyKind::IncompatibleOrders,
                order: AnomalyOrder::Data,
                transactions: vec![by],
                edges: Vec::new(),
                explanation,
            });
        }
    }

    /// Reports an anomaly: the first transaction read what the second wrote.
    fn report(&mut self, kind: AnomalyKind, element: Element, by: &[usize], text: impl FnOnce() -> String) {
        if !self.reported.insert((kind, element)) {
            return;
        }
        let edges = match by {
            [reader, appender] => {
                let dependency = Dependency::WriteRead { key: self.key(), element };
                vec![Edge { from: *appender, to: *reader, dependency }]
            }
            _ => Vec::new(),
        };
        let explanation = words::transactions(self.index.transactions, by) + &text();
        let transactions = by.to_vec();
        self.anomalies.push(Anomaly { kind, order: AnomalyOrder::Data, transactions, edges, explanation });
    }
}

/// Returns which reads the transactions knew when they appended to the key: the last one before, or
/// otherwise the first one after, without own appends.
fn bases(reads: &[ExternalRead], appenders: &FxHashMap<u32, Element>) -> Vec<bool> {
    let mut bases = vec![false; reads.len()];
    let mut from = 0;
    for run in reads.chunk_by(|one, other| one.transaction == other.transaction) {
        if appenders.contains_key(&run[0].transaction) {
            let last = run.iter().rposition(|read| read.before_append).unwrap_or(0);
            bases[from + last] = true;
        }
        from += run.len();
    }
    bases
}
