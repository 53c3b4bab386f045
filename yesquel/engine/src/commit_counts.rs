//! Counters of the commit protocol between groups, for the status.

use crate::recovery_timer::RecoveryCause;
use yesquel_wire::{
    Decision, Request,
    status::{Bucket, CommitMessageCounts, RecoveryCounts, RecoveryStatus},
};

/// Buckets of the number of participants: 2, up to 4, up to 8, and so on.
const GROUP_BUCKETS: usize = 16;

/// Counters since the start.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CommitCounts {
    pub(crate) messages: CommitMessageCounts,
    recoveries: RecoveryStatus,
    /// Prepares that were refused because of a prepared or queued transaction.
    pub(crate) refused_prepared: u64,
    /// Commits of several groups of which this one is the first participant.
    by_groups: [u64; GROUP_BUCKETS],
}

impl CommitCounts {
    /// Counts a message of a client or of another group, if it belongs to a commit.
    pub(crate) fn received(&mut self, request: &Request<'_>) {
        let CommitMessageCounts { commits, prepares, decisions, stages, vote_questions, outcome_questions } =
            &mut self.messages;
        let count = match request {
            Request::Commit { .. } => commits,
            Request::Prepare { .. } => prepares,
            Request::Decide { .. } => decisions,
            Request::Stage { .. } | Request::Unstage { .. } => stages,
            Request::Resolve { .. } => vote_questions,
            Request::Outcome { .. } => outcome_questions,
            _ => return,
        };
        *count += 1;
    }

    /// Counts a commit at the first of its participants.
    pub(crate) fn committed(&mut self, groups: usize) {
        let bucket = groups.next_power_of_two().trailing_zeros() as usize;
        self.by_groups[bucket.saturating_sub(1).min(GROUP_BUCKETS - 1)] += 1;
    }

    /// Commits of several groups, by the number of groups.
    pub(crate) fn by_groups(&self) -> Vec<Bucket> {
        let counted = self.by_groups.iter().enumerate().filter(|(_, count)| **count > 0);
        counted.map(|(at, count)| Bucket { up_to: 2 << at, count: *count }).collect()
    }

    fn of(&mut self, cause: RecoveryCause) -> &mut RecoveryCounts {
        match cause {
            RecoveryCause::Waiter => &mut self.recoveries.waiter,
            RecoveryCause::Connection => &mut self.recoveries.connection,
            RecoveryCause::Client => &mut self.recoveries.client,
            RecoveryCause::Age => &mut self.recoveries.age,
        }
    }

    /// Counts the first attempt of a recovery.
    pub(crate) fn recovery_started(&mut self, cause: RecoveryCause) {
        self.of(cause).started += 1;
    }

    /// Counts the end of a recovery: what it has decided, or nothing if the client has.
    pub(crate) fn recovery_ended(&mut self, cause: RecoveryCause, decision: Option<Decision>) {
        let counts = self.of(cause);
        match decision {
            Some(Decision::Commit(_)) => counts.committed += 1,
            Some(Decision::Abort) => counts.aborted += 1,
            None => counts.by_client += 1,
        }
    }

    pub(crate) fn recoveries(&self) -> RecoveryStatus {
        self.recoveries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_are_counted_by_the_number_of_groups() {
        let mut counts = CommitCounts::default();
        [2, 3, 4, 5, 8, 9, usize::from(u16::MAX)].into_iter().for_each(|groups| counts.committed(groups));
        let buckets = counts.by_groups();
        let buckets: Vec<(u64, u64)> = buckets.iter().map(|bucket| (bucket.up_to, bucket.count)).collect();
        assert_eq!(buckets, [(2, 1), (4, 2), (8, 2), (16, 1), (65_536, 1)]);
    }
}
