//! The whole text of `serval load` and `serval run`, standard output and standard error, compared with
//! that of YCSB's own client under the same properties, except for numbers.
//!
//! `golden/ycsb_text.txt` has the output of `site.ycsb.Client` 0.17.0. The tests compare it with the
//! client itself if SERVAL_YCSB_CLASSPATH has its class path (`cargo xtask test` fetches it).
//! GOLDEN=write rewrites it.

use crate::common::{Ran, folder, program, write};
use std::{
    collections::BTreeSet,
    path::Path,
    process::{Command, Output},
};

/// Properties of all cases, unless a case overrides them. YCSB 0.18 prints the 50th percentile by
/// default, and 0.17.0 does not.
const WORKLOAD: &str = "workload=site.ycsb.workloads.CoreWorkload\nrecordcount=20\noperationcount=40\nreadproportion=1\n\
                        updateproportion=0\nfieldcount=2\nfieldlength=10\nhdrhistogram.percentiles=50,95,99\n\
                        basicdb.verbose=false\n";
const FIELD_LENGTH: usize = 10;

/// Text of YCSB 0.18, which Serval follows, that 0.17.0 does not print.
const NOT_IN_0_17: &str = "Data integrity is enabled.";

const VERBOSE: &str = "-p basicdb.verbose=true";
const E: &str = "-p readproportion=0 -p updateproportion=0 -p scanproportion=0.5 -p insertproportion=0.5";
const F: &str = "-p readproportion=0.5 -p updateproportion=0 -p readmodifywriteproportion=0.5";
const MIX: &str = "-p readproportion=0.5 -p updateproportion=0.5";
const JSON: &str = "site.ycsb.measurements.exporter.JSONMeasurementsExporter";
const ARRAY: &str = "site.ycsb.measurements.exporter.JSONArrayMeasurementsExporter";

/// The arguments after the store, for `load` and for `run`.
fn cases() -> Vec<(&'static str, String)> {
    let loads = [
        "",
        "-s",
        VERBOSE,
        "-p batchsize=10",
        "-threads 3",
        "-threads 30",
        "-target 4000",
        "-target 4000 -p measurement.interval=both",
        "-target 4000 -p measurement.interval=intended",
        "-p insertstart=5 -p insertcount=7",
        "-p dataintegrity=true",
        "-p core_workload_insertion_retry_limit=3",
        "-p maxexecutiontime=60 -s",
        "-p measurementtype=timeseries -s",
    ];
    let verbose = |more: &str| format!("{VERBOSE} {more}");
    let mixed = |more: &str| format!("{MIX} {more}");
    let mut runs = vec![
        String::new(),
        "-s -l here".to_owned(),
        "-threads 2 -s -p status.interval=1".to_owned(),
        "-threads 50".to_owned(),
        verbose("-threads 2"),
        verbose(MIX),
        verbose("-p readallfields=false"),
        verbose("-p readproportion=0 -p updateproportion=1 -p writeallfields=true"),
        verbose(E),
        verbose(F),
        verbose("-p basicdb.count=true"),
        "-p basicdb.simulatedelay=1 -p basicdb.randomizedelay=false".to_owned(),
        E.to_owned(),
        F.to_owned(),
        "-p requestdistribution=latest -p insertproportion=1".to_owned(),
        "-p dataintegrity=true -p failures.allowed=1".to_owned(),
        "-p maxexecutiontime=1 -p operationcount=100000 -target 200 -s".to_owned(),
        "-p maxexecutiontime=60".to_owned(),
        "-p reportlatencyforeacherror=true".to_owned(),
        "-p latencytrackederrors=NOT_FOUND,ERROR,BAD_REQUEST".to_owned(),
        "-p reportlatencyforeacherror=no".to_owned(),
        "-p hdrhistogram.percentiles=50,90,99.9,99.99,".to_owned(),
        "-p measurement.histogram.verbose=true".to_owned(),
        "-p exportfile=out".to_owned(),
        format!("-p exporter={JSON}"),
        format!("-p exporter={ARRAY} -p exportfile=out"),
        format!("{F} -threads 2 -target 4000 -p measurement.interval=both -s"),
    ];
    for interval in ["op", "intended", "both"] {
        runs.push(mixed(&format!("-p measurement.interval={interval}")));
        runs.push(mixed(&format!("-p measurement.interval={interval} -target 4000 -s")));
    }
    for kind in ["histogram", "hdrhistogram+histogram", "hdrhistogram+raw", "timeseries", "raw"] {
        runs.push(mixed(&format!("-p measurementtype={kind} -s")));
        runs.push(mixed(&format!("-p measurementtype={kind} -target 4000 -p measurement.interval=both")));
    }
    runs.push(mixed(
        "-p measurementtype=histogram -p measurement.histogram.verbose=true -p histogram.buckets=500",
    ));
    runs.push(mixed("-p measurementtype=raw -p measurement.raw.output_file=out"));
    runs.push(mixed("-p measurementtype=hdrhistogram+raw -p measurement.raw.no_summary=true"));
    let loads = loads.into_iter().map(|words| ("load", words.to_owned()));
    loads.chain(runs.into_iter().map(|words| ("run", words))).collect()
}

