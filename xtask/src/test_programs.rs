//! Builds the workspace's test programs and runs them, several at a time.
//!
//! `cargo test` runs programs one at a time, and most of them wait for servers,
//! timers and child processes. Run in parallel they use all processors. A program
//! that measures time runs alone.
//!
//! A test with external requirements names them: `#[ignore = "needs
//! SERVAL_TEST_REDIS python3"]`. A requirement is an environment variable, a
//! program, `mount`, the permission to mount a file system, or `netns`, that to
//! create network namespaces and mounts. Plain `cargo test` reports such a test as
//! ignored. This module runs it if all requirements are met, and otherwise counts
//! it as not run and lists what is missing.
//!
//! A program that passed is not run again until its inputs change; the summary
//! counts its tests ([`crate::unchanged`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Result;
use crate::children::{Children, line};
use crate::network;
use crate::setup;
use crate::unchanged::{InputDigest, Passed};

/// Test programs that run alone: they measure time, or count the activity of the
/// process or machine. Package and target.
const ALONE: &[(&str, &str)] = &[("serval", "compare_aa"), ("serval", "costs"), ("serval-watch", "accounts")];

/// Packages whose tests read the sources of the whole workspace, so that they always run.
const ALWAYS: &[&str] = &["xtask"];

/// Folders outside the packages that tests read data from.
const DATA: &[&str] = &["docs", "drivers", "experiments", "workloads"];

/// Target of the test programs that read the documents. For other programs the
/// documents are not inputs.
const OF_DOCUMENTS: &str = "docs";

/// Prefixes of the variables that name external requirements of tests.
const OUTSIDE: &[&str] = &["SERVAL_TEST_", "SERVAL_YCSB_", "YESQUEL_TEST_"];

/// Time limit of a program, after which it is killed and has failed.
const LIMIT: Duration = Duration::from_secs(900);

/// Interval between checks of a running program.
const LOOK: Duration = Duration::from_millis(50);

/// A built test program.
pub(crate) struct TestProgram {
    package: String,
    target: String,
    executable: PathBuf,
    /// The package's folder, the working directory of its tests.
    folder: PathBuf,
    /// The package's programs, which its tests start.
    starts: Vec<PathBuf>,
}

impl TestProgram {
    fn name(&self) -> String {
        format!("{}/{}", self.package, self.target)
    }
}

/// An environment variable with the location of an external requirement.
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) value: String,
    /// Whether the value is an input: one or several paths that stay the same between
    /// runs. Addresses and folders of servers are new in each run.
    pub(crate) is_input: bool,
}

/// Number of tests by result.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct TestCounts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    /// Not run: they passed before, and their inputs are unchanged.
    pub(crate) unchanged: u64,
    /// Number of tests that did not run, by the missing requirements.
    pub(crate) missing: BTreeMap<String, u64>,
    /// Ignored for another reason.
    pub(crate) ignored: u64,
    /// Programs that failed, by a test or by how they ended.
    pub(crate) programs: BTreeSet<String>,
}

impl TestCounts {
    fn add(&mut self, other: TestCounts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.unchanged += other.unchanged;
        self.ignored += other.ignored;
        for (what, count) in other.missing {
            *self.missing.entry(what).or_default() += count;
        }
        self.programs.extend(other.programs);
    }
}

/// Builds all test programs with the given arguments to `cargo test`.
pub(crate) fn build(arguments: &[&str], children: &Children) -> Result<Vec<TestProgram>> {
    let mut command = crate::cargo();
    command.args(["test", "--no-run", "--message-format=json-render-diagnostics"]).args(arguments);
    println!("    {}", line(&command));
    let messages = children.printed(&mut command)?;
    let messages: Vec<Value> = messages.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let mut programs: Vec<TestProgram> = messages.iter().filter_map(program).collect();
    for program in &mut programs {
        program.starts = messages.iter().filter_map(|message| started(message, &program.package)).collect();
    }
    if programs.is_empty() { Err("Cargo names no test program".to_owned()) } else { Ok(programs) }
}

