//! One script, run by testfixture in a folder of its own.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Result;
use crate::children::Children;
use crate::cpu;
use crate::tcl::failed;

/// The Tcl script that runs a test script, relative to the workspace.
const RUN: &str = "yesquel/sqlite/tests/tcl/run.tcl";

/// Time by the clock after which a script is ended, in limits of its processor time.
const WAITING_FACTOR: u32 = 3;

/// Variables of `hook.c`.
const FOLDERS: &str = "YESQUEL_TEST_FOLDERS";
const SERVERS: &str = "YESQUEL_TEST_SERVERS";
const PREFIX: &str = "YESQUEL_TEST_PREFIX";
const PROGRAM: &str = "YESQUEL_TEST_PROGRAM";

/// Meaning of plain database names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DatabaseKind {
    /// Yesquel databases, in folders.
    Trees,
    /// Yesquel databases at these servers, with tables at all of them. The program copies and drops
    /// them.
    Cluster { servers: String, program: PathBuf },
    /// SQLite's files.
    Stock,
}

/// A test script of SQLite.
#[derive(Clone, Debug)]
pub(crate) struct TclScript {
    /// Its name, such as `select1` or `fts5/fts5aa`.
    pub(crate) name: String,
    pub(crate) file: PathBuf,
}

/// How a script ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Completely.
    #[default]
    Finished,
    /// With a Tcl error before its end.
    Stop,
    /// By a signal, or a panic.
    Crash,
    /// Killed at the time limit.
    Hang,
}

/// Result of a script.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScriptOutcome {
    pub(crate) ending: Ending,
    pub(crate) passed: BTreeSet<String>,
    pub(crate) failed: BTreeSet<String>,
    /// Whether memory leaked.
    pub(crate) leaks: bool,
    /// Number of Yesquel databases created.
    pub(crate) databases: usize,
    pub(crate) seconds: f64,
}

impl ScriptOutcome {
    /// Returns all failures, by their names in the list.
    pub(crate) fn failures(&self) -> Vec<String> {
        let ending = match self.ending {
            Ending::Finished => None,
            Ending::Stop => Some("(stop)"),
            Ending::Crash => Some("(crash)"),
            Ending::Hang => Some("(hang)"),
        };
        let leak = self.leaks.then_some("(leak)");
        self.failed.iter().map(String::as_str).chain(ending).chain(leak).map(str::to_owned).collect()
    }
}

/// The folders of a script: its working directory and its databases.
struct ScriptFolders {
    work: PathBuf,
    databases: PathBuf,
    log: PathBuf,
}

impl ScriptFolders {
    /// Creates empty folders.
    fn new(folder: &Path) -> Result<ScriptFolders> {
        let _ = fs::remove_dir_all(folder);
        let folders = ScriptFolders {
            work: folder.join("work"),
            databases: folder.join("databases"),
            log: folder.join("log"),
        };
        for folder in [&folders.work, &folders.databases] {
            fs::create_dir_all(folder).map_err(failed(folder))?;
        }
        Ok(folders)
    }

    /// What distinguishes the names of its databases at servers from those of other scripts.
    fn prefix(&self, file: &Path) -> String {
        let job = self.work.parent().and_then(Path::file_name).unwrap_or_default().display();
        format!("{job}-{}-", file.file_stem().unwrap_or_default().display())
    }

    fn command(&self, program: &Path, file: &Path, engine: &DatabaseKind) -> Result<Command> {
        let log = File::create(&self.log).map_err(failed(&self.log))?;
        let both = log.try_clone().map_err(failed(&self.log))?;
        let mut command = Command::new(program);
        let root = crate::root();
        command
            .arg(root.canonicalize().unwrap_or(root).join(RUN))
            .arg(file)
            .current_dir(&self.work)
            .stdout(Stdio::from(log))
            .stderr(Stdio::from(both));
        command.env("RUST_BACKTRACE", "0");
        for variable in [FOLDERS, SERVERS, PREFIX, PROGRAM] {
            command.env_remove(variable);
        }
        if *engine != DatabaseKind::Stock {
            command.env(FOLDERS, &self.databases);
        }
        if let DatabaseKind::Cluster { servers, program } = engine {
            command.env(SERVERS, servers).env(PREFIX, self.prefix(file)).env(PROGRAM, program);
        }
        Ok(command)
    }

    /// Returns the names of the databases' folders.
    fn databases(&self) -> Result<Vec<String>> {
        let folders = fs::read_dir(&self.databases).map_err(failed(&self.databases))?;
        let name = |entry: std::io::Result<fs::DirEntry>| {
            let entry = entry.map_err(failed(&self.databases))?;
            Ok(entry.file_name().to_string_lossy().into_owned())
        };
        folders.map(name).collect()
    }

    /// Drops the databases at servers, so that those of many scripts fit into memory.
    fn drop_databases(&self, children: &Children, file: &Path, engine: &DatabaseKind) -> Result<()> {
        let DatabaseKind::Cluster { servers, program } = engine else { return Ok(()) };
        for name in self.databases()? {
            let mut drop = Command::new(program);
            drop.args(["databases", "drop", servers, &format!("{}{name}", self.prefix(file)), "--yes"]);
            // A script may not have created it.
            children.run(drop.stdout(Stdio::null()).stderr(Stdio::null()))?;
        }
        Ok(())
    }
}

