//! Allowed cycles, one per line of `xtask/house.txt`, which may only shrink.

use std::collections::BTreeSet;

use super::survey::Cycle;
use crate::Result;

/// The list's place in the workspace.
pub(super) const LIST: &str = "xtask/house.txt";

/// A cycle in the list: its package, and its files by their paths in it.
#[derive(Debug, PartialEq, Eq)]
struct AllowedCycle {
    package: String,
    files: BTreeSet<String>,
}

impl AllowedCycle {
    /// Whether the list allows this cycle here: it has no file that the entry lacks.
    fn allows(&self, cycle: &Cycle) -> bool {
        self.package == cycle.package && cycle.files.is_subset(&self.files)
    }

    fn line(package: &str, files: &BTreeSet<String>) -> String {
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        format!("{package}: {}", files.join(" "))
    }
}

/// Compares cycles with the text of the list; returns the differences.
pub(super) fn compare(list: &str, cycles: &[Cycle]) -> Result<Vec<String>> {
    let entries = parse(list)?;
    let mut problems = Vec::new();
    for cycle in cycles {
        if !entries.iter().any(|entry| entry.allows(cycle)) {
            let line = AllowedCycle::line(&cycle.package, &cycle.files);
            problems.push(format!("a cycle of files that {LIST} does not allow: {line}"));
        }
    }
    for entry in &entries {
        let left: Vec<&Cycle> = cycles.iter().filter(|cycle| entry.allows(cycle)).collect();
        if left.iter().any(|cycle| cycle.files == entry.files) {
            continue;
        }
        let line = AllowedCycle::line(&entry.package, &entry.files);
        let now: Vec<String> =
            left.iter().map(|cycle| AllowedCycle::line(&cycle.package, &cycle.files)).collect();
        let replace = if now.is_empty() {
            "remove the line".to_owned()
        } else {
            format!("replace it by\n  {}", now.join("\n  "))
        };
        problems.push(format!("{LIST} allows a cycle that is smaller now or gone: {line}\n  {replace}"));
    }
    Ok(problems)
}

fn parse(list: &str) -> Result<Vec<AllowedCycle>> {
    let lines = list.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    let entries = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')).map(|(at, line)| {
        let (package, files) =
            line.split_once(": ").ok_or_else(|| format!("{LIST}:{at}: expected PACKAGE: FILE FILE..."))?;
        let files = files.split_whitespace().map(str::to_owned).collect();
        Ok(AllowedCycle { package: package.to_owned(), files })
    });
    entries.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycle(package: &str, files: &[&str]) -> Cycle {
        let files = files.iter().map(|file| (*file).to_owned()).collect();
        Cycle { package: package.to_owned(), files, arrows: Vec::new() }
    }

    #[test]
    fn the_listed_cycles_pass() {
        let list = "# Comment.\n\nengine: src/a.rs src/b.rs\nlog: src/c.rs src/d.rs\n";
        let cycles = [cycle("engine", &["src/a.rs", "src/b.rs"]), cycle("log", &["src/c.rs", "src/d.rs"])];
        assert_eq!(compare(list, &cycles), Ok(Vec::new()));
    }

    #[test]
    fn a_new_cycle_and_a_grown_one_fail() {
        let list = "engine: src/a.rs src/b.rs\n";
        let grown = [cycle("engine", &["src/a.rs", "src/b.rs", "src/c.rs"])];
        let problems = compare(list, &grown).expect("a sound list");
        assert!(problems[0].contains("does not allow: engine: src/a.rs src/b.rs src/c.rs"), "{problems:?}");
        let elsewhere = [cycle("engine", &["src/a.rs", "src/b.rs"]), cycle("log", &["src/a.rs", "src/b.rs"])];
        let problems = compare(list, &elsewhere).expect("a sound list");
        assert_eq!(problems.len(), 1);
        assert!(problems[0].contains("does not allow: log: "), "{problems:?}");
    }

    #[test]
    fn a_line_whose_cycle_is_smaller_or_gone_must_shrink() {
        let list = "engine: a b c d e\nlog: f g\n";
        let cycles = [cycle("engine", &["a", "b"]), cycle("engine", &["d", "e"])];
        let problems = compare(list, &cycles).expect("a sound list");
        assert_eq!(problems.len(), 2);
        assert!(problems[0].ends_with("replace it by\n  engine: a b\n  engine: d e"), "{problems:?}");
        assert!(problems[1].ends_with("gone: log: f g\n  remove the line"), "{problems:?}");
    }

    #[test]
    fn an_unreadable_line_is_named() {
        assert_eq!(
            compare("engine src/a.rs\n", &[]),
            Err("xtask/house.txt:1: expected PACKAGE: FILE FILE...".to_owned())
        );
    }
}
