//! The strict list: the tests that differ, and the reasons.
//!
//! ```text
//! fault 1: DESCRIPTION
//! SCRIPT  TEST  REASON
//! ```
//!
//! TEST is one of:
//! * the name of a test;
//! * a prefix followed by `*`: all tests with it must fail;
//! * `*`: the script fails, whichever its tests;
//! * how the script ends: `(crash)`, `(hang)`, `(stop)`, `(leak)`.

use std::collections::{BTreeMap, BTreeSet};

use crate::Result;
use crate::tcl::script::ScriptOutcome;

/// Reasons for a difference, with their meaning.
const REASONS: &[(&str, &str)] = &[
    ("stock", "fails with SQLite's own files too: the tests are older than the SQLite, or fail as root"),
    ("pages", "reads pages: the file's format or size, the numbers of roots, auto-vacuum, a damaged file"),
    ("journal", "reads journals: their modes, their files, their state after a crash"),
    ("locks", "expects the locks of one file, or several processes that open it"),
    ("vfs", "needs a VFS, or counts its calls"),
    ("plan", "counts steps, pages or sorts, or checks a plan that depends on statistics"),
    (
        "copies",
        "copies the file of an open database many times; each copy waits for its clock, as after a crash",
    ),
    (
        "collation",
        "changes a collation without rebuilding its index; the order of such an index is undefined here",
    ),
    ("limits", "a limit differs or does not exist"),
    ("memory", "injects failures of memory or disk into code that is Rust here"),
    (CLUSTER, "with --cluster only: the other reasons then allow failures, and do not demand them"),
];

/// Reason of a test that fails at a cluster only.
const CLUSTER: &str = "cluster";

/// Known differences by script.
#[derive(Default)]
pub(crate) struct Expected {
    faults: BTreeMap<u32, String>,
    scripts: BTreeMap<String, Vec<(String, String)>>,
    kind: ListedKind,
}

/// Kind of databases for which the list has differences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ListedKind {
    #[default]
    Folders,
    /// SQLite's files.
    Stock,
    /// Databases at several servers.
    Cluster,
}

impl Expected {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut expected = Self::default();
        let mut used = BTreeSet::new();
        for (number, line) in text.lines().enumerate() {
            let wrong = |what: &str| format!("line {} of the list: {what}: {line}", number + 1);
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some((fault, what)) = line.strip_prefix("fault ").and_then(|rest| rest.split_once(": ")) {
                let fault = fault.parse().map_err(|_| wrong("the fault's number is not a number"))?;
                if expected.faults.insert(fault, what.to_owned()).is_some() {
                    return Err(wrong("this fault is already in the list"));
                }
                continue;
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            let [script, test, reason] = words[..] else {
                return Err(wrong("the format is SCRIPT TEST REASON"));
            };
            match reason.strip_prefix("fault:").map(str::parse::<u32>) {
                Some(Ok(fault)) => {
                    used.insert(fault);
                }
                None if REASONS.iter().any(|(known, _)| *known == reason) => {}
                _ => return Err(wrong("unknown reason")),
            }
            let tests = expected.scripts.entry(script.to_owned()).or_default();
            if tests.iter().any(|(known, _)| known == test) {
                return Err(wrong("this test is already in the list"));
            }
            tests.push((test.to_owned(), reason.to_owned()));
        }
        let known: BTreeSet<u32> = expected.faults.keys().copied().collect();
        if let Some(fault) = known.symmetric_difference(&used).next() {
            return Err(format!(
                "the list describes fault {fault} and does not use it, or uses it without a description"
            ));
        }
        Ok(expected)
    }

    /// The list for databases of a kind.
    pub(crate) fn of_kind(mut self, kind: ListedKind) -> Self {
        self.kind = kind;
        self
    }

    pub(crate) fn scripts(&self) -> impl Iterator<Item = &str> {
        self.scripts.keys().map(String::as_str)
    }

    /// Returns whether a script is known to hang.
    pub(crate) fn hangs(&self, script: &str) -> bool {
        self.of(script).iter().any(|(test, _)| test == "(hang)")
    }

    /// Returns whether an entry is for the kind of databases.
    fn is_of_kind(&self, (_, reason): &(String, String)) -> bool {
        match self.kind {
            ListedKind::Folders => reason != CLUSTER,
            ListedKind::Stock => reason == "stock",
            ListedKind::Cluster => true,
        }
    }

    fn all_of(&self, script: &str) -> &[(String, String)] {
        self.scripts.get(script).map_or(&[], Vec::as_slice)
    }

