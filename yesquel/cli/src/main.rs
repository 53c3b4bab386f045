//! Yesquel's commands.

mod address_file;
mod cluster;
mod cluster_check;
mod cluster_doubt;
mod cluster_lost;
mod cluster_machines;
mod commit_metrics;
mod confirm;
mod connect;
mod connection;
mod databases;
mod dump;
mod failure;
mod interrupt;
mod literal;
mod metrics;
mod process;
mod progress;
mod replace;
mod secret_metrics;
mod serve;
mod shell;
mod show;
mod status;
mod table_of_lines;
mod transfer;
mod tree;
mod tree_drawing;
mod trim;
mod upgrade;

use clap::{CommandFactory, Parser, Subcommand};
use failure::CliError;
use std::{io::Write, process::ExitCode};

/// Exit statuses, as `docs/yesquel/commands.md` lists them.
const STATUSES: &str = "Exit status: 0 success; 1 failure, explained by the message; 2 wrong usage, or a drop was not \
    confirmed; 3 no such database, map or key; 4 no connection to the server; 130 interrupted by Ctrl-C.";

/// Yesquel: a SQL store on transactional ordered maps. Its server, its shell, and its tools.
#[derive(Debug, Parser)]
#[command(name = "yesquel", version, propagate_version = true, max_term_width = 100, after_help = STATUSES)]
struct CliArguments {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Run a storage server
    Serve(Box<serve::ServeArguments>),
    /// List, create and drop databases
    #[command(subcommand)]
    Databases(databases::DatabasesCommand),
    /// Show the state of a server
    Status(status::StatusArguments),
    /// Show the groups of a cluster, check them, add and remove machines
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// Read, write and draw one tree of a server
    Tree(tree::TreeArguments),
    /// Run SQL statements on a database
    Shell(shell::ShellArguments),
    /// Copy a SQLite file into a database
    Import(transfer::ImportArguments),
    /// Copy a database into a SQLite file
    Export(transfer::ExportArguments),
    /// Print a database as SQL
    Dump(dump::Dump),
    /// Convert a data folder of an older release
    Upgrade(upgrade::UpgradeArguments),
    /// Write a file that stands for a database, for programs that insist on a path
    AddressFile(address_file::AddressFileArguments),
    /// Print the completion script of a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

fn main() -> ExitCode {
    let done = match CliArguments::parse_from(shell::options_of_sqlite3(std::env::args_os())).command {
        CliCommand::Serve(arguments) => serve::run(&arguments),
        CliCommand::Databases(command) => databases::run(&command),
        CliCommand::Status(arguments) => status::run(&arguments),
        CliCommand::Cluster(command) => cluster::run(&command),
        CliCommand::Tree(arguments) => tree::run(&arguments),
        CliCommand::Shell(arguments) => match shell::run(&arguments) {
            Ok(0) => Ok(()),
            Ok(status) => return ExitCode::from(status),
            Err(failure) => Err(failure),
        },
        CliCommand::Import(arguments) => transfer::import(&arguments),
        CliCommand::Export(arguments) => transfer::export(&arguments),
        CliCommand::Dump(arguments) => dump::run(&arguments),
        CliCommand::Upgrade(arguments) => upgrade::run(&arguments),
        CliCommand::AddressFile(arguments) => address_file::run(&arguments),
        CliCommand::Completions { shell } => {
            // In memory first: the generator panics if the reader closes the pipe.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut CliArguments::command(), "yesquel", &mut script);
            std::io::stdout().write_all(&script).map_err(CliError::Output)
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the output has closed it.
        Err(CliError::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            let bad = anstyle::AnsiColor::Red.on_default().bold();
            // If standard error fails, the status still reports the failure.
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
        CliArguments::command().debug_assert();
    }
}
