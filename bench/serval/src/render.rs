//! The files of a result folder.

use crate::failure::Failure;
use serval_measure::document::ResultDocument;

/// The document as JSON.
pub(crate) fn json(document: &ResultDocument) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec_pretty(document).map_err(|error| Failure::output(error.to_string()))
}

/// All files made from a document.
pub(crate) fn files(document: &ResultDocument) -> Result<Vec<(String, Vec<u8>)>, Failure> {
    Ok(vec![("result.json".into(), json(document)?)])
}
