//! Checks histories of transactions that ran side by side for everything that
//! snapshot isolation, or serializability, forbids.
//!
//! Clients append to lists and read them, and write down what they saw. A list
//! tells in which order its elements were appended, and an element tells who
//! appended it, so the reads alone show which transaction must have been
//! before which. Where they show a circle, the store has broken its promise,
//! and the circle is the proof. The method is Elle's (Kingsbury & Alvaro,
//! "Elle: Inferring Isolation Anomalies from Experimental Observations", VLDB
//! 2020), the names are Adya's ("Weak Consistency", thesis, MIT 1999), and what
//! snapshot isolation allows is what Cerone & Gotsman show ("Analysing
//! Snapshot Isolation", PODC 2016): exactly the circles with two `rw` edges in
//! a row.
//!
//! ```
//! use yesquel_histories::{Kind, Model, Operation, Transaction, check};
//!
//! let history = [
//!     Transaction::committed(0, 1, 4, [Operation::read(7, []), Operation::append(7, 1)]),
//!     Transaction::committed(1, 2, 5, [Operation::read(7, []), Operation::append(7, 2)]),
//!     Transaction::committed(0, 6, 7, [Operation::read(7, [1, 2])]),
//! ];
//! let report = check(&history, Model::SnapshotIsolation)?;
//! assert!(report.found(Kind::LostUpdate), "{report}");
//! # Ok::<(), yesquel_histories::HistoryError>(())
//! ```
//!
//! # What a verdict means
//!
//! What is reported is proved by the history. What is not may still be there:
//! the order of appends that nobody read is not known, nor who read what at a
//! transaction that failed. Let clients read every list in the end. Of
//! circles, one is told for each component, order and kind: the first of
//! several faults that hang together. A lost update or a G-single hides
//! G-nonadjacent and G2-item of the same component, and in sessions and real
//! time whatever has been told hides what is weaker.
//!
//! In a component of thousands of transactions the search for a circle with
//! one `rw` edge is given up after a number of steps. Some circle is told
//! then, by the name that is right for it.
//!
//! # How long it takes
//!
//! For `e` elements in all lists read, `n` transactions, and `m` reads and
//! appends: time and memory in `O(e + m + n log n)`; there are a few edges for
//! each read and append, and the components are found in time linear in the
//! edges. A search in a component is stopped after a fixed multiple of its
//! edges. Nothing is stopped by a clock, so a history has one verdict.
//!
//! # Why not a crate
//!
//! `adya` 0.1.0 does much the same, and is what this was compared with. It is
//! one version old, does not tell elements that nobody appended, heeds what
//! transactions of unknown outcome read though nobody ever saw them committed,
//! and ends its searches by the wall clock, so that on a machine with other
//! work to do it may tell something else of the same history. Its proofs are
//! text.

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

pub use anomaly::{Anomaly, Counts, Dependency, Edge, Kind, Report};
pub use history::{Element, HistoryError, Key, Operation, Outcome, Transaction};
pub use model::{Model, Order};

use dependencies::Dependencies;
use index::Index;

/// Holds a history against a model.
///
/// Transactions may be in any order; they are told by their places.
pub fn check(transactions: &[Transaction], model: Model) -> Result<Report, HistoryError> {
    let sessions = history::sessions(transactions)?;
    let mut index = Index::new(transactions)?;
    let mut anomalies = Vec::new();
    let reads = reads::external(&mut index, &mut anomalies);
    let keys = versions::all(&mut index, reads, &mut anomalies);
    let mut dependencies = Dependencies::of_data(&index, &keys, &mut anomalies);
    if model.orders().contains(&Order::Session) {
        dependencies.of_sessions(&index, &sessions);
    }
    let steps = cycles::find(&index, &dependencies, model, &mut anomalies);
    anomalies.sort_by(|one, other| {
        let key = |it: &Anomaly| (it.kind, it.order, it.transactions.clone());
        key(one).cmp(&key(other))
    });
    let counts = Counts {
        transactions: index.counted().count() as u64,
        elements: index.elements,
        edges: dependencies.count() as u64,
        steps,
    };
    Ok(Report { model, anomalies, counts })
}
