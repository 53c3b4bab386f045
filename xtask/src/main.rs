//! The developer's tool: `cargo xtask test`, `docs`, `house`, `library`, `serve`, `bench`,
//! `simulate`, `mutants`, `network`, `mediawiki`, `fuzz`, `soak` and `tcl`.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::{Parser, Subcommand};

use crate::children::Children;
use crate::servers::ServerOptions;

mod bench;
mod children;
mod cpu;
mod debian;
mod docs;
mod features;
mod fuzz;
mod house;
mod library;
mod maven;
mod mediawiki;
mod mutants;
mod network;
mod programs;
mod room;
mod servers;
mod setup;
mod simulate;
mod soak;
mod steps;
mod tcl;
mod test_programs;
mod unchanged;
mod ycsb;

/// An error is its message: a developer reads it, and no code matches on it.
type Result<T> = std::result::Result<T, String>;

#[derive(Parser)]
#[command(
    bin_name = "cargo xtask",
    about = "Developer tasks of Serval and Yesquel",
    after_help = "Examples:\n  \
        cargo xtask test                  all checks of a change\n  \
        cargo xtask test --quick          the same without installs, downloads, fuzzing and documentation\n  \
        cargo xtask test --all            also tests that passed before and are unchanged\n  \
        cargo xtask test --skip clippy    leave a step out (it is counted as skipped)\n  \
        cargo xtask docs                  the reference pages and the book, in target/book\n  \
        cargo xtask house                 lines by crate, cycles of files, long functions\n  \
        cargo xtask library               the shared library, its header and pkg-config file\n  \
        cargo xtask serve redis           a Redis to try serval on, until Ctrl-C\n  \
        cargo xtask serve yesquel-cluster three of Yesquel's servers, which share databases\n  \
        cargo xtask bench --list          the benchmarks\n  \
        cargo xtask simulate --seeds N    Yesquel compared with its references, for N seeds\n  \
        cargo xtask mutants               faults in Yesquel's protocols, which its simulations must find\n  \
        cargo xtask network --kills N     four servers in network namespaces, with faults\n  \
        cargo xtask mediawiki --minutes N Debian's MediaWiki on three servers, beside stock SQLite\n  \
        cargo xtask fuzz --seconds N      random bytes as Yesquel's input\n  \
        cargo xtask soak --minutes N      tests that take too long for each change\n  \
        cargo xtask tcl                   SQLite's own tests on Yesquel's trees"
)]
struct CommandLine {
    #[command(subcommand)]
    task: XtaskCommand,
}

#[derive(Subcommand)]
enum XtaskCommand {
    /// Run all checks of a change: format, lints, tests with real servers, documentation
    Test(steps::Arguments),
    /// Write the reference pages and build the book
    Docs(docs::DocsArguments),
    /// Print lines by crate, cycles of files, long functions, and type names defined more than once
    House(house::HouseArguments),
    /// Build the shared library and put it, its headers and its pkg-config file below a folder
    Library(library::LibraryArguments),
    /// Start a real server on loopback and keep it until Ctrl-C
    #[command(alias = "server")]
    Serve {
        /// The server's store
        #[arg(value_parser = servers::KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>())]
        server: String,
        /// Port to listen on [default: a free one]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
        port: Option<u16>,
        /// Require this password
        #[arg(long, value_name = "P")]
        password: Option<String>,
    },
    /// Measure bare round trips over a Unix socket, for `bench driver`
    #[command(hide = true)]
    RoundTrips {
        /// Run the end that answers
        #[arg(long)]
        answer: bool,
    },
    /// Run benchmarks by name [default: all]
    Bench(bench::BenchArguments),
    /// Run Yesquel's seeded tests with any number of seeds
    Simulate(simulate::SimulateArguments),
    /// Put kept faults into Yesquel's protocols, and check that its simulations find them
    Mutants(mutants::MutantsArguments),
    /// Run four of Yesquel's servers in network namespaces, with faults of processes, links, disks
    /// and clocks
    Network(network::NetworkArguments),
    /// Run Debian's MediaWiki on Yesquel's servers, beside the same wiki on stock SQLite
    Mediawiki(mediawiki::MediawikiArguments),
    /// Fuzz Yesquel's input from the network and from its disk
    Fuzz(fuzz::FuzzArguments),
    /// Run for an hour tests that take too long for each change: SQLite's tests, fuzzing, kills,
    /// seeds
    Soak(soak::SoakArguments),
    /// Run SQLite's own tests on Yesquel's trees, and list the differences
    Tcl(tcl::TclArguments),
}

