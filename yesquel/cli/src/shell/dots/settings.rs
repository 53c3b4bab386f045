//! Commands that change settings.

use super::{
    super::{
        settings::{OutputMode, ShellSettings},
        state::{Shell, ShellResult},
    },
    switch, usage, wrong,
};
use crate::literal;
use rusqlite::limits::Limit;
use std::{io::Write, time::Duration};

fn set(
    shell: &mut Shell,
    name: &str,
    words: &[&str],
    place: fn(&mut ShellSettings) -> &mut bool,
) -> ShellResult {
    let [word] = words else { return usage(name) };
    let Some(is_on) = switch(word) else { return usage(name) };
    *place(&mut shell.settings) = is_on;
    Ok(())
}

pub(super) fn bail(shell: &mut Shell, words: &[&str]) -> ShellResult {
    set(shell, "bail", words, |settings| &mut settings.bail)
}

pub(super) fn changes(shell: &mut Shell, words: &[&str]) -> ShellResult {
    set(shell, "changes", words, |settings| &mut settings.changes)
}

pub(super) fn echo(shell: &mut Shell, words: &[&str]) -> ShellResult {
    set(shell, "echo", words, |settings| &mut settings.echo)
}

pub(super) fn eqp(shell: &mut Shell, words: &[&str]) -> ShellResult {
    // These variants are for SQLite's developers.
    let words = if let ["full" | "trigger"] = words { &["on"] } else { words };
    set(shell, "eqp", words, |settings| &mut settings.eqp)
}

pub(super) fn timer(shell: &mut Shell, words: &[&str]) -> ShellResult {
    set(shell, "timer", words, |settings| &mut settings.timer)
}

pub(super) fn headers(shell: &mut Shell, words: &[&str]) -> ShellResult {
    let [word] = words else { return usage("headers") };
    let Some(is_on) = switch(word) else { return usage("headers") };
    shell.settings.headers = Some(is_on);
    Ok(())
}

pub(super) fn mode(shell: &mut Shell, words: &[&str]) -> ShellResult {
    if words.is_empty() {
        return Ok(writeln!(shell.out, "current output mode: {}", shell.settings.mode.name())?);
    }
    let (mut words, mut mode, mut table) = (words.iter(), None, None);
    let (mut wrap, mut by_words, mut quotes) = (None, None, None);
    while let Some(word) = words.next() {
        match word.trim_start_matches('-') {
            "wrap" if word.starts_with('-') => {
                let count: Option<usize> = match words.next() {
                    Some(&"off") => Some(0),
                    count => count.and_then(|count| count.parse().ok()),
                };
                if count.is_none() {
                    return usage("mode");
                }
                wrap = count;
            }
            "wordwrap" | "ww" if word.starts_with('-') => {
                let is_on = if word.ends_with("ww") {
                    Some(true)
                } else {
                    words.next().and_then(|word| switch(word))
                };
                if is_on.is_none() {
                    return usage("mode");
                }
                by_words = is_on;
            }
            "quote" if word.starts_with('-') => quotes = Some(true),
            "noquote" if word.starts_with('-') => quotes = Some(false),
            _ if word.starts_with('-') => {
                return wrong(format!("there is no option {word}; .help mode lists them"));
            }
            _ if mode.is_none() => {
                mode = OutputMode::of_name(word);
                if mode.is_none() {
                    return wrong(format!("there is no mode '{word}'; .help mode lists them"));
                }
            }
            _ if table.is_none() => table = Some((*word).to_owned()),
            _ => return usage("mode"),
        }
    }
    let settings = &mut shell.settings;
    if let Some(mode) = mode {
        settings.set_mode(mode);
        settings.insert_table = table.unwrap_or_else(|| "table".to_owned());
    }
    settings.wrap = wrap.unwrap_or(settings.wrap);
    settings.wraps_words = by_words.unwrap_or(settings.wraps_words);
    settings.quotes = quotes.unwrap_or(settings.quotes);
    Ok(())
}

