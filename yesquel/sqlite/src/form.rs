//! The form of an index's keys.

use crate::key::{Column, Encoding};

/// How the keys of an index are made.
#[derive(Debug, Clone)]
pub(crate) struct Form {
    pub(crate) columns: Vec<Column>,
    pub(crate) encoding: Encoding,
    /// The key is not all of the record: a table without row ids.
    pub(crate) is_table: bool,
    /// Where in a record the fields of the key stand of the row that it refers to,
    /// and their columns there, if rows have no numbers; none: it does not say.
    pub(crate) refers: Vec<(usize, Column)>,
}
