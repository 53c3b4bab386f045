//! State of a shell: database, settings, and failures so far.

use super::{functions, output::ResultOutput, settings::ShellSettings};
use crate::{
    connection::{DatabaseAccess, open},
    failure::CliError,
    interrupt::{self, Interrupt},
};
use rusqlite::Connection;
use std::{
    cell::{Ref, RefCell},
    io::{self, Write},
    rc::Rc,
    time::Duration,
};

/// Database that is opened if none is named: trees in memory.
pub(super) const TRANSIENT: &str = "yesquel:";
/// Time to wait for locks of others.
const BUSY: Duration = Duration::from_secs(5);

/// Reason for which a command or a statement failed.
#[derive(Debug)]
pub(super) enum ShellError {
    /// To be printed and counted.
    Said(String),
    /// Already printed.
    Reported,
    /// A server cannot be reached.
    Unreachable(String),
    Interrupted,
    /// The reader of the output has closed it.
    Output(io::Error),
}

impl From<io::Error> for ShellError {
    fn from(error: io::Error) -> ShellError {
        ShellError::Output(error)
    }
}

impl From<CliError> for ShellError {
    fn from(failure: CliError) -> ShellError {
        match failure {
            CliError::Output(error) => ShellError::Output(error),
            CliError::Interrupted(_) => ShellError::Interrupted,
            CliError::Unreachable(words) => ShellError::Unreachable(words),
            other => ShellError::Said(other.to_string()),
        }
    }
}

impl From<rusqlite::Error> for ShellError {
    fn from(error: rusqlite::Error) -> ShellError {
        CliError::sql(&error).into()
    }
}

pub(super) type ShellResult = Result<(), ShellError>;

pub(super) struct Shell {
    /// Shared with the editor, which completes names.
    connection: Rc<RefCell<Connection>>,
    pub(super) name: String,
    pub(super) settings: ShellSettings,
    pub(super) out: ResultOutput,
    pub(super) interrupt: Interrupt,
    pub(super) is_interactive: bool,
    /// Whether the input has line numbers, which errors show.
    pub(super) has_lines: bool,
    /// Nesting depth of `.read`.
    pub(super) depth: u32,
    errors: u64,
    /// Exit status of the last failure with a special one.
    failed_with: Option<u8>,
    /// Set when the shell is to end, with this status.
    over: Option<u8>,
    /// Lines typed so far, and where they are saved.
    pub(super) history: Vec<String>,
}

impl Shell {
    pub(super) fn open(
        name: &str,
        access: DatabaseAccess,
        interrupt: Interrupt,
        is_interactive: bool,
    ) -> Result<Shell, CliError> {
        let connection = ready(name, access, &interrupt)?;
        Ok(Shell {
            connection: Rc::new(RefCell::new(connection)),
            name: name.to_owned(),
            settings: ShellSettings::default(),
            out: ResultOutput::default(),
            interrupt,
            is_interactive,
            has_lines: !is_interactive,
            depth: 0,
            errors: 0,
            failed_with: None,
            over: None,
            history: Vec::new(),
        })
    }

    /// Opens another database in place of this one.
    pub(super) fn reopen(&mut self, name: &str, access: DatabaseAccess) -> Result<(), CliError> {
        // A folder can be open once in a process, and this connection may be its last user.
        let connection = ready(name, access, &self.interrupt)?;
        *self.connection.borrow_mut() = connection;
        self.name = name.to_owned();
        Ok(())
    }

    pub(super) fn connection(&self) -> Ref<'_, Connection> {
        self.connection.borrow()
    }

    pub(super) fn shared(&self) -> &Rc<RefCell<Connection>> {
        &self.connection
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.is_some()
    }

    pub(super) fn has_failed(&self) -> bool {
        self.errors > 0
    }

    /// Handles the result of an item that began at line `place`; fails if the shell cannot
    /// continue.
    pub(super) fn note(&mut self, done: ShellResult, place: Option<usize>) -> Result<(), CliError> {
        let Err(fault) = done else { return Ok(()) };
        let (words, status) = match fault {
            ShellError::Output(error) => return Err(CliError::Output(error)),
            ShellError::Said(words) => (Some(words), 1),
            ShellError::Reported => (None, 1),
            ShellError::Unreachable(words) => (Some(words), 4),
            ShellError::Interrupted => (Some("interrupted".to_owned()), interrupt::STATUS),
        };
        if self.is_interactive && status == interrupt::STATUS {
            // The terminal shows ^C at the place where it was pressed.
            let _ = writeln!(anstream::stderr());
        }
        if let Some(words) = words {
            self.say("Error", &words, place);
        }
        self.errors += 1;
        // Later errors may be consequences of the first; but Ctrl-C ends the shell.
        if self.failed_with.is_none() || status == interrupt::STATUS {
            self.failed_with = Some(status);
        }
        if !self.is_interactive && (self.settings.bail || status == interrupt::STATUS) {
            self.over.get_or_insert(status);
        }
        Ok(())
    }

    /// Prints an error after all pending output.
    pub(super) fn say(&mut self, kind: &str, words: &str, place: Option<usize>) {
        let _ = self.out.flush();
        let bad = anstyle::AnsiColor::Red.on_default().bold();
        let place = place.filter(|_| self.has_lines);
        let place = place.map(|line| format!(" near line {line}")).unwrap_or_default();
        // If standard error fails, the status still reports the failure.
        let _ = writeln!(anstream::stderr(), "{bad}{kind}{place}:{bad:#} {words}");
    }

    /// Returns the exit status for the failures so far. An interactive user has seen them.
    fn status(&self) -> u8 {
        if self.is_interactive { 0 } else { self.failed_with.unwrap_or(0) }
    }

    /// Ends the shell, with a status, or with that of the failures so far.
    pub(super) fn leave(&mut self, status: Option<u8>) {
        self.over = Some(status.unwrap_or(self.status()));
    }

    /// Returns the exit status.
    pub(super) fn end(mut self) -> Result<u8, CliError> {
        self.out.reset()?;
        Ok(self.over.unwrap_or(self.status()))
    }
}

/// Prepares a connection: it waits for locks, and Ctrl-C stops it.
fn ready(name: &str, access: DatabaseAccess, interrupt: &Interrupt) -> Result<Connection, CliError> {
    let mut connection = open(name, access)?;
    connection.busy_timeout(BUSY)?;
    interrupt.attend(&mut connection)?;
    functions::add(&connection)?;
    // Open a plain file now, so that errors appear before the first statement.
    connection.query_row("PRAGMA schema_version", [], |_| Ok(())).map_err(|error| {
        match CliError::sql(&error) {
            CliError::Sql(words) => CliError::Sql(format!("{name}: {words}")),
            other => other,
        }
    })?;
    Ok(connection)
}
