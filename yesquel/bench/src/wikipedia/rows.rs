//! Rows of a traced statement, with its columns by their names.

use super::{
    statements::Statement,
    store::{WikiError, WikiResult, WikiRow, WikiValue},
};
use std::sync::Arc;

/// All rows of a statement.
#[derive(Debug)]
pub(crate) struct Rows {
    name: &'static str,
    statement: Arc<Statement>,
    rows: Vec<WikiRow>,
}

/// A row of a statement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NamedRow<'a> {
    rows: &'a Rows,
    values: &'a [WikiValue],
}

impl Rows {
    pub(crate) fn new(name: &'static str, statement: Arc<Statement>, rows: Vec<WikiRow>) -> Rows {
        Rows { name, statement, rows }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = NamedRow<'_>> {
        self.rows.iter().map(|values| NamedRow { rows: self, values })
    }

    /// Returns the row of a statement that has one.
    pub(crate) fn only(&self) -> WikiResult<NamedRow<'_>> {
        match &self.rows[..] {
            [values] => Ok(NamedRow { rows: self, values }),
            rows => Err(WikiError::failed(format!("'{}' returned {} rows, not 1", self.name, rows.len()))),
        }
    }
}

impl<'a> NamedRow<'a> {
    fn value(&self, column: &str) -> WikiResult<&'a WikiValue> {
        let value = self.rows.statement.column(column).and_then(|number| self.values.get(number));
        value.ok_or_else(|| WikiError::failed(format!("'{}' has no column {column}", self.rows.name)))
    }

    fn wrong(&self, column: &str, value: &WikiValue) -> WikiError {
        WikiError::failed(format!("'{}' returned {value:?} as {column}", self.rows.name))
    }

    pub(crate) fn integer(&self, column: &str) -> WikiResult<i64> {
        match self.value(column)? {
            WikiValue::Integer(number) => Ok(*number),
            value => Err(self.wrong(column, value)),
        }
    }

    pub(crate) fn text(&self, column: &str) -> WikiResult<&'a str> {
        match self.value(column)? {
            WikiValue::Bytes(bytes) => std::str::from_utf8(bytes)
                .map_err(|error| WikiError::failed(format!("{column} of '{}': {error}", self.rows.name))),
            value => Err(self.wrong(column, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_their_names_and_types() {
        let statement = Arc::new(Statement::new("SELECT a,b AS c FROM t"));
        let row = vec![WikiValue::Integer(7), WikiValue::Bytes(b"x".to_vec())];
        let rows = Rows::new("t", Arc::clone(&statement), vec![row.clone()]);
        let only = rows.only().unwrap();
        assert_eq!((only.integer("a").unwrap(), only.text("c").unwrap()), (7, "x"));
        assert_eq!(only.integer("b").unwrap_err().to_string(), "'t' has no column b");
        assert!(only.integer("c").unwrap_err().to_string().contains("as c"));
        let two = Rows::new("t", statement, vec![row.clone(), row]);
        assert_eq!(two.only().unwrap_err().to_string(), "'t' returned 2 rows, not 1");
    }
}
