//! `cargo xtask tcl`: SQLite's own tests on Yesquel's trees.
//!
//! `testfixture`, SQLite's Tcl shell with commands for tests, is built from the
//! product's slice of the amalgamation. It maps plain database names to Yesquel
//! databases in folders (`yesquel/sqlite/tests/tcl/hook.c`). The expected
//! differences are in a strict list: `yesquel/sqlite/tests/tcl/expected.txt`.

mod build;
mod expected;
mod script;
mod source;

use std::collections::BTreeMap;
use std::fs;
use std::io::{IsTerminal as _, Read as _, Write as _, stderr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use crate::Result;
use crate::children::Children;
use crate::servers;
use crate::setup::{self, Missing, ProgramPurpose};
use crate::unchanged::{InputDigest, Passed};
use expected::{Expected, ListDifferences, ListedKind};
use script::{DatabaseKind, ScriptOutcome, TclScript};

/// Number of scripts that run at a time.
const JOBS: usize = 2;

/// The list of expected differences.
const LIST: &str = "yesquel/sqlite/tests/tcl/expected.txt";

/// Folders of scripts in SQLite's sources, and the prefix of the scripts' names.
const FOLDERS: &[(&str, &str)] = &[
    ("test", ""),
    ("ext/fts5/test", "fts5/"),
    ("ext/rtree", "rtree/"),
    ("ext/session", "session/"),
    ("ext/rbu", "rbu/"),
    ("ext/recover", "recover/"),
    ("ext/intck", "intck/"),
    ("ext/expert", "expert/"),
];

/// Scripts that are not tests: they run other scripts, or measure time.
const NO_TESTS: &[&str] = &[
    "all",
    "extraquick",
    "full",
    "fts3",
    "mallocAll",
    "memleak",
    "permutations",
    "quick",
    "rbu",
    "rtree",
    "session",
    "soak",
    "speed*",
    "veryquick",
];

/// Scripts that run first under a time limit: SQL as applications use it.
const FIRST: &[&str] = &[
    "select*",
    "insert*",
    "update*",
    "delete*",
    "upsert*",
    "returning*",
    "join*",
    "where*",
    "in",
    "in2",
    "in3",
    "in4",
    "in5",
    "in6",
    "in7",
    "between",
    "expr*",
    "func*",
    "null*",
    "types*",
    "cast*",
    "collate*",
    "distinct*",
    "orderby*",
    "minmax*",
    "count*",
    "limit*",
    "sort*",
    "aggregate",
    "subquery*",
    "with*",
    "window*",
    "cte*",
    "view*",
    "trigger*",
    "fkey*",
    "unique*",
    "conflict*",
    "check*",
    "default*",
    "notnull*",
    "gencol*",
    "strict*",
    "without_rowid*",
    "rowid*",
    "autoinc*",
    "index*",
    "alter*",
    "tkt*",
    "savepoint*",
    "trans*",
    "attach*",
    "temptable*",
    "table*",
    "json*",
    "date*",
    "like*",
    "blob*",
    "incrblob*",
    "analyze*",
    "vacuum*",
    "schema*",
    "capi*",
    "bind*",
    "tclsqlite*",
    "hook*",
    "auth*",
    "fts5/*",
    "rtree/*",
    "session/*",
    "fts3*",
    "fts4*",
];

/// Scripts that run last under a time limit: without SQL, or taking a minute.
const LAST: &[&str] = &[
    "*fault*",
    "*malloc*",
    "*ioerr*",
    "*crash*",
    "*corrupt*",
    "fts3rnd",
    "fts4merge2",
    "fuzz",
    "index4",
    "rtree/rtree3",
    "rtree/rtree4",
    "savepoint6",
    "session/sessionbig",
    "session/sessionrebase",
    "sort3",
    "thread003",
];

/// Limit of a script's processor time, s. The slowest take 100 to 230 s.
const TIMEOUT: u64 = 300;

#[derive(Args)]
#[command(after_help = format!(
    "Reasons in the list ({LIST}); `fault:N` refers to a fault that the list describes:\n{}",
    expected::reasons()
))]
pub(crate) struct TclArguments {
    /// Run only scripts with these names, such as `select*` or `fts5/*`; may be given several times
    #[arg(long, value_name = "GLOB")]
    only: Vec<String>,
    /// Start no script after this many minutes; tests of SQL run first
    #[arg(long, value_name = "N")]
    minutes: Option<f64>,
    /// Test SQLite's own files instead, with the same program
    #[arg(long)]
    stock: bool,
    /// Test databases at three servers, whose tables are distributed over them
    #[arg(long, conflicts_with = "stock")]
    cluster: bool,
    /// Limit of a script's processor time; three times as long by the clock
    #[arg(long, value_name = "SECONDS", default_value_t = TIMEOUT)]
    timeout: u64,
    /// Print the results as one JSON value
    #[arg(long)]
    json: bool,
    /// Update the list from the results; new entries get this reason
    #[arg(long, value_name = "REASON")]
    write: Option<String>,
    /// Also run scripts that are known to hang
    #[arg(long)]
    hanging: bool,
    /// List the scripts without running them
    #[arg(long)]
    list: bool,
    /// Cargo's arguments to build libyesquel [default: its release build]
    #[arg(skip = released())]
    library: Vec<String>,
}

