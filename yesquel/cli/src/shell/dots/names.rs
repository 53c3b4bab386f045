//! Commands that list objects.

use super::{
    super::{
        settings::OutputMode,
        state::{Shell, ShellError, ShellResult},
    },
    indent::indented,
    usage, wrong,
};
use crate::connection::quoted;
use rusqlite::Connection;
use std::io::Write;

/// Width of a terminal for lists of names.
const LINE: usize = 80;

/// Returns the databases of a connection, and their files.
fn all(connection: &Connection) -> rusqlite::Result<Vec<(String, String)>> {
    let mut known = connection.prepare("SELECT name, file FROM pragma_database_list")?;
    known
        .query_map([], |row| Ok((row.get(0)?, row.get::<_, Option<String>>(1)?.unwrap_or_default())))?
        .collect()
}

pub(super) fn databases(shell: &mut Shell, _: &[&str]) -> ShellResult {
    let mut lines = String::new();
    {
        let connection = shell.connection();
        for (name, place) in all(&connection)? {
            let access = if connection.is_readonly(name.as_str())? { "r/o" } else { "r/w" };
            let place = if place.is_empty() { "\"\"" } else { &place };
            let state = match connection.transaction_state(Some(name.as_str()))? {
                rusqlite::TransactionState::Read => " read-txn",
                rusqlite::TransactionState::Write => " write-txn",
                _ => "",
            };
            lines.push_str(&format!("{name}: {place} {access}{state}\n"));
        }
    }
    Ok(shell.out.write_all(lines.as_bytes())?)
}

