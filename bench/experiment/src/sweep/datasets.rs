//! The data sets of a running experiment: opening their stores, renewing and counting their records.

use super::curves::{Dataset, Renewal};
use crate::journal::{ExperimentJournal, RecordsState};
use serval_model::{
    Execution, StoreError,
    properties::{Faults, Properties},
};
use serval_plan::{
    PlanError,
    session::{self, Session},
};
use serval_stores::StoreInfo;
use serval_workload::core::CoreWorkload;
use std::{path::PathBuf, process::Command};

/// Opens stores: those of this build, or a test's own.
pub trait Stores {
    /// Opens a store.
    fn open(&self, info: &'static StoreInfo, properties: &Properties) -> Result<Box<dyn Session>, Faults>;
}

/// The stores of this build.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealStores;

impl Stores for RealStores {
    fn open(&self, info: &'static StoreInfo, properties: &Properties) -> Result<Box<dyn Session>, Faults> {
        session::open(info.name, properties)
    }
}

/// Number of consecutive missing keys of a process after which no record follows: more than the gaps of failed inserts
/// and of clients at different keys. Several processes take keys in turn, and one may be ahead of the others.
const MISSING_IN_TURN: u64 = 100;

/// Number of keys of one lookup.
const KEYS_PER_LOOKUP: usize = 100;

/// Most records of an interrupted run that are searched for.
const FOUND_MAX: u64 = 1 << 40;

/// Environment variables of a store's commands.
const STORE_VARIABLE: &str = "SERVAL_STORE";
const CURVE_VARIABLE: &str = "SERVAL_CURVE";

/// A data set in use.
pub(crate) struct DatasetInUse {
    pub(crate) dataset: Dataset,
    session: Option<Box<dyn Session>>,
    /// Folder of an embedded store's files.
    folder: Option<PathBuf>,
    pub(crate) state: RecordsState,
    /// Whether the state comes from an earlier process and has not been verified.
    pub(crate) unverified: bool,
}

/// Number of records that are looked up to find out whether a store has lost them.
const SAMPLES: u64 = 16;

impl DatasetInUse {
    /// Creates a data set with the state that the journal has.
    pub(crate) fn new(dataset: &Dataset, journal: &ExperimentJournal) -> Result<DatasetInUse, PlanError> {
        let mut dataset = dataset.clone();
        let mut folder = None;
        if let Renewal::Files(embedded) = dataset.renewal {
            let path = journal.store_folder(&dataset.folder)?;
            embedded.place(&mut dataset.properties, &path, "the experiment's folder");
            folder = Some(path);
        }
        let mut state = journal.records(&dataset.name);
        if matches!(dataset.renewal, Renewal::Reopen) {
            // The records ended with the process that held them.
            state.loaded = false;
            state.running = false;
        }
        let unverified = state.loaded;
        Ok(DatasetInUse { dataset, session: None, folder, state, unverified })
    }

    /// Returns the store; opens it if necessary.
    pub(crate) fn session(&mut self, stores: &dyn Stores) -> Result<&dyn Session, PlanError> {
        if self.session.is_none() {
            self.session = Some(stores.open(self.dataset.info, &self.dataset.properties)?);
        }
        // It was opened above.
        self.session.as_deref().ok_or_else(|| Faults::one("the store is closed").into())
    }

    /// Returns whether clients of the store run on threads or on event loops, if it is open.
    pub(crate) fn execution(&self) -> Option<Execution> {
        self.session.as_ref().map(|session| session.store().execution())
    }

    /// Closes the store.
    pub(crate) fn close(&mut self) {
        self.session = None;
    }

    /// Empties an embedded store, or closes a store in memory. Returns false for a server, whose records must be
    /// deleted one by one.
    pub(crate) fn start_anew(&mut self) -> Result<bool, PlanError> {
        match self.dataset.renewal {
            Renewal::Server => return Ok(false),
            Renewal::Reopen => self.close(),
            Renewal::Files(embedded) => {
                self.close();
                if let Some(folder) = &self.folder {
                    embedded
                        .remove(folder)
                        .map_err(|error| self.failed(format!("its files cannot be removed: {error}")))?;
                }
            }
        }
        self.state = RecordsState::default();
        Ok(true)
    }

    /// Saves the loaded state.
    pub(crate) fn save(&mut self) -> Result<(), PlanError> {
        if let (Renewal::Files(embedded), Some(folder)) = (self.dataset.renewal, self.folder.clone()) {
            self.close();
            let copied = embedded.copy(&folder, &folder.join("snapshot"));
            copied.map_err(|error| self.failed(format!("its files cannot be copied: {error}")))?;
        } else if let Some(command) = self.dataset.save.clone() {
            self.command("save", &command)?;
        }
        Ok(())
    }

    /// Restores the loaded state. Returns false if the store has neither a `restore` command nor files.
    pub(crate) fn restore(&mut self) -> Result<bool, PlanError> {
        if let Some(command) = self.dataset.restore.clone() {
            self.close();
            self.command("restore", &command)?;
        } else if let (Renewal::Files(embedded), Some(folder)) = (self.dataset.renewal, self.folder.clone()) {
            self.close();
            let copied = embedded.copy(&folder.join("snapshot"), &folder);
            copied.map_err(|error| self.failed(format!("its files cannot be restored: {error}")))?;
        } else {
            return Ok(false);
        }
        self.state = RecordsState { loaded: true, next: self.dataset.records, running: false };
        Ok(true)
    }

