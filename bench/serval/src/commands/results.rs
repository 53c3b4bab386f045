//! `serval report` and `serval merge`: from stored results.

use crate::{
    args::{MergeArgs, ReportArgs},
    failure::Failure,
    render, stdout,
};
use serval_measure::document::ResultDocument;
use serval_report::{json, merge};
use std::{
    fs::File,
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
};

/// The document of a result folder or file.
fn read(path: &Path) -> Result<ResultDocument, Failure> {
    let file: PathBuf = if path.is_dir() { path.join("result.json") } else { path.to_owned() };
    if path.is_dir() && !file.exists() {
        return Err(Failure::usage(format!(
            "{}: no result folder: there is no result.json in it",
            path.display()
        )));
    }
    json::read_file(&file).map_err(|error| Failure::usage(format!("{}: {error}", file.display())))
}

fn write(path: &Path, contents: &[u8]) -> Result<(), Failure> {
    let written = File::create_new(path).and_then(|mut file| file.write_all(contents));
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Failure::output(format!("{}: exists already; nothing is overwritten", path.display()))
        }
        _ => {
            // What there is of it is half a file.
            let _ = std::fs::remove_file(path);
            Failure::output(format!("{}: cannot be written: {error}", path.display()))
        }
    })
}

/// `serval report RESULT`.
pub(crate) fn report(args: &ReportArgs) -> Result<(), Failure> {
    let document = read(&args.result)?;
    if let Some(path) = &args.html {
        write(path, &render::html(&document)?)?;
    }
    if let Some(path) = &args.csv {
        write(path, &render::csv(&document)?)?;
    }
    if args.html.is_none() && args.csv.is_none() {
        stdout(&render::summary(&document, std::io::stdout().is_terminal()))?;
    }
    Ok(())
}

/// `serval merge RESULT...`.
pub(crate) fn merge(args: &MergeArgs) -> Result<(), Failure> {
    let documents = args.results.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    let names: Vec<String> = args.results.iter().map(|path| path.display().to_string()).collect();
    let parts: Vec<merge::Part<'_>> =
        names.iter().zip(&documents).map(|(name, document)| merge::Part { name, document }).collect();
    let together = if args.one_after_another { merge::Together::InTurn } else { merge::Together::AtOnce };
    let merged =
        merge::merge(&parts, together, args.force).map_err(|error| Failure::usage(error.to_string()))?;
    let text = render::json(&merged)?;
    match &args.out {
        Some(path) => write(path, &text),
        None => stdout(&text),
    }
}