fn main() -> ExitCode {
    let arguments = CommandLine::parse();
    let outcome = Children::stopped_by_signals().and_then(|children| {
        let outcome = run(arguments.task, &children);
        // Ctrl-C is the normal end of the `redis` task. Elsewhere it is a failure, whose error
        // would only be that of the stopped child.
        match children.interrupted() {
            Some(signal) if outcome != Ok(true) => Ok(ExitCode::from(signal_code(signal))),
            _ => outcome.map(|passed| if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
        }
    });
    outcome.unwrap_or_else(|message| {
        eprintln!("xtask: {message}");
        ExitCode::FAILURE
    })
}

fn run(task: XtaskCommand, children: &Children) -> Result<bool> {
    match task {
        XtaskCommand::Test(arguments) => steps::test(&arguments, children),
        XtaskCommand::Serve { server, port, password } => {
            serve(&server, &ServerOptions { port, password, short_lived: false }, children).map(|()| true)
        }
        XtaskCommand::Docs(arguments) => docs::docs(&arguments, children),
        XtaskCommand::House(arguments) => house::house(&arguments),
        XtaskCommand::Library(arguments) => library::library(&arguments, children).map(|()| true),
        XtaskCommand::RoundTrips { answer } => bench::driver::round_trips(answer).map(|()| true),
        XtaskCommand::Bench(arguments) => bench::bench(&arguments, children).map(|()| true),
        XtaskCommand::Simulate(arguments) => simulate::simulate(&arguments, children),
        XtaskCommand::Mutants(arguments) => mutants::mutants(&arguments, children),
        XtaskCommand::Network(arguments) => network::network(&arguments, children),
        XtaskCommand::Mediawiki(arguments) => mediawiki::mediawiki(&arguments, children),
        XtaskCommand::Fuzz(arguments) => fuzz::fuzz(&arguments, children),
        XtaskCommand::Soak(arguments) => soak::soak(&arguments, children),
        XtaskCommand::Tcl(arguments) => tcl::tcl(&arguments, children),
    }
}

fn serve(name: &str, options: &ServerOptions, children: &Children) -> Result<()> {
    let kind = servers::kind(name).ok_or_else(|| format!("there is no server '{name}'"))?;
    setup::provide(children, kind.purpose, setup::Missing::Report)?;
    let server = (kind.serve)(children, options)?;
    let properties: String =
        server.properties().iter().map(|property| format!(" -p {}", shell_quoted(property))).collect();
    println!("{name} listens on {}", server.address());
    let store = servers::store(name);
    println!("  serval load {store} -P workloads/workloada{properties}");
    println!("  serval run {store} -P workloads/workloada{properties}");
    println!("Ctrl-C stops it and removes what it wrote.");
    server.wait_for_interrupt()
}

/// Quotes a word so that the printed command line can be pasted into a shell.
fn shell_quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=+,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The exit code shells give to a process that a signal ended.
fn signal_code(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// The workspace's root folder.
fn root() -> PathBuf {
    // Cargo sets the variable for `cargo run`, which the alias is; the value
    // of compile time serves a direct start of the program.
    let manifest_dir =
        env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| OsString::from(env!("CARGO_MANIFEST_DIR")));
    PathBuf::from(manifest_dir).join("..")
}

/// Cargo's folder of builds. Absolute: scripts run in other folders, and compilers print its path.
fn target() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let root = root();
    root.canonicalize().unwrap_or(root).join(target)
}

/// The Cargo that runs this program, in the workspace's root.
fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn a_word_is_quoted_only_when_a_shell_would_read_it_otherwise() {
        for (word, quoted) in [
            ("abc123", "abc123"),
            ("", "''"),
            ("two words", "'two words'"),
            ("$HOME", "'$HOME'"),
            ("it's", r"'it'\''s'"),
        ] {
            assert_eq!(shell_quoted(word), quoted);
        }
    }
}