    fn command(&self, what: &str, command: &str) -> Result<(), PlanError> {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]);
        shell.env(STORE_VARIABLE, self.dataset.info.name).env(CURVE_VARIABLE, &self.dataset.name);
        // The command's output must not mix with this program's.
        shell.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
        let status =
            shell.status().map_err(|error| self.failed(format!("its {what} command cannot run: {error}")))?;
        if status.success() {
            return Ok(());
        }
        Err(self.failed(format!("its {what} command '{command}' ended with {status}")))
    }

    fn failed(&self, problem: String) -> PlanError {
        PlanError::Store(StoreError::new(self.dataset.info.name, problem))
    }

    /// Returns whether none of the loaded records exists: a restarted server that keeps records in memory has lost
    /// them.
    pub(crate) fn has_lost_records(
        &mut self,
        core: &CoreWorkload,
        stores: &dyn Stores,
    ) -> Result<bool, PlanError> {
        use serval_workload::Workload;
        let (first, end) = core.load_range();
        let count = end.saturating_sub(first);
        if count == 0 {
            return Ok(false);
        }
        let numbers = (0..SAMPLES.min(count)).map(|i| first + i * (count / SAMPLES.min(count)));
        let keys: Vec<String> = numbers.map(|number| core.key(number)).collect();
        let table = core.schema().table;
        Ok(self.session(stores)?.store().count_records(&table, &keys).map_err(PlanError::Store)? == 0)
    }

    /// Returns the first key number from `state.next` on that no record has, after an interrupted run of this many
    /// processes.
    pub(crate) fn find_end(
        &mut self,
        core: &CoreWorkload,
        stores: &dyn Stores,
        processes: u64,
    ) -> Result<u64, PlanError> {
        use serval_workload::Workload;
        let table = core.schema().table;
        let start = self.state.next;
        let session = self.session(stores)?;
        let end =
            end_of::<StoreError>(start, MISSING_IN_TURN.saturating_mul(processes), &mut |mut numbers| {
                // Most keys exist, so the first batch usually decides.
                while !numbers.is_empty() {
                    let keys: Vec<String> =
                        numbers.by_ref().take(KEYS_PER_LOOKUP).map(|number| core.key(number)).collect();
                    if session.store().count_records(&table, &keys)? > 0 {
                        return Ok(true);
                    }
                }
                Ok(false)
            })?;
        // A store that claims to have every key has no end.
        Ok(if end - start > FOUND_MAX { start } else { end })
    }
}

/// Returns the end of the records that begin before `start`. Asks whether any of `gap` consecutive numbers exists, in
/// steps that double, then by bisection.
fn end_of<E>(
    start: u64,
    gap: u64,
    any: &mut impl FnMut(std::ops::Range<u64>) -> Result<bool, E>,
) -> Result<u64, E> {
    let mut any_from = |at: u64| any(at..at.saturating_add(gap));
    if !any_from(start)? {
        return Ok(start);
    }
    let (mut present, mut step) = (start, gap);
    while any_from(present.saturating_add(step))? {
        present = present.saturating_add(step);
        step = step.saturating_mul(2);
    }
    let mut missing = present.saturating_add(step);
    while missing - present > 1 {
        let middle = present + (missing - present) / 2;
        if any_from(middle)? { present = middle } else { missing = middle }
    }
    // The range that begins at the last record has a record; the next range has none.
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::convert::Infallible;

    proptest! {
        #[test]
        fn the_last_key_is_found_with_few_reads(start in 0u64..1000, more in 0u64..1_000_000,
                                         gaps in prop::collection::vec(0u64..1_000_000, 0..20)) {
            let end = start + more;
            let is_there = |n: u64| n < end && !gaps.contains(&n);
            let mut looks = 0;
            let found = end_of::<Infallible>(start, MISSING_IN_TURN, &mut |range| {
                looks += 1;
                Ok(range.into_iter().any(is_there))
            }).unwrap();
            let last = (start..end).rev().find(|n| is_there(*n)).map_or(start, |last| last + 1);
            prop_assert_eq!(found, last);
            prop_assert!(looks <= 50, "{}", looks);
        }

        #[test]
        fn the_last_key_is_found_if_one_of_many_processes_is_far_ahead(
            start in 0u64..1000, processes in 1u64..1000, ahead in 0u64..1000, own in 1u64..100, others in 0u64..100,
        ) {
            let ahead = ahead % processes;
            let is_there = |n: u64| {
                let (turn, of) = ((n - start) / processes, (n - start) % processes);
                turn < if of == ahead { own.max(others) } else { others }
            };
            let found = end_of::<Infallible>(start, MISSING_IN_TURN * processes, &mut |mut range| {
                Ok(range.any(|n| n >= start && is_there(n)))
            }).unwrap();
            let all = start..start + processes * 100;
            let last = all.rev().find(|n| is_there(*n)).map_or(start, |last| last + 1);
            prop_assert_eq!(found, last);
        }
    }
}
