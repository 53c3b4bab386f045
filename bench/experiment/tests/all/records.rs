//! The records between runs: no key twice, none missing, restored on request, and
//! the same after an interruption.

use crate::common::{Only, conduct_in, experiment};
use serval_experiment::{
    ConductError, ExperimentJournal, JournalError, Stopped, file::ExperimentFile, sweep::Experiment,
};
use serval_model::{
    Client, Execution, FieldSelection, OperationKind, OperationKinds, Outcome, Record, Reply, Store,
    StoreError, properties::Origin,
};
use serval_plan::{
    PlanError,
    session::{self, LagFound, OpenStore, Ran, Session},
};
use serval_report::stored::read_experiment;
use serval_result::{
    experiment::{ExperimentDocument, Flag, RunEntry, RunKind},
    lag::LagResult,
    note::Note,
};
use serval_runner::{Control, Observer, RunOptions};
use serval_workload::Workload;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

/// A server that accepts each key once and counts faults.
#[derive(Clone, Default)]
struct Strict {
    keys: Arc<Mutex<BTreeSet<String>>>,
    twice: Arc<AtomicU64>,
    missing: Arc<AtomicU64>,
    deleted: Arc<AtomicU64>,
    inserts: Arc<AtomicU64>,
    /// Requests a stop at this insert.
    interrupt_at: u64,
    control: Control,
    /// Whether it lacks scans.
    scanless: bool,
}

impl Strict {
    fn keys(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.keys.lock().unwrap()
    }

    fn counts(&self) -> (u64, u64) {
        (self.twice.load(Relaxed), self.missing.load(Relaxed))
    }
}

impl Store for Strict {
    type Local = ();
    type Client = Strict;
    fn execution(&self) -> Execution {
        Execution::Threads
    }
    fn capabilities(&self) -> OperationKinds {
        match self.scanless {
            true => OperationKinds::ALL.without(OperationKind::Scan),
            false => OperationKinds::ALL,
        }
    }
    fn describe(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn local(&self) -> Result<(), StoreError> {
        Ok(())
    }
    async fn connect(&self, (): &(), _: usize) -> Result<Strict, StoreError> {
        Ok(self.clone())
    }
}

impl Client for Strict {
    async fn read(&mut self, _: &str, key: &str, fields: &FieldSelection, _: &mut Reply) -> Outcome {
        if self.keys().contains(key) {
            return Outcome::OK;
        }
        // A read of one field only checks whether the record exists.
        self.missing.fetch_add(u64::from(fields.is_all()), Relaxed);
        Outcome::NOT_FOUND
    }
    async fn update(&mut self, _: &str, _: &str, _: &Record) -> Outcome {
        Outcome::OK
    }
    async fn insert(&mut self, _: &str, key: &str, _: &Record) -> Outcome {
        if self.inserts.fetch_add(1, Relaxed) + 1 == self.interrupt_at {
            self.control.interrupt();
        }
        if self.keys().insert(key.to_owned()) {
            return Outcome::OK;
        }
        self.twice.fetch_add(1, Relaxed);
        Outcome::error("the key is there")
    }
    async fn scan(&mut self, _: &str, _: &str, _: u64, _: &FieldSelection, _: &mut Reply) -> Outcome {
        Outcome::OK
    }
    async fn delete(&mut self, _: &str, key: &str) -> Outcome {
        self.deleted.fetch_add(1, Relaxed);
        if self.keys().remove(key) { Outcome::OK } else { Outcome::NOT_FOUND }
    }
}

const SHORT: &str =
    "[run]\ntime = \"60ms\"\nwarmup = \"20ms\"\nwarmup_max = \"0s\"\nclients = 4\nrepeats = 2\nseed = 1\n";

/// Returns an experiment whose store is a server.
fn file(more: &str, points: &str, workload: &str) -> ExperimentFile {
    let mut file = experiment(&format!("{SHORT}{more}\n[sweep]\npoints = {points}\n"), workload);
    file.stores[0].binding = "redis".into();
    file
}

fn stores(store: &Strict) -> Only {
    let store = store.clone();
    Only(Box::new(move || session::over(store.clone(), "strict")))
}

fn document(path: &Path) -> ExperimentDocument {
    read_experiment(&path.join("experiment.json")).unwrap().document
}

fn points(document: &ExperimentDocument) -> Vec<&RunEntry> {
    document.runs.iter().filter(|entry| entry.kind == RunKind::Point).collect()
}

#[test]
fn repeated_inserts_never_use_a_key_twice_and_leave_none_out() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("e");
    let store = Strict::default();
    let file = file("", "[\"max\", 2000, \"50%\"]", "workloadd");
    assert_eq!(conduct_in(&path, &file, &stores(&store), &Control::default()), Stopped::Complete);
    assert_eq!(store.counts(), (0, 0), "inserted twice, not found");
    let document = document(&path);
    let runs = points(&document);
    assert_eq!(runs.len(), 6);
    assert!(runs.iter().all(|entry| !entry.flags.contains(&Flag::Failures)), "{runs:?}");
    let before: Vec<u64> = runs.iter().map(|entry| entry.records_before.unwrap()).collect();
    assert!(before.is_sorted() && before[0] > 1000, "{before:?}");
    let state: serde_json::Value =
        serde_json::from_slice(&std::fs::read(path.join("state.json")).unwrap()).unwrap();
    assert_eq!(state["datasets"]["memory"]["next"], store.keys().len());
}

