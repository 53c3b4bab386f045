//! Reads that must be recent.

use std::collections::BTreeMap;

/// Reads by how far they are: waiting for a round, in a round, or answered with an index that is not
/// applied yet.
#[derive(Debug, Default)]
pub(crate) struct PendingReads {
    waiting: Vec<u64>,
    rounds: BTreeMap<u64, Vec<u64>>,
    confirmed: Vec<(u64, u64)>,
    last_round: u64,
}

impl PendingReads {
    /// Adds a read. It takes part in the next round, never in one under way: an entry may have been
    /// acknowledged since that began.
    pub(crate) fn add(&mut self, read: u64) {
        self.waiting.push(read);
    }

    /// A number for a round of any kind.
    pub(crate) fn new_round(&mut self) -> u64 {
        self.last_round += 1;
        self.last_round
    }

    /// Begins a round of all that wait.
    pub(crate) fn begin(&mut self) -> Option<u64> {
        if self.waiting.is_empty() {
            return None;
        }
        let round = self.new_round();
        self.rounds.insert(round, std::mem::take(&mut self.waiting));
        Some(round)
    }

    /// A majority has confirmed the lead in a round. Returns whether it was a round of reads.
    pub(crate) fn confirm(&mut self, round: u64, index: u64) -> bool {
        let Some(reads) = self.rounds.remove(&round) else { return false };
        self.confirmed.extend(reads.into_iter().map(|read| (read, index)));
        true
    }

    /// Reads whose index is applied.
    pub(crate) fn answered(&mut self, applied: u64) -> Vec<(u64, u64)> {
        self.confirmed.extract_if(.., |(_, index)| *index <= applied).collect()
    }

    /// Ends all reads, as the lead is lost.
    pub(crate) fn fail(&mut self) -> Vec<u64> {
        let mut failed = std::mem::take(&mut self.waiting);
        failed.extend(std::mem::take(&mut self.rounds).into_values().flatten());
        failed.extend(self.confirmed.drain(..).map(|(read, _)| read));
        failed
    }
}
