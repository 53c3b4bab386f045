//! What the clients of a run have seen.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
};
use yesquel_histories::{ConsistencyModel, ListOperation, RecordedOutcome, RecordedTransaction, check};
use yesquel_simulation::{InjectedFault, TASKS, process_of};
use yesquel_sql_histories::{OperationNotes, take_back};

use crate::{
    draw::is_disturbed,
    steps::{Level, Step, Work},
};

/// How often each event happened.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct WorkCounts {
    pub(crate) committed: u64,
    /// Refused because of another transaction.
    pub(crate) busy: u64,
    pub(crate) unknown: u64,
    /// Transactions that have changed a schema.
    pub(crate) schema_changes: u64,
    /// Comparisons of a table's columns with their number, and of indexes.
    pub(crate) compared: u64,
    pub(crate) splits: u64,
}

impl WorkCounts {
    /// All counts.
    pub(crate) fn all(&self) -> [u64; 6] {
        let WorkCounts { committed, busy, unknown, schema_changes, compared, splits } = *self;
        [committed, busy, unknown, schema_changes, compared, splits]
    }

    /// Adds the counts of another run.
    pub(crate) fn add(&mut self, other: &WorkCounts) {
        let WorkCounts { committed, busy, unknown, schema_changes, compared, splits } = self;
        let own = [committed, busy, unknown, schema_changes, compared, splits];
        own.into_iter().zip(other.all()).for_each(|(sum, more)| *sum += more);
    }
}

/// A transaction under way.
#[derive(Debug, Default)]
struct Open {
    invoked: u64,
    operations: Vec<ListOperation>,
    /// Whether it may have committed.
    commits: bool,
}

/// What all tasks of a run share.
#[derive(Debug)]
pub(crate) struct Record {
    /// Remaining transactions of each task.
    programs: Vec<VecDeque<Work>>,
    open: Vec<Option<Open>>,
    /// Number of processes that each task was part of.
    lives: [u64; TASKS + 1],
    history: Vec<RecordedTransaction>,
    numbers: i64,
    /// The lists that the observer has read.
    last: BTreeMap<u64, Vec<u64>>,
    /// Transactions that were not run.
    left_out: u64,
    /// Whether requests arrive twice: one for a lease then takes it again after its release.
    has_copies: bool,
    /// Whether a disk runs full.
    pub(crate) may_be_full: bool,
    pub(crate) level: Level,
    /// Number of groups at which the database begins.
    pub(crate) groups: usize,
    pub(crate) is_disturbed: bool,
    pub(crate) counts: WorkCounts,
}

pub(crate) type SharedRecord = Arc<Mutex<Record>>;

impl Record {
    pub(crate) fn new(steps: &[Step]) -> Record {
        let (mut programs, mut level, mut groups) =
            (vec![VecDeque::new(); TASKS], Level::Session, usize::MAX);
        for step in steps {
            match step {
                Step::Work(work) => programs[work.task].push_back(work.clone()),
                Step::Level(drawn) => level = *drawn,
                Step::Groups(drawn) => groups = *drawn,
                Step::Fault(_) => {}
            }
        }
        let has = |is_meant: &dyn Fn(&InjectedFault) -> bool| {
            steps.iter().any(|step| matches!(step, Step::Fault(fault) if is_meant(fault)))
        };
        Record {
            programs,
            open: (0..=TASKS).map(|_| None).collect(),
            lives: [0; TASKS + 1],
            history: Vec::new(),
            numbers: 0,
            last: BTreeMap::new(),
            left_out: 0,
            has_copies: has(&|fault| matches!(fault, InjectedFault::Copies { .. })),
            may_be_full: has(&|fault| matches!(fault, InjectedFault::DiskFull { .. })),
            level,
            groups,
            is_disturbed: is_disturbed(steps),
            counts: WorkCounts::default(),
        }
    }

    /// Removes the next transaction of a task.
    pub(crate) fn next_work(&mut self, task: usize) -> Option<Work> {
        self.programs[task].pop_front()
    }

    /// Returns a number, each once.
    fn number(&mut self) -> i64 {
        self.numbers += 1;
        self.numbers
    }

