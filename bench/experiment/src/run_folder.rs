//! Result folders of the runs of an experiment.

use serval_plan::{
    Plan,
    folder::{FolderError, ResultFolder},
    properties_file::effective_properties,
};
use serval_result::document::ResultDocument;

/// Writes the result and the effective properties into the folder of a run, and finishes the folder.
pub(crate) fn finish(
    folder: ResultFolder,
    plan: &Plan,
    document: &ResultDocument,
) -> Result<(), FolderError> {
    let mut bytes = Vec::new();
    // Writing to memory does not fail.
    let _ = serval_report::json::write(document, &mut bytes);
    folder.write("result.json", &bytes)?;
    let name = format!("{}.properties", plan.phase_name());
    folder.write(&name, effective_properties(plan).as_bytes())?;
    folder.finish()?;
    Ok(())
}
