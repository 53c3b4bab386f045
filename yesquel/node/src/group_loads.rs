//! Loads of groups, as their servers report them.

use std::collections::BTreeMap;
use yesquel_engine::Now;
use yesquel_model::ServerId;
use yesquel_tree::GroupLoad;

/// How long after a report a group counts as one that answers, in milliseconds.
const ANSWERS_MS: u64 = 1_000;

/// Length of the time in which requests are counted, in milliseconds.
const COUNTED_MS: u64 = 1_000;

/// The own load, and those of other groups.
#[derive(Debug, Default)]
pub(crate) struct GroupLoads {
    others: BTreeMap<ServerId, (u64, GroupLoad)>,
    /// Requests until a time, and in the second before it.
    counted: (u64, u64),
    requests: u64,
}

impl GroupLoads {
    /// Takes the load that another group has reported.
    pub(crate) fn hear(&mut self, now: Now, group: ServerId, load: GroupLoad) {
        self.others.insert(group, (now.uptime_ms, load));
    }

    /// Counts the requests of the own group, of which there were `all` so far.
    pub(crate) fn count(&mut self, now: Now, all: u64) {
        let (since_ms, before) = self.counted;
        let passed_ms = now.uptime_ms.saturating_sub(since_ms);
        if passed_ms >= COUNTED_MS {
            self.requests = all.saturating_sub(before) * 1_000 / passed_ms;
            self.counted = (now.uptime_ms, all);
        }
    }

    /// Returns the requests of the own group in the last second.
    pub(crate) fn requests(&self) -> u64 {
        self.requests
    }

    /// Returns the groups that have reported in the last second, with their loads.
    pub(crate) fn others(&self, now: Now) -> impl Iterator<Item = (ServerId, GroupLoad)> {
        let answers = move |heard_ms: u64| heard_ms + ANSWERS_MS >= now.uptime_ms;
        self.others
            .iter()
            .filter(move |(_, (heard_ms, _))| answers(*heard_ms))
            .map(|(group, (_, load))| (*group, *load))
    }
}