#[test]
fn an_interrupted_experiment_resumes_where_it_stopped() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("e");
    let store = Strict { interrupt_at: 1400, ..Strict::default() };
    let file = file("", "[\"max\", 4000]", "workloadd");
    assert_eq!(conduct_in(&path, &file, &stores(&store), &store.control), Stopped::Interrupted);
    let before = document(&path);
    assert!(!before.complete && points(&before).len() < 4);
    // The interrupted run left no files.
    let folders = std::fs::read_dir(path.join("runs")).unwrap().count();
    assert_eq!(folders, before.runs.len());
    let store = Strict { interrupt_at: 0, ..store };
    assert_eq!(conduct_in(&path, &file, &stores(&store), &Control::default()), Stopped::Complete);
    assert_eq!(store.counts(), (0, 0));
    let after = document(&path);
    assert_eq!(after.runs[..before.runs.len()], before.runs[..]);
    let mut made: Vec<(usize, u32)> =
        points(&after).iter().map(|entry| (entry.point, entry.repeat)).collect();
    made.sort_unstable();
    assert_eq!(made, [(0, 0), (0, 1), (1, 0), (1, 1)], "each once");
    assert_eq!(after.seed, before.seed);
}

#[test]
fn an_interrupted_load_is_resumed() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("e");
    let store = Strict { interrupt_at: 300, ..Strict::default() };
    let mut file = file("", "[\"max\"]", "workloadd");
    // Many more than a client inserts before the conductor notices.
    let many = ("recordcount".to_owned(), "200000".to_owned(), Origin::Program("the test"));
    file.workloads[0].properties.retain(|(name, ..)| name != "recordcount");
    file.workloads[0].properties.push(many);
    assert_eq!(conduct_in(&path, &file, &stores(&store), &store.control), Stopped::Interrupted);
    let loaded = store.keys().len();
    assert!((300..200_000).contains(&loaded), "{loaded}");
    let store = Strict { interrupt_at: 0, control: Control::default(), ..store };
    assert_eq!(conduct_in(&path, &file, &stores(&store), &Control::default()), Stopped::Complete);
    assert_eq!(store.counts(), (0, 0), "inserted twice, not found");
    let after = document(&path);
    assert!(points(&after).iter().all(|entry| !entry.flags.contains(&Flag::Failures)), "{:?}", after.runs);
}

