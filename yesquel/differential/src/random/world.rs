//! What a script may speak of.

use yesquel_seeds::Random;

/// Draws.
pub(super) struct Draw {
    random: Random,
    /// No value is so long that an index could not have it.
    pub(super) is_short: bool,
}

impl Draw {
    pub(super) fn new(random: Random) -> Draw {
        Draw { random, is_short: false }
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.random.next(bound)
    }

    /// Once in so many times.
    pub(super) fn chance(&mut self, times: u64) -> bool {
        self.random.next(times) == 0
    }

    pub(super) fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }

    pub(super) fn one<T: Copy>(&mut self, all: &[T]) -> T {
        *self.of(all)
    }

    /// A text, or none.
    pub(super) fn maybe(&mut self, times: u64, text: &str) -> String {
        if self.chance(times) { text.to_owned() } else { String::new() }
    }

    /// Some of them, at least one if there is one, in their order.
    pub(super) fn some<T: Clone>(&mut self, all: &[T]) -> Vec<T> {
        let mut some: Vec<T> = all.iter().filter(|_| self.chance(2)).cloned().collect();
        if some.is_empty() && !all.is_empty() {
            some.push(self.of(all).clone());
        }
        some
    }
}

/// How rows of a table are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// By a column that is the row's number.
    Numbered,
    /// By a number that nobody sees.
    Hidden,
    /// By their primary key.
    Keyed,
    View,
}

#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) is_generated: bool,
    /// The row's number.
    pub(super) is_row: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) schema: &'static str,
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) columns: Vec<Column>,
    /// Columns that are unique together.
    pub(super) keys: Vec<Vec<String>>,
    /// What stands behind its name where it is made.
    pub(super) body: String,
}

impl Table {
    pub(super) fn full(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.columns.iter().map(|column| column.name.clone()).collect()
    }
}

#[derive(Debug, Clone)]
pub(super) struct Index {
    pub(super) schema: &'static str,
    pub(super) name: String,
    pub(super) table: String,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    pub(super) tables: Vec<Table>,
    pub(super) indexes: Vec<Index>,
    pub(super) triggers: Vec<(&'static str, String)>,
    /// Tables for the full text, and for boxes.
    pub(super) texts: Vec<String>,
    pub(super) boxes: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) known: Known,
    /// Where things are made, each as often as is meant.
    pub(super) schemas: Vec<&'static str>,
    /// Transactions and savepoints, with what was known when they began.
    pub(super) stack: Vec<(String, Known)>,
    pub(super) made: u64,
    /// Whether there are tables whose rows have numbers that nobody sees.
    pub(super) has_hidden: bool,
}

impl std::ops::Deref for World {
    type Target = Known;
    fn deref(&self) -> &Known {
        &self.known
    }
}

impl std::ops::DerefMut for World {
    fn deref_mut(&mut self) -> &mut Known {
        &mut self.known
    }
}

impl World {
    pub(super) fn push(&mut self, name: &str) {
        self.stack.push((name.to_owned(), self.known.clone()));
    }

    /// Goes back to a savepoint, which stays, or to the beginning.
    pub(super) fn pop(&mut self, name: Option<&str>) {
        let at = match name {
            None => (!self.stack.is_empty()).then_some(0),
            Some(name) => self.stack.iter().rposition(|(known, _)| known == name),
        };
        let Some(at) = at else { return };
        self.known = self.stack[at].1.clone();
        self.stack.truncate(if name.is_some() { at + 1 } else { 0 });
    }

    pub(super) fn release(&mut self, name: &str) {
        if let Some(at) = self.stack.iter().rposition(|(known, _)| known == name) {
            self.stack.truncate(at);
        }
    }

    /// A number that no name has yet.
    pub(super) fn number(&mut self) -> u64 {
        self.made += 1;
        self.made
    }
}
