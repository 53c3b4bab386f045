//! Descriptions of stores, and opening a store of any type.

use crate::{
    Store,
    properties::{Faults, Properties, PropertyTable},
};

/// Description of a store for help texts and planning.
#[derive(Debug, Clone, Copy)]
pub struct StoreInfo {
    /// The name on the command line.
    pub name: &'static str,
    /// Other names: YCSB's, and the Java class that YCSB's `db` property names.
    pub aliases: &'static [&'static str],
    /// Summary of one line.
    pub summary: &'static str,
    /// Layout of records, mapping of operations, and limits.
    pub details: &'static str,
    /// Whether it stores the points and queries of time series natively. Other
    /// stores treat them as records with unusual fields.
    pub time_series: bool,
    /// Whether written records can be read back. Serval checks for loaded records
    /// only in these stores.
    pub keeps_records: bool,
    /// Whether [`insert_batch`](crate::Client::insert_batch) is faster than
    /// inserting the records one by one.
    pub batches: bool,
    /// Whether an update of a missing record inserts it.
    pub updates_insert: bool,
    /// Whether a driver serves it. A driver gets all properties of a run.
    pub behind_driver: bool,
    /// Its properties.
    pub properties: PropertyTable,
}

impl StoreInfo {
    /// Whether the store may know properties that Serval does not.
    pub fn passes_on(&self) -> bool {
        self.behind_driver
    }
}

/// A function of a store of any type.
pub trait Visitor {
    /// Its result.
    type Output;
    /// Applies it to the store.
    fn visit<S: Store>(self, store: S) -> Self::Output;
}

/// Opens a store whose type only the implementation knows.
pub trait StoreOpener {
    /// Returns the description of the store.
    fn info(&self) -> &'static StoreInfo;

    /// Opens the store with these properties and passes it to the visitor.
    fn open<V: Visitor>(&self, properties: &Properties, visitor: V) -> Result<V::Output, Faults>;
}
