//! Serval measures cloud serving stores. This is its command line: it reads
//! arguments and files, builds plans and prints; it measures nothing itself.

/// Writes a line to standard error. What cannot be written there (its disk is full,
/// its reader gone) ends no measurement, as a panic of `eprintln!` would.
macro_rules! tell {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(anstream::stderr(), $($words)*);
    }};
}

mod args;
mod commands;
mod failure;
mod format;
mod interrupt;
mod live;
mod ready_made;
mod render;
mod show;

use args::{Cli, Command};
use clap::{CommandFactory, Parser};
use failure::Failure;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{
    io::{ErrorKind, Write},
    process::ExitCode,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Writes to standard output. A reader that has gone away is no failure.
pub(crate) fn stdout(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::output(format!("standard output cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

/// The value in a mutex, also after a thread that held it has panicked: the threads that show
/// or clean up go on then.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn execute(command: Command) -> Result<ExitCode, Failure> {
    let done = |result: Result<(), Failure>| result.map(|()| ExitCode::SUCCESS);
    match command {
        Command::Bench(args) => commands::bench::bench(&args),
        Command::Load(args) => commands::ycsb::load(&args),
        Command::Run(args) => commands::ycsb::run(&args),
        Command::Shell(args) => done(commands::shell::shell(&args)),
        Command::Sweep(args) => commands::sweep::sweep(&args),
        Command::Max(args) => commands::sweep::max(&args),
        Command::Experiment(command) => commands::sweep::experiment(&command),
        Command::Stores(args) => done(commands::explain::stores(&args)),
        Command::Workloads(args) => done(commands::explain::workloads(&args)),
        Command::Properties(args) => done(commands::explain::properties(&args)),
        Command::Report(args) => done(commands::results::report(&args)),
        Command::Compare(args) => commands::compare::compare(&args),
        Command::Merge(args) => done(commands::results::merge(&args)),
        Command::Agent(args) => commands::agent::agent(&args),
        Command::Driver(args::DriverCommand::Check(args)) => commands::driver::check(&args),
        Command::Driver(args::DriverCommand::Serve(args)) => done(commands::driver::serve(&args)),
        Command::Schema { document } => {
            let schema = match document {
                args::Document::Result => serval_result::document::json_schema(),
                args::Document::Experiment => serval_result::experiment::json_schema(),
            };
            done(stdout(schema.as_bytes()))
        }
        Command::Completions { shell } => {
            // Written to memory first: it takes a reader that has enough for a bug.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "serval", &mut script);
            done(stdout(&script))
        }
    }
}

/// Lets this process open as many files as it may: the usual limit of 1,024 is fewer than the connections
/// of many clients, or of the agents of a large group. What cannot be raised stays.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

fn main() -> ExitCode {
    raise_file_limit();
    let cli = Cli::parse_from(args::normalized(std::env::args_os()));
    match execute(cli.command) {
        Ok(code) => code,
        Err(failure) => {
            let style = anstyle::AnsiColor::Red.on_default().bold();
            tell!("{style}error{style:#}: {failure}");
            failure.exit_code()
        }
    }
}
