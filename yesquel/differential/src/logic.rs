//! Scripts as sqllogictest has them: what stock gives stands behind each
//! statement.

use crate::{
    engine::{Connection, Engine, Failure, Row},
    place::{Place, Places},
    random,
    script::Step,
    value::Value,
};
use sqllogictest::{ColumnType, DB, DBOutput};
use std::{collections::BTreeMap, fmt, fmt::Write as _};

/// A value of more bytes is told by its length and a sum.
const SHOWN: usize = 120;

/// A value as it stands in a script: no line breaks, no spaces that could be
/// taken for none.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Integer(number) => number.to_string(),
        Value::Real(number) => format!("{number:?}"),
        Value::Text(bytes) if bytes.is_empty() => "(empty)".to_owned(),
        Value::Text(bytes) => {
            let text = String::from_utf8_lossy(bytes);
            let mut out = String::new();
            let mut before = ' ';
            let mut rest = text.chars().peekable();
            while let Some(c) = rest.next() {
                let is_lone = before != ' ' && rest.peek().is_some_and(|next| *next != ' ');
                if c.is_control() || (c.is_whitespace() && !(c == ' ' && is_lone)) {
                    out.extend(c.escape_unicode());
                } else {
                    out.push(c);
                }
                before = c;
            }
            short(out)
        }
        Value::Blob(bytes) => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            short(format!("x'{digits}'"))
        }
    }
}

fn short(text: String) -> String {
    if text.len() <= SHOWN {
        return text;
    }
    // FNV-1a: it must be the same for years.
    let sum = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let start: String = text.chars().take(20).collect();
    format!("{start}…{}:{sum:016x}", text.len())
}

/// An error as scripts have it.
#[derive(Debug, Clone)]
pub struct LogicError(Failure);

impl fmt::Display for LogicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}) {}", self.0.code, self.0.message)
    }
}

impl std::error::Error for LogicError {}

/// SQL's columns have no types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Any(char);

impl ColumnType for Any {
    fn from_char(value: char) -> Option<Any> {
        Some(Any(value))
    }

    fn to_char(&self) -> char {
        self.0
    }
}

/// A database for a script, of one of the two.
pub struct Logic {
    engine: Engine,
    connection: Connection,
    names: BTreeMap<&'static str, String>,
}

impl Logic {
    /// A connection to the database of a script.
    pub fn open(engine: Engine, places: &Places) -> Result<Logic, LogicError> {
        let names = if engine == Engine::Ours { places.ours() } else { places.stock() };
        let connection = Connection::open(engine, &names["{main}"]).map_err(LogicError)?;
        let is_on_trees = connection.filename("main").starts_with("yesquel:");
        assert_eq!(is_on_trees, engine == Engine::Ours && places.has_trees(), "{engine:?}");
        Ok(Logic { engine, connection, names })
    }

    /// The rows of a statement, or how many it has changed if it has no
    /// columns.
    fn answer(&mut self, sql: &str) -> Result<(usize, Vec<Row>, i64), LogicError> {
        let sql = self.names.iter().fold(sql.to_owned(), |sql, (name, value)| sql.replace(name, value));
        let columns = self.connection.columns(&sql).map_err(LogicError)?.len();
        let (rows, failure) = self.connection.run(&sql);
        match failure {
            Some(failure) => Err(LogicError(failure)),
            None => Ok((columns, rows, self.connection.counters().0)),
        }
    }
}

impl DB for Logic {
    type Error = LogicError;
    type ColumnType = Any;

    fn run(&mut self, sql: &str) -> Result<DBOutput<Any>, LogicError> {
        let (columns, rows, changes) = self.answer(sql)?;
        if columns == 0 {
            return Ok(DBOutput::StatementComplete(changes.unsigned_abs()));
        }
        let rows = rows.iter().map(|row| row.iter().map(shown).collect()).collect();
        Ok(DBOutput::Rows { types: vec![Any('T'); columns], rows })
    }

    fn engine_name(&self) -> &str {
        if self.engine == Engine::Ours { "yesquel" } else { "stock" }
    }
}

