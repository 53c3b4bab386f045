//! `yesquel import` and `yesquel export`: copy whole databases from and to SQLite files.
//!
//! Each is one transaction at the source, which reads one snapshot, and one at the destination,
//! which changes everything or nothing.

mod export;
mod import;

pub(crate) use export::{ExportArguments, run as export};
pub(crate) use import::{ImportArguments, run as import};

use crate::{connection::quoted, failure::CliError, interrupt::Interrupt, progress::CopyProgress, show};
use rusqlite::{
    Connection,
    backup::{Backup, StepResult},
};
use serde_json::json;
use std::{
    io::Write,
    time::{Duration, Instant},
};

/// Pages between two checks of the clock and of Ctrl-C.
const STEP_PAGES: i32 = 64;
/// Nominal size of a page, for the progress bar.
const PAGE_BYTES: u64 = 4096;
/// Interval between attempts to access a file that another program writes.
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// Number of objects in a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct ObjectCounts {
    tables: u64,
    indexes: u64,
    rows: u64,
}

/// Counts the objects of a file, where that is cheap.
fn content(connection: &Connection, interrupt: &Interrupt) -> Result<ObjectCounts, CliError> {
    let mut content = ObjectCounts::default();
    let mut known = connection.prepare(
        "SELECT type, name FROM sqlite_schema WHERE type IN ('table', 'index') AND rootpage > 0 \
         AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'",
    )?;
    let mut rows = known.query([])?;
    while let Some(row) = rows.next()? {
        let (kind, name): (String, String) = (row.get(0)?, row.get(1)?);
        if kind == "index" {
            content.indexes += 1;
            continue;
        }
        content.tables += 1;
        let count = format!("SELECT count(*) FROM {}", quoted(&name));
        let count: i64 = connection.query_row(&count, [], |row| row.get(0))?;
        content.rows += count.unsigned_abs();
        if interrupt.is_pressed() {
            return Err(stopped());
        }
    }
    Ok(content)
}

fn stopped() -> CliError {
    CliError::Interrupted(": nothing was changed")
}

/// Returns whether a database is empty.
pub(crate) fn is_empty(connection: &Connection) -> Result<bool, CliError> {
    let count: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(count == 0)
}

/// Copies a whole database over another.
fn copy(
    from: &Connection,
    to: &mut Connection,
    progress: &CopyProgress,
    interrupt: &Interrupt,
    patience: Duration,
) -> Result<(), CliError> {
    let backup = Backup::new(from, to)?;
    let mut waits_since = None;
    loop {
        if interrupt.is_pressed() {
            return Err(stopped());
        }
        match backup.step(STEP_PAGES).map_err(|error| CliError::step(&error))? {
            StepResult::Done => return Ok(()),
            StepResult::More => {
                waits_since = None;
                let known = backup.progress();
                let (all, left) = (known.pagecount.unsigned_abs(), known.remaining.unsigned_abs());
                if left <= 1 {
                    progress.say("committing");
                } else {
                    let done = u64::from(all.saturating_sub(left)) * PAGE_BYTES;
                    progress.at(done, u64::from(all) * PAGE_BYTES);
                }
            }
            // Other connections write there.
            _ => {
                if waits_since.get_or_insert_with(Instant::now).elapsed() >= patience {
                    return Err(CliError::Busy("database is locked".to_owned()));
                }
                std::thread::sleep(BUSY_PAUSE);
            }
        }
    }
}

/// Summary that is printed at the end.
struct Summary<'a> {
    verb: &'a str,
    from: &'a str,
    to: &'a str,
    content: ObjectCounts,
    bytes: u64,
    time: Duration,
}

impl Summary<'_> {
    fn tell(&self, is_json: bool, is_quiet: bool) -> Result<(), CliError> {
        let Summary { verb, from, to, content: ObjectCounts { tables, indexes, rows }, bytes, time } = self;
        let mut out = anstream::stdout();
        if is_json {
            let seconds = (time.as_secs_f64() * 1e3).round() / 1e3;
            let summary = json!({ "from": from, "to": to, "tables": tables, "indexes": indexes, "rows": rows,
                "bytes": bytes, "seconds": seconds });
            writeln!(out, "{summary}")?;
        } else if !is_quiet {
            writeln!(
                out,
                "{verb} {} in {} with {}, {}, in {}",
                show::things(*rows, "row", "rows"),
                show::things(*tables, "table", "tables"),
                show::things(*indexes, "index", "indexes"),
                show::bytes(*bytes),
                show::duration(time.as_millis().try_into().unwrap_or(u64::MAX)),
            )?;
        }
        Ok(())
    }
}
