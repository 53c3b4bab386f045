//! The ground floor of Serval: what a key, a record, an operation and an
//! outcome are, how properties are read, and what a store must do.
//!
//! Nothing here knows how operations are chosen (`serval-workload`), who
//! answers them (`serval-stores`) or how they are timed (`serval-measure`).

pub mod flush;
pub mod java;
pub mod metric;
pub mod operation;
pub mod outcome;
pub mod properties;
pub mod record;
pub mod share;
pub mod store;
pub mod store_info;

pub use flush::Flush;
pub use metric::Metric;
pub use operation::{FieldSelection, Operation, OperationKind, OperationKinds};
pub use outcome::{Outcome, Status};
pub use record::{Record, Reply};
pub use share::Share;
pub use store::{Client, Execution, Purpose, Schema, Store, StoreError};
pub use store_info::{StoreInfo, StoreOpener, Visitor};
