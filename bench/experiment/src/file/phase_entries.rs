//! Content of an experiment file of phases.

use super::{entries::StoreEntry, group::GroupEntry, heading::Heading, lines::PropertyLine};
use serval_model::properties::Origin;
use std::{path::PathBuf, time::Duration};

/// Most phases of an experiment. The longest in the YCSB++ paper has eight.
pub const PHASES_MAX: usize = 1000;

/// Most partitions of a range of keys.
pub const PARTITIONS_MAX: u64 = 100_000;

/// Default time limit of a condition.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(600);

/// Default pause between two checks of a condition.
pub const WAIT_EVERY: Duration = Duration::from_secs(1);

/// Place at which a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// In the process that conducts the experiment.
    Coordinator,
    /// At each client of the group that takes part in the phase.
    Clients,
}

impl At {
    /// Names in files.
    pub const NAMES: [(&'static str, At); 2] = [("coordinator", At::Coordinator), ("clients", At::Clients)];
}

/// Work of a phase.
#[derive(Debug, Clone, PartialEq)]
pub enum PhaseWork {
    /// Insert records.
    Load,
    /// Run operations.
    Run,
    /// Do nothing for this time.
    Pause(Duration),
    /// Split the range of keys before records are inserted.
    Presplit {
        /// Number of partitions of equal size; `None` if the points are given.
        partitions: Option<u64>,
        /// Split points.
        points: Vec<String>,
        /// Program that splits the table. It gets one split point per line on standard input.
        command: Option<String>,
        /// Time limit of the program.
        timeout: Duration,
    },
    /// Run a program once.
    Command {
        /// Command line for `sh -c`.
        command: String,
        /// Place at which the program runs.
        at: At,
        /// Time limit of the program.
        timeout: Duration,
    },
    /// Run a program repeatedly until it succeeds.
    Wait {
        /// Command line for `sh -c`.
        command: String,
        /// Pause from the end of one attempt to the next.
        every: Duration,
        /// Time limit of all attempts.
        timeout: Duration,
    },
    /// Not implemented yet; the kind, as in files.
    Later(&'static str),
}

impl PhaseWork {
    /// Returns the kind, as in files.
    pub fn kind(&self) -> &'static str {
        match self {
            PhaseWork::Load => "load",
            PhaseWork::Run => "run",
            PhaseWork::Pause(_) => "pause",
            PhaseWork::Presplit { .. } => "presplit",
            PhaseWork::Command { .. } => "command",
            PhaseWork::Wait { .. } => "wait",
            PhaseWork::Later("bulk-format") => "bulk-format",
            PhaseWork::Later(_) => "bulk-import",
        }
    }

    /// Returns the command line of the phase's program, if it has one.
    pub fn command(&self) -> Option<&str> {
        match self {
            PhaseWork::Presplit { command, .. } => command.as_deref(),
            PhaseWork::Command { command, .. } | PhaseWork::Wait { command, .. } => Some(command),
            _ => None,
        }
    }

    /// Returns whether the phase measures operations.
    pub fn measures(&self) -> bool {
        matches!(self, PhaseWork::Load | PhaseWork::Run)
    }
}

/// Properties of some clients only.
#[derive(Debug, Clone, PartialEq)]
pub struct Only {
    /// Numbers of the clients, from 1.
    pub clients: Vec<u64>,
    /// Properties of these clients.
    pub properties: Vec<PropertyLine>,
}

/// A phase of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct PhaseSpec {
    /// Name of the phase.
    pub name: String,
    /// Work of the phase.
    pub work: PhaseWork,
    /// Numbers, from 1, of the clients that take part; `None` for all.
    pub clients: Option<Vec<u64>>,
    /// Path of the workload's file.
    pub workload: Option<PathBuf>,
    /// Properties of this phase, which override those of all phases.
    pub properties: Vec<PropertyLine>,
    /// Properties of some clients, which override those of the phase.
    pub only: Vec<Only>,
    /// Place of the phase in the file.
    pub origin: Option<Origin>,
}

/// A file of phases, read but not yet checked against stores and workloads.
#[derive(Debug, Clone, PartialEq)]
pub struct PhasesFile {
    /// Title and description.
    pub heading: Heading,
    /// The seed; `None` to draw one.
    pub seed: Option<u64>,
    /// The group of client processes that share the work of each phase.
    pub group: Option<GroupEntry>,
    /// Properties of all phases.
    pub properties: Vec<PropertyLine>,
    /// The store.
    pub store: StoreEntry,
    /// The phases, in order.
    pub phases: Vec<PhaseSpec>,
}
