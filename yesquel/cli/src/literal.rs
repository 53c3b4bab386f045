//! SQL literals that SQLite reads back as the same values.

use rusqlite::types::ValueRef;
use std::fmt::Write as _;

/// Representation of line ends in text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineEnds {
    /// Unchanged.
    Kept,
    /// As `replace(...,char(10))`, so that a statement is one line.
    Replaced,
}

/// Appends a value.
pub(crate) fn push(out: &mut String, value: ValueRef<'_>, lines: LineEnds) {
    match value {
        ValueRef::Null => out.push_str("NULL"),
        // Writing to a string cannot fail; likewise below.
        ValueRef::Integer(number) => drop(write!(out, "{number}")),
        ValueRef::Real(number) => out.push_str(&real(number)),
        ValueRef::Blob(bytes) => push_blob(out, bytes),
        ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => match lines {
                LineEnds::Kept => push_text(out, text),
                LineEnds::Replaced => push_line(out, text),
            },
            // SQL has no literal for these.
            _ => {
                out.push_str("CAST(");
                push_blob(out, bytes);
                out.push_str(" AS TEXT)");
            }
        },
    }
}

/// Formats a real that reads back as the same one.
pub(crate) fn real(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "1e999" } else { "-1e999" }.to_owned();
    }
    let text = yesquel_sqlite::text_of_real(number);
    if text.parse() == Ok(number) { text } else { format!("{number:e}") }
}

fn push_blob(out: &mut String, bytes: &[u8]) {
    out.push_str("X'");
    for byte in bytes {
        let _ = write!(out, "{byte:02x}");
    }
    out.push('\'');
}

/// Appends quoted text.
pub(crate) fn push_text(out: &mut String, text: &str) {
    out.push('\'');
    for (at, part) in text.split('\'').enumerate() {
        if at > 0 {
            out.push_str("''");
        }
        out.push_str(part);
    }
    out.push('\'');
}

/// Returns a placeholder for line ends: a string that the text does not contain.
fn stand_in(text: &str, first: &str, second: &str) -> String {
    let plain = [first, second].into_iter().find(|choice| !text.contains(choice));
    if let Some(plain) = plain {
        return plain.to_owned();
    }
    let mut number = 0;
    loop {
        let choice = format!("({first}{number})");
        if !text.contains(&choice) {
            return choice;
        }
        number += 1;
    }
}

/// Appends quoted text on one line.
fn push_line(out: &mut String, text: &str) {
    let feed = text.contains('\n').then(|| stand_in(text, "\\n", "\\012"));
    let carriage = text.contains('\r').then(|| stand_in(text, "\\r", "\\015"));
    for _ in feed.iter().chain(&carriage) {
        out.push_str("replace(");
    }
    let mut line = text.to_owned();
    for (sign, stand_in) in [('\n', &feed), ('\r', &carriage)] {
        if let Some(stand_in) = stand_in {
            line = line.replace(sign, stand_in);
        }
    }
    push_text(out, &line);
    for (code, stand_in) in [(13, &carriage), (10, &feed)] {
        if let Some(stand_in) = stand_in {
            let _ = write!(out, ",'{stand_in}',char({code}))");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::{Connection, types::Value};

    #[test]
    fn literals_round_trip() {
        let connection = Connection::open_in_memory().unwrap();
        let texts = ["", "a", "it's", "a\nb", "a\r\nb'", "\\n\n\\012", "\\r\\015\r(\\r0)", "\u{0}a", "süß"];
        let mut values: Vec<Value> = texts.iter().map(|text| Value::Text((*text).to_owned())).collect();
        values.extend([0, 1, -1, i64::MAX, i64::MIN].map(Value::Integer));
        let reals = [0.1, -0.0, 1e22, 5e-324, f64::MAX, 0.1 + 0.2, 1.0, f64::INFINITY, 123_456_789.125];
        values.extend(reals.map(Value::Real));
        values.extend([vec![], vec![0, 255]].map(Value::Blob));
        values.push(Value::Null);
        for value in values {
            for lines in [LineEnds::Kept, LineEnds::Replaced] {
                let mut sql = String::from("SELECT ");
                push(&mut sql, ValueRef::from(&value), lines);
                assert!(lines == LineEnds::Kept || !sql.contains(['\n', '\r']), "{sql}");
                let read: Value = connection.query_row(&sql, [], |row| row.get(0)).unwrap();
                assert_eq!(read, value, "{sql}");
            }
        }
    }
}
