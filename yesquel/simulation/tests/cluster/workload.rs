//! The state that all tasks of a run share: remaining acts, trees, the history.

use crate::{
    reference::History,
    steps::{Act, SLOTS, Step},
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    rc::Rc,
};
use yesquel_model::ServerId;
use yesquel_model::Timestamp;
use yesquel_simulation::{InjectedFault, PROCESSES, TASKS, process_of};
use yesquel_tree::Tree;

/// The workload, as the tasks share it.
pub(crate) type SharedWorkload = Rc<RefCell<Workload>>;

/// How often each event happened.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct WorkCounts {
    pub(crate) committed: u64,
    /// Commits at several servers.
    pub(crate) of_several: u64,
    pub(crate) unknown: u64,
    pub(crate) splits: u64,
    pub(crate) load_splits: u64,
    /// Splits with leaves at other groups.
    pub(crate) splits_away: u64,
    pub(crate) removals: u64,
    pub(crate) drops: u64,
}

impl WorkCounts {
    /// All counts.
    pub(crate) fn all(&self) -> [u64; 8] {
        let WorkCounts { committed, of_several, unknown, splits, load_splits, splits_away, removals, drops } =
            *self;
        [committed, of_several, unknown, splits, load_splits, splits_away, removals, drops]
    }

    /// Adds the counts of another run.
    pub(crate) fn add(&mut self, other: &WorkCounts) {
        let WorkCounts { committed, of_several, unknown, splits, load_splits, splits_away, removals, drops } =
            self;
        let own = [committed, of_several, unknown, splits, load_splits, splits_away, removals, drops];
        own.into_iter().zip(other.all()).for_each(|(sum, more)| *sum += more);
    }
}

pub(crate) struct Workload {
    /// Remaining acts of each task.
    programs: Vec<VecDeque<(u64, Act)>>,
    /// The trees by slot, known to all clients.
    pub(crate) slots: Vec<Tree>,
    /// The tree that was in each slot before.
    pub(crate) replaced: [Option<Tree>; SLOTS],
    /// Number of tasks that have come to each place where they meet.
    pub(crate) arrived: BTreeMap<usize, usize>,
    pub(crate) history: History,
    /// Latest commit that was acknowledged to each process in its current life.
    committed: [Timestamp; PROCESSES],
    pub(crate) counts: WorkCounts,
}

impl Workload {
    pub(crate) fn new(steps: &[Step]) -> Workload {
        let has_faults = steps.iter().any(|step| matches!(step, Step::Fault(fault) if fault.is_adverse()));
        let disk_failures = steps.iter().filter_map(|step| match step {
            Step::Fault(
                InjectedFault::SyncFailure { server, .. } | InjectedFault::DiskFull { server, .. },
            ) => Some(ServerId(*server as u16)),
            _ => None,
        });
        let mut programs = vec![VecDeque::new(); TASKS];
        for step in steps {
            if let Step::Act { task, pause_us, act } = step {
                programs[*task].push_back((*pause_us, act.clone()));
            }
        }
        Workload {
            programs,
            slots: Vec::new(),
            replaced: [None; SLOTS],
            arrived: BTreeMap::new(),
            history: History::new(has_faults, disk_failures.collect()),
            committed: Default::default(),
            counts: WorkCounts::default(),
        }
    }

    /// Removes the next act of a task.
    pub(crate) fn next_act(&mut self, task: usize) -> Option<(u64, Act)> {
        self.programs[task].pop_front()
    }

    /// The latest commit that was acknowledged to the process of a client's task.
    pub(crate) fn committed(&mut self, task: usize) -> Option<&mut Timestamp> {
        if task < TASKS { self.committed.get_mut(process_of(task)) } else { None }
    }

    /// A process starts a new life.
    pub(crate) fn process_started(&mut self, process: usize) {
        self.committed[process] = Timestamp::ZERO;
        (0..TASKS).filter(|task| process_of(*task) == process).for_each(|task| self.history.died(task));
    }
}
