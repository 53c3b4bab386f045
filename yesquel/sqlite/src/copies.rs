//! Check of the copies of a schema's meta values: a database has one at each of its groups.

use crate::{
    attached_database::copy_name,
    schema::{COOKIES, MetaValues},
};
use thiserror::Error;
use yesquel::{COOKIES_MAP, Database, Error, SCHEMA_MAP, ServerId};

/// Fault of a copy of a schema's meta values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CopyFault {
    /// A group has no copy.
    #[error("group {} has no copy of the schema's cookies", group.0)]
    Missing {
        /// The group.
        group: ServerId,
    },
    /// A copy differs from that of the first group.
    #[error("the copy of the schema's cookies at group {} differs from that at group {}", group.0, first.0)]
    Differs {
        /// The group of the copy.
        group: ServerId,
        /// The first group of the database.
        first: ServerId,
    },
    /// The copies have another number of groups than the catalog, so that connections miss some.
    #[error("the schema's cookies have {stored} groups, and the database has {groups}")]
    Groups {
        /// Number in the copies.
        stored: usize,
        /// Number of the database's groups.
        groups: usize,
    },
}

impl CopyFault {
    /// Returns a name for programs.
    pub fn code(self) -> &'static str {
        match self {
            CopyFault::Missing { .. } => "missing_cookies",
            CopyFault::Differs { .. } => "different_cookies",
            CopyFault::Groups { .. } => "different_groups",
        }
    }
}

/// Returns whether a database has a SQL schema.
pub fn has_schema(database: &Database) -> Result<bool, Error> {
    Ok(database.existing_map(SCHEMA_MAP)?.is_some())
}

/// Compares the copies of a schema's meta values at one snapshot. A database without a schema has
/// none.
pub fn copy_faults(database: &Database) -> Result<Vec<CopyFault>, Error> {
    let [first, others @ ..] = database.groups() else { return Ok(Vec::new()) };
    let Some(cookies) = database.existing_map(COOKIES_MAP)? else {
        // Schema and copies are created together.
        let is_missing = has_schema(database)?;
        return Ok(if is_missing { vec![CopyFault::Missing { group: *first }] } else { Vec::new() });
    };
    let (mut transaction, mut faults) = (database.begin(), Vec::new());
    let values = transaction.get(cookies, COOKIES)?;
    let stored = values.clone().map_or(0, |values| MetaValues::of(values).groups) as usize;
    // Zero: as it was created.
    if stored != 0 && stored != database.groups().len() {
        faults.push(CopyFault::Groups { stored, groups: database.groups().len() });
    }
    for group in others {
        let (group, first) = (*group, *first);
        match database.existing_map(&copy_name(group))? {
            None => faults.push(CopyFault::Missing { group }),
            Some(copy) if copy.group() != group => faults.push(CopyFault::Missing { group }),
            Some(copy) => {
                if transaction.get(copy, COOKIES)? != values {
                    faults.push(CopyFault::Differs { group, first });
                }
            }
        }
    }
    Ok(faults)
}
