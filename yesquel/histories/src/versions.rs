//! The order in which a key's list grew, and which version each read saw.
//!
//! A list tells all that was appended before, in order, so the longest read
//! is the order of versions, and every other read is the beginning of it.
//! (Elle, section 4.) Elements that cannot be there are reported and left
//! out, so that one fault is not reported as several.

use crate::anomaly::{Anomaly, Dependency, Edge, Kind};
use crate::history::{Element, Key, Outcome};
use crate::index::Index;
use crate::model::Order;
use crate::reads::ExternalRead;
use crate::words;
use rustc_hash::{FxHashMap, FxHashSet};

/// A transaction saw a version of a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed {
    pub(crate) transaction: u32,
    /// How many elements of the order it saw.
    pub(crate) seen: usize,
    /// The same, and the rest of what the last writer that it saw appended
    /// right then: what it missed begins here.
    pub(crate) version: usize,
    /// Whether it is what the transaction knew when it appended to the key.
    pub(crate) base: bool,
}

/// The versions of a key.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    pub(crate) key: Key,
    /// The elements in the order in which they were appended, and by whom.
    pub(crate) order: Vec<(Element, u32)>,
    /// Who saw what.
    pub(crate) reads: Vec<Placed>,
    /// Appends that nobody saw, so that they are after all that is in order;
    /// the first of each transaction.
    pub(crate) tail: Vec<(u32, Element)>,
    /// The first append to the key of each transaction that counts.
    pub(crate) appenders: FxHashMap<u32, Element>,
    /// Whether no two reads contradict each other.
    pub(crate) compatible: bool,
}