pub(super) fn null(shell: &mut Shell, words: &[&str]) -> ShellResult {
    let [text] = words else { return usage("nullvalue") };
    shell.settings.null = (*text).to_owned();
    Ok(())
}

pub(super) fn separator(shell: &mut Shell, words: &[&str]) -> ShellResult {
    let (column, row) = match words {
        [column] => (column, None),
        [column, row] => (column, Some(row)),
        _ => return usage("separator"),
    };
    shell.settings.column_separator = (*column).to_owned();
    if let Some(row) = row {
        shell.settings.row_separator = (*row).to_owned();
    }
    Ok(())
}

pub(super) fn width(shell: &mut Shell, words: &[&str]) -> ShellResult {
    // Wider than any terminal.
    let widths: Option<Vec<i32>> = words
        .iter()
        .map(|word| word.parse().ok().filter(|width: &i32| width.unsigned_abs() <= 10_000))
        .collect();
    let Some(widths) = widths else { return usage("width") };
    shell.settings.widths = widths;
    Ok(())
}

pub(super) fn prompt(shell: &mut Shell, words: &[&str]) -> ShellResult {
    let (main, more) = match words {
        [main] => (main, None),
        [main, more] => (main, Some(more)),
        _ => return usage("prompt"),
    };
    shell.settings.prompt = (*main).to_owned();
    if let Some(more) = more {
        shell.settings.continuation = (*more).to_owned();
    }
    Ok(())
}

pub(super) fn timeout(shell: &mut Shell, words: &[&str]) -> ShellResult {
    let [ms] = words else { return usage("timeout") };
    let Ok(ms) = ms.parse::<u32>() else { return usage("timeout") };
    Ok(shell.connection().busy_timeout(Duration::from_millis(ms.min(i32::MAX as u32).into()))?)
}

const LIMITS: [(&str, Limit); 12] = [
    ("length", Limit::SQLITE_LIMIT_LENGTH),
    ("sql_length", Limit::SQLITE_LIMIT_SQL_LENGTH),
    ("column", Limit::SQLITE_LIMIT_COLUMN),
    ("expr_depth", Limit::SQLITE_LIMIT_EXPR_DEPTH),
    ("compound_select", Limit::SQLITE_LIMIT_COMPOUND_SELECT),
    ("vdbe_op", Limit::SQLITE_LIMIT_VDBE_OP),
    ("function_arg", Limit::SQLITE_LIMIT_FUNCTION_ARG),
    ("attached", Limit::SQLITE_LIMIT_ATTACHED),
    ("like_pattern_length", Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH),
    ("variable_number", Limit::SQLITE_LIMIT_VARIABLE_NUMBER),
    ("trigger_depth", Limit::SQLITE_LIMIT_TRIGGER_DEPTH),
    ("worker_threads", Limit::SQLITE_LIMIT_WORKER_THREADS),
];

pub(super) fn limit(shell: &mut Shell, words: &[&str]) -> ShellResult {
    let (wanted, value) = match words {
        [] => (None, None),
        [name] => (Some(*name), None),
        [name, value] => match value.parse::<i32>() {
            Ok(value) => (Some(*name), Some(value)),
            Err(_) => return usage("limit"),
        },
        _ => return usage("limit"),
    };
    let found: Vec<_> =
        LIMITS.into_iter().filter(|(name, _)| wanted.is_none_or(|wanted| name.starts_with(wanted))).collect();
    let mut lines = String::new();
    {
        let connection = shell.connection();
        if let (Some(value), [(_, limit)]) = (value, &found[..]) {
            connection.set_limit(*limit, value)?;
        } else if value.is_some() || found.is_empty() {
            drop(connection);
            return wrong("there is no one limit of that name; .limit lists them");
        }
        for (name, limit) in found {
            lines.push_str(&format!("{name:>20} {}\n", connection.limit(limit)?));
        }
    }
    Ok(shell.out.write_all(lines.as_bytes())?)
}

