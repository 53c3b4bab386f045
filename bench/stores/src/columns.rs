//! SQL statements for YCSB's table with a key column and a column per field, for
//! stores that differ only in the quotes around names. Texts go into the client's
//! buffer.

use serval_model::{FieldSelection, Record};

/// Quote character of identifiers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quotes(pub(crate) char);

impl Quotes {
    /// Appends a quoted identifier.
    pub(crate) fn name(self, sql: &mut String, name: &str) {
        sql.push(self.0);
        for (index, part) in name.split(self.0).enumerate() {
            if index > 0 {
                sql.extend([self.0, self.0]);
            }
            sql.push_str(part);
        }
        sql.push(self.0);
    }

    /// Appends the column of a field: its name in ASCII capitals, as in YCSB's
    /// README. Both stores ignore case.
    pub(crate) fn column(self, sql: &mut String, field: &str) {
        let start = sql.len();
        self.name(sql, field);
        sql[start..].make_ascii_uppercase();
    }

    /// Writes the start of a SELECT of the selected fields.
    ///
    /// All fields are `*`, as in YCSB: the table knows best which it has.
    pub(crate) fn select(self, sql: &mut String, table: &str, fields: &FieldSelection) {
        sql.clear();
        sql.push_str("SELECT ");
        if fields.is_all() {
            sql.push('*');
        }
        for (index, name) in fields.iter().enumerate() {
            sql.push_str(if index == 0 { "" } else { ", " });
            self.column(sql, name);
        }
        sql.push_str(" FROM ");
        self.name(sql, table);
    }

    /// `UPDATE` of a record; the key is the last parameter.
    pub(crate) fn update(self, sql: &mut String, table: &str, fields: &Record) {
        sql.clear();
        sql.push_str("UPDATE ");
        self.name(sql, table);
        sql.push_str(" SET ");
        for (index, (name, _)) in fields.iter().enumerate() {
            sql.push_str(if index == 0 { "" } else { ", " });
            self.column(sql, name);
            sql.push_str(" = ?");
        }
        if fields.is_empty() {
            // SQL requires an assignment; this one still shows whether the record exists.
            sql.push_str("YCSB_KEY = YCSB_KEY");
        }
        sql.push_str(" WHERE YCSB_KEY = ?");
    }

    /// `INSERT`, or a store's variant of it, of several rows, each with the key before
    /// the fields.
    pub(crate) fn insert<'a>(
        self,
        sql: &mut String,
        verb: &str,
        table: &str,
        fields: impl Iterator<Item = &'a str>,
        rows: usize,
    ) {
        sql.clear();
        sql.push_str(verb);
        sql.push(' ');
        self.name(sql, table);
        sql.push_str(" (YCSB_KEY");
        let mut count = 0;
        for name in fields {
            sql.push_str(", ");
            self.column(sql, name);
            count += 1;
        }
        sql.push_str(") VALUES ");
        for row in 0..rows {
            sql.push_str(if row == 0 { "(?" } else { ", (?" });
            for _ in 0..count {
                sql.push_str(", ?");
            }
            sql.push(')');
        }
    }

    /// `DELETE` of a record.
    pub(crate) fn delete(self, sql: &mut String, table: &str) {
        sql.clear();
        sql.push_str("DELETE FROM ");
        self.name(sql, table);
        sql.push_str(" WHERE YCSB_KEY = ?");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_quoted() {
        let mut sql = String::new();
        Quotes('`').name(&mut sql, "a`b\"c");
        assert_eq!(sql, "`a``b\"c`");
        sql.clear();
        Quotes('"').column(&mut sql, "ä\"b");
        assert_eq!(sql, "\"ä\"\"B\"");
    }

    #[test]
    fn an_insert_has_a_parameter_per_column_and_row() {
        let mut sql = "left over".to_owned();
        Quotes('"').insert(&mut sql, "INSERT INTO", "t", ["a", "b"].into_iter(), 2);
        assert_eq!(sql, "INSERT INTO \"t\" (YCSB_KEY, \"A\", \"B\") VALUES (?, ?, ?), (?, ?, ?)");
    }
}
