//! What people are told of a store, and how a store of any type is opened.

use crate::{
    Store,
    properties::{Faults, Properties, Table},
};

/// What people are told of a store.
#[derive(Debug, Clone, Copy)]
pub struct StoreInfo {
    /// The name on the command line.
    pub name: &'static str,
    /// Other names (YCSB's, and the Java class that YCSB's `db` property carries).
    pub aliases: &'static [&'static str],
    /// One line.
    pub summary: &'static str,
    /// How records are laid out, what the verbs are mapped to, what to know.
    pub details: &'static str,
    /// Whether it takes the points and queries of time series as they are
    /// meant. Other stores take them for records with odd fields.
    pub time_series: bool,
    /// Whether records that are written can be read back. Serval looks for
    /// loaded records in these stores only.
    pub keeps_records: bool,
    /// Whether [`insert_batch`](crate::Client::insert_batch) is faster than
    /// inserting the records one by one.
    pub batches: bool,
    /// Whether an update of a missing record inserts it.
    pub updates_insert: bool,
    /// Whether a driver serves it, which gets all properties of a run.
    pub behind_driver: bool,
    /// Its properties.
    pub properties: Table,
}

impl StoreInfo {
    /// Whether properties that Serval does not know may be known to the store.
    pub fn passes_on(&self) -> bool {
        self.behind_driver
    }
}

/// Does something with a store of whatever type.
pub trait Visitor {
    /// What comes of it.
    type Output;
    /// Does it.
    fn visit<S: Store>(self, store: S) -> Self::Output;
}

/// Opens a store whose type it alone knows.
pub trait StoreOpener {
    /// What people are told of the store.
    fn info(&self) -> &'static StoreInfo;

    /// Opens the store with these properties and hands it to the visitor.
    fn open<V: Visitor>(&self, properties: &Properties, visitor: V) -> Result<V::Output, Faults>;
}
