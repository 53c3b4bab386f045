//! History: transactions as their clients saw them.

use rustc_hash::FxHashMap;
use thiserror::Error;

/// Key of a list.
pub type ListKey = u64;

/// Element of a list; unique for each key.
pub type Element = u64;

/// Operation of a transaction on one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListOperation {
    /// Appends an element to a list.
    Append {
        /// Key of the list.
        key: ListKey,
        /// The element.
        element: Element,
    },
    /// Reads a list.
    Read {
        /// Key of the list.
        key: ListKey,
        /// The list, empty for an absent key; `None` if no answer came.
        list: Option<Vec<Element>>,
    },
}

impl ListOperation {
    /// Returns an append.
    pub fn append(key: ListKey, element: Element) -> ListOperation {
        ListOperation::Append { key, element }
    }

    /// Returns a read with its answer.
    pub fn read(key: ListKey, list: impl Into<Vec<Element>>) -> ListOperation {
        ListOperation::Read { key, list: Some(list.into()) }
    }
}

/// Outcome of a transaction, as its client knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordedOutcome {
    /// Committed.
    Committed,
    /// Not committed, now and in future.
    Aborted,
    /// Unknown. The transaction counts as committed if a committed transaction saw an element of
    /// it, and as not committed otherwise.
    Unknown,
}

/// Transaction, as its client saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedTransaction {
    /// The client, which runs one transaction at a time.
    pub process: u64,
    /// Time at which the client began.
    pub invoked: u64,
    /// Time at which the client knew the outcome, or gave up.
    pub completed: u64,
    /// Its operations, in order.
    pub operations: Vec<ListOperation>,
    /// Its outcome.
    pub outcome: RecordedOutcome,
}

impl RecordedTransaction {
    /// Returns a committed transaction.
    pub fn committed(
        process: u64,
        invoked: u64,
        completed: u64,
        operations: impl Into<Vec<ListOperation>>,
    ) -> RecordedTransaction {
        RecordedTransaction {
            process,
            invoked,
            completed,
            operations: operations.into(),
            outcome: RecordedOutcome::Committed,
        }
    }

    /// Returns the transaction with another outcome.
    pub fn with_outcome(self, outcome: RecordedOutcome) -> RecordedTransaction {
        RecordedTransaction { outcome, ..self }
    }

    /// Returns the appends, in order.
    pub(crate) fn appends(&self) -> impl Iterator<Item = (ListKey, Element)> {
        self.operations.iter().filter_map(|operation| match operation {
            ListOperation::Append { key, element } => Some((*key, *element)),
            ListOperation::Read { .. } => None,
        })
    }
}

/// Reason for which a list of transactions is no valid history. Transactions are named by index.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HistoryError {
    /// The element's appender is ambiguous.
    #[error("T{first} and T{second} both append {element} to key {key}; elements must be unique per key")]
    AppendedTwice {
        /// Key of the list.
        key: ListKey,
        /// The element.
        element: Element,
        /// The first appender.
        first: usize,
        /// The second appender, possibly the same transaction.
        second: usize,
    },
    /// A transaction completes before it is invoked.
    #[error("T{transaction} is completed at {completed}, before it was invoked at {invoked}")]
    EndsBeforeItBegins {
        /// The transaction.
        transaction: usize,
        /// Its invocation.
        invoked: u64,
        /// Its completion.
        completed: u64,
    },
    /// A client ran two transactions at the same time.
    #[error("process {process} began T{second} before it had ended T{first}")]
    Overlap {
        /// The client.
        process: u64,
        /// The running transaction.
        first: usize,
        /// The one that it began meanwhile.
        second: usize,
    },
    /// The history is too long for this checker.
    #[error("{transactions} transactions are more than can be checked at once")]
    TooLong {
        /// Number of transactions.
        transactions: usize,
    },
}

/// Maximum number of transactions. Nodes are numbered with 32 bits: two for each transaction, and
/// helpers.
const TRANSACTIONS_MAX: usize = 1 << 28;

/// Returns the transactions of each process in order, after validation.
pub(crate) fn sessions(transactions: &[RecordedTransaction]) -> Result<Vec<Vec<u32>>, HistoryError> {
    if transactions.len() > TRANSACTIONS_MAX {
        return Err(HistoryError::TooLong { transactions: transactions.len() });
    }
    let mut places: FxHashMap<u64, usize> = FxHashMap::default();
    let mut sessions: Vec<Vec<u32>> = Vec::new();
    for (at, transaction) in transactions.iter().enumerate() {
        let RecordedTransaction { process, invoked, completed, .. } = *transaction;
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
