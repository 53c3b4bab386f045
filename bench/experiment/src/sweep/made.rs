//! A run that has been made: what its folder has, and how an experiment lists it.

use crate::{
    folder::{FolderError, ResultFolder},
    plan::Plan,
};
use serval_result::{
    document::ResultDocument,
    experiment::{RunEntry, RunKind},
    flags::flags,
};

/// Writes the result and the properties in force into a run's folder, and ends it.
pub(crate) fn keep(folder: ResultFolder, plan: &Plan, document: &ResultDocument) -> Result<(), FolderError> {
    let mut bytes = Vec::new();
    // Writing to memory does not fail.
    let _ = serval_report::json::write(document, &mut bytes);
    folder.write("result.json", &bytes)?;
    let name = format!("{}.properties", plan.phase_name());
    folder.write(&name, crate::bench::effective_properties(plan).as_bytes())?;
    folder.finish()?;
    Ok(())
}

/// A run with this result: of the first curve and point, and as if nothing was asked for.
pub(crate) fn entry(document: &ResultDocument, kind: RunKind, folder: String) -> RunEntry {
    let overall = &document.overall;
    RunEntry {
        curve: 0,
        kind,
        point: 0,
        repeat: 0,
        target: None,
        share: None,
        clients: document.run.clients,
        folder,
        started: document.run.started.clone(),
        throughput: overall.throughput,
        failed_per_s: failed_per_s(document),
        duration_s: overall.duration_s,
        warm_up_s: overall.warm_up_s,
        whole_s: overall.duration_s + overall.warm_up_s,
        records_before: None,
        flags: flags(document),
    }
}

/// Operations a second that failed.
pub(super) fn failed_per_s(document: &ResultDocument) -> f64 {
    let overall = &document.overall;
    if overall.duration_s > 0.0 { overall.failed as f64 / overall.duration_s } else { 0.0 }
}