/// Returns the test program that one of Cargo's messages names.
fn program(message: &Value) -> Option<TestProgram> {
    if message["profile"]["test"] != true {
        return None;
    }
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let package = package(message["package_id"].as_str()?)?;
    let kind = message["target"]["kind"][0].as_str()?;
    let name = message["target"]["name"].as_str()?;
    Some(TestProgram {
        package,
        target: if kind == "test" { name.to_owned() } else { kind.to_owned() },
        executable: message["executable"].as_str()?.into(),
        folder,
        starts: Vec::new(),
    })
}

/// Returns the program that one of Cargo's messages names, if it belongs to this package.
fn started(message: &Value, of: &str) -> Option<PathBuf> {
    let is_bin = message["profile"]["test"] == false && message["target"]["kind"][0] == "bin";
    let package = package(message["package_id"].as_str()?)?;
    if is_bin && package == of { Some(message["executable"].as_str()?.into()) } else { None }
}

/// Returns the package's name in a package id: `path+file:///w/bench/model#serval-model@0.1.0` or
/// `path+file:///w/xtask#0.1.0`.
fn package(id: &str) -> Option<String> {
    let (path, version) = id.rsplit_once('#')?;
    match version.split_once('@') {
        Some((name, _)) => Some(name.to_owned()),
        None => path.rsplit('/').next().map(str::to_owned),
    }
}

/// Runs the programs with these variables set, except programs that passed before
/// and are unchanged.
pub(crate) fn run(
    programs: Vec<TestProgram>,
    variables: &[Variable],
    folder: &Path,
    passed: &Passed,
    children: &Children,
) -> Result<TestCounts> {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let is_alone = |program: &TestProgram| {
        ALONE.iter().any(|(package, target)| program.package == *package && program.target == *target)
    };
    let (alone, mut together): (Vec<_>, Vec<_>) = programs.into_iter().partition(is_alone);
    // The longest first, so that none runs after all others have ended.
    let history = ProgramDurations::read(folder);
    together.sort_by_key(|program| std::cmp::Reverse(history.of(program)));
    let history = Mutex::new(history);
    let counts = Mutex::default();
    let runs = Runs {
        variables,
        folder,
        passed,
        children,
        counts,
        history,
        mounts: OnceLock::new(),
        namespaces: OnceLock::new(),
    };
    let beside = thread::available_parallelism().map_or(1, usize::from);
    runs.all(together, beside)?;
    runs.all(alone, 1)?;
    runs.history.lock().unwrap_or_else(PoisonError::into_inner).write(folder);
    Ok(runs.counts.into_inner().unwrap_or_else(PoisonError::into_inner))
}

struct Runs<'a> {
    variables: &'a [Variable],
    /// Folder of outputs and durations.
    folder: &'a Path,
    passed: &'a Passed,
    children: &'a Children,
    counts: Mutex<TestCounts>,
    history: Mutex<ProgramDurations>,
    /// Whether this process may mount file systems.
    mounts: OnceLock<bool>,
    /// Whether it may create network namespaces.
    namespaces: OnceLock<bool>,
}

