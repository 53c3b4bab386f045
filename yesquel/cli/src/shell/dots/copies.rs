//! Commands that copy whole databases.

use super::{
    super::state::{Shell, ShellError, ShellResult},
    usage, wrong,
};
use crate::{
    connection::{DatabaseAccess, open},
    dump::{self, Choice},
    failure::CliError,
    interrupt::Interrupt,
    transfer::is_empty,
};
use rusqlite::{
    Connection,
    backup::{Backup, StepResult},
};
use std::{
    rc::Rc,
    time::{Duration, Instant},
};
use yesquel_sqlite::shown_address;

/// Pages between two checks for Ctrl-C.
const STEP_PAGES: i32 = 64;
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

fn copy(
    (from, source): (&Connection, &str),
    (to, destination): (&mut Connection, &str),
    interrupt: &Interrupt,
) -> ShellResult {
    let backup = Backup::new_with_names(from, source, to, destination)?;
    let mut waits_since = None;
    loop {
        if interrupt.is_pressed() {
            return Err(ShellError::Interrupted);
        }
        match backup.step(STEP_PAGES).map_err(|error| CliError::step(&error))? {
            StepResult::Done => return Ok(()),
            StepResult::More => waits_since = None,
            _ if waits_since.get_or_insert_with(Instant::now).elapsed() < PATIENCE => {
                std::thread::sleep(PAUSE)
            }
            _ => return wrong("database is locked"),
        }
    }
}

pub(super) fn backup(shell: &mut Shell, words: &[&str]) -> ShellResult {
    let (database, file) = match words {
        [file] => ("main", file),
        [database, file] => (*database, file),
        _ => return usage("backup"),
    };
    let mut to = open(file, DatabaseAccess::Make)?;
    copy((&shell.connection(), database), (&mut to, "main"), &shell.interrupt)
}

/// Copies like a backup, but replaces nothing.
pub(super) fn clone(shell: &mut Shell, words: &[&str]) -> ShellResult {
    let [file] = words else { return usage("clone") };
    let mut to = open(file, DatabaseAccess::Make)?;
    if !is_empty(&to)? {
        return wrong(format!("{} has something in it already; .backup replaces it", shown_address(file)));
    }
    copy((&shell.connection(), "main"), (&mut to, "main"), &shell.interrupt)
}

pub(super) fn restore(shell: &mut Shell, words: &[&str]) -> ShellResult {
    let (database, file) = match words {
        [file] => ("main", file),
        [database, file] => (*database, file),
        _ => return usage("restore"),
    };
    let from = open(file, DatabaseAccess::Read)?;
    let shared = Rc::clone(shell.shared());
    let mut to = shared.borrow_mut();
    copy((&from, "main"), (&mut to, database), &shell.interrupt)
}

pub(super) fn dump(shell: &mut Shell, words: &[&str]) -> ShellResult {
    let mut choice = Choice::default();
    for word in words {
        match word.strip_prefix('-').map(|word| word.trim_start_matches('-')) {
            Some("data-only") => choice.no_schema = true,
            Some("schema-only") => choice.no_data = true,
            Some("nosys") => choice.no_system = true,
            Some("newlines") => choice.newlines = true,
            Some("preserve-rowids") => choice.preserve_rowids = true,
            Some(_) => return wrong(format!("there is no option {word}; .help dump lists them")),
            None => choice.tables.push((*word).to_owned()),
        }
    }
    let shared = Rc::clone(shell.shared());
    let connection = shared.borrow();
    dump::write(&connection, &choice, &mut shell.out).map_err(|failure: CliError| failure.into())
}
