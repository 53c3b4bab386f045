//! Serval's base crate: keys, records, operations, outcomes, properties, and
//! the trait that a store implements.
//!
//! It does not depend on the choice of operations (`serval-workload`), on the
//! stores (`serval-stores`) or on timing (`serval-measure`).

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
