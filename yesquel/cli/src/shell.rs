//! `yesquel shell`: SQL by hand and from scripts, as in SQLite's own shell.

mod dots;
mod editor;
mod format;
mod functions;
mod input;
mod output;
mod printer;
mod run;
mod settings;
mod sqlite3_options;
mod state;
mod table;
mod utf8;
mod words;

use crate::{connection::DatabaseAccess, failure::CliError, interrupt::Interrupt};
use clap::Args;
use settings::OutputMode;
pub(crate) use sqlite3_options::options_of_sqlite3;
use state::Shell;
use std::{io::IsTerminal, path::PathBuf};

const ABOUT: &str = "Statements end with a semicolon. Lines that begin with a dot are commands of the shell; .help \
    lists them. Options may also be written as for sqlite3 (-csv, -header). Without an address the database is in \
    memory and is lost at the end. Exit status: 0 success; 1 an error; 4 a server cannot be reached; 130 Ctrl-C; or \
    the argument of .exit.";

#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct ShellArguments {
    /// Database: yesquel:FOLDER, yesquel://HOST:PORT/NAME, yesquel:///SOCKET/NAME, a file that holds such an
    /// address, a plain SQLite file, or :memory:; created if missing
    #[arg(value_name = "ADDRESS")]
    address: Option<String>,
    /// Statements and dot commands to run; the shell then reads no others
    #[arg(value_name = "SQL", allow_hyphen_values = false)]
    sql: Vec<String>,
    /// Statement or dot command to run first
    #[arg(long, value_name = "SQL", allow_hyphen_values = true)]
    cmd: Vec<String>,
    /// File to read first; default on a terminal: ~/.yesquelrc, or yesquel/shellrc in the configuration folder
    #[arg(long, value_name = "FILE")]
    init: Option<PathBuf>,
    /// Format of results: box (default on a terminal), list (default elsewhere), column, table, markdown, csv, json,
    /// line, html, insert, quote, tabs, ascii
    #[arg(long, value_name = "MODE", value_parser = mode)]
    mode: Option<OutputMode>,
    /// Print the names of columns before the rows
    #[arg(long, overrides_with = "no_headers")]
    headers: bool,
    /// Print rows only
    #[arg(long)]
    no_headers: bool,
    /// Text that stands for NULL
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    null: Option<String>,
    /// Separator of columns
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    separator: Option<String>,
    /// Separator of rows
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    newline: Option<String>,
    /// Print the round trips, cache hits and bytes of each statement
    #[arg(long)]
    stats: bool,
    /// Stop at the first error
    #[arg(long)]
    bail: bool,
    /// Print each statement before it runs
    #[arg(long)]
    echo: bool,
    /// Open the database read-only; do not create it
    #[arg(long)]
    readonly: bool,
    /// Read input as from a script, also on a terminal
    #[arg(long)]
    batch: bool,
}

fn mode(name: &str) -> Result<OutputMode, String> {
    OutputMode::of_name(name).ok_or_else(|| {
        let names: Vec<&str> = OutputMode::ALL.iter().map(|(_, name, _)| *name).collect();
        format!("it is one of {}", names.join(", "))
    })
}

/// Returns the path of the start file for terminals: YESQUEL_SHELLRC, or one of the usual files
/// that exists.
fn usual_start() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("YESQUEL_SHELLRC") {
        return (!path.is_empty()).then(|| path.into());
    }
    let home = std::env::home_dir()?;
    let configuration =
        std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let configuration = configuration.unwrap_or_else(|| home.join(".config"));
    [home.join(".yesquelrc"), configuration.join("yesquel/shellrc")].into_iter().find(|path| path.is_file())
}

/// Runs a shell; returns its exit status.
pub(crate) fn run(arguments: &ShellArguments) -> Result<u8, CliError> {
    let interrupt = Interrupt::listen();
    let access = if arguments.readonly { DatabaseAccess::Read } else { DatabaseAccess::Make };
    let address = arguments.address.as_deref().unwrap_or(state::TRANSIENT);
    let is_interactive = arguments.sql.is_empty() && !arguments.batch && std::io::stdin().is_terminal();
    let mut shell = Shell::open(address, access, interrupt, is_interactive)?;
    let settings = &mut shell.settings;
    if let Some(mode) = arguments.mode {
        settings.set_mode(mode);
    } else if !is_interactive {
        settings.set_mode(OutputMode::List);
    }
    if arguments.headers || arguments.no_headers {
        settings.headers = Some(arguments.headers);
    }
    if let Some(null) = &arguments.null {
        settings.null.clone_from(null);
    }
    if let Some(separator) = &arguments.separator {
        settings.column_separator.clone_from(separator);
    }
    if let Some(newline) = &arguments.newline {
        settings.row_separator.clone_from(newline);
    }
    (settings.bail, settings.echo, settings.stats) = (arguments.bail, arguments.echo, arguments.stats);
    // Settings for terminals must not change what scripts print.
    let usual = || is_interactive.then(usual_start).flatten();
    if let Some(path) = arguments.init.clone().or_else(usual) {
        shell.read_file(&path)?;
    }
    for text in arguments.cmd.iter().chain(&arguments.sql) {
        // Commands given as arguments stop at the first error.
        let goes_on = shell.read_text(text.as_bytes())?;
        if !goes_on || (!arguments.sql.is_empty() && shell.has_failed()) {
            return shell.end();
        }
    }
    if arguments.sql.is_empty() && !shell.is_over() {
        if is_interactive { editor::talk(&mut shell)? } else { shell.read_stdin()? }
    }
    shell.end()
}
