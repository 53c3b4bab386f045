//! Yesquel's commands.

mod connection;
mod databases;
mod draw;
mod dump;
mod failure;
mod interrupt;
mod literal;
mod metrics;
mod process;
mod progress;
mod reach;
mod replace;
mod serve;
mod shell;
mod show;
mod status;
mod transfer;
mod tree;
mod trim;

use clap::{CommandFactory, Parser, Subcommand};
use failure::Failure;
use std::{io::Write, process::ExitCode};

/// Exit statuses, as `docs/yesquel/commands.md` lists them.
const STATUSES: &str = "Exit status: 0 success; 1 failure, explained by the message; 2 wrong usage, or the question \
    was not confirmed; 3 no such database, map or key; 4 no connection to the server; 130 interrupted by Ctrl-C.";

/// Yesquel: a SQL store on transactional ordered maps. Its server, its shell, and its tools.
#[derive(Debug, Parser)]
#[command(name = "yesquel", version, propagate_version = true, max_term_width = 100, after_help = STATUSES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a storage server
    Serve(Box<serve::Arguments>),
    /// List, create and drop databases
    #[command(subcommand)]
    Databases(databases::Command),
    /// Show the state of a server
    Status(status::Arguments),
    /// Read, write and draw one tree of a server
    Tree(tree::Arguments),
    /// Run SQL statements on a database
    Shell(shell::Arguments),
    /// Copy a SQLite file into a database
    Import(transfer::Import),
    /// Copy a database into a SQLite file
    Export(transfer::Export),
    /// Print a database as SQL
    Dump(dump::Dump),
    /// Print the completion script of a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

fn main() -> ExitCode {
    let done = match Arguments::parse_from(shell::options_of_sqlite3(std::env::args_os())).command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Databases(command) => databases::run(&command),
        Command::Status(arguments) => status::run(&arguments),
        Command::Tree(arguments) => tree::run(&arguments),
        Command::Shell(arguments) => match shell::run(&arguments) {
            Ok(0) => Ok(()),
            Ok(status) => return ExitCode::from(status),
            Err(failure) => Err(failure),
        },
        Command::Import(arguments) => transfer::import(&arguments),
        Command::Export(arguments) => transfer::export(&arguments),
        Command::Dump(arguments) => dump::run(&arguments),
        Command::Completions { shell } => {
            // Written to memory first: it takes a reader that has enough for a bug.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "yesquel", &mut script);
            std::io::stdout().write_all(&script).map_err(Failure::Output)
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has enough of it.
        Err(Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            let bad = anstyle::AnsiColor::Red.on_default().bold();
            // The status tells as well, where standard error takes nothing.
            let _ = writeln!(anstream::stderr(), "{bad}error:{bad:#} {failure}");
            ExitCode::from(failure.status())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_well_formed() {
        Arguments::command().debug_assert();
    }
}
