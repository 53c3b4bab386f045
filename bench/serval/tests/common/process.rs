//! Processes that a test did not start itself.

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    process::{Pid, PidfdFlags, pidfd_open},
};
use std::fs;

/// Longest time for a process to end on the slowest machine.
const END_MAX: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// A process started by the one under test, distinguished from a later one with the same id.
#[derive(Debug)]
pub struct Process {
    pub command: String,
    handle: OwnedFd,
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<u32>>())
        .collect()
}

/// Returns all descendants of a process.
pub fn descendants(pid: u32) -> Vec<Process> {
    let below = children(pid).into_iter().flat_map(|child| {
        let handle = pidfd_open(Pid::from_raw(child as i32).unwrap(), PidfdFlags::empty()).ok();
        let command =
            fs::read_to_string(format!("/proc/{child}/cmdline")).unwrap_or_default().replace('\0', " ");
        let own = handle.map(|handle| Process { command, handle });
        own.into_iter().chain(descendants(child))
    });
    below.collect()
}

/// Waits for its end.
#[track_caller]
pub fn ended(process: &Process) {
    let mut files = [PollFd::new(&process.handle, PollFlags::IN)];
    assert_eq!(poll(&mut files, Some(&END_MAX)), Ok(1), "'{}' has not ended", process.command);
}