/// A text as a regular expression that it alone matches.
fn quoted(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if r".+*?()|[]{}^$\".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// Whether its words stand in one line, with one space between them.
fn is_one_line(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ") == text && !text.chars().any(char::is_control)
}

/// Writes a statement with what stock gives for it.
fn record_one(stock: &mut Logic, sql: &str, out: &mut String) {
    let sql = sql.trim().trim_end_matches(';');
    // What changes rows says how many.
    let first = sql.split_whitespace().next().unwrap_or_default().to_uppercase();
    let counts = matches!(first.as_str(), "INSERT" | "UPDATE" | "DELETE" | "REPLACE");
    let head = match stock.answer(sql) {
        // The line of an expectation does not keep all spaces.
        Err(error) if !is_one_line(&error.to_string()) => format!("statement error\n{sql}\n"),
        Err(error) => format!("statement error {}\n{sql}\n", quoted(&error.to_string())),
        Ok((0, _, changes)) if counts => format!("statement count {changes}\n{sql}\n"),
        Ok((0, ..)) => format!("statement ok\n{sql}\n"),
        Ok((columns, rows, _)) => {
            let mut text = format!("query {}\n{sql}\n----\n", "T".repeat(columns));
            for row in rows {
                let row: Vec<String> = row.iter().map(shown).collect();
                text.push_str(&row.join(" "));
                text.push('\n');
            }
            text
        }
    };
    let _ = writeln!(out, "{head}");
}

/// The script of some statements, each of them ended by a semicolon at the end
/// of a line, with what stock gives. Lines that begin with `#` stay.
pub fn record(text: &str) -> Result<String, LogicError> {
    let places = Places::new(Place::Memory);
    let mut stock = Logic::open(Engine::Stock, &places)?;
    let (mut out, mut sql) = (String::new(), String::new());
    let mut ends_trigger = true;
    for line in text.lines().map(str::trim_end) {
        if line.starts_with('#') && sql.is_empty() {
            let _ = writeln!(out, "{line}");
            continue;
        }
        if line.is_empty() {
            continue;
        }
        if line.starts_with("CREATE TRIGGER") || line.starts_with("CREATE TEMP TRIGGER") {
            ends_trigger = false;
        }
        ends_trigger = ends_trigger || line.ends_with("END;");
        sql.push_str(line);
        sql.push('\n');
        if line.ends_with(';') && ends_trigger {
            record_one(&mut stock, &sql, &mut out);
            sql.clear();
        }
    }
    Ok(out)
}

/// The script of a seed, with so many statements or a few more.
pub fn drawn(seed: u64, count: u64) -> Result<String, LogicError> {
    let places = Places::new(Place::Memory);
    let mut stock = Logic::open(Engine::Stock, &places)?;
    let mut out = String::new();
    for step in random::steps_of(seed, count) {
        // Pieces of paths do not belong in a script, nor does what copies rows of
        // the schema, or several lines.
        if let Step::Run(sql, _) = &step
            && !sql.contains("ATTACH")
            && !sql.starts_with("VACUUM")
        {
            record_one(&mut stock, &sql.replace('\n', " "), &mut out);
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stands_in_one_line_and_keeps_its_spaces() {
        let text = |text: &str| shown(&Value::Text(text.as_bytes().into()));
        assert_eq!(text(""), "(empty)");
        assert_eq!(text("a b"), "a b");
        assert_eq!(text("a "), "a\\u{20}");
        assert_eq!(text(" a"), "\\u{20}a");
        assert_eq!(text("a\nb"), "a\\u{a}b");
        assert_eq!(shown(&Value::Real(-0.0)), "-0.0");
        assert_eq!(shown(&Value::Blob([1, 255].into())), "x'01ff'");
        assert_ne!(text(&"x".repeat(500)), text(&("x".repeat(499) + "y")));
    }

    #[test]
    fn a_script_has_what_stock_gives() {
        let script = record(
            "# A comment.\nCREATE TABLE t(a);\nINSERT INTO t VALUES(1), (2);\nSELECT a\nFROM t;\nSELECT b FROM t;\n",
        );
        let expected = "# A comment.\nstatement ok\nCREATE TABLE t(a)\n\nstatement count 2\nINSERT INTO t VALUES(1), (2)\n\n\
                        query T\nSELECT a\nFROM t\n----\n1\n2\n\nstatement error \\(1\\) no such column: b\nSELECT b FROM t\n\n";
        assert_eq!(script.unwrap(), expected);
    }
}
