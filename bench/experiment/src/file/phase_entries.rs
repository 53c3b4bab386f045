//! What an experiment file of phases asks for.

use super::{entries::StoreEntry, group::GroupEntry, heading::Heading, lines::PropertyLine};
use serval_model::properties::Origin;
use std::{path::PathBuf, time::Duration};

/// Phases of an experiment at most: the paper's longest has eight.
pub const PHASES_MAX: usize = 1000;

/// Pieces into which a range of keys is divided at most.
pub const PARTITIONS_MAX: u64 = 100_000;

/// How long a condition is waited for if nothing is said.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(600);

/// Pause from one question about a condition to the next if nothing is said.
pub const WAIT_EVERY: Duration = Duration::from_secs(1);

/// Where a program is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// Where the experiment is conducted.
    Coordinator,
    /// By each client of the group that takes part.
    Clients,
}

impl At {
    /// Names in files.
    pub const NAMES: [(&'static str, At); 2] = [("coordinator", At::Coordinator), ("clients", At::Clients)];
}

/// The work of a phase.
#[derive(Debug, Clone, PartialEq)]
pub enum PhaseWork {
    /// Records are inserted.
    Load,
    /// Operations are run.
    Run,
    /// Nothing, for this long.
    Pause(Duration),
    /// The range of keys is divided before records come.
    Presplit {
        /// Into so many pieces of one size; `None` where the points are given.
        partitions: Option<u64>,
        /// Keys at which it is divided.
        points: Vec<String>,
        /// A program that divides it: it is given the points, a line each.
        command: Option<String>,
        /// The longest that the program may take.
        timeout: Duration,
    },
    /// A program is run.
    Command {
        /// For `sh -c`.
        command: String,
        /// Where.
        at: At,
        /// The longest that it may take.
        timeout: Duration,
    },
    /// A program is run again and again until it succeeds.
    Wait {
        /// For `sh -c`.
        command: String,
        /// From the end of one attempt to the next.
        every: Duration,
        /// The longest that is waited.
        timeout: Duration,
    },
    /// Something that a later version will do; what, in words.
    Later(&'static str),
}

impl PhaseWork {
    /// Its kind, as files have it.
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

    /// The program that it runs, if it runs one.
    pub fn command(&self) -> Option<&str> {
        match self {
            PhaseWork::Presplit { command, .. } => command.as_deref(),
            PhaseWork::Command { command, .. } | PhaseWork::Wait { command, .. } => Some(command),
            _ => None,
        }
    }

    /// Whether operations are measured in it.
    pub fn measures(&self) -> bool {
        matches!(self, PhaseWork::Load | PhaseWork::Run)
    }
}

/// Properties of some clients only.
#[derive(Debug, Clone, PartialEq)]
pub struct Only {
    /// Their numbers, from 1.
    pub clients: Vec<u64>,
    /// What they have.
    pub properties: Vec<PropertyLine>,
}

/// A phase as it is written.
#[derive(Debug, Clone, PartialEq)]
pub struct PhaseSpec {
    /// What it is called.
    pub name: String,
    /// The work.
    pub work: PhaseWork,
    /// The clients that take part, by their numbers from 1; `None` for all.
    pub clients: Option<Vec<u64>>,
    /// The workload's file.
    pub workload: Option<PathBuf>,
    /// Its properties, over those of all phases.
    pub properties: Vec<PropertyLine>,
    /// Properties of some clients, over these.
    pub only: Vec<Only>,
    /// Its place in the file.
    pub origin: Option<Origin>,
}

/// A file of phases, read but not yet checked against stores and workloads.
#[derive(Debug, Clone, PartialEq)]
pub struct PhasesFile {
    /// Title and description.
    pub heading: Heading,
    /// The seed; `None` to draw one.
    pub seed: Option<u64>,
    /// The client processes that do the work of one, if several do.
    pub group: Option<GroupEntry>,
    /// Properties of all phases.
    pub properties: Vec<PropertyLine>,
    /// The store.
    pub store: StoreEntry,
    /// The phases, in order.
    pub phases: Vec<PhaseSpec>,
}
