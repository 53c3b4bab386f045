//! A run on a store without records is refused if its operations need them, and otherwise starts
//! with a warning.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use serval_model::{
    Purpose,
    properties::{Origin, Properties},
};
use serval_plan::{Plan, PlanRequest, perform::perform, session};
use serval_result::{document::ResultDocument, note::Note};
use serval_runner::{Control, Observer};
use serval_stores::memory::Memory;
use serval_workload::core::Phase;

/// Collects warnings.
#[derive(Default)]
struct Warnings(Vec<String>);

impl Observer for Warnings {
    fn warn(&mut self, warning: &str) {
        self.0.push(warning.to_owned());
    }
}

/// Runs on an empty store of this name. Returns the warnings before the run, and the result or error.
fn run(store: &str, settings: &[(&str, &str)]) -> Result<(Vec<String>, ResultDocument), String> {
    let mut properties = Properties::new();
    let counts = [("recordcount", "100"), ("operationcount", "20"), ("seed", "1")];
    for (name, value) in counts.iter().chain(settings) {
        properties.set(*name, *value, Origin::Program("test"));
    }
    let store = serval_stores::find(store).unwrap();
    let plan = Plan::new(PlanRequest { properties, phase: Phase::Run, store, strict: false }).unwrap();
    let memory = Memory::open(&Properties::new()).unwrap();
    let session = session::over(memory, store.name);
    session.store().prepare(&plan.workload.schema(), Purpose::Load).unwrap();
    let mut warnings = Warnings::default();
    let performed = perform(&plan, &*session, &Control::default(), &mut warnings, None, Vec::new());
    let performed = performed.map_err(|error| error.to_string())?;
    assert_eq!(performed.document.overall.operations, 20);
    Ok((warnings.0, performed.document))
}

const UPDATES: [(&str, &str); 2] = [("readproportion", "0"), ("updateproportion", "1")];

#[test]
fn updates_that_insert_run_with_a_warning() {
    let (before, result) = run("redis", &UPDATES).unwrap();
    assert_eq!(before.len(), 1);
    assert!(before[0].starts_with("there are no records: none of 16 keys such as 'user"), "{before:?}");
    assert!(
        before[0].ends_with("Updates insert them, for that is what an update of redis does"),
        "{before:?}"
    );
    assert_eq!(result.warnings[0], before[0]);
    assert!(
        matches!(&result.notes[0], Note::NoRecords { keys: 16, store, .. } if store == "redis"),
        "{:?}",
        result.notes
    );
    let (before, _) = run("redis", &[UPDATES[0], UPDATES[1], ("insertproportion", "1")]).unwrap();
    assert_eq!(before.len(), 1);
}

#[test]
fn operations_that_need_records_are_refused() {
    for (store, more) in [
        ("memory", ("updateproportion", "1")),
        ("redis", ("readproportion", "0.1")),
        ("redis", ("readmodifywriteproportion", "0.1")),
        ("redis", ("deleteproportion", "0.1")),
        ("redis", ("scanproportion", "0.1")),
    ] {
        let refused = run(store, &[UPDATES[0], UPDATES[1], more]).unwrap_err();
        assert!(refused.contains("there are no records") && refused.contains("Load them with"), "{refused}");
    }
}

#[test]
fn pure_inserts_and_stores_without_records_are_not_checked() {
    let inserts = [("readproportion", "0"), ("updateproportion", "0"), ("insertproportion", "1")];
    assert_eq!(run("memory", &inserts).unwrap().0, Vec::<String>::new());
    assert_eq!(run("noop", &[]).unwrap().0, Vec::<String>::new());
}
