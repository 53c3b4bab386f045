//! What clients saw: transactions, what they did and how they ended.

use rustc_hash::FxHashMap;
use thiserror::Error;

/// What a list is found by.
pub type Key = u64;

/// What is appended to a list; nobody appends the same one to a key twice.
pub type Element = u64;

/// What a transaction did to one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Puts an element at the end of a key's list.
    Append {
        /// Of which list.
        key: Key,
        /// What is put there.
        element: Element,
    },
    /// Reads a key's list.
    Read {
        /// Of which list.
        key: Key,
        /// What was there, empty for a key that is not there; `None` if no
        /// answer came.
        list: Option<Vec<Element>>,
    },
}

impl Operation {
    /// An element is put at the end of a list.
    pub fn append(key: Key, element: Element) -> Operation {
        Operation::Append { key, element }
    }

    /// A list is read, and answered.
    pub fn read(key: Key, list: impl Into<Vec<Element>>) -> Operation {
        Operation::Read { key, list: Some(list.into()) }
    }
}

/// How a transaction ended, as far as its client knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was told that it is committed.
    Committed,
    /// It was told that it is not, and never will be.
    Aborted,
    /// It was told nothing. The transaction counts as committed if anyone who
    /// is committed saw an element of it, and as if it had not been otherwise.
    Unknown,
}

/// One transaction, as its client saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// The client, which runs one transaction after the other.
    pub process: u64,
    /// When the client began.
    pub invoked: u64,
    /// When it knew the outcome, or gave up waiting for it.
    pub completed: u64,
    /// What it did, in order.
    pub operations: Vec<Operation>,
    /// How it ended.
    pub outcome: Outcome,
}

impl Transaction {
    /// A transaction that a client was told is committed.
    pub fn committed(
        process: u64,
        invoked: u64,
        completed: u64,
        operations: impl Into<Vec<Operation>>,
    ) -> Transaction {
        Transaction {
            process,
            invoked,
            completed,
            operations: operations.into(),
            outcome: Outcome::Committed,
        }
    }

    /// The same with another outcome.
    pub fn with_outcome(self, outcome: Outcome) -> Transaction {
        Transaction { outcome, ..self }
    }

    /// Every append, in order.
    pub(crate) fn appends(&self) -> impl Iterator<Item = (Key, Element)> {
        self.operations.iter().filter_map(|operation| match operation {
            Operation::Append { key, element } => Some((*key, *element)),
            Operation::Read { .. } => None,
        })
    }
}

/// Why a list of transactions is no history. Transactions are told by their
/// place in the list.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HistoryError {
    /// Who appended an element could not be told.
    #[error("T{first} and T{second} both append {element} to key {key}; elements must be unique per key")]
    AppendedTwice {
        /// To which list.
        key: Key,
        /// What.
        element: Element,
        /// Who did first.
        first: usize,
        /// Who did again; it may be the same.
        second: usize,
    },
    /// Instants that no clock can have given.
    #[error("T{transaction} is completed at {completed}, before it was invoked at {invoked}")]
    EndsBeforeItBegins {
        /// Which.
        transaction: usize,
        /// Its beginning.
        invoked: u64,
        /// Its end.
        completed: u64,
    },
    /// A client must do one thing after the other.
    #[error("process {process} began T{second} before it had ended T{first}")]
    Overlap {
        /// The client.
        process: u64,
        /// What it was at.
        first: usize,
        /// What it began.
        second: usize,
    },
    /// The list is too long for this checker.
    #[error("{transactions} transactions are more than can be checked at once")]
    TooLong {
        /// How many there are.
        transactions: usize,
    },
}

/// The greatest number of transactions; their places are kept in 32 bits, two
/// for each and some for helpers.
const TRANSACTIONS_MAX: usize = 1 << 28;

/// The transactions of each process, in its order; or why there is none.
pub(crate) fn sessions(transactions: &[Transaction]) -> Result<Vec<Vec<u32>>, HistoryError> {
    if transactions.len() > TRANSACTIONS_MAX {
        return Err(HistoryError::TooLong { transactions: transactions.len() });
    }
    let mut places: FxHashMap<u64, usize> = FxHashMap::default();
    let mut sessions: Vec<Vec<u32>> = Vec::new();
    for (at, transaction) in transactions.iter().enumerate() {
        let Transaction { process, invoked, completed, .. } = *transaction;
        if completed < invoked {
            return Err(HistoryError::EndsBeforeItBegins { transaction: at, invoked, completed });
        }
        let place = *places.entry(process).or_insert(sessions.len());
        if place == sessions.len() {
            sessions.push(Vec::new());
        }
        sessions[place].push(at as u32);
    }
    for session in &mut sessions {
        let of = |at: u32| &transactions[at as usize];
        session.sort_by_key(|at| (of(*at).invoked, of(*at).completed, *at));
        if let Some(two) = session.windows(2).find(|two| of(two[1]).invoked < of(two[0]).completed) {
            let (first, second) = (two[0] as usize, two[1] as usize);
            return Err(HistoryError::Overlap { process: of(two[0]).process, first, second });
        }
    }
    Ok(sessions)
}