    fn of(&self, script: &str) -> Vec<&(String, String)> {
        self.all_of(script).iter().filter(|entry| self.is_of_kind(entry)).collect()
    }

    /// Compares an outcome with the list.
    pub(crate) fn differences(&self, script: &str, outcome: &ScriptOutcome) -> ListDifferences {
        let mut differences = self.all_differences(script, outcome);
        if self.kind == ListedKind::Cluster {
            // Some tests fail in folders only.
            let listed = self.of(script);
            let is_own = |test: &String| listed.iter().any(|(known, why)| known == test && why == CLUSTER);
            differences.passes.retain(is_own);
        }
        differences
    }

    fn all_differences(&self, script: &str, outcome: &ScriptOutcome) -> ListDifferences {
        let listed = self.of(script);
        let failed: Vec<String> = outcome.failures();
        if listed.iter().any(|(test, _)| test == "*") {
            let passes = if failed.is_empty() { vec!["*".to_owned()] } else { Vec::new() };
            return ListDifferences { known: failed.len(), unlisted: Vec::new(), passes };
        }
        let unlisted: Vec<String> =
            failed.iter().filter(|name| !listed.iter().any(|test| is_meant(name, test))).cloned().collect();
        let mut passes: Vec<String> = listed
            .iter()
            .filter(|test| !failed.iter().any(|name| is_meant(name, test)))
            .map(|(test, _)| test.clone())
            .collect();
        // A prefix means that all tests with it fail.
        let several = listed.iter().filter(|(test, _)| test.ends_with('*'));
        for test in several {
            passes.extend(outcome.passed.iter().filter(|name| is_meant(name, test)).cloned());
        }
        ListDifferences { known: failed.len() - unlisted.len(), unlisted, passes }
    }

    /// Returns the list's text for these outcomes. New entries get `reason`; entries of
    /// scripts that did not run stay.
    pub(crate) fn rewritten(&self, outcomes: &BTreeMap<String, ScriptOutcome>, reason: &str) -> String {
        let mut text = String::new();
        for (fault, what) in &self.faults {
            text += &format!("fault {fault}: {what}\n");
        }
        let names: BTreeSet<&str> = self.scripts().chain(outcomes.keys().map(String::as_str)).collect();
        for script in names {
            let listed = self.of(script);
            let others = self.all_of(script).iter().filter(|entry| !self.is_of_kind(entry));
            let mut line = |test: &str, reason: &str| text += &format!("{script:<20} {test:<32} {reason}\n");
            if self.kind == ListedKind::Cluster {
                let is_kept =
                    |(_, why): &&&(String, String)| why != CLUSTER || !outcomes.contains_key(script);
                let kept: Vec<&(String, String)> = listed.iter().filter(is_kept).copied().collect();
                kept.iter().for_each(|(test, reason)| line(test, reason));
                let failed = outcomes.get(script).map(ScriptOutcome::failures).unwrap_or_default();
                let is_new = |name: &&String| !kept.iter().any(|entry| is_meant(name, entry));
                failed.iter().filter(is_new).for_each(|test| line(test, CLUSTER));
                continue;
            }
            others.for_each(|(test, reason)| line(test, reason));
            let is_whole = listed.iter().any(|(test, _)| test == "*");
            let Some(outcome) =
                outcomes.get(script).filter(|outcome| !is_whole || outcome.failures().is_empty())
            else {
                listed.iter().for_each(|(test, reason)| line(test, reason));
                continue;
            };
            for test in shortened(outcome) {
                // The reason that the test had, or the only reason of the script.
                let same = listed.iter().find(|(known, _)| *known == test);
                let reasons: BTreeSet<&str> = listed.iter().map(|(_, reason)| reason.as_str()).collect();
                let only = reasons.first().filter(|_| reasons.len() == 1).copied();
                line(&test, same.map(|(_, reason)| reason.as_str()).or(only).unwrap_or(reason));
            }
        }
        text
    }
}

/// Returns the failures of a script. Failures with a common prefix become one entry
/// if no test with the prefix passes.
fn shortened(outcome: &ScriptOutcome) -> Vec<String> {
    let failures = outcome.failures();
    let mut short: Vec<String> = Vec::new();
    for name in &failures {
        if short.iter().any(|test| test.strip_suffix('*').is_some_and(|start| name.starts_with(start))) {
            continue;
        }
        let ends = name.char_indices().filter(|(_, c)| ".-".contains(*c)).map(|(at, _)| &name[..=at]);
        let start = ends.into_iter().find(|start| {
            let fails = failures.iter().filter(|other| other.starts_with(start)).count();
            fails > 2 && !outcome.passed.iter().any(|passed| passed.starts_with(start))
        });
        short.push(start.map_or_else(|| name.clone(), |start| format!("{start}*")));
    }
    short
}