fn released() -> Vec<String> {
    ["--release", "--package", "libyesquel"].map(str::to_owned).to_vec()
}

impl TclArguments {
    /// Returns the arguments for a run at three servers.
    pub(crate) fn at_cluster(self) -> Self {
        TclArguments { cluster: true, ..self }
    }

    /// Returns arguments for a run with a time limit, on the library that Cargo builds
    /// with these arguments, or on its release build.
    pub(crate) fn within(minutes: f64, library: Option<&[&str]>) -> Self {
        let library = library.map(|words| words.iter().map(|&word| word.to_owned()).collect());
        TclArguments {
            only: Vec::new(),
            minutes: Some(minutes),
            stock: false,
            cluster: false,
            timeout: TIMEOUT,
            json: false,
            write: None,
            hanging: false,
            list: false,
            library: library.unwrap_or_else(released),
        }
    }
}

/// Results of a run.
struct TclResults {
    outcomes: BTreeMap<String, ScriptOutcome>,
    differences: BTreeMap<String, ListDifferences>,
    /// Number of scripts left out by the time limit.
    left_out: usize,
}

/// Runs `cargo xtask tcl`. Returns whether the results match the list.
pub(crate) fn tcl(arguments: &TclArguments, children: &Children) -> Result<bool> {
    let sources = provide(children, Missing::Install)?;
    let (passed, summary) = run(arguments, &sources, None, children)?;
    if !arguments.list && !arguments.json {
        println!("{summary}");
    }
    Ok(passed)
}

/// Makes sure that everything needed is installed; returns the folder of SQLite's sources.
pub(crate) fn provide(children: &Children, missing: Missing) -> Result<PathBuf> {
    let folder = folder();
    fs::create_dir_all(&folder).map_err(failed(&folder))?;
    setup::provide(children, ProgramPurpose::Tcl, missing)?;
    source::provide(children, &folder, missing)
}

/// Runs scripts. Returns whether the results match the list, and a summary of one
/// line. With `passed`, nothing runs if the same inputs passed before.
pub(crate) fn run(
    arguments: &TclArguments,
    sources: &Path,
    passed: Option<&Passed>,
    children: &Children,
) -> Result<(bool, String)> {
    let folder = folder();
    let list = crate::root().join(LIST);
    let whole = Expected::parse(&fs::read_to_string(&list).map_err(failed(&list))?)?;
    let mut scripts = scripts(sources)?;
    if let Some(unknown) = whole.scripts().find(|name| !scripts.iter().any(|script| script.name == *name)) {
        return Err(format!("{LIST}: no script has the name {unknown}"));
    }
    scripts.retain(|script| is_one_of(&script.name, &arguments.only) || arguments.only.is_empty());
    if scripts.is_empty() {
        return Err("no script matches --only (--list shows all scripts)".to_owned());
    }
    if arguments.list {
        scripts.iter().for_each(|script| println!("{}", script.name));
        return Ok((true, String::new()));
    }
    let program = build::testfixture(children, sources, &folder, &arguments.library)?;
    let stamp = passed.and_then(|_| stamp(&program, sources, &list));
    if let Some(before) = passed.and_then(|passed| passed.unchanged("tcl", stamp.as_deref())) {
        return Ok((true, format!("not run, unchanged since {}", before.as_str().unwrap_or_default())));
    }
    // Ended when this returns.
    let mut _servers = None;
    let (engine, expected) = if arguments.stock {
        (DatabaseKind::Stock, whole.of_kind(ListedKind::Stock))
    } else if arguments.cluster {
        let (servers, program) = servers::yesquel::cluster_in_memory(children)?;
        let engine = DatabaseKind::Cluster { servers: servers.address(), program };
        _servers = Some(servers);
        (engine, whole.of_kind(ListedKind::Cluster))
    } else {
        (DatabaseKind::Trees, whole.of_kind(ListedKind::Folders))
    };
    // In memory if possible, since scripts create thousands of databases.
    let memory = Some(PathBuf::from("/dev/shm")).filter(|memory| memory.is_dir());
    let runs = memory.unwrap_or_else(|| folder.clone()).join(format!("yesquel-tcl-{}", std::process::id()));
    let found = script::engine(children, &program, &engine, &runs.join("engine")).and_then(|()| {
        let all = scripts.len();
        scripts.retain(|script| arguments.hanging || !expected.hangs(&script.name));
        if scripts.len() < all {
            eprintln!(
                "    {} scripts are skipped because they hang (--hanging runs them)",
                all - scripts.len()
            );
        }
        if arguments.minutes.is_some() {
            scripts.sort_by_key(|script| rank(&script.name));
        }
        run_scripts(arguments, children, &program, scripts, &engine, &expected, &runs)
    });
    let _ = fs::remove_dir_all(&runs);
    let found = found?;
    if let Some(reason) = &arguments.write {
        fs::write(&list, head(&list)? + &expected.rewritten(&found.outcomes, reason))
            .map_err(failed(&list))?;
    }
    if arguments.json {
        println!("{}", as_json(&found));
    }
    let differ = found.differences.values().filter(|differences| !differences.is_none()).count();
    let summary = summary(&found, differ);
    if let Some(passed) = passed {
        passed.set("tcl", differ == 0, stamp.as_deref(), &json!(summary));
    }
    Ok((differ == 0, summary))
}

