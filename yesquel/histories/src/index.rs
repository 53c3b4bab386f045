//! Index of appenders, and of the transactions that count as committed.

use crate::history::{Element, HistoryError, ListKey, ListOperation, RecordedOutcome, RecordedTransaction};
use rustc_hash::FxHashMap;

/// Appender of an element.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Appender {
    pub(crate) transaction: u32,
    /// Whether it was its last append to that key.
    pub(crate) last: bool,
}

/// History with numbered keys, and with elements found by value.
pub(crate) struct HistoryIndex<'h> {
    pub(crate) transactions: &'h [RecordedTransaction],
    /// Keys by number.
    pub(crate) keys: Vec<ListKey>,
    numbers: FxHashMap<ListKey, u32>,
    appenders: FxHashMap<(u32, Element), Appender>,
    /// Which transactions count as committed.
    pub(crate) counted: Vec<bool>,
    /// Number of elements examined.
    pub(crate) elements: u64,
}

impl<'h> HistoryIndex<'h> {
    pub(crate) fn new(transactions: &'h [RecordedTransaction]) -> Result<HistoryIndex<'h>, HistoryError> {
        let mut index = HistoryIndex {
            transactions,
            keys: Vec::new(),
            numbers: FxHashMap::default(),
            appenders: FxHashMap::default(),
            counted: transactions.iter().map(|it| it.outcome == RecordedOutcome::Committed).collect(),
            elements: 0,
        };
        let mut latest: FxHashMap<u32, Element> = FxHashMap::default();
        for (at, transaction) in transactions.iter().enumerate() {
            latest.clear();
            for operation in &transaction.operations {
                match *operation {
                    ListOperation::Read { key, .. } => drop(index.number_new(key)),
                    ListOperation::Append { key, element } => {
                        let number = index.number_new(key);
                        let appender = Appender { transaction: at as u32, last: true };
                        if let Some(other) = index.appenders.insert((number, element), appender) {
                            let first = other.transaction as usize;
                            return Err(HistoryError::AppendedTwice { key, element, first, second: at });
                        }
                        if let Some(before) = latest.insert(number, element)
                            && let Some(appender) = index.appenders.get_mut(&(number, before))
                        {
                            appender.last = false;
                        }
                    }
                }
            }
        }
        index.count_seen();
        Ok(index)
    }

    fn number_new(&mut self, key: ListKey) -> u32 {
        let next = self.keys.len() as u32;
        let number = *self.numbers.entry(key).or_insert(next);
        if number == next {
            self.keys.push(key);
        }
        number
    }

    /// Returns the number of a key.
    pub(crate) fn number(&self, key: ListKey) -> usize {
        self.numbers[&key] as usize
    }

    /// Returns the appender of an element of a numbered key.
    pub(crate) fn appender(&self, number: usize, element: Element) -> Option<Appender> {
        self.appenders.get(&(number as u32, element)).copied()
    }

    /// Returns the counted transactions, in order.
    pub(crate) fn counted(&self) -> impl Iterator<Item = (usize, &'h RecordedTransaction)> + use<'h, '_> {
        self.transactions.iter().enumerate().filter(|(at, _)| self.counted[*at])
    }

    /// Also counts transactions with an unknown outcome that a counted one has seen, transitively.
    fn count_seen(&mut self) {
        let mut queue: Vec<usize> = (0..self.transactions.len()).filter(|at| self.counted[*at]).collect();
        // Longest list of each key processed so far. Reads that are prefixes of it need one
        // comparison only, which makes many reads of a long list cheap.
        let mut through: Vec<&[Element]> = vec![&[]; self.keys.len()];
        while let Some(at) = queue.pop() {
            for operation in &self.transactions[at].operations {
                let ListOperation::Read { key, list: Some(list) } = operation else { continue };
                let number = self.number(*key);
                self.elements += list.len() as u64;
                let known = through[number];
                let new: &[Element] = if list.starts_with(known) {
                    through[number] = list;
                    &list[known.len()..]
                } else if known.starts_with(list) {
                    &[]
                } else {
                    list
                };
                for element in new {
                    let Some(appender) = self.appender(number, *element) else { continue };
                    let by = appender.transaction as usize;
                    if self.transactions[by].outcome == RecordedOutcome::Unknown && !self.counted[by] {
                        self.counted[by] = true;
                        queue.push(by);
                    }
                }
            }
        }
    }
}
