//! Selection of the processes to watch.

use crate::{System, parse};
use std::collections::BTreeSet;

/// How the user names a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// By its process id.
    Process(u32),
    /// By a part of its command line, the arguments joined by spaces.
    Command(String),
}

impl Selection {
    /// Parses one entry of a list: digits are a process id, anything else a part of a command line.
    /// Returns `None` for an empty entry.
    pub fn parse(text: &str) -> Option<Selection> {
        let text = text.trim();
        match text.parse() {
            _ if text.is_empty() => None,
            Ok(process) => Some(Selection::Process(process)),
            Err(_) => Some(Selection::Command(text.to_owned())),
        }
    }
}

/// Processes that are watched together.
///
/// The group includes all descendants, whenever they started, so a server that forks per connection
/// is named by its first process. This process is excluded unless it was found itself. The usage of
/// a process that ended in between is known if its parent waited for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessGroup {
    /// Process ids with their start times.
    pub(crate) processes: Vec<(u32, u64)>,
    command: Vec<String>,
}

impl ProcessGroup {
    /// Ids of the processes found, in rising order.
    pub fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(|(pid, _)| *pid).collect()
    }

    /// Arguments of the first process.
    pub fn command(&self) -> &[String] {
        &self.command
    }
}

/// There is no such process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotFound {
    /// No process has this id.
    #[error("no process on this machine has the id {0}")]
    Process(u32),
    /// No command line has this in it.
    #[error("no process on this machine has '{0}' in its command line")]
    Command(String),
}

/// Marks the command line of a watching client. A client that watches `redis-server` has that word
/// in its own command line, and so do its shell and other clients that run at the same time.
const WATCHES: &str = "watch=";

impl System {
    pub(crate) fn stat(&self, pid: u32) -> Option<parse::Stat> {
        parse::stat(&self.text(format!("{pid}/stat"))?)
    }

    fn arguments(&self, pid: u32) -> Vec<String> {
        let bytes = self.read(format!("{pid}/cmdline")).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        text.trim_end_matches('\0').split('\0').map(str::to_owned).collect()
    }

    fn group(&self, pids: impl IntoIterator<Item = u32>) -> Option<ProcessGroup> {
        let processes = pids.into_iter().filter_map(|pid| Some((pid, self.stat(pid)?.began)));
        let mut processes: Vec<_> = processes.collect();
        processes.sort_unstable();
        let command = self.arguments(processes.first()?.0);
        Some(ProcessGroup { processes, command })
    }

    /// The group of this process and its descendants.
    pub fn own(&self) -> ProcessGroup {
        let none = ProcessGroup { processes: vec![(self.own, 0)], command: Vec::new() };
        self.group([self.own]).unwrap_or(none)
    }

    /// This process and its ancestors.
    fn ancestry(&self) -> BTreeSet<u32> {
        let mut all = BTreeSet::new();
        let mut next = Some(self.own);
        while let Some(pid) = next.filter(|pid| *pid > 0 && all.insert(*pid)) {
            next = self.stat(pid).map(|stat| stat.parent);
        }
        all
    }

    /// Finds processes. A part of a command line matches every process that has it, except this
    /// process, its ancestors and other watching clients.
    pub fn find(&self, selection: &Selection) -> Result<ProcessGroup, NotFound> {
        match selection {
            Selection::Process(pid) => self.group([*pid]).ok_or(NotFound::Process(*pid)),
            Selection::Command(part) => {
                let ancestry = self.ancestry();
                let matches = |pid: &u32| {
                    let line = self.arguments(*pid).join(" ");
                    line.contains(part) && !line.contains(WATCHES)
                };
                let all = self.numbers("").unwrap_or_default().into_iter();
                let found = all.filter(|pid| !ancestry.contains(pid)).filter(matches);
                self.group(found).ok_or_else(|| NotFound::Command(part.clone()))
            }
        }
    }
}
