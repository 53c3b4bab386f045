//! Who appended what, and which transactions count.

use crate::history::{Element, HistoryError, Key, Operation, Outcome, Transaction};
use rustc_hash::FxHashMap;

/// Who appended an element.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer {
    pub(crate) transaction: u32,
    /// Whether it was its last append to that key.
    pub(crate) last: bool,
}

/// A history with its keys numbered and its elements found by value.
pub(crate) struct Index<'h> {
    pub(crate) transactions: &'h [Transaction],
    /// The keys by their numbers.
    pub(crate) keys: Vec<Key>,
    numbers: FxHashMap<Key, u32>,
    writers: FxHashMap<(u32, Element), Writer>,
    /// Which transactions count as committed.
    pub(crate) counted: Vec<bool>,
    /// Elements of lists that were looked at.
    pub(crate) elements: u64,
}

impl<'h> Index<'h> {
    pub(crate) fn new(transactions: &'h [Transaction]) -> Result<Index<'h>, HistoryError> {
        let mut index = Index {
            transactions,
            keys: Vec::new(),
            numbers: FxHashMap::default(),
            writers: FxHashMap::default(),
            counted: transactions.iter().map(|it| it.outcome == Outcome::Committed).collect(),
            elements: 0,
        };
        let mut latest: FxHashMap<u32, Element> = FxHashMap::default();
        for (at, transaction) in transactions.iter().enumerate() {
            latest.clear();
            for operation in &transaction.operations {
                match *operation {
                    Operation::Read { key, .. } => drop(index.number_new(key)),
                    Operation::Append { key, element } => {
                        let number = index.number_new(key);
                        let writer = Writer { transaction: at as u32, last: true };
                        if let Some(other) = index.writers.insert((number, element), writer) {
                            let first = other.transaction as usize;
                            return Err(HistoryError::AppendedTwice { key, element, first, second: at });
                        }
                        if let Some(before) = latest.insert(number, element)
                            && let Some(writer) = index.writers.get_mut(&(number, before))
                        {
                            writer.last = false;
                        }
                    }
                }
            }
        }
        index.count_seen();
        Ok(index)
    }

    fn number_new(&mut self, key: Key) -> u32 {
        let next = self.keys.len() as u32;
        let number = *self.numbers.entry(key).or_insert(next);
        if number == next {
            self.keys.push(key);
        }
        number
    }

    /// The number of a key of the history.
    pub(crate) fn number(&self, key: Key) -> usize {
        self.numbers[&key] as usize
    }

    /// Who appended an element to the key of a number.
    pub(crate) fn writer(&self, number: usize, element: Element) -> Option<Writer> {
        self.writers.get(&(number as u32, element)).copied()
    }

    /// Those that count, in order.
    pub(crate) fn counted(&self) -> impl Iterator<Item = (usize, &'h Transaction)> + use<'h, '_> {
        self.transactions.iter().enumerate().filter(|(at, _)| self.counted[*at])
    }

    /// Who ended one does not know how, and was seen by one that counts, counts
    /// too; and so does then what he saw.
    fn count_seen(&mut self) {
        let mut queue: Vec<usize> = (0..self.transactions.len()).filter(|at| self.counted[*at]).collect();
        // The longest list of each key that has been gone through: lists that
        // agree with it need not be, so that the many reads of one long list
        // cost a comparison each.
        let mut through: Vec<&[Element]> = vec![&[]; self.keys.len()];
        while let Some(at) = queue.pop() {
            for operation in &self.transactions[at].operations {
                let Operation::Read { key, list: Some(list) } = operation else { continue };
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
                    let Some(writer) = self.writer(number, *element) else { continue };
                    let by = writer.transaction as usize;
                    if self.transactions[by].outcome == Outcome::Unknown && !self.counted[by] {
                        self.counted[by] = true;
                        queue.push(by);
                    }
                }
            }
        }
    }
}
