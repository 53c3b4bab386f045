//! Settings of an engine.

use crate::techniques::Techniques;
use yesquel_model::ServerId;

/// Settings of an engine.
#[derive(Debug, Clone, Copy)]
pub struct EngineSettings {
    /// The server's id.
    pub server: ServerId,
    /// How long a snapshot stays readable without being held, in milliseconds.
    pub grace_ms: u64,
    /// Maximum age of a held snapshot, in milliseconds.
    pub snapshot_age_ms_max: u64,
    /// How long after a restart snapshots from before it stay readable, so that their clients can
    /// report them again, in milliseconds; zero: no client outlives the engine.
    pub return_ms: u64,
    /// How long a request waits for an undecided transaction before the participants are asked, in
    /// milliseconds.
    pub recover_after_ms: u64,
    /// Age of an undecided transaction at which the participants are asked though no request waits
    /// for it, in milliseconds.
    pub recover_age_ms: u64,
    /// How long the outcomes of a silent client's transactions are kept, in milliseconds.
    pub outcomes_kept_ms: u64,
    /// Memory budget for nodes, checkpoints in progress, and transactions in progress, in bytes.
    pub memory_bytes_max: usize,
    /// Cells of a node beyond which it is split.
    pub node_cells_max: usize,
    /// Bytes of a node's cells beyond which it is split.
    pub node_bytes_max: usize,
    /// Accesses of a node in a second beyond which it is split; zero: never.
    pub node_load_max: u64,
    /// Nodes that one connection may watch.
    pub watched_nodes_max: usize,
    /// Nodes that are watched in all, counted once for each watcher.
    pub watches_max: usize,
    /// Bytes of one report about a tree's nodes; the rest goes into the next one.
    pub report_bytes_max: usize,
    /// Techniques that are switched off for research.
    pub techniques: Techniques,
}

impl EngineSettings {
    pub(crate) fn load_max(&self) -> u64 {
        if self.node_load_max == 0 { u64::MAX } else { self.node_load_max }
    }
}

impl Default for EngineSettings {
    fn default() -> Self {
        EngineSettings {
            server: ServerId(0),
            grace_ms: 1_000,
            snapshot_age_ms_max: 3_600_000,
            return_ms: 0,
            recover_after_ms: 500,
            recover_age_ms: 2_000,
            outcomes_kept_ms: 600_000,
            memory_bytes_max: usize::MAX,
            node_cells_max: 128,
            node_bytes_max: 64 << 10,
            node_load_max: 10_000,
            watched_nodes_max: 4_096,
            watches_max: 1 << 17,
            // A message is at most 16 MiB, and one node with the longest keys a quarter of that.
            report_bytes_max: 4 << 20,
            techniques: Techniques::default(),
        }
    }
}
