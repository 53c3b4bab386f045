//! Objects that a script may use.

use yesquel_seeds::Random;

/// Random draws.
pub(super) struct RandomDraw {
    random: Random,
    /// Keeps values short enough for an index.
    pub(super) is_short: bool,
}

impl RandomDraw {
    pub(super) fn new(random: Random) -> RandomDraw {
        RandomDraw { random, is_short: false }
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.random.next(bound)
    }

    /// Returns true with probability 1/`times`.
    pub(super) fn chance(&mut self, times: u64) -> bool {
        self.random.next(times) == 0
    }

    pub(super) fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }

    pub(super) fn one<T: Copy>(&mut self, all: &[T]) -> T {
        *self.of(all)
    }

    /// Returns the text with probability 1/`times`, otherwise an empty one.
    pub(super) fn maybe(&mut self, times: u64, text: &str) -> String {
        if self.chance(times) { text.to_owned() } else { String::new() }
    }

    /// Draws a non-empty subset, in order.
    pub(super) fn some<T: Clone>(&mut self, all: &[T]) -> Vec<T> {
        let mut some: Vec<T> = all.iter().filter(|_| self.chance(2)).cloned().collect();
        if some.is_empty() && !all.is_empty() {
            some.push(self.of(all).clone());
        }
        some
    }
}

/// How rows of a table are identified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowIdentity {
    /// By a column that is the row number.
    Numbered,
    /// By a row number without a column.
    Hidden,
    /// By their primary key.
    Keyed,
    View,
}

#[derive(Debug, Clone)]
pub(super) struct TableColumn {
    pub(super) name: String,
    pub(super) is_generated: bool,
    /// Whether it is the row number.
    pub(super) is_row: bool,
}

#[derive(Debug, Clone)]
pub(super) struct TableInfo {
    pub(super) schema: &'static str,
    pub(super) name: String,
    pub(super) kind: RowIdentity,
    pub(super) columns: Vec<TableColumn>,
    /// Sets of columns that are unique.
    pub(super) keys: Vec<Vec<String>>,
    /// The part of CREATE TABLE after the name.
    pub(super) body: String,
}

impl TableInfo {
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
pub(super) struct KnownObjects {
    pub(super) tables: Vec<TableInfo>,
    pub(super) indexes: Vec<Index>,
    pub(super) triggers: Vec<(&'static str, String)>,
    /// Full-text tables, and R*Tree tables.
    pub(super) texts: Vec<String>,
    pub(super) boxes: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct ScriptWorld {
    pub(super) known: KnownObjects,
    /// Schemas of new objects, repeated according to their weights.
    pub(super) schemas: Vec<&'static str>,
    /// Transactions and savepoints, with the state at their beginning.
    pub(super) stack: Vec<(String, KnownObjects)>,
    pub(super) made: u64,
    /// Whether there are tables with hidden row numbers.
    pub(super) has_hidden: bool,
}

impl std::ops::Deref for ScriptWorld {
    type Target = KnownObjects;
    fn deref(&self) -> &KnownObjects {
        &self.known
    }
}

impl std::ops::DerefMut for ScriptWorld {
    fn deref_mut(&mut self) -> &mut KnownObjects {
        &mut self.known
    }
}

impl ScriptWorld {
    pub(super) fn push(&mut self, name: &str) {
        self.stack.push((name.to_owned(), self.known.clone()));
    }

    /// Rolls back to a savepoint, which stays, or to the beginning.
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

    /// Returns a number for a new name.
    pub(super) fn number(&mut self) -> u64 {
        self.made += 1;
        self.made
    }
}
