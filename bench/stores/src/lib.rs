//! Who is asked: one module a store, behind [`serval_model::Store`].
//!
//! A store is known by its [`StoreInfo`]; [`open`] hands the store of a name
//! to a [`Visitor`], which is compiled once a store, so that nothing is
//! dispatched dynamically on the measured path.

use serval_model::{
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
    /// Its properties.
    pub properties: Table,
}

/// Does something with a store of whatever type.
pub trait Visitor {
    /// What comes of it.
    type Output;
    /// Does it.
    fn visit<S: Store>(self, store: S) -> Self::Output;
}

/// Every store of this build, in the order in which help lists them.
pub const STORES: &[StoreInfo] = &[];

/// The store of a name or alias.
pub fn find(name: &str) -> Option<&'static StoreInfo> {
    STORES.iter().find(|info| info.name == name || info.aliases.contains(&name))
}

/// Opens the store of a name with its properties and hands it to the visitor.
/// Faults are those of the properties; whether a server answers shows when
/// the store is prepared or a client connects.
pub fn open<V: Visitor>(
    name: &str,
    properties: &Properties,
    visitor: V,
) -> Result<V::Output, Faults> {
    let _ = (properties, visitor);
    Err(Faults::one(format!("unknown store '{name}'")))
}
