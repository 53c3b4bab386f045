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

/// For scripts, and as `docs/yesquel/commands.md` has it.
const STATUSES: &str = "Exit status: 0 done; 1 not done, and the message says why; 2 asked for wrongly, or not agreed \
    to; 3 there is no such database, map or key; 4 no connection to the server; 130 ended by Ctrl-C.";

/// A storage server for ordered maps with transactions, and what looks after it.
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
    /// List, make and drop databases
    #[command(subcommand)]
    Databases(databases::Command),
    /// Say how a server does
    Status(status::Arguments),
    /// Read, write and draw the trees of a server
    Tree(tree::Arguments),
    /// Talk SQL with a database
    Shell(shell::Arguments),
    /// Make a database of a SQLite file
    Import(transfer::Import),
    /// Make a SQLite file of a database
    Export(transfer::Export),
    /// Print a database as SQL
    Dump(dump::Dump),
    /// Print a script that completes these commands in a shell
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