/// A file that a run writes.
const FILE: &str = "out";

/// The whole output of a case.
struct Text {
    stdout: String,
    stderr: String,
    file: String,
}

/// Runs a command in a folder with the workload.
fn text(command: &mut Command, place: &Path) -> Text {
    write(place, "workload", WORKLOAD);
    let output: Output = command.current_dir(place).output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let Ran { stdout, stderr, .. } = Ran::of(output).expect(0);
    Text { stdout, stderr, file: std::fs::read_to_string(place.join(FILE)).unwrap_or_default() }
}

fn ours(command: &str, words: &str) -> Text {
    let place = folder();
    let arguments = format!("{command} basic -P workload {words}");
    text(program().args(arguments.split_whitespace()), place.path())
}

fn ycsbs(class_path: &str, command: &str, words: &str) -> Text {
    let place = folder();
    let flag = if command == "load" { "-load" } else { "-t" };
    let arguments = format!("-db site.ycsb.BasicDB -P workload {words} {flag}");
    let mut java = Command::new("java");
    java.args(["-cp", class_path, "site.ycsb.Client"]).args(arguments.split_whitespace());
    text(&mut java, place.path())
}

/// Returns the text with `#` for each number.
fn numbers_aside(text: &str) -> String {
    let mut out = String::new();
    let mut in_number = false;
    for c in text.chars() {
        if c.is_ascii_digit() || in_number && matches!(c, '.' | 'E' | '-') {
            if !in_number {
                out.push('#');
            }
            in_number = true;
        } else {
            in_number = false;
            out.push(c);
        }
    }
    out.replace('\u{221e}', "#").replace("NaN", "#").replace("Infinity", "#")
}

/// Returns a line of results without its value, and without the number of a bucket or instant.
fn result(line: &str) -> String {
    let Some((name, _)) = line.rsplit_once(", ") else { return numbers_aside(line) };
    let (metric, measurement) = name.split_once(", ").unwrap_or((name, ""));
    let numbered = measurement.chars().all(|c| c.is_ascii_digit() || c == '>');
    if numbered { format!("{metric}, #, #") } else { format!("{name}, #") }
}

/// Returns a status line; `None` for another line. Leaves out the parts that depend on the time of
/// printing: the rate, the remaining time, and averages since the previous line.
fn status(line: &str) -> Option<String> {
    let (before, after) = line.split_once(" operations; ")?;
    let before = numbers_aside(before);
    assert!(before.ends_with("# #:#:#:# # sec: #"), "{line}");
    let summaries = after.split_inclusive(']').filter_map(|part| part.find('[').map(|at| &part[at..]));
    let counted: Vec<String> =
        summaries.filter(|part| part.contains(": Count=")).map(numbers_aside).collect();
    // The published version does not print 50=.
    Some(format!("{before} operations; {}", counted.join(" ").replace(", #=#", "")))
}

/// Whether a line continues a status line: YCSB breaks the line between two measurements.
fn continues_status(line: &str) -> bool {
    ["[Hdr", "[Bucket", "[Intended", "Raw"].iter().any(|start| line.trim_start().starts_with(start))
        || line.trim().is_empty()
}

/// Returns an operation printed by BasicDB, with the lengths of its values.
fn operation(line: &str) -> Option<String> {
    let (start, rest) = line.split_once(" [ ")?;
    if !["READ", "SCAN", "UPDATE", "INSERT"].iter().any(|verb| start.starts_with(verb)) {
        return None;
    }
    let start = numbers_aside(start);
    let mut rest = rest.strip_suffix(']').unwrap();
    let mut fields = Vec::new();
    while let Some((name, value)) = rest.split_once('=') {
        fields.push(numbers_aside(name));
        rest = value[FIELD_LENGTH..].strip_prefix(' ').unwrap();
    }
    if fields.is_empty() {
        fields.extend(rest.split_whitespace().map(numbers_aside));
    }
    Some(format!("{start} [ {} ]", fields.join(" ")))
}

/// Normalizes standard output: properties sorted by name, each kind of operation once, then the rest.
fn stdout(text: &str) -> String {
    let (mut properties, mut operations, mut rest) = (Vec::new(), BTreeSet::new(), Vec::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("***************** properties") {
            let mut block: Vec<&str> = lines.by_ref().take_while(|line| !line.starts_with("****")).collect();
            block.sort_unstable();
            properties.extend(block.into_iter().map(str::to_owned));
        } else if let Some(operation) = operation(line) {
            operations.insert(operation);
        } else if let Some(status) = status(line) {
            rest.push(status);
        } else {
            rest.extend(line_of_results(line));
        }
    }
    let mut all = properties;
    all.extend(operations);
    all.extend(rest);
    joined(all)
}

