//! What an engine goes by.

use crate::techniques::Techniques;
use yesquel_model::ServerId;

/// What an engine goes by.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Who it is.
    pub server: ServerId,
    /// How long a snapshot can be read by one who has not said that he holds
    /// it, in milliseconds.
    pub grace_ms: u64,
    /// The age that a snapshot may have, in milliseconds.
    pub snapshot_age_ms_max: u64,
    /// After how long somebody who waits for an undecided transaction has its
    /// participants asked, in milliseconds.
    pub recover_after_ms: u64,
    /// How long it is known how a transaction ended whose client is not heard
    /// of, in milliseconds.
    pub ends_kept_ms: u64,
    /// Bytes of memory that nodes, checkpoints of them, and transactions under
    /// way may take.
    pub memory_bytes_max: usize,
    /// Cells of a node beyond which it is to be split.
    pub node_cells_max: usize,
    /// Bytes of a node's cells beyond which it is to be split.
    pub node_bytes_max: usize,
    /// Accesses of a node in a second beyond which it is to be split; zero:
    /// never.
    pub node_load_max: u64,
    /// Bytes of an answer about a tree's nodes, after which the rest comes in
    /// another one.
    pub report_bytes_max: usize,
    /// What is taken away for research.
    pub techniques: Techniques,
}

impl Settings {
    pub(crate) fn load_max(&self) -> u64 {
        if self.node_load_max == 0 { u64::MAX } else { self.node_load_max }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            server: ServerId(0),
            grace_ms: 1_000,
            snapshot_age_ms_max: 3_600_000,
            recover_after_ms: 500,
            ends_kept_ms: 600_000,
            memory_bytes_max: usize::MAX,
            node_cells_max: 128,
            node_bytes_max: 64 << 10,
            node_load_max: 10_000,
            // A message is 16 MiB at most, and one node with the longest keys a
            // quarter of that.
            report_bytes_max: 4 << 20,
            techniques: Techniques::default(),
        }
    }
}
