//! `yesquel import` and `yesquel export`: whole databases from and to plain
//! files of SQLite.
//!
//! Both are one transaction at the source, whose one moment they see, and one
//! at the destination: it has all or is as it was.

mod export;
mod import;

pub(crate) use export::{Export, run as export};
pub(crate) use import::{Import, run as import};

use crate::{connection::quoted, failure::Failure, interrupt::Interrupt, progress::Progress, show};
use rusqlite::{
    Connection,
    backup::{Backup, StepResult},
};
use serde_json::json;
use std::{
    io::Write,
    time::{Duration, Instant},
};

/// Pages between two looks at the clock and at Ctrl-C.
const STEP_PAGES: i32 = 64;
/// What a page is, for the progress that is shown.
const PAGE_BYTES: u64 = 4096;
/// Time between two tries to get at a file that another program writes.
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// What a database has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Content {
    tables: u64,
    indexes: u64,
    rows: u64,
}

/// Counts what is in a plain file, where it costs little.
fn content(connection: &Connection, interrupt: &Interrupt) -> Result<Content, Failure> {
    let mut content = Content::default();
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

fn stopped() -> Failure {
    Failure::Interrupted(": nothing was changed")
}

/// Whether there is anything in a database.
pub(crate) fn is_empty(connection: &Connection) -> Result<bool, Failure> {
    let count: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(count == 0)
}

/// Copies all of a database over another.
fn copy(
    from: &Connection,
    to: &mut Connection,
    progress: &Progress,
    interrupt: &Interrupt,
    patience: Duration,
) -> Result<(), Failure> {
    let backup = Backup::new(from, to)?;
    let mut waits_since = None;
    loop {
        if interrupt.is_pressed() {
            return Err(stopped());
        }
        match backup.step(STEP_PAGES).map_err(|error| Failure::step(&error))? {
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
            // Others write there.
            _ => {
                if waits_since.get_or_insert_with(Instant::now).elapsed() >= patience {
                    return Err(Failure::Busy("database is locked".to_owned()));
                }
                std::thread::sleep(BUSY_PAUSE);
            }
        }
    }
}

/// What is told at the end.
struct Summary<'a> {
    verb: &'a str,
    from: &'a str,
    to: &'a str,
    content: Content,
    bytes: u64,
    time: Duration,
}

impl Summary<'_> {
    fn tell(&self, is_json: bool, is_quiet: bool) -> Result<(), Failure> {
        let Summary { verb, from, to, content: Content { tables, indexes, rows }, bytes, time } = self;
        let mut out = anstream::stdout();
        if is_json {
            let seconds = (time.as_secs_f64() * 1e3).round() / 1e3;
            let told = json!({ "from": from, "to": to, "tables": tables, "indexes": indexes, "rows": rows,
                "bytes": bytes, "seconds": seconds });
            writeln!(out, "{told}")?;
        } else if !is_quiet {
            let plural = |count: u64, one: &str, more: &str| {
                format!("{} {}", show::count(count), if count == 1 { one } else { more })
            };
            writeln!(
                out,
                "{verb} {} in {} with {}, {}, in {}",
                plural(*rows, "row", "rows"),
                plural(*tables, "table", "tables"),
                plural(*indexes, "index", "indexes"),
                show::bytes(*bytes),
                show::duration(time.as_millis().try_into().unwrap_or(u64::MAX)),
            )?;
        }
        Ok(())
    }
}