/// Runs a script. Returns its outcome and the path of its output, which is below
/// `folder`. `limit` is of its processor time; by the clock it may take [`WAITING_FACTOR`] times as
/// long.
pub(crate) fn run(
    children: &Children,
    program: &Path,
    script: &TclScript,
    engine: &DatabaseKind,
    folder: &Path,
    limit: Duration,
) -> Result<(ScriptOutcome, PathBuf)> {
    let folders = ScriptFolders::new(folder)?;
    let started = Instant::now();
    let running = children.start(&mut folders.command(program, &script.file, engine)?)?;
    let mut is_late = false;
    while !running.ended()? {
        let passed = started.elapsed();
        // Beside other work, a script that computes takes longer by the clock.
        if passed > limit * WAITING_FACTOR || (passed > limit && cpu::of_process(running.pid())? > limit) {
            is_late = true;
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // Past the time limit, kill the script and its children.
    let status = if is_late { None } else { Some(running.wait()?.status) };
    let log = fs::read(&folders.log).map_err(failed(&folders.log))?;
    let mut outcome = parse_log(&String::from_utf8_lossy(&log));
    if is_late {
        outcome.ending = Ending::Hang;
    } else if status.is_none_or(|status| status.signal().is_some()) {
        outcome.ending = Ending::Crash;
    }
    outcome.seconds = started.elapsed().as_secs_f64();
    outcome.databases = folders.databases()?.len();
    folders.drop_databases(children, &script.file, engine)?;
    Ok((outcome, folders.log))
}

/// Checks which engine the program uses: a file with a plain name is a SQLite
/// database, or names a Yesquel database.
pub(crate) fn engine(
    children: &Children,
    program: &Path,
    engine: &DatabaseKind,
    folder: &Path,
) -> Result<()> {
    let folders = ScriptFolders::new(folder)?;
    let file = folder.join("engine.test");
    let script = "sqlite3 db test.db\ndb eval {CREATE TABLE t(a); INSERT INTO t VALUES(7)}\ndb close\n\
                  sqlite3 db test.db\nputs [db eval {SELECT a FROM t}]\ndb close\n";
    fs::write(&file, script).map_err(failed(&file))?;
    children.check(&mut folders.command(program, &file, engine)?)?;
    let made = folders.work.join("test.db");
    let made = fs::read(&made).map_err(failed(&made))?;
    let start: &[u8] = match engine {
        DatabaseKind::Trees | DatabaseKind::Cluster { .. } => b"yesquel test database ",
        DatabaseKind::Stock => b"SQLite format 3\0",
    };
    let answer = fs::read_to_string(&folders.log).map_err(failed(&folders.log))?;
    let databases = folders.databases()?.len();
    folders.drop_databases(children, &file, engine)?;
    let is_so = made.starts_with(start) && databases == usize::from(*engine != DatabaseKind::Stock);
    if answer.trim() == "7" && is_so {
        Ok(())
    } else {
        Err(format!("the program does not use {engine:?} databases"))
    }
}

/// Parses the output of a script.
fn parse_log(log: &str) -> ScriptOutcome {
    let mut outcome = ScriptOutcome { ending: Ending::Stop, ..ScriptOutcome::default() };
    for line in log.lines() {
        if let Some((name, rest)) = line.split_once("... ") {
            if rest.starts_with("Ok") {
                outcome.passed.insert(name.to_owned());
            }
        } else if let Some(rest) = line.strip_prefix("! ") {
            let name = rest.split_once(" expected:").or_else(|| rest.split_once(" got:"));
            outcome.failed.extend(name.map(|(name, _)| name.to_owned()));
        } else if let Some(names) = line.strip_prefix("!Failures on these tests:") {
            outcome.failed.extend(names.split_whitespace().map(str::to_owned));
        } else if line.contains(" errors out of ") && line.contains(" tests") {
            outcome.ending = Ending::Finished;
        } else if line.starts_with("Unfreed memory: ") {
            outcome.leaks = true;
        } else if line.contains("panicked at") {
            outcome.ending = Ending::Crash;
        }
    }
    // Several tests may share a name.
    outcome.passed.retain(|name| !outcome.failed.contains(name));
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_a_script_is_parsed() {
        let text = "a-1.1... Ok\na-1.2...\n! a-1.2 expected: [1]\n! a-1.2 got:      [2]\na-1.3... Ok\n\
                    a-1.4...\nError: no such table: x\nSQLite 2026\n2 errors out of 4 tests on vm\n\
                    !Failures on these tests: a-1.2 a-1.4\nUnfreed memory: 16 bytes in 1 allocations\n";
        let outcome = parse_log(text);
        assert_eq!(outcome.passed, BTreeSet::from(["a-1.1".to_owned(), "a-1.3".to_owned()]));
        assert_eq!(outcome.failures(), ["a-1.2", "a-1.4", "(leak)"]);
        assert_eq!(parse_log("a-1.1... Ok\n").failures(), ["(stop)"]);
    }
}
