//! `serval report` and `serval merge`: from stored results.

use crate::{
    args::{MergeArgs, ReportArgs},
    failure::Failure,
    render, stdout,
};
use serval_report::{
    experiment::{self, Part},
    html::PlotFile,
    json, merge,
    notes::line,
    stored::{self, Stored, StoredError},
};
use serval_result::{
    document::ResultDocument,
    note::{MergedNote, Note},
};
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

/// What a report is made of.
enum ReportInput {
    /// One result.
    Result(Box<ResultDocument>),
    /// An experiment, or several of anything.
    Parts(Vec<Part>),
}

impl ReportInput {
    fn read(paths: &[PathBuf]) -> Result<ReportInput, Failure> {
        let failed = |error: StoredError| Failure::usage(below(&error).unwrap_or_else(|| error.to_string()));
        if let [path] = paths
            && let Stored::Result(_, document) = stored::read(path).map_err(failed)?
        {
            return Ok(ReportInput::Result(document));
        }
        let names = names(paths);
        let parts = names.iter().zip(paths).map(|(name, path)| {
            // The documents of one at a time: what reports need of them is less.
            let stored = stored::read(path).map_err(failed)?;
            Part::read(name, &stored).map_err(failed)
        });
        Ok(ReportInput::Parts(parts.collect::<Result<_, _>>()?))
    }

    fn html(&self) -> Result<Vec<u8>, Failure> {
        match self {
            ReportInput::Result(document) => render::html(document),
            ReportInput::Parts(parts) => Ok(experiment::html(parts).into_bytes()),
        }
    }

    fn csv(&self) -> Result<Vec<u8>, Failure> {
        match self {
            ReportInput::Result(document) => render::csv(document),
            ReportInput::Parts(parts) => {
                let mut text = Vec::new();
                experiment::csv(parts, &mut text).map_err(|error| Failure::output(error.to_string()))?;
                Ok(text)
            }
        }
    }

    fn lag_csv(&self) -> Result<Vec<u8>, Failure> {
        let text = match self {
            ReportInput::Result(document) => render::lag_csv(document)?,
            ReportInput::Parts(parts) => {
                experiment::lag_csv(parts).map_err(|error| Failure::output(error.to_string()))?
            }
        };
        text.ok_or_else(|| {
            Failure::usage(
                "--lag-csv: there is no lag in it. Name one result or experiments of phases that measured it (lag.role, \
                 docs/lag.md)"
                    .to_owned(),
            )
        })
    }

    fn plots(&self) -> Vec<PlotFile> {
        match self {
            ReportInput::Result(document) => serval_report::html::plots(document),
            ReportInput::Parts(parts) => experiment::plots(parts),
        }
    }

    fn summary(&self, terminal: bool) -> Vec<u8> {
        match self {
            ReportInput::Result(document) => render::summary(document, terminal),
            ReportInput::Parts(parts) => experiment::summary(parts, &render::styles(terminal)).into_bytes(),
        }
    }
}

/// What tells the sources of a report apart: the last part of each path, or
/// the whole of it where these are not all different.
fn names(paths: &[PathBuf]) -> Vec<String> {
    let last = |path: &PathBuf| {
        let is_document = path.extension().is_some_and(|end| end == "json");
        let folder = if is_document { path.parent().unwrap_or(path) } else { path.as_path() };
        folder.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
    };
    let short: Vec<String> = paths.iter().map(last).collect();
    let differ = short.iter().all(|name| short.iter().filter(|other| *other == name).count() == 1);
    let long = || paths.iter().map(|path| path.display().to_string()).collect();
    let mut names: Vec<String> = if differ { short } else { long() };
    // What is given twice is shown twice.
    for nth in 1..names.len() {
        let before = paths[..nth].iter().filter(|path| **path == paths[nth]).count();
        if before > 0 {
            names[nth] = format!("{} ({})", names[nth], before + 1);
        }
    }
    names
}

/// Results below a folder that are named where one was wanted in it.
const BELOW_NAMED: usize = 3;

/// Where a folder has no result in it, but folders in it have.
fn below(error: &StoredError) -> Option<String> {
    let StoredError::Nothing(folder) = error else { return None };
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.join(stored::RESULT).is_file() || path.join(stored::EXPERIMENT).is_file())
        .collect();
    found.sort();
    let shown: Vec<String> = found.iter().take(BELOW_NAMED).map(|path| path.display().to_string()).collect();
    let more = if found.len() > BELOW_NAMED { " ..." } else { "" };
    (!found.is_empty())
        .then(|| format!("{error}, but in folders below: name these, {}{more}", shown.join(" ")))
}

/// `serval report DIR...`.
pub(crate) fn report(args: &ReportArgs) -> Result<(), Failure> {
    let source = ReportInput::read(&args.results)?;
    if let Some(path) = &args.html {
        write(path, &source.html()?)?;
    }
    if let Some(path) = &args.csv {
        write(path, &source.csv()?)?;
    }
    if let Some(path) = &args.lag_csv {
        write(path, &source.lag_csv()?)?;
    }
    if let Some(folder) = &args.plots {
        std::fs::create_dir_all(folder)
            .map_err(|error| Failure::output(format!("{}: cannot be made: {error}", folder.display())))?;
        for PlotFile { name, svg, png } in source.plots() {
            write(&folder.join(format!("{name}.svg")), svg.as_bytes())?;
            write(&folder.join(format!("{name}.png")), &png)?;
        }
    }
    if [&args.html, &args.csv, &args.lag_csv, &args.plots].iter().all(|path| path.is_none()) {
        stdout(&source.summary(std::io::stdout().is_terminal()))?;
    }
    Ok(())
}

/// `serval merge RESULT...`.
pub(crate) fn merge(args: &MergeArgs) -> Result<(), Failure> {
    let documents = args.results.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    let names: Vec<String> = args.results.iter().map(|path| path.display().to_string()).collect();
    let parts: Vec<merge::MergeInput<'_>> =
        names.iter().zip(&documents).map(|(name, document)| merge::MergeInput { name, document }).collect();
    let together = if args.one_after_another { merge::Together::InTurn } else { merge::Together::AtOnce };
    let merged =
        merge::merge(&parts, together, args.force).map_err(|error| Failure::usage(error.to_string()))?;
    if args.out.is_some() || !std::io::stdout().is_terminal() {
        // The document has them too; a user reads the terminal first.
        let apart = |note: &&Note| matches!(note, Note::Merged(MergedNote::NotAtOnce { .. }));
        merged.notes.iter().filter(apart).for_each(|note| tell!("warning: {}", line(note)));
    }
    match &args.out {
        Some(path) => write(path, &render::json(&merged)?),
        None if args.json || !std::io::stdout().is_terminal() => stdout(&render::json(&merged)?),
        None => stdout(&render::summary(&merged, true)),
    }
}
