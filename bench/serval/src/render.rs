//! A result document in its several forms.

use crate::failure::Failure;
use serval_report::{summary::summary as table, terminal::Styles};
use serval_result::document::ResultDocument;

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::output(error.to_string())
}

/// The document as JSON.
pub(crate) fn json(document: &ResultDocument) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    serval_report::json::write(document, &mut text).map_err(failed)?;
    Ok(text)
}

/// Another document as JSON, with a line break at its end.
pub(crate) fn pretty(document: &impl serde::Serialize) -> Result<Vec<u8>, Failure> {
    let mut text = serde_json::to_vec_pretty(document).map_err(failed)?;
    text.push(b'\n');
    Ok(text)
}

/// The series as CSV.
pub(crate) fn csv(document: &ResultDocument) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    serval_report::csv::write(&document.series, &mut text).map_err(failed)?;
    Ok(text)
}

/// The curves of lag as CSV, where lag was measured.
pub(crate) fn lag_csv(document: &ResultDocument) -> Result<Option<Vec<u8>>, Failure> {
    let Some(lag) = &document.lag else { return Ok(None) };
    let mut text = Vec::new();
    serval_report::lag::write(&[(String::new(), lag)], &mut text).map_err(failed)?;
    Ok(Some(text))
}

/// The report for a browser.
pub(crate) fn html(document: &ResultDocument) -> Result<Vec<u8>, Failure> {
    Ok(serval_report::html::html(document).into_bytes())
}

/// How a summary is marked: in colours on a terminal that wants them.
pub(crate) fn styles(terminal: bool) -> Styles {
    let colour = terminal
        && anstream::ColorChoice::global() != anstream::ColorChoice::Never
        && std::env::var_os("NO_COLOR").is_none();
    match (terminal, colour) {
        (_, true) => Styles::ansi(),
        (true, false) => Styles::colourless(),
        (false, false) => Styles::plain(),
    }
}

/// The table for people.
pub(crate) fn summary(document: &ResultDocument, terminal: bool) -> Vec<u8> {
    table(document, &styles(terminal)).into_bytes()
}

/// The files of a result folder.
pub(crate) fn files(document: &ResultDocument) -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let mut files = vec![
        ("result.json".into(), json(document)?),
        ("summary.txt".into(), summary(document, false)),
        ("series.csv".into(), csv(document)?),
        ("report.html".into(), html(document)?),
    ];
    files.extend(lag_csv(document)?.map(|text| ("lag.csv".into(), text)));
    Ok(files)
}
