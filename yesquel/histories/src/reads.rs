//! Reads of other transactions' appends, and the internal consistency of transactions.

use crate::anomaly::{Anomaly, AnomalyKind};
use crate::history::{Element, ListOperation};
use crate::index::HistoryIndex;
use crate::model::AnomalyOrder;
use crate::words;
use rustc_hash::FxHashMap;

/// Version of a key that a transaction saw, without its own appends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExternalRead<'h> {
    pub(crate) transaction: u32,
    pub(crate) list: &'h [Element],
    /// Whether it read before its first append to that key.
    pub(crate) before_append: bool,
}

/// What a transaction has seen and done with a key so far.
#[derive(Default)]
struct KeyUse<'h> {
    /// Whether it appends to the key at any time.
    appends: bool,
    /// Elements that it has appended.
    own: Vec<Element>,
    /// Elements of others that it has seen.
    external: Option<&'h [Element]>,
}

/// Returns the counted reads of each key without the readers' own appends: these follow all that
/// the transaction saw, and are no version of the key before it commits. Violations of the axiom
/// INT are reported, once each.
pub(crate) fn external<'h>(
    index: &mut HistoryIndex<'h>,
    anomalies: &mut Vec<Anomaly>,
) -> Vec<Vec<ExternalRead<'h>>> {
    let mut reads: Vec<Vec<ExternalRead>> = vec![Vec::new(); index.keys.len()];
    let mut known: FxHashMap<usize, KeyUse> = FxHashMap::default();
    let mut elements = 0;
    for (at, transaction) in index.counted() {
        known.clear();
        let mut wrong = None;
        for (key, _) in transaction.appends() {
            known.entry(index.number(key)).or_default().appends = true;
        }
        for operation in &transaction.operations {
            let (key, list) = match operation {
                ListOperation::Append { key, element } => {
                    known.entry(index.number(*key)).or_default().own.push(*element);
                    continue;
                }
                ListOperation::Read { list: None, .. } => continue,
                ListOperation::Read { key, list: Some(list) } => (*key, list.as_slice()),
            };
            elements += list.len() as u64;
            let number = index.number(key);
            let state = known.entry(number).or_default();
            let others = list.strip_suffix(state.own.as_slice());
            let external = others.unwrap_or(list);
            let is_own = |element: &Element| {
                index.appender(number, *element).is_some_and(|appender| appender.transaction as usize == at)
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
                kind: AnomalyKind::Internal,
                order: AnomalyOrder::Data,
                transactions: vec![at],
                edges: Vec::new(),
                explanation,
            });
        }
    }
    index.elements += elements;
    reads
}
