//! Experiments in temporary folders, on stores of the tests.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test file uses a part; a failed unwrap fails the test"
)]

use serval_experiment::{
    ExperimentJournal, Stopped,
    file::{ExperimentFile, read},
    sweep::{Experiment, Stores},
};
use serval_model::properties::{Faults, Origin, Properties};
use serval_plan::session::Session;
use serval_report::stored::{StoredExperiment, read_experiment};
use serval_runner::Control;
use serval_stores::StoreInfo;
use std::path::Path;

/// Opens the same store for any name.
pub struct Only(pub Box<dyn Fn() -> Box<dyn Session>>);

impl Stores for Only {
    fn open(&self, _: &'static StoreInfo, _: &Properties) -> Result<Box<dyn Session>, Faults> {
        Ok((self.0)())
    }
}

/// Returns an experiment file with these sections, on one store and one of the
/// ready-made workloads.
pub fn experiment(sections: &str, workload: &str) -> ExperimentFile {
    let workload = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads").join(workload);
    let text = format!(
        "version = 1\n{sections}\n[properties]\nrecordcount = 1000\n[[stores]]\nname = \"memory\"\n\
         [[workloads]]\nfile = {:?}\n",
        workload.to_str().unwrap()
    );
    read(&text, Path::new("test.toml")).unwrap()
}

pub fn origin() -> Origin {
    Origin::Program("test")
}

/// Runs an experiment in a folder that is deleted with the returned value.
pub fn conduct(file: &ExperimentFile, stores: &dyn Stores) -> (StoredExperiment, Stopped) {
    let folder = tempfile::tempdir().unwrap().keep();
    let path = folder.join("experiment");
    let stopped = conduct_in(&path, file, stores, &Control::default());
    (read_experiment(&path.join("experiment.json")).unwrap(), stopped)
}

/// Runs an experiment, or resumes it.
pub fn conduct_in(path: &Path, file: &ExperimentFile, stores: &dyn Stores, control: &Control) -> Stopped {
    let experiment = Experiment::new(file.clone()).unwrap();
    let journal = if path.exists() {
        ExperimentJournal::resume(path, None).unwrap()
    } else {
        ExperimentJournal::begin(path, experiment.document(vec!["test".into()])).unwrap()
    };
    experiment.conduct(journal, stores, None, control, &mut (), true).unwrap().1
}
