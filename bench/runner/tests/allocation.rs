//! The measured path does not allocate: a run of many operations makes as many allocations as a
//! run of few.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use serval_model::properties::{Catalog, Properties, Reader};
use serval_runner::{
    Control, RunOptions,
    pacing::{Arrivals, rate::RateSchedule},
    run,
};
use serval_scripts::{Script, ScriptWorkload};
use serval_stores::noop::Noop;
use serval_workload::{
    Workload,
    core::{Circumstances, CoreWorkload, Phase},
};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is forwarded to the system's allocator unchanged.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's guarantees are those that the system allocator needs.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the number of allocations of a run of the core workload or a script.
fn allocations(properties: &str, script: Option<&str>, phase: Phase, operations: u64) -> u64 {
    allocations_with(
        properties,
        script,
        phase,
        RunOptions { units: Some(operations), ..RunOptions::default() },
    )
}

fn allocations_with(properties: &str, script: Option<&str>, phase: Phase, options: RunOptions) -> u64 {
    let operations = options.units.unwrap();
    let mut all = Properties::new();
    all.load(properties.as_bytes(), Path::new("test")).unwrap();
    all.load(format!("recordcount={operations}\n").as_bytes(), Path::new("test")).unwrap();
    let mut reader = Reader::new(&all);
    let facts = Circumstances {
        phase,
        clients: 1,
        operations: Some(operations),
        time: None,
        target: None,
        resume: false,
        batches: true,
        share: serval_model::Share::WHOLE,
    };
    let no_files = BTreeMap::new();
    let workload: Arc<dyn Workload> = match script {
        None => Arc::new(CoreWorkload::open(&mut reader, &facts, &no_files).unwrap()),
        Some(text) => {
            let file = tempfile::Builder::new().suffix(".lua").tempfile().unwrap();
            std::fs::write(file.path(), text).unwrap();
            let script = Script::read(file.path(), &Catalog::default()).unwrap();
            Arc::new(ScriptWorkload::open(&mut reader, &facts, &no_files, Arc::new(script)).unwrap())
        }
    };
    reader.finish().unwrap();
    // A single interval, so that only clients work during the run.
    let interval = std::time::Duration::from_secs(3600);
    let options = RunOptions { interval, seed: 1, ..options };
    let store = Arc::new(Noop::open(&all).unwrap());
    let before = ALLOCATIONS.load(Relaxed);
    let record = run(&store, &workload, &options, &Control::default(), &mut ()).unwrap();
    assert_eq!(record.totals.units, operations);
    ALLOCATIONS.load(Relaxed) - before
}

/// Tests run one at a time, because each counts the allocations of the whole process.
static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
fn operations_allocate_nothing() {
    let _turn = TURN.lock().unwrap();
    let mixes = [
        ("readproportion=1\nupdateproportion=0\nrequestdistribution=zipfian\n", Phase::Run),
        ("readproportion=0.5\nupdateproportion=0.5\nrequestdistribution=exactzipfian\n", Phase::Run),
        (
            "readproportion=0\nscanproportion=0.9\ninsertproportion=0.1\nrequestdistribution=latest\n",
            Phase::Run,
        ),
        ("readproportion=0\nupdateproportion=0\nreadmodifywriteproportion=1\n", Phase::Run),
        ("", Phase::Load),
        ("batchsize=10\n", Phase::Load),
    ];
    for (properties, phase) in mixes {
        let few = allocations(properties, None, phase, 2_000);
        let many = allocations(properties, None, phase, 200_000);
        // The conductor allocates ten times a second.
        assert!(
            many < few + 1_000,
            "{properties}: {few} allocations for 2,000 operations, {many} for 200,000"
        );
    }
}

/// Operations are due faster than clients can send them, so no client sleeps.
#[test]
fn intended_starts_allocate_nothing() {
    let _turn = TURN.lock().unwrap();
    for arrivals in [Arrivals::Client, Arrivals::Uniform, Arrivals::Poisson] {
        let allocations = |operations| {
            let rate = Some(RateSchedule::constant(1e9));
            let options = RunOptions { units: Some(operations), rate, arrivals, ..RunOptions::default() };
            allocations_with("readproportion=1\nupdateproportion=0\n", None, Phase::Run, options)
        };
        let (few, many) = (allocations(2_000), allocations(200_000));
        assert!(many < few + 1_000, "{arrivals:?}: {few} for 2,000 operations, {many} for 200,000");
    }
}

/// A script with numeric keys and values of the core workload does not allocate either. A string
/// passed from Lua costs one allocation, because mlua counts its references.
#[test]
fn operations_of_scripts_allocate_nothing() {
    let _turn = TURN.lock().unwrap();
    let texts_a_unit_phase = [
        (
            0,
            "operations = { 'read' }\nlocal choose\nfunction start() choose = keys() end\n\
             function step() read(choose()) end",
            Phase::Run,
        ),
        (
            0,
            "operations = { 'update', 'insert' }\n\
             function step() if random() < 0.5 then update(1) else insert() end end",
            Phase::Run,
        ),
        // One string for the name of the transaction, one for the field.
        (
            2,
            "operations = { 'read', 'update' }\ntransactions = { 'TX' }\nlocal short\n\
             function start() short = text(3, 9) end\n\
             local function both(op, key) op.read(key) op.update(key, 'a', short) end\n\
             function step() transaction('TX', both, random(0, 9)) end",
            Phase::Run,
        ),
        (
            1,
            "operations = { 'read' }\nfunction load(n) insert(n, 'a', n) end\nfunction step() read(1) end",
            Phase::Load,
        ),
    ];
    for (texts, script, phase) in texts_a_unit_phase {
        let few = allocations("", Some(script), phase, 2_000);
        let many = allocations("", Some(script), phase, 100_000);
        assert!(
            many < few + 1_000 + texts * 98_000,
            "{script}: {few} allocations for 2,000 operations, {many} for 100,000"
        );
    }
}