#[test]
fn an_interrupted_load_of_an_embedded_store_starts_over() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("e");
    let mut file = file("", "[\"max\"]", "workloadd");
    file.stores[0].binding = "sqlite".into();
    let real = serval_experiment::sweep::RealStores;
    assert_eq!(conduct_in(&path, &file, &real, &Control::default()), Stopped::Complete);
    // The state that a process killed during its load left, with all records written.
    let mut unfinished = document(&path);
    unfinished.complete = false;
    unfinished.runs.clear();
    std::fs::write(path.join("experiment.json"), serde_json::to_vec(&unfinished).unwrap()).unwrap();
    let state = r#"{"datasets": {"memory": {"loaded": false, "next": 0, "running": true}}}"#;
    std::fs::write(path.join("state.json"), state).unwrap();
    assert_eq!(conduct_in(&path, &file, &real, &Control::default()), Stopped::Complete);
    assert!(
        points(&document(&path)).iter().all(|entry| entry.records_before == Some(1000) || entry.repeat > 0)
    );
}

#[test]
fn earlier_records_are_not_taken_for_the_experiments_own() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("e");
    let store = Strict::default();
    let file = file("", "[\"max\"]", "workloada");
    assert_eq!(
        conduct_in(&place.path().join("other"), &file, &stores(&store), &Control::default()),
        Stopped::Complete
    );
    for _ in 0..2 {
        assert_eq!(conduct_in(&path, &file, &stores(&store), &Control::default()), Stopped::CurvesLost);
    }
    // Once, for the last attempt.
    let lost = document(&path);
    assert!(matches!(&lost.notes[..], [Note::CurveGivenUp { .. }]), "{:?}", lost.notes);
    assert_eq!(lost.warnings, serval_report::notes::lines(&lost.notes));
    let words = lost.warnings.join(" ");
    assert!(words.contains("If they are there from before, remove them"), "{words}");
}

#[test]
fn stores_with_similar_names_have_separate_files() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("e");
    let mut file = file("", "[\"max\"]", "workloada");
    file.stores[0] = serval_experiment::file::StoreEntry {
        name: "s".repeat(60),
        binding: "sqlite".into(),
        ..file.stores[0].clone()
    };
    let mut other = file.workloads[0].clone();
    other.name = "longer".into();
    other.properties.push(("fieldlength".into(), "200".into(), crate::common::origin()));
    file.workloads.push(other);
    let real = serval_experiment::sweep::RealStores;
    assert_eq!(conduct_in(&path, &file, &real, &Control::default()), Stopped::Complete);
    let folders = std::fs::read_dir(path.join("stores")).unwrap().count();
    assert_eq!(folders, 2);
}

#[test]
fn one_process_at_a_time_runs_an_experiment() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("e");
    let experiment = Experiment::new(file("", "[\"max\"]", "workloada")).unwrap();
    let first = ExperimentJournal::begin(&path, experiment.document(vec!["test".into()])).unwrap();
    let second = ExperimentJournal::resume(&path, None);
    assert!(matches!(second, Err(JournalError::InUse(_))), "{second:?}");
    drop(first);
    ExperimentJournal::resume(&path, None).unwrap();
}

#[test]
fn records_lost_by_a_server_are_loaded_again() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("e");
    let store = Strict { interrupt_at: 1400, ..Strict::default() };
    let file = file("", "[\"max\"]", "workloadd");
    assert_eq!(conduct_in(&path, &file, &stores(&store), &store.control), Stopped::Interrupted);
    // The server was restarted meanwhile and has no disk.
    store.keys().clear();
    let store = Strict { interrupt_at: 0, control: Control::default(), ..store };
    assert_eq!(conduct_in(&path, &file, &stores(&store), &Control::default()), Stopped::Complete);
    let after = document(&path);
    assert!(points(&after).iter().all(|entry| !entry.flags.contains(&Flag::Failures)), "{:?}", after.runs);
    assert_eq!(store.counts().0, 0);
}

#[test]
fn inserts_continue_after_the_last_key_of_another_experiment() {
    let place = tempfile::tempdir().unwrap();
    let store = Strict::default();
    for (name, load) in [("first", "true"), ("second", "false"), ("third", "false")] {
        let file = file(&format!("load = {load}"), "[\"max\"]", "workloadd");
        let path = place.path().join(name);
        assert_eq!(conduct_in(&path, &file, &stores(&store), &Control::default()), Stopped::Complete);
        let runs = document(&path).runs;
        assert!(runs.iter().all(|entry| !entry.flags.contains(&Flag::Failures)), "{runs:?}");
    }
    assert_eq!(store.counts().0, 0, "inserted twice");
}

