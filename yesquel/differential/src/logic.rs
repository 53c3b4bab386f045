//! Scripts in the format of sqllogictest, with the results of stock SQLite.

use crate::{
    engine::{EngineConnection, ResultRow, SqlEngine, SqlFailure},
    place::{Places, ScriptTrees},
    random,
    script::ScriptStep,
    value::SqlValue,
};
use sqllogictest::{ColumnType, DB, DBOutput};
use std::{collections::BTreeMap, fmt, fmt::Write as _};

/// Length in bytes above which a value is represented by its length and a hash.
const SHOWN: usize = 120;

/// Formats a value for a script: without line breaks and spaces.
fn shown(value: &SqlValue) -> String {
    match value {
        SqlValue::Null => "NULL".to_owned(),
        SqlValue::Integer(number) => number.to_string(),
        SqlValue::Real(number) => format!("{number:?}"),
        SqlValue::Text(bytes) if bytes.is_empty() => "(empty)".to_owned(),
        SqlValue::Text(bytes) => {
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
        SqlValue::Blob(bytes) => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            short(format!("x'{digits}'"))
        }
    }
}

fn short(text: String) -> String {
    if text.len() <= SHOWN {
        return text;
    }
    // FNV-1a, which must never change.
    let sum = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let start: String = text.chars().take(20).collect();
    format!("{start}…{}:{sum:016x}", text.len())
}

/// Error in the format of scripts.
#[derive(Debug, Clone)]
pub struct LogicError(SqlFailure);

impl fmt::Display for LogicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}) {}", self.0.code, self.0.message)
    }
}

impl std::error::Error for LogicError {}

/// Column type, which SQL does not have.
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

/// Database of a script, in one engine.
pub struct Logic {
    engine: SqlEngine,
    connection: EngineConnection,
    names: BTreeMap<&'static str, String>,
}

impl Logic {
    /// Opens a connection to the database of a script.
    pub fn open(engine: SqlEngine, places: &Places) -> Result<Logic, LogicError> {
        let names = if engine == SqlEngine::Ours { places.ours() } else { places.stock() };
        let connection = EngineConnection::open(engine, &names["{main}"]).map_err(LogicError)?;
        let is_on_trees = connection.filename("main").starts_with("yesquel:");
        assert_eq!(is_on_trees, engine == SqlEngine::Ours && places.has_trees(), "{engine:?}");
        Ok(Logic { engine, connection, names })
    }

    /// Runs a statement. Returns its rows, or the number of changes if it has no columns.
    fn answer(&mut self, sql: &str) -> Result<(usize, Vec<ResultRow>, i64), LogicError> {
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
        if self.engine == SqlEngine::Ours { "yesquel" } else { "stock" }
    }
}

/// Escapes a text as a regular expression.
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

/// Returns whether a text is one line of words with single spaces.
fn is_one_line(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ") == text && !text.chars().any(char::is_control)
}

/// Appends a statement with the result of stock SQLite.
fn record_one(stock: &mut Logic, sql: &str, out: &mut String) {
    let sql = sql.trim().trim_end_matches(';');
    // Statements that change rows record the number of changes.
    let first = sql.split_whitespace().next().unwrap_or_default().to_uppercase();
    let counts = matches!(first.as_str(), "INSERT" | "UPDATE" | "DELETE" | "REPLACE");
    let head = match stock.answer(sql) {
        // The line of an expectation does not preserve all spaces.
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

/// Returns the script of some statements, each ending with a semicolon at the end of a line, with
/// the results of stock SQLite. Lines that begin with `#` are kept.
pub fn record(text: &str) -> Result<String, LogicError> {
    let places = Places::new(ScriptTrees::Memory);
    let mut stock = Logic::open(SqlEngine::Stock, &places)?;
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

/// Returns a random script of a seed, with at least `count` statements.
pub fn drawn(seed: u64, count: u64) -> Result<String, LogicError> {
    let places = Places::new(ScriptTrees::Memory);
    let mut stock = Logic::open(SqlEngine::Stock, &places)?;
    let mut out = String::new();
    for step in random::steps_of(seed, count) {
        // Leave out paths, statements that copy rows of the schema, and multi-line ones.
        if let ScriptStep::Run(sql, _) = &step
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
    fn a_value_is_one_line_and_keeps_its_spaces() {
        let text = |text: &str| shown(&SqlValue::Text(text.as_bytes().into()));
        assert_eq!(text(""), "(empty)");
        assert_eq!(text("a b"), "a b");
        assert_eq!(text("a "), "a\\u{20}");
        assert_eq!(text(" a"), "\\u{20}a");
        assert_eq!(text("a\nb"), "a\\u{a}b");
        assert_eq!(shown(&SqlValue::Real(-0.0)), "-0.0");
        assert_eq!(shown(&SqlValue::Blob([1, 255].into())), "x'01ff'");
        assert_ne!(text(&"x".repeat(500)), text(&("x".repeat(499) + "y")));
    }

    #[test]
    fn a_generated_script_contains_the_results_of_stock_sqlite() {
        let script = record(
            "# A comment.\nCREATE TABLE t(a);\nINSERT INTO t VALUES(1), (2);\nSELECT a\nFROM t;\nSELECT b FROM t;\n",
        );
        let expected = "# A comment.\nstatement ok\nCREATE TABLE t(a)\n\nstatement count 2\nINSERT INTO t VALUES(1), (2)\n\n\
                        query T\nSELECT a\nFROM t\n----\n1\n2\n\nstatement error \\(1\\) no such column: b\nSELECT b FROM t\n\n";
        assert_eq!(script.unwrap(), expected);
    }
}
