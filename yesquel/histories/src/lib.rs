//! Checks transaction histories for everything that snapshot isolation, or serializability, forbids.
//!
//! Clients append to lists, read them, and record what they saw. A list shows the order of its
//! appends, and an element identifies its appender, so the reads alone show which transaction must
//! precede which. If these dependencies form a cycle, the store has violated the model, and the
//! cycle is the proof. The method is Elle's (Kingsbury & Alvaro, "Elle: Inferring Isolation Anomalies
//! from Experimental Observations", VLDB 2020), and the names are Adya's ("Weak Consistency",
//! thesis, MIT 1999). What snapshot isolation allows follows Cerone & Gotsman ("Analysing Snapshot
//! Isolation", PODC 2016): exactly the cycles with two adjacent `rw` edges.
//!
//! ```
//! use yesquel_histories::{AnomalyKind, ConsistencyModel, ListOperation, RecordedTransaction, check};
//!
//! let history = [
//!     RecordedTransaction::committed(0, 1, 4, [ListOperation::read(7, []), ListOperation::append(7, 1)]),
//!     RecordedTransaction::committed(1, 2, 5, [ListOperation::read(7, []), ListOperation::append(7, 2)]),
//!     RecordedTransaction::committed(0, 6, 7, [ListOperation::read(7, [1, 2])]),
//! ];
//! let report = check(&history, ConsistencyModel::SnapshotIsolation)?;
//! assert!(report.found(AnomalyKind::LostUpdate), "{report}");
//! # Ok::<(), yesquel_histories::HistoryError>(())
//! ```
//!
//! # What a verdict means
//!
//! Every reported anomaly is proved by the history. An unreported one may still exist: the order of
//! appends that no read saw is unknown, and so are the reads of failed transactions. Let clients read
//! every list at the end. One cycle is reported for each component, order and kind: the first of
//! several connected faults. A lost update or a G-single hides G-nonadjacent and G2-item of the same
//! component, and in the session and real-time orders every reported cycle hides weaker ones.
//!
//! In a component of thousands of transactions the search for a cycle with one `rw` edge stops after
//! a number of steps. Some other cycle is then reported, with its proper name.
//!
//! # Complexity
//!
//! For `e` elements in all lists read, `n` transactions, and `m` reads and appends, time and memory
//! are `O(e + m + n log n)`: there are a few edges for each read and append, and the components are
//! found in time linear in the edges. A search in a component stops after a fixed multiple of its
//! edges. No limit depends on a clock, so that a history has one verdict.
//!
//! # Alternatives
//!
//! The crate `adya` 0.1.0 is similar, and was used for comparison. It does not report elements that
//! no transaction appended, uses reads of transactions with unknown outcomes that no transaction saw
//! committed, and limits its searches by wall-clock time, so that its verdict depends on the
//! machine's load. Its proofs are text.

mod anomaly;
mod cycles;
mod dependencies;
mod graph;
mod history;
mod index;
mod model;
mod reads;
mod versions;
mod words;

pub use anomaly::{Anomaly, AnomalyKind, CheckCounts, Dependency, Edge, HistoryReport};
pub use history::{Element, HistoryError, ListKey, ListOperation, RecordedOutcome, RecordedTransaction};
pub use model::{AnomalyOrder, ConsistencyModel};

use dependencies::Dependencies;
use index::HistoryIndex;

/// Checks a history against a model.
///
/// Transactions may be in any order; the report names them by index.
pub fn check(
    transactions: &[RecordedTransaction],
    model: ConsistencyModel,
) -> Result<HistoryReport, HistoryError> {
    let sessions = history::sessions(transactions)?;
    let mut index = HistoryIndex::new(transactions)?;
    let mut anomalies = Vec::new();
    let reads = reads::external(&mut index, &mut anomalies);
    let keys = versions::all(&mut index, reads, &mut anomalies);
    let mut dependencies = Dependencies::of_data(&index, &keys, &mut anomalies);
    if model.orders().contains(&AnomalyOrder::Session) {
        dependencies.of_sessions(&index, &sessions);
    }
    let steps = cycles::find(&index, &dependencies, model, &mut anomalies);
    anomalies.sort_by(|one, other| {
        let key = |it: &Anomaly| (it.kind, it.order, it.transactions.clone());
        key(one).cmp(&key(other))
    });
    let counts = CheckCounts {
        transactions: index.counted().count() as u64,
        elements: index.elements,
        edges: dependencies.count() as u64,
        steps,
    };
    Ok(HistoryReport { model, anomalies, counts })
}
