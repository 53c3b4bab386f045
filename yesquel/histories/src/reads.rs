//! What transactions saw of others, and whether they saw themselves.

use crate::anomaly::{Anomaly, Kind};
use crate::history::{Element, Operation};
use crate::index::Index;
use crate::model::Order;
use crate::words;
use rustc_hash::FxHashMap;

/// What a transaction saw of a key before its own appends to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExternalRead<'h> {
    pub(crate) transaction: u32,
    pub(crate) list: &'h [Element],
    /// Whether it read before it had appended to that key.
    pub(crate) before_append: bool,
}

/// What a transaction knows of a key so far.
#[derive(Default)]
struct Known<'h> {
    /// Whether it appends to it, now or later.
    appends: bool,
    /// What it has appended.
    own: Vec<Element>,
    /// What it saw of others.
    external: Option<&'h [Element]>,
}

/// The reads of each key by those that count, with the readers' own appends
/// taken away: what a transaction appends is after all that it saw, and as long
/// as it is not committed it is no version of the key. Who reads otherwise
/// than the axiom INT has it is reported, once.
pub(crate) fn external<'h>(
    index: &mut Index<'h>,
    anomalies: &mut Vec<Anomaly>,
) -> Vec<Vec<ExternalRead<'h>>> {
    let mut reads: Vec<Vec<ExternalRead>> = vec![Vec::new(); index.keys.len()];
    let mut known: FxHashMap<usize, Known> = FxHashMap::default();
    let mut elements = 0;
    for (at, transaction) in index.counted() {
        known.clear();
        let mut wrong = None;
        for (key, _) in transaction.appends() {
            known.entry(index.number(key)).or_default().appends = true;
        }
        for operation in &transaction.operations {
            let (key, list) = match operation {
                Operation::Append { key, element } => {
                    known.entry(index.number(*key)).or_default().own.push(*element);
                    continue;
                }
                Operation::Read { list: None, .. } => continue,
                Operation::Read { key, list: Some(list) } => (*key, list.as_slice()),
            };
            elements += list.len() as u64;
            let number = index.number(key);
            let state = known.entry(number).or_default();
            let others = list.strip_suffix(state.own.as_slice());
            let external = others.unwrap_or(list);
            let is_own = |element: &Element| {
                index.writer(number, *element).is_some_and(|writer| writer.transaction as usize == at)
            };
            let sees_own = state.appends && external.iter().any(is_own);
            if others.is_none() {
                wrong.get_or_insert_with(|| {
                    let (own, shown) = (words::list(&state.own), words::list(list));
                    format!(
                        "T{at} had appended {own} to key {key} and read {shown}, which does not end with it"
                    )
                });
            } else if sees_own {
                wrong.get_or_insert_with(|| {
                    let shown = words::list(list);
                    format!("T{at} read key {key} as {shown}, with an element that it had yet to append")
                });
            } else if let Some(before) = state.external.filter(|before| *before != external) {
                wrong.get_or_insert_with(|| {
                    let (before, now) = (words::list(before), words::list(external));
                    format!("T{at} read key {key} as {before} and then as {now}, its own appends aside")
                });
            }
            if !sees_own && state.external != Some(external) {
                let before_append = state.own.is_empty();
                reads[number].push(ExternalRead { transaction: at as u32, list: external, before_append });
                state.external = Some(external);
            }
        }
        if let Some(wrong) = wrong {
            let explanation = format!("{}{wrong}.", words::transactions(index.transactions, &[at]));
            anomalies.push(Anomaly {
                kind: Kind::Internal,
                order: Order::Data,
                transactions: vec![at],
                edges: Vec::new(),
                explanation,
            });
        }
    }
    index.elements += elements;
    reads
}