/// Tries to mount a file system, in a mount namespace of its own.
fn may_mount(children: &Children) -> bool {
    let mut command = Command::new("unshare");
    command.args(["--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    children.run(&mut command).is_ok_and(|status| status.success())
}

impl Runs<'_> {
    /// Runs programs, `beside` at a time.
    fn all(&self, programs: Vec<TestProgram>, beside: usize) -> Result<()> {
        let waiting = Mutex::new(VecDeque::from(programs));
        let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let worker = || -> Result<()> {
            while let Some(program) = next() {
                let counts = self.one(&program)?;
                self.counts.lock().unwrap_or_else(PoisonError::into_inner).add(counts);
            }
            Ok(())
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..beside).map(|_| scope.spawn(worker)).collect();
            let ends = workers.into_iter().map(|worker| {
                worker.join().unwrap_or_else(|_| Err("a thread that runs test programs panicked".to_owned()))
            });
            ends.collect()
        })
    }

    /// Runs one program and prints its result, with the whole output if a test
    /// failed.
    fn one(&self, program: &TestProgram) -> Result<TestCounts> {
        let name = program.name();
        let needs = Needs::of(&self.listed(program)?, |word| self.is_there(word));
        let stamp = self.stamp(program, &needs);
        let Needs { mut missing, skip, .. } = needs;
        if let Some(before) = self.passed.unchanged(&name, stamp.as_deref()) {
            let of = |what: &str| before[what].as_u64().unwrap_or_default();
            println!("    same   {name}: {} passed before", of("passed"));
            return Ok(TestCounts {
                unchanged: of("passed"),
                ignored: of("ignored"),
                missing,
                ..TestCounts::default()
            });
        }
        let output = self.folder.join(format!("{}.txt", name.replace('/', "-")));
        let failed = |error: std::io::Error| format!("{}: {error}", output.display());
        let file = File::create(&output).map_err(failed)?;
        let mut command = self.command(program);
        // `--exact` applies to the names given to `--skip`.
        command.args(["--include-ignored", "--exact"]);
        for test in &skip {
            command.args(["--skip", test]);
        }
        command.stdout(file.try_clone().map_err(failed)?).stderr(Stdio::from(file));
        let started = Instant::now();
        let running = self.children.start(&mut command)?;
        while !running.ended()? && started.elapsed() < LIMIT {
            thread::sleep(LOOK);
        }
        let hangs = !running.ended()?;
        let outcome = if hangs { None } else { Some(running.wait()?) };
        let seconds = started.elapsed().as_secs_f64();
        let text = String::from_utf8_lossy(&fs::read(&output).map_err(failed)?).into_owned();
        let mut counts = results(&text);
        counts.missing.append(&mut missing);
        let success = outcome.as_ref().is_some_and(|outcome| outcome.status.success());
        let cpu = outcome
            .as_ref()
            .map_or(0.0, |outcome| (outcome.rusage.utime + outcome.rusage.stime).as_secs_f64());
        if self.children.interrupted().is_some() {
            return Err("interrupted".to_owned());
        }
        let summary = json!({"passed": counts.passed, "ignored": counts.ignored});
        self.passed.set(&name, success && counts.failed == 0, stamp.as_deref(), &summary);
        let mut shown = std::io::stdout().lock();
        let word = if success { "ok    " } else { "FAILED" };
        let TestCounts { passed, failed: bad, .. } = counts;
        let line =
            format!("    {word} {name}: {passed} passed, {bad} failed; {seconds:.1} s, {cpu:.1} s CPU");
        let _ = writeln!(shown, "{line}");
        if !success {
            let why = match &outcome {
                Some(outcome) => outcome.status.to_string(),
                None => format!("killed after {} s", LIMIT.as_secs()),
            };
            let _ = writeln!(shown, "{text}\n    {name}: {why}");
            counts.programs.insert(name);
            // A program that crashes names no failed test.
            counts.failed = counts.failed.max(1);
        }
        drop(shown);
        self.history.lock().unwrap_or_else(PoisonError::into_inner).set(program, seconds);
        Ok(counts)
    }

    /// Returns a digest of the program's inputs; `None` if it must always run.
    fn stamp(&self, program: &TestProgram, needs: &Needs) -> Option<String> {
        if ALWAYS.contains(&program.package.as_str()) {
            return None;
        }
        let mut stamp = InputDigest::new();
        stamp.built(&program.executable);
        program.starts.iter().for_each(|program| stamp.built(program));
        let of_documents = program.target == OF_DOCUMENTS;
        let is_no_input = |path: &Path| {
            let is = |extension: &str| path.extension().is_some_and(|its| its == extension);
            let is_made = path.ends_with("target") || path.ends_with("__pycache__");
            is("rs") || is_made || (is("md") && !of_documents)
        };
        stamp.content(&program.folder, &is_no_input);
        let root = crate::root();
        DATA.iter().for_each(|folder| stamp.content(&root.join(folder), &is_no_input));
        if of_documents {
            ["README.md", "yesquel/README.md"]
                .iter()
                .for_each(|page| stamp.content(&root.join(page), &is_no_input));
        }
        if !needs.words.is_empty() {
            stamp.surroundings();
        }
        for word in &needs.words {
            stamp.text(word);
            stamp.text(if self.is_there(word) { "there" } else { "missing" });
            let inputs = self.variables.iter().filter(|variable| variable.name == *word && variable.is_input);
            for path in inputs.flat_map(|variable| variable.value.split(':')) {
                stamp.content(Path::new(path), &|_| false);
            }
        }
        stamp.finish()
    }

    /// Returns whether a requirement of a test is met.
    fn is_there(&self, word: &str) -> bool {
        match word {
            "mount" => *self.mounts.get_or_init(|| may_mount(self.children)),
            "netns" => *self.namespaces.get_or_init(|| network::may_create_namespaces(self.children)),
            _ if word.starts_with(|first: char| first.is_ascii_uppercase()) => {
                self.variables.iter().any(|variable| variable.name == word)
            }
            program => setup::find(program).is_some(),
        }
    }

    fn command(&self, program: &TestProgram) -> Command {
        let mut command = Command::new(&program.executable);
        command.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
        // An inherited variable would run a test that the summary counts as skipped.
        let of_tests = |name: &str| OUTSIDE.iter().any(|start| name.starts_with(start));
        let outside = std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(of_tests));
        outside.for_each(|(name, _)| {
            command.env_remove(name);
        });
        command.envs(self.variables.iter().map(|variable| (&variable.name, &variable.value)));
        command
    }

    /// Returns the program's list of tests, one JSON object a line.
    fn listed(&self, program: &TestProgram) -> Result<String> {
        let mut command = self.command(program);
        command.args(["--list", "--format=json", "-Zunstable-options"]);
        // Only this format contains the reasons of ignored tests. The variable enables
        // it in the stable library.
        command.env("RUSTC_BOOTSTRAP", "1").stderr(Stdio::inherit());
        self.children.printed(&mut command)
    }
}

