//! The document of an experiment before its first run.

use crate::file::Heading;
use serval_model::properties::Fault;
use serval_plan::{environment, timestamp};
use serval_result::{
    experiment::{EXPERIMENT_VERSION, ExperimentDocument, ExperimentKind},
    note::Note,
};
use std::time::SystemTime;

/// Converts the warnings of a plan into notes of an experiment.
pub(crate) fn plan_notes(warnings: &[Fault]) -> Vec<Note> {
    warnings.iter().map(|warning| Note::Text { text: warning.to_string() }).collect()
}

/// Makes the document of an experiment that begins now. Its plan is still empty.
pub(crate) fn experiment_document(
    kind: ExperimentKind,
    heading: &Heading,
    command_line: Vec<String>,
    warnings: &[Fault],
) -> ExperimentDocument {
    let notes = plan_notes(warnings);
    ExperimentDocument {
        experiment_version: EXPERIMENT_VERSION,
        serval_version: env!("CARGO_PKG_VERSION").to_owned(),
        kind: kind.into(),
        title: heading.title.clone(),
        about: heading.about.clone(),
        figure: heading.figure.clone(),
        saw: heading.saw.clone(),
        started: timestamp(SystemTime::now()),
        command_line,
        environment: environment(),
        warnings: serval_report::notes::lines(&notes),
        notes,
        ..ExperimentDocument::default()
    }
}
