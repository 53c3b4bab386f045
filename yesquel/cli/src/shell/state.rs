//! A shell: a database, how it is shown, and what has gone wrong so far.

use super::{functions, output::Output, settings::Settings};
use crate::{
    connection::{Access, open},
    failure::Failure,
    interrupt::{self, Interrupt},
};
use rusqlite::Connection;
use std::{
    cell::{Ref, RefCell},
    io::{self, Write},
    rc::Rc,
    time::Duration,
};

/// What is opened where nothing is named: trees in memory.
pub(super) const TRANSIENT: &str = "yesquel:";
/// How long others are waited for who hold what is wanted.
const BUSY: Duration = Duration::from_secs(5);

/// Why a command or a statement was not done.
#[derive(Debug)]
pub(super) enum Fault {
    /// It is said, and counted.
    Said(String),
    /// It was said already.
    Told,
    /// A server cannot be reached.
    Unreachable(String),
    Interrupted,
    /// Nobody reads what is printed.
    Output(io::Error),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        Fault::Output(error)
    }
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Fault {
        match failure {
            Failure::Output(error) => Fault::Output(error),
            Failure::Interrupted(_) => Fault::Interrupted,
            Failure::Unreachable(words) => Fault::Unreachable(words),
            other => Fault::Said(other.to_string()),
        }
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Fault {
        Failure::sql(&error).into()
    }
}

pub(super) type Done = Result<(), Fault>;

pub(super) struct Shell {
    /// Shared with the editor, which completes names.
    connection: Rc<RefCell<Connection>>,
    pub(super) name: String,
    pub(super) settings: Settings,
    pub(super) out: Output,
    pub(super) interrupt: Interrupt,
    pub(super) is_interactive: bool,
    /// What is run has lines that an error may name.
    pub(super) has_lines: bool,
    /// Files that are read within files.
    pub(super) depth: u32,
    errors: u64,
    /// The status of the last failure that has one of its own.
    failed_with: Option<u8>,
    /// It ends, with this status.
    over: Option<u8>,
    /// Lines that were typed, and where they are kept.
    pub(super) history: Vec<String>,
}

impl Shell {
    pub(super) fn open(
        name: &str,
        access: Access,
        interrupt: Interrupt,
        is_interactive: bool,
    ) -> Result<Shell, Failure> {
        let connection = ready(name, access, &interrupt)?;
        Ok(Shell {
            connection: Rc::new(RefCell::new(connection)),
            name: name.to_owned(),
            settings: Settings::default(),
            out: Output::default(),
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
    pub(super) fn reopen(&mut self, name: &str, access: Access) -> Result<(), Failure> {
        // A folder is one process's, and one connection's of this process may be
        // the last that has it.
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

    /// Takes notice of what something has come to; fails where the shell cannot
    /// go on. `place` is where it stood.
    pub(super) fn note(&mut self, done: Done, place: Option<usize>) -> Result<(), Failure> {
        let Err(fault) = done else { return Ok(()) };
        let (words, status) = match fault {
            Fault::Output(error) => return Err(Failure::Output(error)),
            Fault::Said(words) => (Some(words), 1),
            Fault::Told => (None, 1),
            Fault::Unreachable(words) => (Some(words), 4),
            Fault::Interrupted => (Some("interrupted".to_owned()), interrupt::STATUS),
        };
        if self.is_interactive && status == interrupt::STATUS {
            // The terminal shows ^C where it was pressed.
            let _ = writeln!(anstream::stderr());
        }
        if let Some(words) = words {
            self.say("Error", &words, place);
        }
        self.errors += 1;
        // Later errors may come of the first; but one that is interrupted ends.
        if self.failed_with.is_none() || status == interrupt::STATUS {
            self.failed_with = Some(status);
        }
        if !self.is_interactive && (self.settings.bail || status == interrupt::STATUS) {
            self.over.get_or_insert(status);
        }
        Ok(())
    }

    /// Tells of an error, after what was printed before it.
    pub(super) fn say(&mut self, kind: &str, words: &str, place: Option<usize>) {
        let _ = self.out.flush();
        let bad = anstyle::AnsiColor::Red.on_default().bold();
        let place = place.filter(|_| self.has_lines);
        let place = place.map(|line| format!(" near line {line}")).unwrap_or_default();
        // The status tells as well, where standard error takes nothing.
        let _ = writeln!(anstream::stderr(), "{bad}{kind}{place}:{bad:#} {words}");
    }

    /// What has failed so far, as a status. Whoever sits before it has seen it.
    fn status(&self) -> u8 {
        if self.is_interactive { 0 } else { self.failed_with.unwrap_or(0) }
    }

    /// Ends, with a status; none: what has failed says it.
    pub(super) fn leave(&mut self, status: Option<u8>) {
        self.over = Some(status.unwrap_or(self.status()));
    }

    /// The status that it ends with.
    pub(super) fn end(mut self) -> Result<u8, Failure> {
        self.out.reset()?;
        Ok(self.over.unwrap_or(self.status()))
    }
}

/// A connection that waits for others, and that Ctrl-C stops.
fn ready(name: &str, access: Access, interrupt: &Interrupt) -> Result<Connection, Failure> {
    let mut connection = open(name, access)?;
    connection.busy_timeout(BUSY)?;
    interrupt.attend(&mut connection)?;
    functions::add(&connection)?;
    // A plain file is looked at now, and not when the first statement is typed.
    connection.query_row("PRAGMA schema_version", [], |_| Ok(())).map_err(|error| {
        match Failure::sql(&error) {
            Failure::Sql(words) => Failure::Sql(format!("{name}: {words}")),
            other => other,
        }
    })?;
    Ok(connection)
}