/// Returns a digest of the inputs: the program, the list, xtask, and the version of
/// the scripts, which is in the folder's name.
fn stamp(program: &Path, sources: &Path, list: &Path) -> Option<String> {
    let mut stamp = InputDigest::new();
    stamp.content(program, &|_| false);
    stamp.content(list, &|_| false);
    stamp.text(&sources.display().to_string());
    stamp.surroundings();
    stamp.finish()
}

/// Priority of a script.
fn rank(name: &str) -> (bool, usize) {
    let is_last = LAST.iter().any(|glob| matches(name, glob));
    (is_last, FIRST.iter().position(|glob| matches(name, glob)).unwrap_or(FIRST.len()))
}

/// Runs the scripts, two at a time.
fn run_scripts(
    arguments: &TclArguments,
    children: &Children,
    program: &Path,
    scripts: Vec<TclScript>,
    engine: &DatabaseKind,
    expected: &Expected,
    runs: &Path,
) -> Result<TclResults> {
    let started = Instant::now();
    let count = scripts.len();
    let waiting = Mutex::new(scripts.into_iter());
    let found =
        Mutex::new(TclResults { outcomes: BTreeMap::new(), differences: BTreeMap::new(), left_out: 0 });
    let limit = Duration::from_secs(arguments.timeout);
    let logs = folder().join("logs");
    fs::create_dir_all(&logs).map_err(failed(&logs))?;
    let work = |job: usize| -> Result<()> {
        loop {
            let Some(script) = locked(&waiting).next() else { return Ok(()) };
            if arguments.minutes.is_some_and(|minutes| started.elapsed().as_secs_f64() > minutes * 60.0) {
                locked(&found).left_out += 1;
                continue;
            }
            let (outcome, log) =
                script::run(children, program, &script, engine, &runs.join(job.to_string()), limit)?;
            if children.interrupted().is_some() {
                return Err("interrupted".to_owned());
            }
            let differences = expected.differences(&script.name, &outcome);
            let mut found = locked(&found);
            if !differences.is_none() {
                let kept = logs.join(script.name.replace('/', "-"));
                fs::copy(&log, &kept).map_err(failed(&kept))?;
                eprintln!("{}{}", cleared(), difference_text(&script.name, &differences, &kept));
            }
            found.outcomes.insert(script.name.clone(), outcome);
            found.differences.insert(script.name, differences);
            progress(found.outcomes.len(), count, started, arguments.minutes);
        }
    };
    std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..JOBS).map(|job| scope.spawn(move || work(job))).collect();
        jobs.into_iter()
            .try_for_each(|job| job.join().unwrap_or_else(|_| Err("a thread has panicked".to_owned())))
    })?;
    eprint!("{}", cleared());
    Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Prints the progress: on one line of a terminal, elsewhere at intervals.
fn progress(done: usize, count: usize, started: Instant, minutes: Option<f64>) {
    let passed = started.elapsed().as_secs_f64();
    let mut left = passed / done as f64 * (count - done) as f64;
    if let Some(minutes) = minutes {
        left = left.min(minutes * 60.0 - passed).max(0.0);
    }
    let line = format!("{done} of {count} scripts, {passed:.0} s, about {left:.0} s to go");
    if stderr().is_terminal() {
        eprint!("{}{line}", cleared());
        let _ = stderr().flush();
    } else if done.is_multiple_of(100) {
        eprintln!("    {line}");
    }
}

/// Returns the escape sequence that clears the terminal's line.
fn cleared() -> &'static str {
    if stderr().is_terminal() { "\r\x1b[K" } else { "" }
}