pub(super) fn show(shell: &mut Shell, _: &[&str]) -> ShellResult {
    let settings = &shell.settings;
    let on = |is_on: bool| if is_on { "on" } else { "off" }.to_owned();
    let text = |text: &str| format!("\"{}\"", text.escape_default());
    let wrap = match (settings.mode.is_tabular(), settings.wraps_words) {
        (true, by_words) => format!(" --wrap {} --wordwrap {}", settings.wrap, on(by_words)),
        (false, _) => String::new(),
    };
    let widths: Vec<String> = settings.widths.iter().map(i32::to_string).collect();
    let all = [
        ("bail", on(settings.bail)),
        ("changes", on(settings.changes)),
        ("colseparator", text(&settings.column_separator)),
        ("database", shell.name.clone()),
        ("echo", on(settings.echo)),
        ("eqp", on(settings.eqp)),
        ("headers", on(settings.shows_headers())),
        ("mode", format!("{}{wrap}", settings.mode.name())),
        ("nullvalue", text(&settings.null)),
        ("rowseparator", text(&settings.row_separator)),
        ("stats", on(settings.stats)),
        ("timer", on(settings.timer)),
        ("width", widths.join(" ")),
    ];
    for (name, value) in all {
        let line = format!("{name:>12}: {value}");
        writeln!(shell.out, "{}", line.trim_end())?;
    }
    Ok(())
}

const PARAMETERS: &str =
    "CREATE TABLE IF NOT EXISTS temp.sqlite_parameters(\n  key TEXT PRIMARY KEY,\n  value\n) WITHOUT ROWID";

pub(super) fn parameter(shell: &mut Shell, words: &[&str]) -> ShellResult {
    let mut lines = String::new();
    {
        let connection = shell.connection();
        match words {
            ["init"] => make_parameters(&connection)?,
            ["clear"] => connection.execute_batch("DROP TABLE IF EXISTS temp.sqlite_parameters")?,
            ["set", name, rest @ ..] if !rest.is_empty() => {
                make_parameters(&connection)?;
                let value = rest.join(" ");
                let mut key = String::new();
                literal::push_text(&mut key, name);
                let replace = "REPLACE INTO temp.sqlite_parameters(key, value) VALUES";
                // Text that is no SQL value is a string.
                if connection.execute_batch(&format!("{replace}({key}, {value})")).is_err() {
                    connection.execute(&format!("{replace}({key}, ?1)"), [&value])?;
                }
            }
            ["unset", name] => {
                make_parameters(&connection)?;
                connection.execute("DELETE FROM temp.sqlite_parameters WHERE key = ?1", [name])?;
            }
            ["list"] => {
                make_parameters(&connection)?;
                let mut known = connection
                    .prepare("SELECT key, quote(value) FROM temp.sqlite_parameters ORDER BY key")?;
                let mut rows = known.query([])?;
                while let Some(row) = rows.next()? {
                    lines.push_str(&format!("{} {}\n", row.get::<_, String>(0)?, row.get::<_, String>(1)?));
                }
            }
            _ => return usage("parameter"),
        }
    }
    Ok(shell.out.write_all(lines.as_bytes())?)
}

/// SQLite reserves such names, but lets shells use this one.
fn make_parameters(connection: &rusqlite::Connection) -> rusqlite::Result<()> {
    use rusqlite::config::DbConfig::{SQLITE_DBCONFIG_DEFENSIVE, SQLITE_DBCONFIG_WRITABLE_SCHEMA};
    let (defensive, writable) = (
        connection.db_config(SQLITE_DBCONFIG_DEFENSIVE)?,
        connection.db_config(SQLITE_DBCONFIG_WRITABLE_SCHEMA)?,
    );
    connection.set_db_config(SQLITE_DBCONFIG_DEFENSIVE, false)?;
    connection.set_db_config(SQLITE_DBCONFIG_WRITABLE_SCHEMA, true)?;
    let made = connection.execute_batch(PARAMETERS);
    connection.set_db_config(SQLITE_DBCONFIG_WRITABLE_SCHEMA, writable)?;
    connection.set_db_config(SQLITE_DBCONFIG_DEFENSIVE, defensive)?;
    made
}