/// Returns the names in all databases that match a pattern under a condition on `?1`.
fn named(connection: &Connection, condition: &str, pattern: &str) -> Result<Vec<String>, ShellError> {
    let mut parts = Vec::new();
    for (name, _) in all(connection)? {
        let shown = if name == "main" { String::new() } else { format!("'{}.'||", name.replace('\'', "''")) };
        parts.push(format!("SELECT {shown}name FROM {}.sqlite_schema WHERE {condition}", quoted(&name)));
    }
    let mut found = connection.prepare(&format!("{} ORDER BY 1", parts.join(" UNION ALL ")))?;
    let names = found.query_map([pattern], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
    Ok(names)
}

/// Prints names in columns, top to bottom.
fn print(shell: &mut Shell, names: &[String]) -> ShellResult {
    let widest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let columns = (LINE / (widest + 2)).max(1);
    let rows = names.len().div_ceil(columns);
    for row in 0..rows {
        let line: Vec<String> =
            names.iter().skip(row).step_by(rows).map(|name| format!("{name:<widest$}")).collect();
        writeln!(shell.out, "{}", line.join("  "))?;
    }
    Ok(())
}

pub(super) fn tables(shell: &mut Shell, words: &[&str]) -> ShellResult {
    let pattern = match words {
        [] => "%",
        [pattern] => pattern,
        _ => return usage("tables"),
    };
    let condition = "type IN ('table', 'view') AND name NOT LIKE 'sqlite__%' ESCAPE '_' AND name LIKE ?1";
    let names = named(&shell.connection(), condition, pattern)?;
    print(shell, &names)
}

pub(super) fn indexes(shell: &mut Shell, words: &[&str]) -> ShellResult {
    let pattern = match words {
        [] => "%",
        [pattern] => pattern,
        _ => return usage("indexes"),
    };
    let names = named(&shell.connection(), "type = 'index' AND tbl_name LIKE ?1", pattern)?;
    print(shell, &names)
}

/// Returns a comment with the columns, for statements that do not list them.
fn columns(connection: &Connection, database: &str, name: &str) -> rusqlite::Result<String> {
    let mut known = connection.prepare("SELECT name FROM pragma_table_info(?1, ?2)")?;
    let names = known.query_map([name, database], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
    let shown = |name: &str| if crate::dump::needs_quotes(name) { quoted(name) } else { name.to_owned() };
    let names: Vec<String> = names.iter().map(|name| shown(name)).collect();
    let whole = if database == "main" { shown(name) } else { format!("{}.{}", shown(database), shown(name)) };
    Ok(format!("\n/* {whole}({}) */", names.join(",")))
}

/// Formats a CREATE statement as SQLite's own shell does: IF NOT EXISTS for quoted names, as shadow
/// tables of virtual tables have.
fn as_shown(sql: String) -> String {
    match sql.strip_prefix("CREATE TABLE ").filter(|rest| rest.starts_with(['"', '\''])) {
        Some(rest) => format!("CREATE TABLE IF NOT EXISTS {rest}"),
        None => sql,
    }
}

pub(super) fn schema(shell: &mut Shell, words: &[&str]) -> ShellResult {
    let (mut pattern, mut indents, mut system) = (None, false, "");
    for word in words {
        match word.strip_prefix('-').map(|word| word.trim_start_matches('-')) {
            Some("indent") => indents = true,
            Some("nosys") => system = " AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'",
            Some(_) => return wrong(format!("there is no option {word}; .help schema lists them")),
            None if pattern.is_none() => pattern = Some(*word),
            None => return usage("schema"),
        }
    }
    let pattern = pattern.unwrap_or("%");
    let operator = if pattern.contains(['*', '?', '[']) { "GLOB" } else { "LIKE" };
    let mut out = String::new();
    {
        let connection = shell.connection();
        for (database, _) in all(&connection)? {
            let named = format!("'{}.' ||", database.replace('\'', "''"));
            let mut known = connection.prepare(&format!(
                "SELECT type, name, sql FROM {}.sqlite_schema WHERE sql IS NOT NULL AND \
                 (lower(tbl_name) {operator} lower(?1) OR lower({named} tbl_name) {operator} lower(?1)){system} ORDER BY rowid",
                quoted(&database)
            ))?;
            let mut rows = known.query([pattern])?;
            while let Some(row) = rows.next()? {
                let (kind, name, sql): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
                let is_virtual =
                    sql.get(..20).is_some_and(|start| start.eq_ignore_ascii_case("CREATE VIRTUAL TABLE"));
                let whole = match sql.strip_prefix("CREATE ") {
                    Some(rest) if database != "main" => in_database(&database, rest),
                    _ => sql,
                };
                let shown = as_shown(if indents { indented(&whole) } else { whole });
                out.push_str(&shown);
                if kind == "view" || is_virtual {
                    out.push_str(&columns(&connection, &database, &name).unwrap_or_default());
                }
                let is_whole = yesquel_sqlite::is_complete(&format!("{shown};"));
                out.push_str(if is_whole { ";\n" } else { "\n;\n" });
            }
        }
    }
    Ok(shell.out.write_all(out.as_bytes())?)
}

/// Prints the statistics that the planner uses, as SQLite's own shell does.
pub(super) fn full_schema(shell: &mut Shell, words: &[&str]) -> ShellResult {
    if words.iter().any(|word| *word != "--indent") {
        return usage("fullschema");
    }
    let (mut out, mut tables) = (String::new(), Vec::new());
    {
        let connection = shell.connection();
        let mut known = connection.prepare(
            "SELECT sql FROM (SELECT sql, type, name, rowid AS x FROM sqlite_schema \
             UNION ALL SELECT sql, type, name, rowid FROM sqlite_temp_schema) \
             WHERE type != 'meta' AND sql NOT NULL AND name NOT LIKE 'sqlite__%' ESCAPE '_' ORDER BY x",
        )?;
        let mut rows = known.query([])?;
        while let Some(row) = rows.next()? {
            out.push_str(&as_shown(row.get(0)?));
            out.push_str(";\n");
        }
        let mut found = connection
            .prepare("SELECT name FROM sqlite_schema WHERE name GLOB 'sqlite_stat[134]' ORDER BY name")?;
        for name in found.query_map([], |row| row.get::<_, String>(0))? {
            tables.push(name?);
        }
    }
    if tables.is_empty() {
        out.push_str("/* No STAT tables available */\n");
        return Ok(shell.out.write_all(out.as_bytes())?);
    }
    out.push_str("ANALYZE sqlite_schema;\n");
    shell.out.write_all(out.as_bytes())?;
    let settings = shell.settings.clone();
    shell.settings.set_mode(OutputMode::Insert);
    shell.settings.headers = Some(false);
    let shown = tables.into_iter().try_for_each(|table| {
        let all = format!("SELECT * FROM {table}");
        shell.settings.insert_table = table;
        shell.run(&all, 0)
    });
    shell.settings = settings;
    shown?;
    Ok(shell.out.write_all(b"ANALYZE sqlite_schema;\n")?)
}

/// Adds the database's name to a CREATE statement of an attached database.
fn in_database(database: &str, rest: &str) -> String {
    const KINDS: [&str; 7] =
        ["TABLE ", "INDEX ", "UNIQUE INDEX ", "VIEW ", "TRIGGER ", "VIRTUAL TABLE ", "TEMP VIEW "];
    let kind = KINDS
        .iter()
        .find(|kind| rest.get(..kind.len()).is_some_and(|start| start.eq_ignore_ascii_case(kind)));
    match kind {
        Some(kind) => format!("CREATE {kind}{database}.{}", &rest[kind.len()..]),
        None => format!("CREATE {rest}"),
    }
}
