//! Output formats that print row by row, with constant memory.

use super::settings::{OutputMode, ShellSettings};
use crate::{
    connection::quoted,
    dump::needs_quotes,
    literal::{self, LineEnds},
};
use rusqlite::{Row, types::ValueRef};
use std::{
    borrow::Cow,
    fmt::Write as _,
    io::{self, Write},
};

/// Returns the bytes of a value as SQLite converts it to text.
pub(super) fn bytes_of<'a>(value: ValueRef<'a>, null: &'a str) -> Cow<'a, [u8]> {
    match value {
        ValueRef::Null => null.as_bytes().into(),
        ValueRef::Integer(number) => number.to_string().into_bytes().into(),
        ValueRef::Real(number) => real(number).into_bytes().into(),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.into(),
    }
}

fn real(number: f64) -> String {
    yesquel_sqlite::text_of_real(number)
}

/// A row could not be fetched or written.
#[derive(Debug)]
pub(super) enum RowFault {
    Sql(rusqlite::Error),
    Output(io::Error),
}

impl From<rusqlite::Error> for RowFault {
    fn from(error: rusqlite::Error) -> RowFault {
        RowFault::Sql(error)
    }
}

impl From<io::Error> for RowFault {
    fn from(error: io::Error) -> RowFault {
        RowFault::Output(error)
    }
}

/// Formatter for modes without tables.
pub(super) struct RowFormatter<'a> {
    settings: &'a ShellSettings,
    columns: &'a [String],
    count: u64,
    line: Vec<u8>,
    is_terminal: bool,
}

impl<'a> RowFormatter<'a> {
    pub(super) fn new(
        settings: &'a ShellSettings,
        columns: &'a [String],
        is_terminal: bool,
    ) -> RowFormatter<'a> {
        RowFormatter { settings, columns, count: 0, line: Vec::new(), is_terminal }
    }
}

/// Appends text escaped for HTML.
fn push_html(line: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        match byte {
            b'<' => line.extend_from_slice(b"&lt;"),
            b'>' => line.extend_from_slice(b"&gt;"),
            b'&' => line.extend_from_slice(b"&amp;"),
            b'"' => line.extend_from_slice(b"&quot;"),
            b'\'' => line.extend_from_slice(b"&#39;"),
            byte => line.push(*byte),
        }
    }
}

/// Appends a CSV field, quoted where SQLite's shell quotes it.
fn push_csv(line: &mut Vec<u8>, bytes: &[u8], separator: &str) {
    let is_plain = |byte: &u8| (0x21..0x7f).contains(byte) && !matches!(byte, b'"' | b'\'');
    let has_separator =
        !separator.is_empty() && bytes.windows(separator.len()).any(|part| part == separator.as_bytes());
    if !bytes.is_empty() && bytes.iter().all(is_plain) && !has_separator {
        line.extend_from_slice(bytes);
        return;
    }
    line.push(b'"');
    for byte in bytes {
        if *byte == b'"' {
            line.push(b'"');
        }
        line.push(*byte);
    }
    line.push(b'"');
}

/// Appends a JSON string. Each byte of a blob becomes a character.
fn push_json(line: &mut Vec<u8>, bytes: &[u8], is_blob: bool) {
    let text: Cow<'_, str> = if is_blob {
        bytes.iter().map(|byte| char::from(*byte)).collect::<String>().into()
    } else {
        String::from_utf8_lossy(bytes)
    };
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for sign in text.chars() {
        // Writing to a string cannot fail.
        let _ = match sign {
            '"' => quoted.write_str("\\\""),
            '\\' => quoted.write_str("\\\\"),
            '\u{8}' => quoted.write_str("\\b"),
            '\u{c}' => quoted.write_str("\\f"),
            '\n' => quoted.write_str("\\n"),
            '\r' => quoted.write_str("\\r"),
            '\t' => quoted.write_str("\\t"),
            sign if sign < ' ' || (is_blob && sign > '~') => write!(quoted, "\\u{:04x}", u32::from(sign)),
            sign => quoted.write_char(sign),
        };
    }
    quoted.push('"');
    line.extend_from_slice(quoted.as_bytes());
}

/// Appends bytes for display: a terminal would interpret control characters.
fn push_seen(line: &mut Vec<u8>, bytes: &[u8], is_terminal: bool) {
    if !is_terminal {
        line.extend_from_slice(bytes);
        return;
    }
    for sign in String::from_utf8_lossy(bytes).chars() {
        match sign {
            '\n' | '\t' => line.push(sign as u8),
            sign => line.extend_from_slice(visible(sign).as_bytes()),
        }
    }
}

/// Returns a printable form of a character.
pub(super) fn visible(sign: char) -> String {
    match sign {
        '\u{7f}' => "^?".to_owned(),
        sign if sign < ' ' => format!("^{}", char::from(sign as u8 + 0x40)),
        sign if sign.is_control() => format!("\\u{:04x}", u32::from(sign)),
        sign => sign.to_string(),
    }
}