/// Returns whether an entry is about a test.
fn is_meant(name: &str, (test, _): &(String, String)) -> bool {
    match test.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == test,
    }
}

/// Differences between an outcome and the list.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ListDifferences {
    /// Number of listed failures.
    pub(crate) known: usize,
    /// Failures that are not listed.
    pub(crate) unlisted: Vec<String>,
    /// Entries of the list without a failure.
    pub(crate) passes: Vec<String>,
}

impl ListDifferences {
    pub(crate) fn is_none(&self) -> bool {
        self.unlisted.is_empty() && self.passes.is_empty()
    }
}

/// Returns the reasons, for the help text.
pub(crate) fn reasons() -> String {
    REASONS.iter().map(|(name, meaning)| format!("  {name:<9} {meaning}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcl::script::Ending;

    fn outcome(passed: &[&str], failed: &[&str]) -> ScriptOutcome {
        let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        ScriptOutcome {
            passed: set(passed),
            failed: set(failed),
            ending: Ending::Finished,
            ..ScriptOutcome::default()
        }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn unlisted_failures_and_listed_passes_are_differences() {
        let list = Expected::parse("fault 7: slow\ns s-1.1 pages\ns s-2.* fault:7\nt * journal\n").unwrap();
        let none = list.differences("s", &outcome(&["s-1.2"], &["s-1.1", "s-2.1"]));
        assert_eq!((none.is_none(), none.known), (true, 2));
        let new = list.differences("s", &outcome(&[], &["s-1.1", "s-2.1", "s-3"]));
        assert_eq!((new.unlisted, new.passes), (names(&["s-3"]), vec![]));
        let passes = list.differences("s", &outcome(&["s-1.1", "s-2.2"], &["s-2.1"]));
        assert_eq!((passes.unlisted, passes.passes), (vec![], names(&["s-1.1", "s-2.2"])));
        assert!(list.differences("t", &outcome(&[], &["t-1"])).is_none());
        assert_eq!(list.differences("t", &outcome(&["t-1"], &[])).passes, names(&["*"]));
        let mut crash = outcome(&[], &["s-1.1", "s-2.1"]);
        crash.ending = Ending::Crash;
        assert_eq!(list.differences("s", &crash).unlisted, names(&["(crash)"]));
    }

    #[test]
    fn a_cluster_demands_its_own_failures_only() {
        let list = || Expected::parse("s s-1 pages\ns s-2 cluster\n").unwrap();
        let passes = list().of_kind(ListedKind::Cluster).differences("s", &outcome(&["s-1"], &["s-2"]));
        assert!(passes.is_none(), "{passes:?}");
        let passes =
            list().of_kind(ListedKind::Cluster).differences("s", &outcome(&["s-2"], &["s-1", "s-3"]));
        assert_eq!((passes.passes, passes.unlisted), (names(&["s-2"]), names(&["s-3"])));
        let fails = list().of_kind(ListedKind::Folders).differences("s", &outcome(&[], &["s-1", "s-2"]));
        assert_eq!((fails.passes, fails.unlisted), (vec![], names(&["s-2"])));
    }

    #[test]
    fn each_entry_needs_a_known_reason() {
        assert!(Expected::parse("s s-1 because\n").is_err());
        assert!(Expected::parse("s s-1 fault:1\n").is_err());
        assert!(Expected::parse("fault 1: unused\n").is_err());
        assert!(Expected::parse("s s-1 pages\ns s-1 plan\n").is_err());
        assert!(Expected::parse("# nothing\n\n").is_ok());
    }

    #[test]
    fn failures_with_a_common_prefix_become_one_entry() {
        let list = Expected::parse("s s-1.1 pages\nu u-1 plan\n").unwrap();
        let outcome = outcome(&["s-1.9"], &["s-1.1", "s-2.1", "s-2.2", "s-2.3"]);
        let text = list.rewritten(&BTreeMap::from([("s".to_owned(), outcome)]), "plan");
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines, [["s", "s-1.1", "pages"], ["s", "s-2.*", "pages"], ["u", "u-1", "plan"]]);
    }
}
