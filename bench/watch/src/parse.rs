//! Parsers of the files in `/proc`. Process names in them are untrusted input.

use crate::machine::Machine;

/// A process, by `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Stat {
    pub(crate) parent: u32,
    /// CPU time of all its threads, including ended ones, in ticks.
    pub(crate) own: u64,
    /// CPU time of reaped children, in ticks.
    pub(crate) ended_children: u64,
    /// Start time, in ticks since boot. Process id and start time identify a process uniquely.
    pub(crate) began: u64,
}

pub(crate) fn stat(text: &str) -> Option<Stat> {
    // The name is in parentheses and may contain parentheses and spaces itself.
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // `proc_pid_stat(5)` counts from 1 and the state is the third.
    let field = |number: usize| fields.get(number - 3).copied();
    // Times of children are signed there.
    let ticks = |number: usize| Some(field(number)?.parse::<i64>().ok()?.max(0) as u64);
    Some(Stat {
        parent: field(4)?.parse().ok()?,
        own: ticks(14)?.saturating_add(ticks(15)?),
        ended_children: ticks(16)?.saturating_add(ticks(17)?),
        began: field(22)?.parse().ok()?,
    })
}

/// A thread's CPU time and run-queue wait, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SchedulerTimes {
    pub(crate) ran: u64,
    pub(crate) waited: u64,
}

pub(crate) fn schedule(text: &str) -> Option<SchedulerTimes> {
    let mut fields = text.split_ascii_whitespace();
    Some(SchedulerTimes { ran: fields.next()?.parse().ok()?, waited: fields.next()?.parse().ok()? })
}

/// A line `name: 12 kB`, in bytes.
pub(crate) fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_ascii_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The line of all processors in `/proc/stat`.
pub(crate) fn machine(text: &str) -> Option<Machine> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    // user nice system idle iowait irq softirq steal; guests are part of user.
    let fields = line.split_ascii_whitespace().take(8).map(|field| field.parse::<u64>().ok());
    let fields: Vec<u64> = fields.collect::<Option<_>>()?;
    let all = fields.iter().fold(0, |sum: u64, field| sum.saturating_add(*field));
    let idle = fields.get(3)?.saturating_add(*fields.get(4).unwrap_or(&0));
    Some(Machine { busy: all - idle.min(all), all })
}

/// The number of a descriptor's socket: `socket:[123]`.
pub(crate) fn socket(link: &str) -> Option<u32> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_process_may_have_any_name() {
        let numbers = "S 7 1 1 0 -1 4194304 123 0 0 0 250 50 30 -1 20 0 1 0 180285 3932160 520";
        for name in ["redis-server", "a) R 9 9 (b", "", ") (", "x y\n"] {
            let text = format!("12 ({name}) {numbers}");
            let expected = Stat { parent: 7, own: 300, ended_children: 30, began: 180_285 };
            assert_eq!(stat(&text), Some(expected), "{text}");
        }
        assert_eq!(stat("12 (x) S 7 1"), None);
        assert_eq!(stat("12 x S"), None);
    }

    #[test]
    fn machines_are_busy_when_not_idle_and_not_waiting_for_disks() {
        let text = "cpu  100 5 50 800 40 2 3 0 77 0\ncpu0 1 2 3 4\n";
        assert_eq!(machine(text), Some(Machine { busy: 160, all: 1000 }));
        assert_eq!(machine("cpu  1 2 x 4\n"), None);
        assert_eq!(machine("cpu  1 2 3\n"), None);
        assert_eq!(machine("cpu0 1 2 3 4\n"), None);
    }

    #[test]
    fn memory_sizes_are_in_kilobytes() {
        let text = "Name:\tVmRSS: 7\nVmRSS:\t    1616 kB\nRssAnon: 1 kB\n";
        assert_eq!(kilobytes(text, "VmRSS"), Some(1616 * 1024));
        assert_eq!(kilobytes(text, "Rss"), None);
        assert_eq!(kilobytes(&format!("VmRSS: {}", u64::MAX), "VmRSS"), None);
    }

    #[test]
    fn descriptors_of_sockets_are_recognized() {
        assert_eq!(socket("socket:[4711]"), Some(4711));
        for other in ["socket:[x]", "socket:[5", "pipe:[5]", "/a/socket:[5]", "socket:[99999999999]"] {
            assert_eq!(socket(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_does_not_panic(text in "[0-9 ()a-zA-Z:\\n\\-\\[\\]]{0,300}", any in ".{0,100}") {
            for text in [&text, &any] {
                let _ = (stat(text), schedule(text), machine(text), kilobytes(text, "VmRSS"), socket(text));
                let _ = (stat(&format!("1 (x) {text}")), machine(&format!("cpu {text}")));
            }
        }

        #[test]
        fn written_stamps_are_parsed(own in 0u64..1 << 62, children in 0u64..1 << 62, began: u64, parent: u32,
                                   name in "[ -~]{0,15}") {
            let text = format!("9 ({name}) R {parent} 0 0 0 0 0 0 0 0 0 {own} 1 {children} 2 0 0 1 0 {began} 0");
            let stat = stat(&text).unwrap();
            prop_assert_eq!(stat, Stat { parent, own: own + 1, ended_children: children + 2, began });
        }
    }
}
