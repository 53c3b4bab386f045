//! Commands that show the trees below tables.

use super::{
    super::{
        run::{accounts, tell_costs},
        state::{Shell, ShellError, ShellResult},
    },
    switch, usage, wrong,
};
use crate::{connection::trees, tree_drawing};
use rusqlite::OptionalExtension;
use std::{io::Write, rc::Rc};
use yesquel_sqlite::TreeCosts;

pub(super) fn stats(shell: &mut Shell, words: &[&str]) -> ShellResult {
    match words {
        // Totals so far.
        [] => {
            let mut all = accounts(&shell.connection());
            all.iter_mut().for_each(|(_, _, costs)| *costs = TreeCosts::default());
            Ok(tell_costs(&all, &mut shell.out)?)
        }
        [word] => match switch(word) {
            Some(is_on) => {
                shell.settings.stats = is_on;
                Ok(())
            }
            None => usage("stats"),
        },
        _ => usage("stats"),
    }
}

/// Finds a table or an index with the number of its tree.
const FIND: &str = "SELECT type, name, tbl_name, rootpage FROM sqlite_schema WHERE lower(name) = lower(?1) \
    AND type IN ('table', 'index', 'view') \
    UNION ALL SELECT 'table', 'sqlite_schema', 'sqlite_schema', 1 WHERE lower(?1) IN ('sqlite_schema', 'sqlite_master')";

/// Maximum length of a key shown, in characters.
const SIGNS: usize = 48;

/// Formats an index key, shortened.
fn index_key(key: &[u8]) -> String {
    let shown = yesquel_sqlite::shown_index_key(key);
    match shown.char_indices().nth(SIGNS) {
        Some((at, _)) => format!("{}…", &shown[..at]),
        None => shown,
    }
}

pub(super) fn tree(shell: &mut Shell, words: &[&str]) -> ShellResult {
    let shared = Rc::clone(shell.shared());
    let connection = shared.borrow();
    let Some(trees) = trees(&connection, "main") else {
        return wrong(format!("{} is on no trees: it is a plain file, or in SQLite's memory", shell.name));
    };
    let name = match words {
        [] => {
            let mut all = connection.prepare(
                "SELECT name, type, tbl_name, rootpage FROM sqlite_schema WHERE rootpage > 0 ORDER BY tbl_name, type DESC",
            )?;
            let mut rows = all.query([])?;
            while let Some(row) = rows.next()? {
                let (name, kind, table): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
                let root: u32 = row.get(3)?;
                let of = if kind == "index" { format!(" of {table}") } else { String::new() };
                writeln!(shell.out, "{name}: {kind}{of}, tree {root}")?;
            }
            return Ok(());
        }
        [name] => name,
        _ => return usage("tree"),
    };
    let found = connection.query_row(FIND, [name], |row| {
        Ok((
            row.get::<_, String>(0)?,
            row.get::<_, String>(1)?,
            row.get::<_, String>(2)?,
            row.get::<_, u32>(3)?,
        ))
    });
    let Some((kind, name, table, root)) = found.optional()? else {
        return wrong(format!("no such table or index: {name}"));
    };
    if root == 0 {
        return wrong(format!(
            "{name} has no tree: it is a {}",
            if kind == "view" { "view" } else { "virtual table" }
        ));
    }
    let without = "SELECT wr FROM pragma_table_list(?1) WHERE schema = 'main'";
    let has_rows = kind == "table"
        && !connection.query_row(without, [&table], |row| row.get(0)).optional()?.unwrap_or(false);
    let nodes = trees.nodes(root).map_err(|error| match error {
        yesquel::Error::Connect(_)
        | yesquel::Error::Unavailable(_)
        | yesquel::Error::HomeGroupUnreachable(_)
        | yesquel::Error::Disconnected(_) => ShellError::Unreachable(error.to_string()),
        // The open transaction creates it, and no server has it yet.
        yesquel::Error::NoMap(_) => {
            ShellError::Said(format!("the tree of {name} is not there before the COMMIT"))
        }
        other => ShellError::Said(other.to_string()),
    })?;
    let of = if kind == "index" { format!(", index of {table}") } else { String::new() };
    writeln!(shell.out, "{name}{of}: tree {root}")?;
    tree_drawing::text_with(
        &nodes,
        if has_rows { yesquel_sqlite::shown_row_key } else { index_key },
        &mut shell.out,
    )?;
    Ok(())
}