/// A script that is not as the list says.
fn difference_text(name: &str, differences: &ListDifferences, log: &Path) -> String {
    let some = |names: &[String]| {
        let shown = names.iter().take(8).cloned().collect::<Vec<_>>().join(" ");
        if names.len() > 8 { format!("{shown} and {} more", names.len() - 8) } else { shown }
    };
    let mut text = name.to_owned();
    if !differences.unlisted.is_empty() {
        text += &format!(": fails: {}", some(&differences.unlisted));
    }
    if !differences.passes.is_empty() {
        text += &format!(": listed and passes: {}", some(&differences.passes));
    }
    text + &format!(" ({})", log.display())
}

fn summary(found: &TclResults, differ: usize) -> String {
    let outcomes = || found.outcomes.values();
    let passed: usize = outcomes().map(|outcome| outcome.passed.len()).sum();
    let known: usize = found.differences.values().map(|differences| differences.known).sum();
    let unlisted: usize = found.differences.values().map(|differences| differences.unlisted.len()).sum();
    let passes: usize = found.differences.values().map(|differences| differences.passes.len()).sum();
    let left_out = if found.left_out == 0 { String::new() } else { format!(", {} not run", found.left_out) };
    format!(
        "{} scripts{left_out}: {passed} tests pass, {known} listed fail, {unlisted} unlisted fail, {passes} listed \
         pass; {differ} scripts are not as listed",
        found.outcomes.len()
    )
}

fn as_json(found: &TclResults) -> serde_json::Value {
    let scripts: serde_json::Map<String, serde_json::Value> = found
        .outcomes
        .iter()
        .map(|(name, outcome)| {
            let differences = &found.differences[name];
            let value = json!({
                "passed": outcome.passed.len(),
                "failures": outcome.failures(),
                "unlisted": differences.unlisted,
                "listed and passes": differences.passes,
                "databases": outcome.databases,
                "seconds": (outcome.seconds * 1000.0).round() / 1000.0,
            });
            (name.clone(), value)
        })
        .collect();
    json!({ "scripts": scripts, "left out": found.left_out })
}

/// Returns the comment at the start of a list.
fn head(list: &Path) -> Result<String> {
    let text = fs::read_to_string(list).map_err(failed(list))?;
    Ok(text
        .lines()
        .take_while(|line| line.starts_with('#') || line.is_empty())
        .map(|line| line.to_owned() + "\n")
        .collect())
}

/// Returns all scripts, by name.
fn scripts(sources: &Path) -> Result<Vec<TclScript>> {
    let mut scripts = Vec::new();
    for (folder, prefix) in FOLDERS {
        let folder = sources.join(folder);
        for entry in fs::read_dir(&folder).map_err(failed(&folder))? {
            let file = entry.map_err(failed(&folder))?.path();
            let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            let is_test = file.extension().is_some_and(|extension| extension == "test");
            let runs_others = prefix.is_empty() && NO_TESTS.iter().any(|glob| matches(stem, glob));
            if is_test && !runs_others {
                scripts.push(TclScript { name: format!("{prefix}{stem}"), file });
            }
        }
    }
    scripts.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(scripts)
}

fn is_one_of(name: &str, globs: &[String]) -> bool {
    globs.iter().any(|glob| matches(name, glob))
}

/// Returns whether a name matches a glob with `*`.
fn matches(name: &str, glob: &str) -> bool {
    match glob.split_once('*') {
        None => name == glob,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|name| {
            (0..=name.len()).filter(|&at| name.is_char_boundary(at)).any(|at| matches(&name[at..], rest))
        }),
    }
}

/// Folder of all files.
fn folder() -> PathBuf {
    crate::target().join("tcl")
}

/// Adds a file's path to an error.
fn failed(path: &Path) -> impl Fn(std::io::Error) -> String + use<> {
    let path = path.display().to_string();
    move |error| format!("{path}: {error}")
}

/// Returns the standard output of a command; a failed command is an error.
fn printed(children: &Children, command: &mut Command) -> Result<String> {
    let mut running = children.start(command)?;
    let mut output = Vec::new();
    if let Some(mut stdout) = running.child().and_then(|child| child.stdout.take()) {
        let line = crate::children::line(command);
        stdout.read_to_end(&mut output).map_err(|error| format!("`{line}`: its output: {error}"))?;
    }
    let status = running.wait()?.status;
    match status.success() {
        true => Ok(String::from_utf8_lossy(&output).into_owned()),
        false => Err(format!("`{}` failed: {status}", crate::children::line(command))),
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_names() {
        assert!(matches("select1", "select*") && matches("fts5/fts5aa", "fts5/*") && matches("a", "a"));
        assert!(rank("select1") < rank("pragma") && rank("pragma") < rank("wherefault"));
        assert!(!matches("select1", "select") && !matches("xselect", "select*") && matches("abc", "a*c"));
    }

    #[test]
    fn the_list_is_valid() {
        let list = crate::root().join(LIST);
        Expected::parse(&fs::read_to_string(&list).unwrap()).unwrap();
    }
}