/// Requirements of a program's tests, compared with those that are met.
#[derive(Debug, Default, PartialEq, Eq)]
struct Needs {
    /// Number of tests that cannot run, by the missing requirements.
    missing: BTreeMap<String, u64>,
    /// Names of these tests, and of tests that are ignored for another reason.
    skip: Vec<String>,
    /// Requirements of all tests.
    words: BTreeSet<String>,
}

impl Needs {
    fn of(listed: &str, is_there: impl Fn(&str) -> bool) -> Needs {
        let mut needs = Needs::default();
        for test in listed.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let (Some(name), true) = (test["name"].as_str(), test["ignore"] == true) else { continue };
            let reason = test["ignore_message"].as_str().unwrap_or_default();
            let Some(words) = reason.strip_prefix("needs ") else {
                needs.skip.push(name.to_owned());
                continue;
            };
            needs.words.extend(words.split_whitespace().map(str::to_owned));
            let lacks: Vec<&str> = words.split_whitespace().filter(|word| !is_there(word)).collect();
            if !lacks.is_empty() {
                *needs.missing.entry(lacks.join(" ")).or_default() += 1;
                needs.skip.push(name.to_owned());
            }
        }
        needs
    }
}

/// The counts in a program's last line: `test result: ok. 3 passed; 0 failed;
/// 1 ignored; ...`.
fn results(output: &str) -> TestCounts {
    let mut counts = TestCounts::default();
    let line = output.lines().rev().find_map(|line| line.strip_prefix("test result: "));
    for part in line.unwrap_or_default().split(['.', ';']) {
        if let Some((number, word)) = part.trim().split_once(' ')
            && let Ok(number) = number.parse()
        {
            match word {
                "passed" => counts.passed = number,
                "failed" => counts.failed = number,
                "ignored" => counts.ignored = number,
                _ => {}
            }
        }
    }
    counts
}