impl RowFormatter<'_> {
    pub(super) fn row(&mut self, row: &Row<'_>, out: &mut dyn Write) -> Result<(), RowFault> {
        self.line.clear();
        match self.settings.mode {
            OutputMode::Line => self.lines(row)?,
            OutputMode::Json => self.object(row)?,
            OutputMode::Insert => self.insert(row)?,
            OutputMode::Html => self.html(row)?,
            _ => self.list(row)?,
        }
        self.count += 1;
        Ok(out.write_all(&self.line)?)
    }

    pub(super) fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.settings.mode == OutputMode::Json && self.count > 0 { out.write_all(b"]\n") } else { Ok(()) }
    }

    fn lines(&mut self, row: &Row<'_>) -> Result<(), RowFault> {
        let width = self.columns.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(5);
        let end = self.settings.row_separator.as_bytes();
        if self.count > 0 {
            self.line.extend_from_slice(end);
        }
        for (at, name) in self.columns.iter().enumerate() {
            self.line.extend_from_slice(format!("{name:>width$} = ").as_bytes());
            let value = bytes_of(row.get_ref(at)?, &self.settings.null);
            push_seen(&mut self.line, &value, self.is_terminal);
            self.line.extend_from_slice(end);
        }
        Ok(())
    }

    fn object(&mut self, row: &Row<'_>) -> Result<(), RowFault> {
        self.line.extend_from_slice(if self.count == 0 { b"[{" } else { b",\n{" });
        for (at, name) in self.columns.iter().enumerate() {
            if at > 0 {
                self.line.push(b',');
            }
            push_json(&mut self.line, name.as_bytes(), false);
            self.line.push(b':');
            match row.get_ref(at)? {
                ValueRef::Null => self.line.extend_from_slice(b"null"),
                ValueRef::Integer(number) => self.line.extend_from_slice(number.to_string().as_bytes()),
                ValueRef::Real(number) => self.line.extend_from_slice(literal::real(number).as_bytes()),
                ValueRef::Text(bytes) => push_json(&mut self.line, bytes, false),
                ValueRef::Blob(bytes) => push_json(&mut self.line, bytes, true),
            }
        }
        self.line.push(b'}');
        Ok(())
    }

    fn insert(&mut self, row: &Row<'_>) -> Result<(), RowFault> {
        let name = |name: &str| if needs_quotes(name) { quoted(name) } else { name.to_owned() };
        let mut line = format!("INSERT INTO {}", name(&self.settings.insert_table));
        if self.settings.shows_headers() {
            let names: Vec<String> = self.columns.iter().map(|column| name(column)).collect();
            // Writing to a string cannot fail.
            let _ = write!(line, "({})", names.join(","));
        }
        line.push_str(" VALUES(");
        for at in 0..self.columns.len() {
            if at > 0 {
                line.push(',');
            }
            literal::push(&mut line, row.get_ref(at)?, LineEnds::Replaced);
        }
        line.push_str(");\n");
        self.line.extend_from_slice(line.as_bytes());
        Ok(())
    }

    fn html(&mut self, row: &Row<'_>) -> Result<(), RowFault> {
        if self.count == 0 && self.settings.shows_headers() {
            self.line.extend_from_slice(b"<TR>");
            for name in self.columns {
                self.line.extend_from_slice(b"<TH>");
                push_html(&mut self.line, name.as_bytes());
                self.line.extend_from_slice(b"</TH>\n");
            }
            self.line.extend_from_slice(b"</TR>\n");
        }
        self.line.extend_from_slice(b"<TR>");
        for at in 0..self.columns.len() {
            self.line.extend_from_slice(b"<TD>");
            push_html(&mut self.line, &bytes_of(row.get_ref(at)?, &self.settings.null));
            self.line.extend_from_slice(b"</TD>\n");
        }
        self.line.extend_from_slice(b"</TR>\n");
        Ok(())
    }

    /// Writes a row in a mode with separators.
    fn list(&mut self, row: &Row<'_>) -> Result<(), RowFault> {
        let ShellSettings { mode, column_separator: between, row_separator: end, null, .. } = self.settings;
        let is_terminal = self.is_terminal && *mode == OutputMode::List;
        if self.count == 0 && self.settings.shows_headers() {
            for (at, name) in self.columns.iter().enumerate() {
                if at > 0 {
                    self.line.extend_from_slice(between.as_bytes());
                }
                match mode {
                    OutputMode::Csv => push_csv(&mut self.line, name.as_bytes(), between),
                    OutputMode::Quote => {
                        let mut text = String::new();
                        literal::push_text(&mut text, name);
                        self.line.extend_from_slice(text.as_bytes());
                    }
                    _ => push_seen(&mut self.line, name.as_bytes(), is_terminal),
                }
            }
            self.line.extend_from_slice(end.as_bytes());
        }
        for at in 0..self.columns.len() {
            if at > 0 {
                self.line.extend_from_slice(between.as_bytes());
            }
            let value = row.get_ref(at)?;
            match (mode, value) {
                (OutputMode::Csv, ValueRef::Null) => self.line.extend_from_slice(null.as_bytes()),
                (OutputMode::Csv, value) => push_csv(&mut self.line, &bytes_of(value, null), between),
                (OutputMode::Quote, value) => {
                    let mut text = String::new();
                    literal::push(&mut text, value, LineEnds::Kept);
                    self.line.extend_from_slice(text.as_bytes());
                }
                (_, value) => push_seen(&mut self.line, &bytes_of(value, null), is_terminal),
            }
        }
        self.line.extend_from_slice(end.as_bytes());
        Ok(())
    }
}
