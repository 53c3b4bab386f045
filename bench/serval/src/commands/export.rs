//! What `serval load` and `serval run` leave where YCSB does: standard output,
//! `exportfile`, the raw log and the `.hdr` files.

use crate::{failure::Failure, stdout};
use serval_measure::legacy::{LegacySeries, TimeKind};
use serval_model::{Metric, Status};
use serval_plan::{Plan, perform::Performed, properties as p};
use serval_report::ycsb::{Exporter, Legacy, Report, client_lines, terms};
use std::{
    collections::BTreeMap,
    fs,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

fn unwritable(name: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::output(format!("{name}={}: cannot be written: {error}", path.display()))
}

/// Whether a file can be written, without leaving anything there.
fn probe(path: &Path) -> io::Result<()> {
    if path.symlink_metadata().is_ok() {
        return fs::OpenOptions::new().append(true).open(path).map(drop);
    }
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    tempfile::tempfile_in(folder.unwrap_or(Path::new("."))).map(drop)
}

/// Files that the end will write must be writable before the run, which may
/// take hours.
pub(super) fn check(plan: &Plan) -> Result<(), Failure> {
    let output = &plan.output;
    // Which files there will be depends on the operations; one stands for all.
    let hdr = output.hdr_files.as_ref().map(|prefix| PathBuf::from(format!("{prefix}READ.hdr")));
    let outputs = [
        (output.export_file.as_ref(), p::EXPORT_FILE.name),
        (output.raw_file.as_ref(), p::RAW_OUTPUT_FILE.name),
        (hdr.as_ref(), p::HDR_OUTPUT_PATH.name),
    ];
    for (path, name) in outputs {
        if let Some(path) = path {
            probe(path).map_err(|error| unwritable(name, path, &error))?;
        }
    }
    Ok(())
}

/// Writes YCSB's output, or the result document for `exporter=json`. Numbers
/// that cannot go where they should go to standard output.
pub(super) fn export(plan: &Plan, performed: &Performed) -> Result<(), Failure> {
    let mut text = Vec::new();
    let in_memory = |error: io::Error| Failure::output(error.to_string());
    let custom = plan.workload.metrics();
    let custom: Vec<&str> = custom.iter().map(String::as_str).collect();
    let totals = &performed.record.totals;
    let options = plan.output.ycsb(&custom, plan.options.rate.is_some());
    let metrics = terms::metrics(&totals.measured);
    let legacy = terms::legacy(legacy(performed), &totals.measured);
    let raw = terms::raw(&performed.raw, &totals.measured);
    let report = Report {
        options,
        // A run of less than a millisecond would have an infinite throughput,
        // which parsers do not expect.
        runtime_ms: (performed.record.duration.as_millis() as u64).max(1),
        operations: totals.units,
        metrics: &metrics,
        legacy: &legacy,
        raw: &raw,
    };
    let exporter = Exporter::from_name(&plan.output.exporter);
    let mut outcome = Ok(());
    if options.kind.is_raw() {
        if exporter.is_some() {
            let file = plan.output.raw_file.as_deref();
            stdout(client_lines::raw_destination(file).repeat(report.measurements()).as_bytes())?;
        }
        let since_epoch = performed.record.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        let epoch_ms = since_epoch.as_millis() as u64;
        match &plan.output.raw_file {
            // As YCSB: to standard output, wherever the summary goes.
            None => {
                let mut points = Vec::new();
                report.write_raw_points(epoch_ms, &mut points).map_err(in_memory)?;
                outcome = stdout(&points);
            }
            Some(path) => {
                // YCSB appends, and other tools expect what several runs left.
                let file = fs::OpenOptions::new().create(true).append(true).open(path);
                let written = file.and_then(|file| {
                    let mut file = BufWriter::new(file);
                    report.write_raw_points(epoch_ms, &mut file)?;
                    file.flush()
                });
                outcome = written.map_err(|error| unwritable(p::RAW_OUTPUT_FILE.name, path, &error));
            }
        }
    }
    match exporter {
        Some(exporter) => exporter.write(&report.lines(), &mut text).map_err(in_memory)?,
        None => text.extend(crate::render::json(&performed.document)?),
    }
    let Some(path) = &plan.output.export_file else { return outcome.and(stdout(&text)) };
    outcome.and(fs::write(path, &text).map_err(|error| {
        if path.is_file() {
            // What there is of it is half a result.
            let _ = fs::remove_file(path);
        }
        // Reports the error of the file.
        let _ = stdout(&text);
        unwritable(p::EXPORT_FILE.name, path, &error)
    }))
}

/// The older measurement types of all threads.
fn legacy(performed: &Performed) -> Legacy {
    let mut merged: BTreeMap<(Metric, Status, TimeKind), LegacySeries> = BTreeMap::new();
    for legacy in &performed.record.legacy {
        for (metric, status, time, series) in legacy.series() {
            merged.entry((metric, status, time)).or_default().merge(series);
        }
    }
    merged
}
