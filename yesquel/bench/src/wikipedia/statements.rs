//! The traced statements and the tables, as text: `yesquel/bench/wikipedia`.

use crate::Result;
use std::{collections::HashMap, sync::Arc};

const STATEMENTS: &str = include_str!("../../wikipedia/statements.sql");
const SQLITE_SCHEMA: &str = include_str!("../../wikipedia/schema-sqlite.sql");
#[cfg(any(test, feature = "mariadb"))]
const MARIADB_SCHEMA: &str = include_str!("../../wikipedia/schema-mariadb.sql");

/// Mark of a list of parameters in a statement.
const LIST: &str = "?*";

/// Form of SQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    #[cfg(any(test, feature = "mariadb"))]
    MariaDb,
}

impl Dialect {
    fn name(self) -> &'static str {
        match self {
            Dialect::Sqlite => "sqlite",
            #[cfg(any(test, feature = "mariadb"))]
            Dialect::MariaDb => "mariadb",
        }
    }

    /// Returns the statements that create the tables and their indexes.
    pub(crate) fn schema(self) -> impl Iterator<Item = String> {
        let text = match self {
            Dialect::Sqlite => SQLITE_SCHEMA,
            #[cfg(any(test, feature = "mariadb"))]
            Dialect::MariaDb => MARIADB_SCHEMA,
        };
        let text = lines_without_comments(text);
        text.split(';')
            .map(|statement| statement.trim().to_owned())
            .filter(|s| !s.is_empty())
            .collect::<Vec<_>>()
            .into_iter()
    }
}

fn lines_without_comments(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("--")).collect();
    lines.join("\n")
}

/// A statement with parameters.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Statement {
    text: String,
    /// Names of the columns of its rows.
    columns: Vec<String>,
}

impl Statement {
    pub(super) fn new(text: &str) -> Statement {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let columns = columns(&text);
        Statement { text, columns }
    }

    /// Returns the text for a list of this length; it does not matter if there is no list.
    pub(crate) fn text(&self, list: usize) -> std::borrow::Cow<'_, str> {
        if self.text.contains(LIST) {
            self.text.replace(LIST, &vec!["?"; list].join(",")).into()
        } else {
            self.text.as_str().into()
        }
    }

    /// Returns the number of a column of its rows.
    pub(crate) fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column == name)
    }
}

/// Returns the names of the columns that a SELECT returns.
fn columns(text: &str) -> Vec<String> {
    let select = text.strip_prefix("SELECT ").and_then(|rest| rest.split_once(" FROM "));
    let Some((list, _)) = select else { return Vec::new() };
    // The name is the last word: `b AS name`, `DISTINCT name`.
    list.split(',').filter_map(|column| column.split_whitespace().last()).map(str::to_owned).collect()
}

/// The statements of a dialect by their names.
#[derive(Debug)]
pub(crate) struct Statements(HashMap<&'static str, Arc<Statement>>);

impl Statements {
    pub(crate) fn of(dialect: Dialect) -> Result<Statements> {
        Ok(Statements(parse(STATEMENTS, dialect)?))
    }

    pub(crate) fn get(&self, name: &str) -> Result<Arc<Statement>> {
        let found = self.0.get(name).map(Arc::clone);
        found.ok_or_else(|| format!("wikipedia/statements.sql has no statement '{name}'").into())
    }
}

fn parse(text: &'static str, dialect: Dialect) -> Result<HashMap<&'static str, Arc<Statement>>> {
    let mut statements = HashMap::new();
    for block in text.split("\n\n").filter_map(|block| block.trim().strip_prefix("-- ")) {
        let Some((head, body)) = block.split_once('\n') else {
            return Err(format!("wikipedia/statements.sql: '{block}' has no statement").into());
        };
        let (name, form) = head.split_once(' ').unwrap_or((head, ""));
        if body.starts_with("--") {
            continue; // The comment of the file.
        }
        let form = form.trim_matches(['[', ']']);
        if !form.is_empty() && form != dialect.name() {
            continue;
        }
        let body = body.strip_suffix(';').ok_or_else(|| format!("statement '{name}' has no end"))?;
        if statements.insert(name, Arc::new(Statement::new(body))).is_some() {
            return Err(format!("there are two statements '{name}' for {}", dialect.name()).into());
        }
    }
    Ok(statements)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dialect_has_all_statements_and_tables() {
        let [sqlite, maria] =
            [Dialect::Sqlite, Dialect::MariaDb].map(|dialect| Statements::of(dialect).unwrap().0);
        let mut names: Vec<_> = sqlite.keys().collect();
        let mut of_maria: Vec<_> = maria.keys().collect();
        names.sort_unstable();
        of_maria.sort_unstable();
        assert_eq!((names.len(), &names), (48, &of_maria));
        let differ = names.iter().filter(|name| sqlite[**name] != maria[**name]);
        assert_eq!(differ.copied().collect::<Vec<_>>(), [&"insert-link", &"lock", &"statistics"]);
        for dialect in [Dialect::Sqlite, Dialect::MariaDb] {
            let tables = dialect.schema().filter(|statement| statement.starts_with("CREATE TABLE"));
            assert_eq!(tables.count(), 27, "{dialect:?}");
        }
    }

    #[test]
    fn a_statement_has_columns_and_a_list() {
        let statement = Statement::new("SELECT /*! A */ a,b.c AS d,\n  e\nFROM t WHERE a = ? AND e IN (?*)");
        assert_eq!(
            ["a", "d", "e", "c"].map(|name| statement.column(name)),
            [Some(0), Some(1), Some(2), None]
        );
        assert!(statement.text(3).ends_with("FROM t WHERE a = ? AND e IN (?,?,?)"), "{}", statement.text(3));
        assert_eq!(Statement::new("DELETE FROM t").column("a"), None);
    }

    #[test]
    fn a_faulty_file_is_refused() {
        let error = |text: &'static str| parse(text, Dialect::Sqlite).unwrap_err().to_string();
        assert_eq!(error("-- a\nSELECT 1"), "statement 'a' has no end");
        assert_eq!(
            error("-- a\nSELECT 1;\n\n-- a [sqlite]\nSELECT 2;"),
            "there are two statements 'a' for sqlite"
        );
        assert!(error("-- a").contains("'a' has no statement"));
    }
}
