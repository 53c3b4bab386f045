//! The strict list: which tests differ, and why.
//!
//! ```text
//! fault 1: what it is
//! SCRIPT  TEST  REASON
//! ```
//!
//! TEST is the name of a test; the beginning of the names of several, ended by
//! `*`, of which all must fail; `*` for a script of which it is only said that
//! it does not pass; or how the script ends: `(crash)`, `(hang)`, `(stop)`,
//! `(leak)`.

use std::collections::{BTreeMap, BTreeSet};

use crate::Result;
use crate::tcl::script::ScriptOutcome;

/// Reasons for a difference, with their meaning.
const REASONS: &[(&str, &str)] = &[
    ("stock", "so it is with SQLite's own files: the tests are older than the SQLite, or not for root"),
    (
        "pages",
        "looks at pages: the format of the file, its size, the numbers of roots, auto-vacuum, a damaged file",
    ),
    ("journal", "looks at journals: their modes, their files, what a crash leaves of them"),
    ("locks", "expects that writers and readers of one file wait for each other, or several processes at it"),
    ("vfs", "works by a VFS, or counts what one is asked"),
    ("plan", "counts steps, pages or what is sorted, or sees the plan that statistics give"),
    (
        "copies",
        "copies the file of an open database time and again, and each waits for the clock, as after a crash",
    ),
    ("collation", "changes what a collation does under its index, whose entries are here in no order of it"),
    ("limits", "a limit is another one, or is not there"),
    ("memory", "lets memory or the disk fail, in places that are Rust's here"),
];

/// Known differences by script.
#[derive(Default)]
pub(crate) struct Expected {
    faults: BTreeMap<u32, String>,
    scripts: BTreeMap<String, Vec<(String, String)>>,
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
                let fault = fault.parse().map_err(|_| wrong("a fault has a number"))?;
                if expected.faults.insert(fault, what.to_owned()).is_some() {
                    return Err(wrong("this fault was there before"));
                }
                continue;
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            let [script, test, reason] = words[..] else {
                return Err(wrong("it is SCRIPT TEST REASON"));
            };
            match reason.strip_prefix("fault:").map(str::parse::<u32>) {
                Some(Ok(fault)) => {
                    used.insert(fault);
                }
                None if REASONS.iter().any(|(known, _)| *known == reason) => {}
                _ => return Err(wrong("there is no such reason")),
            }
            let tests = expected.scripts.entry(script.to_owned()).or_default();
            if tests.iter().any(|(known, _)| known == test) {
                return Err(wrong("this was there before"));
            }
            tests.push((test.to_owned(), reason.to_owned()));
        }
        let known: BTreeSet<u32> = expected.faults.keys().copied().collect();
        if let Some(fault) = known.symmetric_difference(&used).next() {
            return Err(format!(
                "the list says what fault {fault} is and uses it nowhere, or the other way round"
            ));
        }
        Ok(expected)
    }

    /// What differs of SQLite itself.
    pub(crate) fn of_stock(mut self) -> Self {
        for tests in self.scripts.values_mut() {
            tests.retain(|(_, reason)| reason == "stock");
        }
        self
    }

    pub(crate) fn scripts(&self) -> impl Iterator<Item = &str> {
        self.scripts.keys().map(String::as_str)
    }

    /// Whether a script is known to hang: it is not worth the wait.
    pub(crate) fn hangs(&self, script: &str) -> bool {
        self.of(script).iter().any(|(test, _)| test == "(hang)")
    }

    fn of(&self, script: &str) -> &[(String, String)] {
        self.scripts.get(script).map_or(&[], Vec::as_slice)
    }

    /// Compares an outcome with the list.
    pub(crate) fn differences(&self, script: &str, outcome: &ScriptOutcome) -> ListDifferences {
        let listed = self.of(script);
        let failed: Vec<String> = outcome.failures();
        if listed.iter().any(|(test, _)| test == "*") {
            let passes = if failed.is_empty() { vec!["*".to_owned()] } else { Vec::new() };
            return ListDifferences { known: failed.len(), unlisted: Vec::new(), passes };
        }
        let is_meant = |name: &str, (test, _): &(String, String)| match test.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == test,
        };
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

    /// The list's text as the outcomes would have it. What is new has no reason
    /// yet; scripts that were not run stay as they are.
    pub(crate) fn rewritten(&self, outcomes: &BTreeMap<String, ScriptOutcome>, reason: &str) -> String {
        let mut text = String::new();
        for (fault, what) in &self.faults {
            text += &format!("fault {fault}: {what}\n");
        }
        let names: BTreeSet<&str> = self.scripts().chain(outcomes.keys().map(String::as_str)).collect();
        for script in names {
            let listed = self.of(script);
            let mut line = |test: &str, reason: &str| text += &format!("{script:<20} {test:<32} {reason}\n");
            let is_whole = listed.iter().any(|(test, _)| test == "*");
            let Some(outcome) =
                outcomes.get(script).filter(|outcome| !is_whole || outcome.failures().is_empty())
            else {
                listed.iter().for_each(|(test, reason)| line(test, reason));
                continue;
            };
            for test in shortened(outcome) {
                // As it was, or as the rest of the script.
                let same = listed.iter().find(|(known, _)| *known == test);
                let reasons: BTreeSet<&str> = listed.iter().map(|(_, reason)| reason.as_str()).collect();
                let only = reasons.first().filter(|_| reasons.len() == 1).copied();
                line(&test, same.map(|(_, reason)| reason.as_str()).or(only).unwrap_or(reason));
            }
        }
        text
    }
}

/// The failures of a script, those together that begin alike and of which none
/// passes.
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

/// How an outcome and the list differ.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ListDifferences {
    /// Failures that are listed.
    pub(crate) known: usize,
    /// Failures that are not.
    pub(crate) unlisted: Vec<String>,
    /// Listed, and nothing of it fails.
    pub(crate) passes: Vec<String>,
}

impl ListDifferences {
    pub(crate) fn is_none(&self) -> bool {
        self.unlisted.is_empty() && self.passes.is_empty()
    }
}

/// The reasons, for the help.
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
    fn what_is_listed_fails_and_what_fails_is_listed() {
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
    fn a_list_says_why() {
        assert!(Expected::parse("s s-1 because\n").is_err());
        assert!(Expected::parse("s s-1 fault:1\n").is_err());
        assert!(Expected::parse("fault 1: unused\n").is_err());
        assert!(Expected::parse("s s-1 pages\ns s-1 plan\n").is_err());
        assert!(Expected::parse("# nothing\n\n").is_ok());
    }

    #[test]
    fn a_list_is_written_as_short_as_it_can_be() {
        let list = Expected::parse("s s-1.1 pages\nu u-1 plan\n").unwrap();
        let outcome = outcome(&["s-1.9"], &["s-1.1", "s-2.1", "s-2.2", "s-2.3"]);
        let text = list.rewritten(&BTreeMap::from([("s".to_owned(), outcome)]), "plan");
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines, [["s", "s-1.1", "pages"], ["s", "s-2.*", "pages"], ["u", "u-1", "plan"]]);
    }
}