    /// A process begins, and what its tasks had under way has an unknown outcome.
    pub(crate) fn process_started(&mut self, process: usize, now: u64) {
        for task in (0..TASKS).filter(|task| process_of(*task) == process) {
            self.end(task, now, RecordedOutcome::Unknown);
            self.lives[task] += 1;
        }
    }

    /// Notes that the transactions which a task has left are not run.
    pub(crate) fn leave_out(&mut self, task: usize) {
        self.left_out += self.programs[task].len() as u64;
    }

    /// A task begins a transaction.
    pub(crate) fn begin(&mut self, task: usize, now: u64) {
        self.open[task] = Some(Open { invoked: now, ..Open::default() });
    }

    /// Notes an operation of the transaction of a task, and a list as the observer has read it.
    fn note(&mut self, task: usize, operation: ListOperation) {
        if let (TASKS, ListOperation::Read { key, list: Some(list) }) = (task, &operation) {
            self.last.insert(*key, list.clone());
        }
        if let Some(open) = &mut self.open[task] {
            open.operations.push(operation);
        }
    }

    /// The number of operations of the transaction so far.
    fn operations(&self, task: usize) -> usize {
        self.open[task].as_ref().map_or(0, |open| open.operations.len())
    }

    /// Takes back the appends after so many operations, which were rolled back.
    fn rolled_back(&mut self, task: usize, to: usize) {
        if let Some(open) = &mut self.open[task] {
            take_back(&mut open.operations, to);
        }
    }

    /// The transaction of a task is about to commit.
    pub(crate) fn commits(&mut self, task: usize) {
        if let Some(open) = &mut self.open[task] {
            open.commits = true;
        }
    }

    /// A transaction ends.
    pub(crate) fn end(&mut self, task: usize, now: u64, outcome: RecordedOutcome) {
        let Some(Open { invoked, operations, commits }) = self.open[task].take() else { return };
        let outcome = match outcome {
            RecordedOutcome::Unknown if !commits => RecordedOutcome::Aborted,
            outcome => outcome,
        };
        match outcome {
            RecordedOutcome::Committed => self.counts.committed += 1,
            RecordedOutcome::Unknown => self.counts.unknown += 1,
            RecordedOutcome::Aborted => {}
        }
        let process = task as u64 + 1_000 * self.lives[task];
        self.history.push(RecordedTransaction { process, invoked, completed: now, operations, outcome });
    }

    /// Checks the history, and that all committed appends are in the lists that were read last.
    ///
    /// # Panics
    ///
    /// If it is not possible at the level of the run.
    pub(crate) fn verify(&self, when: &str) {
        let committed = |other: &&RecordedTransaction| other.outcome == RecordedOutcome::Committed;
        for operation in self.history.iter().filter(committed).flat_map(|other| &other.operations) {
            if let ListOperation::Append { key, element } = operation {
                let is_there = self.last.get(key).is_some_and(|list| list.contains(element));
                assert!(is_there, "{when}: {element} of list {key} was committed and is lost");
            }
        }
        if !self.is_disturbed && !self.has_copies {
            assert_eq!(self.left_out, 0, "{when}: transactions that did not run without faults");
        }
        let model = match self.level {
            Level::Session => ConsistencyModel::StrongSessionSnapshotIsolation,
            Level::Strict => ConsistencyModel::StrongSnapshotIsolation,
            Level::Serializable => ConsistencyModel::StrongSessionSerializable,
        };
        let report = check(&self.history, model).unwrap();
        assert!(report.is_clean(), "{when}: {report}");
    }
}

/// The transaction of a task, in the record.
pub(crate) struct TaskNotes {
    pub(crate) record: SharedRecord,
    pub(crate) task: usize,
}

impl OperationNotes for TaskNotes {
    fn number(&mut self) -> i64 {
        self.record.lock().unwrap().number()
    }

    fn note(&mut self, operation: ListOperation) {
        self.record.lock().unwrap().note(self.task, operation);
    }

    fn operations(&self) -> usize {
        self.record.lock().unwrap().operations(self.task)
    }

    fn rolled_back(&mut self, to: usize) {
        self.record.lock().unwrap().rolled_back(self.task, to);
    }

    fn compared(&mut self) {
        self.record.lock().unwrap().counts.compared += 1;
    }
}