#[test]
fn unsupported_operations_are_refused_before_the_load() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("e");
    let store = Strict { scanless: true, ..Strict::default() };
    let file = file("", "[\"max\"]", "workloade");
    let experiment = Experiment::new(file).unwrap();
    let journal = ExperimentJournal::begin(&path, experiment.document(vec!["test".into()])).unwrap();
    let outcome = experiment.conduct(journal, &stores(&store), None, &Control::default(), &mut (), true);
    let words = outcome.unwrap_err().to_string();
    assert!(words.contains("has no SCAN"), "{words}");
    assert!(store.keys().is_empty());
}

#[test]
fn records_left_by_a_killed_run_are_found() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("e");
    let store = Strict { interrupt_at: 1400, ..Strict::default() };
    let file = file("", "[\"max\"]", "workloadd");
    conduct_in(&path, &file, &stores(&store), &store.control);
    // The state that a process killed during the run left.
    let state = r#"{"datasets": {"memory": {"loaded": true, "next": 1000, "running": true}}}"#;
    std::fs::write(path.join("state.json"), state).unwrap();
    std::fs::create_dir(path.join("runs/.0009-x.abc.partial")).unwrap();
    // The process was killed after the folder got its name, and before the document listed it.
    let unknown = path.join(format!("runs/{:04}-memory-max--repeat-1-2", document(&path).runs.len() + 1));
    std::fs::create_dir(&unknown).unwrap();
    let store = Strict { interrupt_at: 0, control: Control::default(), ..store };
    assert_eq!(conduct_in(&path, &file, &stores(&store), &Control::default()), Stopped::Complete);
    // Only the search for the last key reads missing records; no run does.
    assert_eq!(store.counts().0, 0);
    let after = document(&path);
    assert!(points(&after).iter().all(|entry| !entry.flags.contains(&Flag::Failures)), "{:?}", after.runs);
    assert!(!path.join("runs/.0009-x.abc.partial").exists());
}

#[test]
fn reload_removes_the_records_and_loads_them_again() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("e");
    let store = Strict::default();
    let file = file("state = \"reload\"", "[\"max\", 2000]", "workloadd");
    assert_eq!(conduct_in(&path, &file, &stores(&store), &Control::default()), Stopped::Complete);
    assert_eq!(store.counts(), (0, 0));
    let document = document(&path);
    assert!(points(&document).iter().all(|entry| entry.records_before == Some(1000)));
    // The first of four runs uses the load as it is.
    assert!(store.deleted.load(Relaxed) >= 3 * 1000);
    assert_eq!(document.runs.iter().filter(|entry| entry.kind == RunKind::Load).count(), 1);
}

#[test]
fn embedded_stores_are_restored_from_a_copy() {
    for (state, store) in
        [("snapshot", "sqlite"), ("snapshot", "yesquel"), ("reload", "yesquel"), ("reload", "memory")]
    {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("e");
        let mut file = file(&format!("state = \"{state}\""), "[\"max\", 300]", "workloadd");
        file.stores[0].binding = store.into();
        let real = serval_experiment::sweep::RealStores;
        assert_eq!(conduct_in(&path, &file, &real, &Control::default()), Stopped::Complete, "{store}");
        let document = document(&path);
        let runs = points(&document);
        assert!(
            runs.iter()
                .all(|entry| entry.records_before == Some(1000) && !entry.flags.contains(&Flag::Failures)),
            "{store}, {state}: {runs:?}"
        );
    }
}

#[test]
fn commands_save_and_restore_a_server() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("e");
    let log = place.path().join("log");
    let store = Strict::default();
    let mut file = file("state = \"snapshot\"", "[\"max\"]", "workloadc");
    file.stores[0].save = Some(format!("echo save $SERVAL_STORE $SERVAL_CURVE >> {}", log.display()));
    file.stores[0].restore = Some(format!("echo restore >> {}", log.display()));
    assert_eq!(conduct_in(&path, &file, &stores(&store), &Control::default()), Stopped::Complete);
    // The first of the two runs follows the load directly.
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "save redis memory\nrestore\n");
    file.stores[0].restore = Some("exit 3".into());
    let path = place.path().join("f");
    assert_eq!(
        conduct_in(&path, &file, &stores(&Strict::default()), &Control::default()),
        Stopped::CurvesLost
    );
    let words = document(&path).warnings.join(" ");
    assert!(words.contains("restore command 'exit 3' ended with exit status: 3"), "{words}");
}

