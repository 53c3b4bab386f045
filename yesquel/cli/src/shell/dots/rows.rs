//! Parser of rows as in `.import` of SQLite's own shell, with the same warnings.

use std::io::{self, BufRead};

/// Byte order mark of UTF-8.
const MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// Format of a file of rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowFormat {
    pub(super) column: u8,
    pub(super) row: u8,
    /// Whether fields may be quoted.
    pub(super) is_quoted: bool,
}

/// What ended a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldEnd {
    Column,
    Row,
    File,
}

/// Reader of fields.
pub(super) struct FieldReader<R> {
    read: R,
    form: RowFormat,
    /// Current line, from 1.
    pub(super) line: u64,
    /// What ended the last field.
    pub(super) end: FieldEnd,
    is_first: bool,
}

impl<R: BufRead> FieldReader<R> {
    pub(super) fn new(read: R, form: RowFormat) -> FieldReader<R> {
        FieldReader { read, form, line: 1, end: FieldEnd::Row, is_first: true }
    }

    fn next(&mut self) -> io::Result<Option<u8>> {
        loop {
            match self.read.fill_buf() {
                Ok(bytes) => {
                    let byte = bytes.first().copied();
                    self.read.consume(usize::from(byte.is_some()));
                    return Ok(byte);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn ends(&mut self, byte: Option<u8>) {
        self.end = match byte {
            None => FieldEnd::File,
            Some(byte) if byte == self.form.column => FieldEnd::Column,
            Some(_) => FieldEnd::Row,
        };
    }

    fn is_separator(&self, byte: u8) -> bool {
        byte == self.form.column || byte == self.form.row
    }

    /// Reads a field. Returns whether there was one. `warn` receives oddities with their lines.
    pub(super) fn field(&mut self, field: &mut Vec<u8>, warn: &mut dyn FnMut(u64, &str)) -> io::Result<bool> {
        field.clear();
        let mut byte = self.next()?;
        if byte.is_none() {
            self.end = FieldEnd::File;
            return Ok(false);
        }
        if std::mem::take(&mut self.is_first) && self.form.is_quoted && byte == Some(MARK[0]) {
            // The byte order mark is not part of the first name.
            for mark in MARK {
                if byte != Some(mark) {
                    break;
                }
                field.push(mark);
                byte = self.next()?;
            }
            if *field == MARK {
                field.clear();
            }
        }
        if self.form.is_quoted && field.is_empty() && byte == Some(b'"') {
            self.quoted(field, warn)?;
            return Ok(true);
        }
        while let Some(plain) = byte.filter(|byte| !self.is_separator(*byte)) {
            field.push(plain);
            byte = self.next()?;
        }
        self.ends(byte);
        if byte == Some(self.form.row) {
            self.line += 1;
            if self.form.is_quoted && field.last() == Some(&b'\r') {
                field.pop();
            }
        }
        Ok(true)
    }

    /// Reads a quoted field up to the quote that ends it.
    fn quoted(&mut self, field: &mut Vec<u8>, warn: &mut dyn FnMut(u64, &str)) -> io::Result<()> {
        let begun = self.line;
        let (mut before, mut before_that) = (None, None);
        loop {
            let byte = self.next()?;
            if byte == Some(self.form.row) {
                self.line += 1;
            }
            if byte == Some(b'"') && before == Some(b'"') {
                // A doubled quote is one quote.
                before = None;
                continue;
            }
            let closed = before == Some(b'"')
                || (byte == Some(self.form.row) && before == Some(b'\r') && before_that == Some(b'"'));
            if closed && byte.is_none_or(|byte| self.is_separator(byte)) {
                while field.pop().is_some_and(|last| last != b'"') {}
                self.ends(byte);
                return Ok(());
            }
            if before == Some(b'"') && byte != Some(b'\r') {
                warn(self.line, "unescaped \" character");
            }
            let Some(byte) = byte else {
                warn(begun, "unterminated \"-quoted field");
                self.end = FieldEnd::File;
                return Ok(());
            };
            field.push(byte);
            (before_that, before) = (before, Some(byte));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CSV: RowFormat = RowFormat { column: b',', row: b'\n', is_quoted: true };

    /// Returns rows with `|` between fields, and the warnings.
    fn read(text: &str, form: RowFormat) -> (Vec<String>, Vec<String>) {
        let (mut rows, mut odd) = (FieldReader::new(text.as_bytes(), form), Vec::new());
        let (mut all, mut row, mut field) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let is_there =
                rows.field(&mut field, &mut |line, what| odd.push(format!("{line}: {what}"))).unwrap();
            if is_there || !row.is_empty() {
                row.push(String::from_utf8_lossy(&field).into_owned());
            }
            if rows.end != FieldEnd::Column && !row.is_empty() {
                all.push(row.join("|"));
                row.clear();
            }
            if rows.end == FieldEnd::File {
                return (all, odd);
            }
        }
    }

    #[test]
    fn rows_are_split_like_in_sqlite3() {
        let plain = |text| read(text, CSV);
        let rows = |rows: &[&str], odd: &[&str]| {
            let owned = |all: &[&str]| all.iter().map(|&one| one.to_owned()).collect::<Vec<String>>();
            (owned(rows), owned(odd))
        };
        assert_eq!(plain("a,b\r\n1,\"x\"\"y\"\r\n"), rows(&["a|b", "1|x\"y"], &[]));
        // An empty line is a row with an empty field.
        assert_eq!(plain("v\na\n\nb\n"), rows(&["v", "a", "", "b"], &[]));
        assert_eq!(plain("\u{feff}a,b\n\u{feff}c,d"), rows(&["a|b", "\u{feff}c|d"], &[]));
        assert_eq!(plain("\u{feff}\"a\",b"), rows(&["a|b"], &[]));
        assert_eq!(plain("\"a\nb\",c\n\"\",\n"), rows(&["a\nb|c", "|"], &[]));
        assert_eq!(
            plain("k,l\n1,\"open\n2,b\n"),
            rows(&["k|l", "1|open\n2,b\n"], &["2: unterminated \"-quoted field"])
        );
        assert_eq!(plain("\"x\"y,2\n").1, ["1: unescaped \" character", "1: unterminated \"-quoted field"]);
        let ascii = RowFormat { column: 0x1f, row: 0x1e, is_quoted: false };
        assert_eq!(read("\"a\u{1f}b\r\u{1e}c", ascii), rows(&["\"a|b\r", "c"], &[]));
    }
}
