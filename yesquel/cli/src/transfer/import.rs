//! `yesquel import`: copies a SQLite file into a database.

use super::{ObjectCounts, Summary, content, copy, is_empty, stopped};
use crate::{
    connection::{DatabaseAccess, open},
    failure::CliError,
    interrupt::Interrupt,
    progress::CopyProgress,
};
use clap::Args;
use rusqlite::Connection;
use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use yesquel_sqlite::shown_address;

/// First bytes of SQLite files.
const HEADER: &[u8] = b"SQLite format 3\0";
/// Maximum number of faults that are reported.
const FAULTS_MAX: usize = 5;

const ABOUT: &str = "The file is checked first and read from one snapshot. The import is one transaction: readers see the \
    old content until it commits, and after Ctrl-C or an error the old content is unchanged.";

#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct ImportArguments {
    /// SQLite file to read
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Destination: yesquel:FOLDER, yesquel://HOST:PORT/NAME, yesquel:///SOCKET/NAME, or a file that holds such an
    /// address; created if missing
    #[arg(value_name = "ADDRESS")]
    address: String,
    /// Replace the contents of the database
    #[arg(long)]
    force: bool,
    /// Skip the check of the file; indexes that disagree with their tables are copied as they are
    #[arg(long)]
    no_check: bool,
    /// Longest wait for other writers of the file or the database, seconds
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = crate::connect::seconds,
        allow_negative_numbers = true)]
    wait: Duration,
    /// Print a summary as JSON
    #[arg(long)]
    json: bool,
    /// Print errors only
    #[arg(long, short)]
    quiet: bool,
}

/// Fails if a file is not a database, with a description of its content.
fn look(path: &Path) -> Result<(), CliError> {
    let mut header = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEADER.len() as u64).read_to_end(&mut header));
    let name = path.display();
    read.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => CliError::Absent(format!("{name}: there is no such file")),
        _ => CliError::File { path: path.into(), error },
    })?;
    if header == HEADER {
        return Ok(());
    }
    Err(CliError::Damaged(if header.is_empty() {
        format!("{name}: the file is empty, and no SQLite database")
    } else if header.starts_with(b"yesquel:") {
        format!("{name} holds the address of a database, and is none itself: export that one first")
    } else {
        format!("{name} is no SQLite database: it does not begin with 'SQLite format 3'")
    }))
}

/// Fails if a file is damaged, with SQLite's findings.
fn check(connection: &Connection, name: &str) -> Result<(), CliError> {
    let mut check = connection.prepare(&format!("PRAGMA integrity_check({FAULTS_MAX})"))?;
    let mut faults = Vec::new();
    let mut rows = check.query([])?;
    while let Some(row) = rows.next()? {
        faults.push(row.get::<_, String>(0)?);
    }
    if faults == ["ok"] {
        return Ok(());
    }
    Err(CliError::Damaged(format!("{name} is damaged: {}", faults.join("; "))))
}

/// Converts an error of SQLite about the file.
fn of_file(name: &str, error: CliError) -> CliError {
    match error {
        CliError::Sql(words) => CliError::Damaged(format!("{name}: {words}")),
        CliError::Busy(words) => CliError::Busy(format!("{name}: {words}")),
        other => other,
    }
}

fn source(
    arguments: &ImportArguments,
    interrupt: &Interrupt,
) -> Result<(Connection, ObjectCounts), CliError> {
    let name = arguments.file.display().to_string();
    if name.starts_with("yesquel:") {
        return Err(CliError::Usage(format!(
            "'{name}' is an address: what is imported is a file of SQLite, FILE ADDRESS"
        )));
    }
    look(&arguments.file)?;
    let progress = CopyProgress::new("import", arguments.quiet || arguments.json);
    // A path must not be taken for one of SQLite's special names.
    let path = std::path::absolute(&arguments.file)
        .map_err(|error| CliError::File { path: arguments.file.clone(), error })?;
    let mut connection = open(&path.to_string_lossy(), DatabaseAccess::Read)?;
    connection.busy_timeout(arguments.wait)?;
    interrupt.attend(&mut connection)?;
    progress.say("checking the file");
    let read = || {
        // Check and copy the same snapshot.
        connection.execute_batch("BEGIN; SELECT count(*) FROM sqlite_schema")?;
        if !arguments.no_check {
            check(&connection, &name)?;
        }
        content(&connection, interrupt)
    };
    let content = read();
    progress.end();
    if interrupt.is_pressed() {
        return Err(stopped());
    }
    Ok((connection, content.map_err(|error| of_file(&name, error))?))
}

pub(crate) fn run(arguments: &ImportArguments) -> Result<(), CliError> {
    let (began, interrupt) = (Instant::now(), Interrupt::listen());
    let (from, content) = source(arguments, &interrupt)?;
    let mut to = open(&arguments.address, DatabaseAccess::Make)?;
    to.busy_timeout(arguments.wait)?;
    interrupt.attend(&mut to)?;
    if !arguments.force && !is_empty(&to)? {
        return Err(CliError::Usage(format!(
            "there is something in {} already; --force replaces all of it",
            shown_address(&arguments.address)
        )));
    }
    let progress = CopyProgress::new("import", arguments.quiet || arguments.json);
    let copied = copy(&from, &mut to, &progress, &interrupt, arguments.wait);
    progress.end();
    copied.map_err(|error| {
        lost(error, &arguments.file.display().to_string(), &shown_address(&arguments.address))
    })?;
    let bytes = std::fs::metadata(&arguments.file).map(|known| known.len()).unwrap_or_default();
    let from = arguments.file.display().to_string();
    let to = shown_address(&arguments.address);
    Summary { verb: "imported", from: &from, to: &to, content, bytes, time: began.elapsed() }
        .tell(arguments.json, arguments.quiet)
}

/// Converts a conflict: others have written to the database, and the import has not.
fn lost(error: CliError, file: &str, address: &str) -> CliError {
    match error {
        CliError::Busy(words) => CliError::Busy(format!(
            "{address}: others have written there meanwhile, and nothing was imported ({words})"
        )),
        CliError::Sql(words) => CliError::Sql(format!("{file} to {address}: {words}")),
        // It may have interrupted the commit.
        CliError::Interrupted("") => {
            CliError::Interrupted(": the database has all of it, or what was there before")
        }
        other => other,
    }
}