/// Returns a line of results in any form; `None` for lines that only one of the two prints: see
/// `docs/ycsb.md`.
fn line_of_results(line: &str) -> Option<String> {
    if line.contains("TOTAL_GC") || line == NOT_IN_0_17 {
        return None;
    }
    if line.starts_with('[') {
        return Some(result(line));
    }
    Some(numbers_aside(line))
}

/// Removes consecutive duplicates of lines.
fn joined(mut lines: Vec<String>) -> String {
    lines.dedup();
    lines.into_iter().map(|line| line + "\n").collect()
}

/// Returns the objects of YCSB's JSON formats as lines.
fn json(text: &str) -> Option<String> {
    let array = text.trim();
    let array =
        if array.starts_with('{') { format!("[{}]", array.replace("} {", "}, {")) } else { array.to_owned() };
    let objects: Vec<serde_json::Value> = serde_json::from_str(&array).ok()?;
    let lines = objects.iter().map(|object| {
        format!(
            "[{}], {}, {}",
            object["metric"].as_str().unwrap(),
            object["measurement"].as_str().unwrap(),
            object["value"]
        )
    });
    Some(joined(lines.filter_map(|line| line_of_results(&line)).collect()))
}

/// Normalizes standard error: the part before the test in order, then the last status line and the
/// rest, whose order varies.
fn stderr(text: &str) -> String {
    let (head, tail) = text.split_once("Starting test.\n").unwrap();
    let head = head.replace("YCSB Client 0.18.0-SNAPSHOT", "YCSB Client 0.17.0");
    let mut rest = BTreeSet::new();
    let mut last = None;
    for line in tail.lines() {
        match status(line) {
            Some(status) => last = Some(status),
            None if continues_status(line) => {}
            None => drop(rest.insert(line.to_owned())),
        }
    }
    let lines = head.lines().map(str::to_owned).chain(["Starting test.".to_owned()]).chain(rest).chain(last);
    joined(lines.collect())
}

/// Returns the normalized output.
fn normal(text: &Text) -> String {
    let results = |text: &str| json(text).unwrap_or_else(|| stdout(text));
    let mut all = format!("{}--- standard error\n{}", results(&text.stdout), stderr(&text.stderr));
    if !text.file.is_empty() {
        all += &format!("--- file\n{}", results(&text.file));
    }
    all
}

const GOLDEN: &str = "golden/ycsb_text.txt";

/// Returns the golden text by case.
fn golden() -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(GOLDEN);
    let text = std::fs::read_to_string(path).unwrap();
    let parts = text.split("=== ").skip(1);
    parts
        .map(|part| part.split_once('\n').unwrap())
        .map(|(case, text)| (case.to_owned(), text.to_owned()))
        .collect()
}

/// Compares all cases and shows those that differ.
fn compare(all: impl Iterator<Item = (String, String)>, what: &str) {
    let golden = golden();
    let mut differences = Vec::new();
    let mut compared = 0;
    for (case, text) in all {
        let (_, wanted) =
            golden.iter().find(|(name, _)| *name == case).unwrap_or_else(|| panic!("no case {case}"));
        compared += 1;
        if text != *wanted {
            differences.push(format!("=== {case}\n{what}:\n{text}\n{GOLDEN}:\n{wanted}"));
        }
    }
    assert_eq!(compared, golden.len(), "cases of {GOLDEN}");
    assert!(differences.is_empty(), "{} cases differ\n{}", differences.len(), differences.join("\n"));
}

fn named(command: &str, words: &str) -> String {
    format!("{command} {words}").trim_end().to_owned()
}

#[test]
fn the_output_equals_ycsbs() {
    let texts =
        cases().into_iter().map(|(command, words)| (named(command, &words), normal(&ours(command, &words))));
    compare(texts, "serval");
}

#[test]
fn the_golden_text_is_ycsbs_output() {
    let Ok(class_path) = std::env::var("SERVAL_YCSB_CLASSPATH") else {
        eprintln!("skipped: SERVAL_YCSB_CLASSPATH is not set; 'cargo xtask test' fetches YCSB's core");
        return;
    };
    let texts: Vec<(String, String)> = cases()
        .into_iter()
        .map(|(command, words)| (named(command, &words), normal(&ycsbs(&class_path, command, &words))))
        .collect();
    if std::env::var("GOLDEN").is_ok_and(|how| how == "write") {
        let text: String = texts.iter().map(|(case, text)| format!("=== {case}\n{text}")).collect();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(GOLDEN);
        std::fs::write(path, text).unwrap();
    }
    compare(texts.into_iter(), "YCSB");
}