#[test]
fn impossible_plans_are_refused_before_the_first_run() {
    let words = |file: ExperimentFile| {
        serval_experiment::sweep::Experiment::new(file)
            .err()
            .map(|faults| faults.to_string())
            .unwrap_or_default()
    };
    let refused = words(file("state = \"snapshot\"", "2", "workloada"));
    assert!(refused.contains("give the store 'save' and 'restore' commands"), "{refused}");
    let mut two = file("", "2", "workloada");
    let mut other = two.workloads[0].clone();
    other.name = "longer".into();
    other.properties.push(("fieldlength".into(), "200".into(), crate::common::origin()));
    two.workloads.push(other.clone());
    let refused = words(two.clone());
    assert!(refused.contains("load different records into one table"), "{refused}");
    two.workloads[1].properties.push(("table".into(), "longer".into(), crate::common::origin()));
    assert_eq!(words(two), "");
    let mut set = file("", "2", "workloada");
    set.properties.push(("threadcount".into(), "3".into(), crate::common::origin()));
    set.properties.push(("recordcuont".into(), "3".into(), crate::common::origin()));
    set.stores.push(serval_experiment::file::StoreEntry {
        name: "x".into(),
        binding: "memroy".into(),
        ..set.stores[0].clone()
    });
    let refused = words(set);
    for part in
        ["an experiment sets it for each run; the file has it as clients in [run]", "did you mean 'memory'?"]
    {
        assert!(refused.contains(part), "{part}: {refused}");
    }
}

/// Store whose first run makes a folder in place of a file of its conductor, which then cannot be
/// written.
struct Blocking {
    inner: Box<dyn Session>,
    /// The folder of runs.
    runs: PathBuf,
    blocked: Arc<AtomicBool>,
}

impl Session for Blocking {
    fn store(&self) -> &dyn OpenStore {
        self.inner.store()
    }
    fn run(
        &self,
        workload: &Arc<dyn Workload>,
        options: &RunOptions,
        control: &Control,
        observer: &mut dyn Observer,
    ) -> Result<Ran, PlanError> {
        let mut ran = self.inner.run(workload, options, control, observer)?;
        if !self.blocked.swap(true, Relaxed) {
            let folder = std::fs::read_dir(&self.runs).unwrap().next().unwrap().unwrap().path();
            std::fs::create_dir(folder.join("lag-keys.csv")).unwrap();
            ran.lag = Some(LagFound { result: LagResult::default(), keys: Vec::new() });
        }
        Ok(ran)
    }
}

#[test]
fn a_load_whose_files_cannot_be_written_ends_the_experiment_and_can_be_resumed() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("e");
    let store = Strict::default();
    let (runs, blocked) = (path.join("runs"), Arc::new(AtomicBool::new(false)));
    let opened = store.clone();
    let stores = Only(Box::new(move || {
        let inner = session::over(opened.clone(), "strict");
        Box::new(Blocking { inner, runs: runs.clone(), blocked: Arc::clone(&blocked) })
    }));
    let file = file("", "[\"max\"]", "workloada");
    let experiment = Experiment::new(file.clone()).unwrap();
    let journal = ExperimentJournal::begin(&path, experiment.document(vec!["test".into()])).unwrap();
    let outcome = experiment.conduct(journal, &stores, None, &Control::default(), &mut (), true);
    let error = outcome.unwrap_err();
    assert!(matches!(error, ConductError::Plan(PlanError::Folder(_))), "{error}");
    assert!(error.to_string().contains("-memory-load/lag-keys.csv: cannot write"), "{error}");
    assert!(document(&path).runs.is_empty());
    assert_eq!(conduct_in(&path, &file, &stores, &Control::default()), Stopped::Complete);
    assert_eq!(store.counts(), (0, 0), "inserted twice, not found");
}
