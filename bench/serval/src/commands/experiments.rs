//! What commands of sweeps and of phases have in common.

use super::properties;
use crate::{
    args::{OutcomeArgs, PlaceArgs, PropertyArgs, RunSettingArgs},
    failure::{Exit, Failure},
    render, stdout,
};
use serval_experiment::{
    ConductError, ExperimentJournal, JournalError,
    bench::default_folder,
    file::{GroupEntry, PropertyLine, StoreEntry},
};
use serval_model::properties::{Faults, Origin, Setting};
use serval_report::{
    experiment::{self, Part},
    stored::StoredExperiment,
    units::{count, plural},
};
use serval_result::experiment::ExperimentDocument;
use std::{io::IsTerminal, path::Path};

/// Properties of all curves, as an experiment file has them.
pub(super) fn property_lines(args: &PropertyArgs, faults: &mut Faults) -> Vec<PropertyLine> {
    let all = faults.take(properties(args)).unwrap_or_default();
    let line =
        |(name, setting): (&str, &Setting)| (name.to_owned(), setting.value.clone(), setting.origin.clone());
    all.iter().map(line).collect()
}

/// Sets properties of the command line, which win over `others`, for all curves or phases.
pub(super) fn override_lines<'a>(
    given: Vec<PropertyLine>,
    common: &mut Vec<PropertyLine>,
    others: impl Iterator<Item = &'a mut Vec<PropertyLine>>,
) {
    let left = |line: &PropertyLine| !given.iter().any(|(name, _, _)| *name == line.0);
    others.for_each(|lines| lines.retain(left));
    common.retain(left);
    common.extend(given);
}

/// Begins the journal of an experiment, or resumes it. `document` returns the experiment's document, which takes over
/// the stored seed of the one that is resumed if no seed is given.
pub(super) fn journal(
    place: &PlaceArgs,
    name: &str,
    document: impl FnOnce(Option<u64>) -> ExperimentDocument,
) -> Result<ExperimentJournal, Failure> {
    let journal = match (&place.out, place.resume) {
        (None, true) => {
            return Err(Failure::usage("--resume needs --out DIR, the folder of the interrupted experiment"));
        }
        (Some(out), true) => ExperimentJournal::stored_seed(out)
            .and_then(|seed| ExperimentJournal::resume(out, Some(&document(Some(seed)).plan))),
        (out, false) => {
            let folder = out.clone().unwrap_or_else(|| default_folder(name, "experiment"));
            ExperimentJournal::begin(&folder, document(None))
        }
    };
    journal.map_err(from_journal)
}

/// Fills in what flags say of the processes that make every run together.
pub(super) fn group(args: &RunSettingArgs, group: &mut Option<GroupEntry>) {
    if args.agents.is_some() {
        group.get_or_insert_default().clients = args.agents;
    }
    if args.coordination.is_some() {
        group.get_or_insert_default().zookeeper = args.coordination.clone();
    }
}

/// A store of the command line.
pub(super) fn store_named(name: &str, watch: &[String]) -> StoreEntry {
    StoreEntry {
        name: name.to_owned(),
        binding: name.to_owned(),
        watch: watch.to_vec(),
        save: None,
        restore: None,
        properties: Vec::new(),
        origin: Some(Origin::CommandLine("--store".into())),
    }
}

pub(super) fn from_journal(error: JournalError) -> Failure {
    match error {
        JournalError::Folder(error) => error.into(),
        error => Failure::usage(error.to_string()),
    }
}

/// That an experiment was interrupted.
pub(super) fn interrupted(folder: &Path) -> Failure {
    let message = format!(
        "interrupted: '{}' resumes it, 'serval report {}' shows what there is",
        resume_with(folder),
        folder.display()
    );
    Failure::new(Exit::Interrupted, message)
}

/// The command that goes on with an experiment.
pub(super) fn resume_with(folder: &Path) -> String {
    format!("serval experiment resume {}", folder.display())
}

/// Tells what a resumed experiment takes over, of so many runs or phases.
pub(super) fn tell_resumed(done: usize, planned: u64, what: &str) {
    let left = planned.saturating_sub(done as u64);
    tell!("resumed: {} done, {} to do", plural(done as u64, what), count(left));
}

/// Why an experiment could not go on; `goes_on` is what the command that goes on with it does.
pub(super) fn failed(error: ConductError, folder: &Path, goes_on: &str) -> Failure {
    match error {
        ConductError::Interrupted => interrupted(folder),
        ConductError::Plan(error) => {
            let failure: Failure = error.into();
            Failure {
                message: format!(
                    "{}. What was measured is in {}; '{}' {goes_on}",
                    failure.message,
                    folder.display(),
                    resume_with(folder)
                ),
                ..failure
            }
        }
        ConductError::Journal(error) => from_journal(error),
    }
}

/// Where the summary of an experiment goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// To standard output.
    Summary,
    /// The document, as JSON, in place of it.
    Json,
    /// To standard error: standard output is for programs that read YCSB's.
    Aside,
}

impl Shown {
    pub(super) fn of(args: &OutcomeArgs) -> Shown {
        if args.json { Shown::Json } else { Shown::Summary }
    }
}

/// Shows what came of an experiment, and writes its report. The numbers are shown even where their
/// files cannot be written.
pub(super) fn report(journal: &ExperimentJournal, how: Shown) -> Result<(), Failure> {
    let folder = journal.path().to_owned();
    let stored = StoredExperiment { folder: folder.clone(), document: journal.document.clone() };
    let json = match how {
        Shown::Json => stdout(&render::pretty(&journal.document)?),
        Shown::Summary | Shown::Aside => Ok(()),
    };
    let part = Part::of(stored).map_err(|error| Failure::output(error.to_string()))?;
    let written = write_report(journal, &part);
    let summary = || {
        let styles = render::styles(std::io::stdout().is_terminal());
        experiment::summary(std::slice::from_ref(&part), &styles)
    };
    let shown = match how {
        Shown::Summary => stdout(summary().as_bytes()),
        Shown::Json => json,
        Shown::Aside => {
            tell!("{}", summary());
            Ok(())
        }
    };
    written?;
    shown?;
    tell!("report: {}", folder.join("report.html").display());
    Ok(())
}

/// Writes the report into the experiment's folder.
fn write_report(journal: &ExperimentJournal, part: &Part) -> Result<(), Failure> {
    let files = experiment::files(part).map_err(|error| Failure::output(error.to_string()))?;
    for (name, contents) in files {
        journal.replace(&name, &contents)?;
    }
    Ok(())
}