/// Finds the versions of every key.
pub(crate) fn all(
    index: &mut Index<'_>,
    reads: Vec<Vec<ExternalRead<'_>>>,
    anomalies: &mut Vec<Anomaly>,
) -> Vec<Versions> {
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

/// Goes through the reads of one key.
struct Sieve<'a, 'h> {
    index: &'a Index<'h>,
    number: usize,
    anomalies: &'a mut Vec<Anomaly>,
    /// What has been reported: once for an element is enough.
    reported: FxHashSet<(Kind, Element)>,
    /// Of the list that is gone through.
    seen: FxHashSet<Element>,
    elements: u64,
}

impl Sieve<'_, '_> {
    fn key(&self) -> Key {
        self.index.keys[self.number]
    }

    fn versions(&mut self, reads: &[ExternalRead], appends: &[(u32, Element)]) -> Versions {
        let mut versions = Versions { key: self.key(), ..Versions::default() };
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
            .filter_map(|element| Some((element, self.index.writer(self.number, element)?.transaction)))
            .collect();
        for (at, (read, version)) in reads.iter().zip(placed).enumerate() {
            let partial = self.intermediate(read);
            let Some(seen) = version else { continue };
            let mut version = seen;
            // Whoever saw a part of what another wrote depends on him. That he
            // missed the rest has been said already.
            if partial && seen > 0 {
                let of = versions.order[seen - 1].1;
                while versions.order.get(version).is_some_and(|(_, by)| *by == of) {
                    version += 1;
                }
            }
            versions.reads.push(Placed { transaction: read.transaction, seen, version, base: bases[at] });
        }
        // If reads contradict each other nobody knows what is after what.
        if compatible && appends.len() > versions.order.len() {
            let seen: FxHashSet<Element> = versions.order.iter().map(|(element, _)| *element).collect();
            let last = versions.order.last().map(|(_, by)| *by);
            for (by, element) in appends {
                // Of the last writer a part was seen: G1b, if by anyone.
                let new = Some(*by) != last && versions.tail.last().is_none_or(|(other, _)| other != by);
                if new && !seen.contains(element) {
                    versions.tail.push((*by, *element));
                }
            }
        }
        versions
    }

    /// The longest list with what cannot be there left out; how many elements
    /// of it each read saw, unless it contradicts; and whether none does.
    fn place(&mut self, reads: &[ExternalRead]) -> (Vec<Element>, Vec<Option<usize>>, bool) {
        let Some(longest) = (0..reads.len()).rev().max_by_key(|at| reads[*at].list.len()) else {
            return (Vec::new(), Vec::new(), true);
        };
        let raw = reads[longest].list;
        let (order, kept) = self.sift(&reads[longest]);
        // Most reads are the beginning of the longest one: nothing that cannot
        // be there is in them that has not been reported.
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
        // What was left out may have made the longest one.
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

    /// Leaves out of a read what cannot be there, and reports it. The second
    /// list says how many elements are left of each beginning.
    fn sift(&mut self, read: &ExternalRead) -> (Vec<Element>, Vec<usize>) {
        self.seen.clear();
        let mut order = Vec::with_capacity(read.list.len());
        let mut kept = Vec::with_capacity(read.list.len() + 1);
        kept.push(0);
        self.elements += read.list.len() as u64;
        for element in read.list {
            let (key, by) = (self.key(), read.transaction as usize);
            let writer = self.index.writer(self.number, *element).map(|writer| writer.transaction as usize);
            if !self.seen.insert(*element) {
                self.report(Kind::DuplicateElement, *element, &[by], || {
                    format!("T{by} read key {key} with {element} in it more than once.")
                });
            } else if let Some(writer) = writer {
                if self.index.transactions[writer].outcome == Outcome::Aborted {
                    self.report(Kind::G1a, *element, &[by, writer], || {
                        format!("T{by} read key {key} with {element} in it, which T{writer} appended, and T{writer} aborted.")
                    });
                } else {
                    order.push(*element);
                }
            } else {
                self.report(Kind::PhantomElement, *element, &[by], || {
                    format!("T{by} read key {key} with {element} in it, which nobody appended to it.")
                });
            }
            kept.push(order.len());
        }
        (order, kept)
    }

    /// Whether the read ends within what one transaction appended; reports it.
    fn intermediate(&mut self, read: &ExternalRead) -> bool {
        let Some(element) = read.list.last() else { return false };
        let Some(writer) = self.index.writer(self.number, *element) else { return false };
        let (by, of) = (read.transaction as usize, writer.transaction as usize);
        if writer.last || !self.index.counted[of] {
            return false;
        }
        let key = self.key();
        self.report(Kind::G1b, *element, &[by, of], || {
            format!(
                "T{by} read key {key} up to {element}, after which T{of}, who appended it, appended more."
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
            kind: Kind::IncompatibleOrders,
            order: Order::Data,
            transactions: vec![first, second],
            edges: Vec::new(),
            explanation,
        });
    }

    /// What one transaction appended is in its order and without a gap.
    fn own_orders(&mut self, order: &[Element], appends: &[(u32, Element)]) {
        let mut places: FxHashMap<Element, usize> = FxHashMap::default();
        for (place, element) in order.iter().enumerate() {
            places.insert(*element, place);
        }
        for run in appends.chunk_by(|(one, _), (other, _)| one == other) {
            // Those not seen come last, as if after the end.
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
                kind: Kind::IncompatibleOrders,
                order: Order::Data,
                transactions: vec![by],
                edges: Vec::new(),
                explanation,
            });
        }
    }

    /// Of two transactions the first read what the second wrote.
    fn report(&mut self, kind: Kind, element: Element, who: &[usize], text: impl FnOnce() -> String) {
        if !self.reported.insert((kind, element)) {
            return;
        }
        let edges = match who {
            [reader, writer] => {
                let dependency = Dependency::WriteRead { key: self.key(), element };
                vec![Edge { from: *writer, to: *reader, dependency }]
            }
            _ => Vec::new(),
        };
        let explanation = words::transactions(self.index.transactions, who) + &text();
        let transactions = who.to_vec();
        self.anomalies.push(Anomaly { kind, order: Order::Data, transactions, edges, explanation });
    }
}

/// Which reads are what their transactions knew when they appended to the key:
/// the last before they did, or else the first after, their own taken away.
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