/// Duration of the last run of each program, ms.
#[derive(Default)]
struct ProgramDurations(BTreeMap<String, u64>);

impl ProgramDurations {
    const FILE: &'static str = "milliseconds.json";

    fn read(folder: &Path) -> ProgramDurations {
        let text = fs::read_to_string(folder.join(Self::FILE)).unwrap_or_default();
        ProgramDurations(serde_json::from_str(&text).unwrap_or_default())
    }

    /// Returns the duration of a program; the maximum if it never ran, as it may be long.
    fn of(&self, program: &TestProgram) -> u64 {
        self.0.get(&program.name()).copied().unwrap_or(u64::MAX)
    }

    fn set(&mut self, program: &TestProgram, seconds: f64) {
        self.0.insert(program.name(), (seconds * 1000.0) as u64);
    }

    fn write(&self, folder: &Path) {
        // The file only orders the next run, so an error is harmless.
        let _ = serde_json::to_vec(&self.0).map(|text| fs::write(folder.join(Self::FILE), text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn test_programs_are_read_from_cargos_messages() {
        let message = |test: bool, kind: &str| {
            json!({"reason": "compiler-artifact", "profile": {"test": test}, "executable": "/t/x-1",
                   "package_id": "path+file:///w/bench/model#serval-model@0.1.0",
                   "manifest_path": "/w/bench/model/Cargo.toml", "target": {"kind": [kind], "name": "laws"}})
        };
        assert!(program(&message(false, "bin")).is_none());
        assert_eq!(
            program(&message(true, "test")).map(|program| program.name()),
            Some("serval-model/laws".into())
        );
        assert_eq!(
            program(&message(true, "lib")).map(|program| program.name()),
            Some("serval-model/lib".into())
        );
        let executable = |of: &str| started(&message(false, "bin"), of);
        assert_eq!(executable("serval-model"), Some("/t/x-1".into()));
        assert_eq!(executable("serval"), None);
        assert_eq!(started(&message(true, "bin"), "serval-model"), None);
        assert_eq!(package("path+file:///w/xtask#0.1.0").as_deref(), Some("xtask"));
    }

    #[test]
    fn a_test_runs_if_all_its_requirements_are_met() {
        let listed = [
            json!({"name": "plain", "ignore": false, "ignore_message": null}),
            json!({"name": "one", "ignore": true, "ignore_message": "needs A"}),
            json!({"name": "two", "ignore": true, "ignore_message": "needs A B"}),
            json!({"name": "soaked", "ignore": true, "ignore_message": "takes an hour"}),
        ];
        let listed = listed.map(|line| line.to_string()).join("\n");
        let needs = Needs::of(&listed, |word| word == "A");
        assert_eq!(needs.missing, BTreeMap::from([("B".to_owned(), 1)]));
        assert_eq!(needs.skip, ["two", "soaked"]);
        assert_eq!(needs.words.into_iter().collect::<Vec<_>>(), ["A", "B"]);
        assert!(Needs::of(&listed, |_| false).skip.contains(&"one".to_owned()));
    }

    #[test]
    fn counts_are_read_from_the_result_line() {
        let text = "running 3 tests\ntest a ... ok\n\ntest result: FAILED. 12 passed; 2 failed; 1 ignored; 0 measured\n";
        let counts = results(text);
        assert_eq!((counts.passed, counts.failed, counts.ignored), (12, 2, 1));
        assert_eq!(results("it died"), TestCounts::default());
    }
}
