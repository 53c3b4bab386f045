//! Form of an index's keys.

use crate::key::{Encoding, KeyColumn};

/// Form of an index's keys.
#[derive(Debug, Clone)]
pub(crate) struct KeyForm {
    pub(crate) columns: Vec<KeyColumn>,
    pub(crate) encoding: Encoding,
    /// Set for a table without row ids, whose key is a part of its record.
    pub(crate) is_table: bool,
    /// Fields of the record that make up the key of the table's row, and their columns there, if
    /// rows have no numbers; empty if unknown.
    pub(crate) refers: Vec<(usize, KeyColumn)>,
}
