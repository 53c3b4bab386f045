//! `yesquel export`: copies a database to a SQLite file.

use super::{Summary, content, copy, stopped};
use crate::{
    connection::{DatabaseAccess, open},
    failure::CliError,
    interrupt::Interrupt,
    progress::CopyProgress,
    replace::{OutputTarget, TemporaryFile},
};
use clap::Args;
use std::{
    fs::{self, Permissions},
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use yesquel_sqlite::shown_address;

const ABOUT: &str = "The export reads one snapshot of the database and does not block writers. The file is written under \
    another name and renamed when it is complete and on disk: after Ctrl-C or an error the old file is unchanged.";

#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct ExportArguments {
    /// Database: yesquel:FOLDER, yesquel://HOST:PORT/NAME, yesquel:///SOCKET/NAME, or a file that holds such an
    /// address
    #[arg(value_name = "ADDRESS")]
    address: String,
    /// SQLite file to create
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
    /// Print a summary as JSON
    #[arg(long)]
    json: bool,
    /// Print errors only
    #[arg(long, short)]
    quiet: bool,
}

/// Suffixes of the files that SQLite keeps next to a database in use, or after a crash.
const BESIDE: [&str; 3] = ["-wal", "-journal", "-shm"];

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Destination file.
struct ExportTarget {
    path: PathBuf,
    /// Permissions of the file that it replaces.
    was: Option<Permissions>,
}

fn target(arguments: &ExportArguments) -> Result<ExportTarget, CliError> {
    let path = &arguments.file;
    let name = path.display();
    if name.to_string().starts_with("yesquel:") {
        return Err(CliError::Usage(format!("'{name}' is an address: what is made is a file, ADDRESS FILE")));
    }
    match OutputTarget::of(path)? {
        OutputTarget::Device(_) => Err(CliError::Usage(format!(
            "{name} is a pipe or a device, and a database is made in a file; 'yesquel dump' writes SQL anywhere"
        ))),
        OutputTarget::File { was: Some(_), .. } if !arguments.force => {
            Err(CliError::Usage(format!("{name} is there already; --force replaces it")))
        }
        OutputTarget::File { path, was } => {
            // SQLite would take it for a part of the new file.
            let found = BESIDE.map(|ending| beside(&path, ending)).into_iter().find(|path| path.exists());
            match found {
                None => Ok(ExportTarget { path, was }),
                Some(found) => Err(CliError::Usage(format!(
                    "{} is there, of a database that is in use or was not closed: it would be taken for the new one's",
                    found.display()
                ))),
            }
        }
    }
}

pub(crate) fn run(arguments: &ExportArguments) -> Result<(), CliError> {
    let (began, interrupt) = (Instant::now(), Interrupt::listen());
    let ExportTarget { path, was } = target(arguments)?;
    let of_file = |error: io::Error| CliError::File { path: arguments.file.clone(), error };
    let mut from = open(&arguments.address, DatabaseAccess::Read)?;
    interrupt.attend(&mut from)?;
    let beside = TemporaryFile::new(path, was).map_err(of_file)?;
    let path = std::path::absolute(beside.file.path()).map_err(of_file)?;
    let mut to = open(&path.to_string_lossy(), DatabaseAccess::Write)?;
    // The file is not visible before it is complete.
    to.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE")?;
    let progress = CopyProgress::new("export", arguments.quiet || arguments.json);
    let written = copy(&from, &mut to, &progress, &interrupt, Duration::ZERO)
        .and_then(|()| content(&to, &interrupt))
        .and_then(|content| to.close().map_err(|(_, error)| error.into()).map(|()| content));
    progress.end();
    let content = written.map_err(|error| match error {
        CliError::Sql(words) => CliError::Sql(format!("{}: {words}", arguments.file.display())),
        CliError::Busy(words) => CliError::Busy(format!("{}: {words}", arguments.file.display())),
        CliError::Interrupted(_) => stopped(),
        other => other,
    })?;
    let bytes = fs::metadata(beside.file.path()).map_err(of_file)?.len();
    beside.put(arguments.force).map_err(of_file)?;
    let to = arguments.file.display().to_string();
    Summary {
        verb: "exported",
        from: &shown_address(&arguments.address),
        to: &to,
        content,
        bytes,
        time: began.elapsed(),
    }
    .tell(arguments.json, arguments.quiet)
}
