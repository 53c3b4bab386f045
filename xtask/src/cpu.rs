//! Processor time of running processes, from /proc.

use std::fs;
use std::time::Duration;

use crate::Result;

/// Indexes of the fields of `/proc/PID/stat` that follow the name.
const PROCESS_GROUP: usize = 2;
const USER_TICKS: usize = 11;
const SYSTEM_TICKS: usize = 12;
const CHILDREN_USER_TICKS: usize = 13;
const CHILDREN_SYSTEM_TICKS: usize = 14;

/// Returns the processor time of all threads of a process.
pub(crate) fn of_process(pid: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).map_err(|error| error.to_string())?;
    ticks(&stat, &[USER_TICKS, SYSTEM_TICKS])
        .map(time)
        .ok_or_else(|| format!("/proc/{pid}/stat is not understood"))
}

/// Returns the processor time of all processes of a process group, with that of the children that
/// they have waited for.
pub(crate) fn of_group(group: u32) -> Result<Duration> {
    let entries = fs::read_dir("/proc").map_err(|error| format!("/proc: {error}"))?;
    // A process may end while the folder is read.
    let stats = entries.flatten().filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    let own = stats.filter(|stat| ticks(stat, &[PROCESS_GROUP]) == Some(u64::from(group)));
    let all = [USER_TICKS, SYSTEM_TICKS, CHILDREN_USER_TICKS, CHILDREN_SYSTEM_TICKS];
    Ok(time(own.filter_map(|stat| ticks(&stat, &all)).sum()))
}

/// Returns the sum of some fields.
fn ticks(stat: &str, fields: &[usize]) -> Option<u64> {
    // The name is in parentheses and may contain spaces.
    let values: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    fields.iter().map(|&at| values.get(at)?.parse::<u64>().ok()).sum()
}

fn time(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_after_the_name() {
        let stat = "42 (a) b (c) S 1 40 40 0 -1 4194560 1 2 0 0 7 5 30 20 20 0 1 0 9 9 9";
        assert_eq!(ticks(stat, &[PROCESS_GROUP]), Some(40));
        assert_eq!(ticks(stat, &[USER_TICKS, SYSTEM_TICKS]), Some(12));
        assert_eq!(ticks(stat, &[CHILDREN_USER_TICKS, CHILDREN_SYSTEM_TICKS]), Some(50));
        assert_eq!(ticks("42 (a) S 1", &[USER_TICKS]), None);
    }

    #[test]
    fn a_group_has_the_time_of_its_members() {
        let own = rustix::process::getpgrp().as_raw_pid().unsigned_abs();
        let process = of_process(std::process::id()).unwrap();
        assert!(of_group(own).unwrap() >= process);
    }
}
