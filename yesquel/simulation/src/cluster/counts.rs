//! What happened in a run.

use crate::PathCounts;

/// How often each event happened in a run.
#[derive(Debug, Default, Clone, Copy)]
pub struct EventCounts {
    /// Processes that died.
    pub deaths: u64,
    /// Server restarts.
    pub restarts: u64,
    /// Power failures in the middle of a disk operation.
    pub power_losses: u64,
    /// Failed disk operations, but not for lack of space.
    pub disk_failures: u64,
    /// Full disks.
    pub full_disks: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Transactions whose outcome a server found by asking the other participants.
    pub recovered: u64,
    /// Broken connections.
    pub cuts: u64,
    /// Stopped processes of servers.
    pub freezes: u64,
    /// Requests that came to the wrong place.
    pub corrections: u64,
    /// Servers that started at another address.
    pub moves: u64,
    /// Messages that arrived twice.
    pub copies: u64,
    /// Paths of the protocols.
    pub paths: PathCounts,
}

impl EventCounts {
    /// All counts but those of the paths.
    fn counters(&mut self) -> [&mut u64; 12] {
        let EventCounts {
            deaths,
            restarts,
            power_losses,
            disk_failures,
            full_disks,
            checkpoints,
            recovered,
            cuts,
            freezes,
            corrections,
            moves,
            copies,
            paths: _,
        } = self;
        [
            deaths,
            restarts,
            power_losses,
            disk_failures,
            full_disks,
            checkpoints,
            recovered,
            cuts,
            freezes,
            corrections,
            moves,
            copies,
        ]
    }

    /// All counts but those of the paths.
    pub fn all(mut self) -> [u64; 12] {
        self.counters().map(|count| *count)
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &EventCounts) {
        self.paths.add_all(&other.paths);
        self.counters().into_iter().zip(other.all()).for_each(|(sum, more)| *sum += more);
    }
}
