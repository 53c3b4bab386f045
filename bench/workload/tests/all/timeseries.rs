//! Operations of the time series workload: line by line those of the published YCSB core
//! (`golden/TimeSeriesGolden.java`), and its own guarantees.

#![allow(clippy::disallowed_methods, reason = "a test may read files")]

use proptest::prelude::*;
use serval_model::{
    Operation, OperationKind, Outcome, Reply, Status,
    properties::{Faults, Properties, PropertySource, Reader},
};
use serval_workload::{
    End, Last, Place, Rng, Step, Workload,
    core::{Circumstances, Phase},
    timeseries::{
        TimeSeriesWorkload,
        number::{decode_double, decode_long, encode_long},
        properties::PROPERTIES,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    path::Path,
    time::Duration,
};

const RUN: Circumstances = Circumstances {
    phase: Phase::Run,
    clients: 1,
    operations: Some(10_000),
    time: None,
    target: None,
    resume: false,
    batches: true,
    share: serval_model::Share::WHOLE,
};
const LOAD: Circumstances = Circumstances { phase: Phase::Load, ..RUN };
const NOW: Duration = Duration::from_millis(1_700_000_000_123);
const SMALL: &str = "insertstart=1000\nfieldlength=2\ntagkeylength=2\ntagvaluelength=2\ndelayedseries=0\n\
                     randomtimeseriesorder=false\n";

fn open(text: &str, facts: &Circumstances) -> Result<TimeSeriesWorkload, Faults> {
    let mut properties = Properties::new();
    properties.load(text.as_bytes(), Path::new("test")).unwrap();
    let mut reader = Reader::new(&properties);
    let workload = TimeSeriesWorkload::open(&mut reader, facts, NOW);
    reader.finish()?;
    Ok(workload.expect("no faults, so a workload"))
}

/// Opens a workload with the properties [`SMALL`] and these.
fn small(text: &str, facts: &Circumstances) -> TimeSeriesWorkload {
    open(&format!("{SMALL}{text}"), facts).unwrap()
}

/// Runs units of one client against a store on which everything succeeds, and
/// passes each operation to `each`.
fn drive(
    workload: &TimeSeriesWorkload,
    (index, count): (usize, usize),
    seed: u64,
    units: usize,
    mut each: impl FnMut(&Operation),
) {
    let mut client = workload.client(Place { index, count, units: None, seed: 1 }, Rng::new(seed));
    let mut operation = Operation::new("usertable");
    let mut reply = Reply::new();
    for _ in 0..units {
        let step = client.step(Last::Begin, &mut operation);
        each(&operation);
        if step == (Step::Issue { more: true }) {
            let step = client.step(Last::Outcome(&Outcome::OK, &mut reply), &mut operation);
            assert!(matches!(step, Step::End(End { stop: false, .. })), "{step:?}");
        } else {
            assert_eq!(step, Step::Issue { more: false });
        }
    }
}

/// Formats an operation like the golden files.
fn line(operation: &Operation, values: Option<&str>) -> String {
    let mut line = format!("{} {}", operation.kind.name(), operation.key);
    for (name, value) in operation.record.iter() {
        line += &format!(" {name}=");
        line += &match values {
            Some(kind) if name == "YCSBV" || name == "z" => kind.into(),
            _ if ["YCSBTS", "YCSBV", "!t"].contains(&name) => decode_long(value).unwrap().to_string(),
            _ => String::from_utf8(value.to_vec()).unwrap(),
        };
    }
    let fields: BTreeSet<&str> = operation.fields.iter().collect();
    fields.iter().for_each(|field| line += &format!(" {field}"));
    line
}

/// Returns the cases of a golden file: threads, units, properties and lines.
fn cases(golden: &str) -> impl Iterator<Item = (usize, usize, String, Vec<&str>)> {
    golden.split("# ").skip(1).map(|case| {
        let mut lines = case.lines();
        let (mut threads, mut units, mut text) = (1, 1, String::new());
        for setting in lines.next().unwrap().split(' ') {
            match setting.split_once('=') {
                Some(("threads", value)) => threads = value.parse().unwrap(),
                Some(("units", value)) => units = value.parse().unwrap(),
                _ => text += &format!("{setting}\n"),
            }
        }
        (threads, units, text, lines.collect())
    })
}

/// Returns the operations of a load, one client after the other.
fn load(threads: usize, units: usize, text: &str) -> Vec<String> {
    let workload = open(text, &Circumstances { clients: threads, ..LOAD }).unwrap();
    let values = match text {
        _ if text.contains("dataintegrity") => None,
        _ if text.contains("integers") => Some("long"),
        _ => Some("double"),
    };
    let mut lines = Vec::new();
    for thread in 0..threads {
        drive(&workload, (thread, threads), 1, units, |operation| lines.push(line(operation, values)));
    }
    lines
}

#[test]
fn inserts_equal_those_of_ycsb() {
    let mut compared = 0;
    for (threads, units, text, golden) in cases(include_str!("../../golden/timeseries_inserts.txt")) {
        let ours = load(threads, units, &text);
        if let [digest] = golden[..] {
            let sum = ours.iter().fold(0u64, |sum, line| {
                let hash = serval_model::java::string_hash(line);
                sum.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(i64::from(hash) as u64)
            });
            assert_eq!(format!("digest of {}: {sum:016x}", ours.len()), digest);
            compared += ours.len();
            continue;
        }
        assert_eq!(ours.len(), golden.len());
        for (number, (ours, golden)) in ours.iter().zip(&golden).enumerate() {
            assert_eq!(ours, golden, "{threads} threads, insert {number} of:\n{text}");
        }
        compared += golden.len();
    }
    assert_eq!(compared, 60_000 + 10 * 4 * 30);
}

#[test]
fn random_orders_contain_the_points_that_ycsb_writes() {
    for (threads, units, text, golden) in cases(include_str!("../../golden/timeseries_sets.txt")) {
        let ours = load(threads, units, &text);
        let sorted: BTreeSet<&str> = ours.iter().map(String::as_str).collect();
        assert_eq!(sorted.into_iter().collect::<Vec<_>>(), golden, "{text}");
        assert!(!ours.is_sorted(), "the order is random");
    }
}

#[test]
fn queries_are_spelled_as_ycsb_spells_them() {
    let mut compared = 0;
    for (_, _, text, golden) in cases(include_str!("../../golden/timeseries_queries.txt")) {
        let text = text.trim_start_matches("update\n");
        if golden[0].starts_with("INSERT") {
            let shares = "readproportion=0\nupdateproportion=0.5\ninsertproportion=0.5\n";
            // The only older timestamp is the first.
            let workload = open(&format!("{text}{shares}"), &RUN).unwrap();
            let found = (0..100).find(|&seed| {
                let mut lines = Vec::new();
                drive(&workload, (0, 1), seed, 2, |operation| lines.push(line(operation, None)));
                lines == golden
            });
            assert!(found.is_some(), "no seed inserts and then updates so: {golden:?}");
            compared += 1;
            continue;
        }
        let shares = "readproportion=0.3\nupdateproportion=0\nscanproportion=0.3\ndeleteproportion=0.3\n";
        let workload = open(&format!("{text}{shares}"), &RUN).unwrap();
        let mut asked = HashSet::new();
        drive(&workload, (0, 1), 1, 100, |operation| {
            asked.insert(line(operation, None));
        });
        assert_eq!(asked, golden.iter().map(|line| (*line).to_owned()).collect(), "{text}");
        compared += 1;
    }
    assert_eq!(compared, 7);
}

/// Verifies a record as a run does; `None` for a missing record.
fn verdict(workload: &TimeSeriesWorkload, outcome: &Outcome, key: Option<&str>, reply: &mut Reply) -> End {
    let mut client = workload.client(Place { index: 0, count: 1, units: None, seed: 1 }, Rng::new(1));
    let mut operation = Operation::new("usertable");
    assert_eq!(client.step(Last::Begin, &mut operation), Step::Issue { more: true });
    if let Some(key) = key {
        operation.key = key.into();
    }
    match client.step(Last::Outcome(outcome, reply), &mut operation) {
        Step::End(end) => end,
        step => panic!("{step:?}"),
    }
}

const INTEGRITY: &str = "recordcount=100\ndataintegrity=true\nvaluetype=integers\nupdateproportion=0\n";

#[test]
fn verification_agrees_with_ycsbs() {
    let workload = open(&format!("{SMALL}{INTEGRITY}"), &RUN).unwrap();
    assert!(workload.verifies());
    for golden in include_str!("../../golden/timeseries_verify.txt").lines() {
        let (status, record) = golden.split_once(' ').unwrap();
        let mut reply = Reply::new();
        for pair in record.split(' ').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap();
            if name.starts_with("YCSB") {
                reply.push(name, &encode_long(value.parse().unwrap()));
            } else {
                reply.push(name, value.as_bytes());
            }
        }
        let end = verdict(&workload, &Outcome::OK, None, &mut reply);
        assert_eq!(end.verified.unwrap().name(), status, "{record}");
        assert_eq!(end.ok, status == "OK");
    }
    // A read that fails is not verified.
    let end = verdict(&workload, &Outcome::NOT_FOUND, None, &mut Reply::new());
    assert_eq!((end.verified, end.ok), (None, false));
    // A number of another length is wrong, and so is a tag that is not text.
    for (name, value) in [("YCSBV", &b"425112257"[..]), ("AA", &[0xff])] {
        let mut reply = Reply::new();
        reply.push(name, value);
        let end = verdict(&workload, &Outcome::OK, None, &mut reply);
        assert_eq!(end.verified, Some(Status::UnexpectedState), "{name}");
    }
}

#[test]
fn exact_values_follow_from_key_and_stored_timestamp() {
    let text = "exacttimeseries=true\nupdateproportion=0.5\ninsertproportion=0.5\nreadproportion=0\n\
                delayedseries=1\ntimestampunits=HOURS\n";
    let writing = open(&format!("{SMALL}{INTEGRITY}{text}"), &RUN).unwrap();
    let reading =
        open(&format!("{SMALL}{INTEGRITY}exacttimeseries=true\ntimestampunits=HOURS\n"), &RUN).unwrap();
    let mut delayed = 0;
    drive(&writing, (0, 1), 3, 5000, |operation| {
        let mut reply = Reply::new();
        for (name, value) in operation.record.iter() {
            reply.push(name, value);
        }
        let mut status = |key: &str| verdict(&reading, &Outcome::OK, Some(key), &mut reply).verified.unwrap();
        assert_eq!(status(&operation.key), Status::Ok, "{}", line(operation, None));
        assert_eq!(status("another"), Status::UnexpectedState);
        let timestamp = decode_long(operation.record.get("YCSBTS").unwrap()).unwrap();
        assert_eq!((timestamp - 1000) % (60 * 3600), 0, "a whole number of intervals");
        delayed += u32::from(operation.kind == OperationKind::Insert && timestamp < 1000);
    });
    assert!(delayed > 0);
    assert_eq!(verdict(&reading, &Outcome::OK, None, &mut Reply::new()).verified, Some(Status::Error));
}

#[test]
fn ycsbs_delayed_values_fail_verification() {
    // Kept for compatibility with existing data, as the module says.
    let writing = small(&format!("{INTEGRITY}delayedseries=1\n"), &LOAD);
    let reading = small(INTEGRITY, &RUN);
    let mut verdicts = BTreeMap::new();
    drive(&writing, (0, 1), 1, 640, |operation| {
        let mut reply = Reply::new();
        operation.record.iter().for_each(|(name, value)| reply.push(name, value));
        *verdicts.entry(verdict(&reading, &Outcome::OK, None, &mut reply).verified.unwrap()).or_insert(0) +=
            1;
    });
    // One series in five has a delay of 0.
    assert_eq!(verdicts, BTreeMap::from([(Status::Ok, 128), (Status::UnexpectedState, 512)]));
}

/// Returns how often each series was written at each timestamp.
fn coverage(
    workload: &TimeSeriesWorkload,
    clients: usize,
    units: usize,
) -> BTreeMap<(String, Vec<String>), BTreeMap<i64, u32>> {
    let mut written: BTreeMap<_, BTreeMap<i64, u32>> = BTreeMap::new();
    for index in 0..clients {
        drive(workload, (index, clients), index as u64, units, |operation| {
            let (mut tags, mut timestamp) = (Vec::new(), None);
            for (name, value) in operation.record.iter() {
                match name {
                    "YCSBTS" => timestamp = decode_long(value),
                    "YCSBV" => assert_eq!(value.len(), 8),
                    _ => tags.push(format!("{name}={}", std::str::from_utf8(value).unwrap())),
                }
            }
            let series = (operation.key.clone(), tags);
            *written.entry(series).or_default().entry(timestamp.unwrap()).or_default() += 1;
        });
    }
    written
}

#[test]
fn every_series_has_a_value_at_every_timestamp() {
    for order in
        ["", "randomtimeseriesorder=true\n", "exacttimeseries=true\nrandomwritetimestamporder=true\n"]
    {
        for clients in [1, 2, 6] {
            let text = format!("recordcount=960\nfieldcount=6\ntagcount=3\ntagcardinality=1,2,4\n{order}");
            let facts = Circumstances { clients, ..LOAD };
            let workload = small(&text, &facts);
            assert_eq!((workload.series(), workload.units()), (48, Some(960)));
            let written = coverage(&workload, clients, 960 / clients);
            assert_eq!(written.len(), 48, "{text}");
            let timestamps: BTreeMap<i64, u32> = (0..20).map(|tick| (1000 + 60 * tick, 1)).collect();
            assert!(written.values().all(|times| *times == timestamps), "{text}, {clients} clients");
        }
    }
}

#[test]
fn single_values_after_others_leave_out_series_unless_exact() {
    let text = "recordcount=100\nfieldcount=2\ntagcount=2\ntagcardinality=2,1\n";
    let broken = small(text, &LOAD);
    assert_eq!((coverage(&broken, 1, 400).len(), broken.warnings().len()), (2, 1));
    let mended = small(&format!("{text}exacttimeseries=true\n"), &LOAD);
    assert_eq!((coverage(&mended, 1, 400).len(), mended.warnings().len()), (4, 0));
}

#[test]
fn random_timestamps_continue_after_the_last() {
    let text = "recordcount=40\nfieldcount=2\ntagcount=1\ntagcardinality=2\nrandomwritetimestamporder=true\n";
    let written = coverage(&small(text, &LOAD), 1, 4 * 33);
    // Three ranges of 11 from one interval before the start, as in YCSB.
    let timestamps: BTreeMap<i64, u32> = (-1..32).map(|tick| (1000 + 60 * tick, 1)).collect();
    assert!(written.values().all(|times| *times == timestamps));
}

#[test]
fn sparsity_omits_its_share_of_points() {
    let text = "recordcount=100000\nfieldcount=10\ntagcount=1\ntagcardinality=64\nsparsity=0.5\n";
    let share = |text: &str| {
        let written = coverage(&small(text, &LOAD), 1, 40_000);
        let latest = written.values().filter_map(|times| times.keys().max()).max().unwrap();
        assert!(written.values().all(|times| times.values().all(|count| *count == 1)));
        40_000.0 / ((latest - 1000) as f64 / 60.0 * 640.0)
    };
    let n = 32.0;
    let law = 2.0 * n / (n * n - n + 2.0);
    let ycsbs = share(text);
    assert!((ycsbs / law - 1.0).abs() < 0.02, "{ycsbs} and {law}");
    let exact = share(&format!("{text}exacttimeseries=true\n"));
    assert!((exact / 0.5 - 1.0).abs() < 0.02, "{exact}");
}

#[test]
fn delayed_series_are_the_first_and_lag_by_their_number() {
    let text = "recordcount=1000\nfieldcount=10\ntagcount=1\ntagcardinality=4\ndelayedseries=0.5\n\
                delayedintervals=3\n";
    for (extra, interval) in [
        ("", 60),
        ("timestampunits=MINUTES\n", 60),
        ("timestampunits=MINUTES\nexacttimeseries=true\n", 60 * 60),
    ] {
        let workload = small(&format!("{text}{extra}"), &LOAD);
        let mut number = 0;
        drive(&workload, (0, 1), 1, 40, |operation| {
            let lag = if number < 20 { number % 3 } else { 0 };
            let timestamp = decode_long(operation.record.get("YCSBTS").unwrap()).unwrap();
            assert_eq!(timestamp, 1000 - lag * interval, "series {number}, {extra}");
            number += 1;
        });
    }
}

#[test]
fn values_are_of_their_type() {
    for (kind, whole) in [("integers", 1.0), ("floats", 0.0), ("mixednumbers", 0.5)] {
        let workload = small(&format!("recordcount=10\nvaluetype={kind}\n"), &LOAD);
        let (mut integers, mut floats) = (0, 0);
        drive(&workload, (0, 1), 5, 2000, |operation| {
            let value = operation.record.get("YCSBV").unwrap();
            // An integer's upper half is sign bits only; a real number's is not.
            if i32::try_from(decode_long(value).unwrap()).is_ok() {
                integers += 1;
            } else {
                assert!((0.0..100_000.0).contains(&decode_double(value).unwrap()));
                floats += 1;
            }
        });
        assert!((f64::from(integers) - 2000.0 * whole).abs() < 120.0, "{kind}: {integers} and {floats}");
    }
}

#[test]
fn groups_are_named_without_values() {
    let text = "recordcount=1\nfieldcount=1\ntagcount=3\ntagcardinality=1\nreadproportion=0.5\nscanproportion=0.5\n\
                deleteproportion=0.5\nupdateproportion=0\ngroupbyfunction=sum\ngroupbykeys=0, 1,2\n";
    let mut asked = BTreeSet::new();
    drive(&small(text, &RUN), (0, 1), 1, 100, |operation| {
        asked.insert(line(operation, None));
    });
    let expected = [
        "DELETE AA:AA=AA:AB:AC:YCSBTS=1000",
        "READ AA AA=AA AB AC YCSBGB=sum YCSBTS=1000",
        "SCAN AA AA=AA AB AC YCSBGB=sum YCSBTS=1000",
    ];
    assert_eq!(asked.iter().collect::<Vec<_>>(), expected);
}

#[test]
fn queries_select_points_that_a_load_wrote() {
    for distribution in ["uniform", "sequential", "zipfian", "hotspot"] {
        let text = format!(
            "recordcount=96\nfieldcount=4\ntagcount=2\ntagcardinality=2,3\nupdateproportion=0\nscanproportion=1\n\
             readproportion=1\nrequestdistribution={distribution}\nmaxscanlength=9\n"
        );
        let written: BTreeSet<(String, Vec<String>, i64)> = coverage(&small(&text, &LOAD), 1, 96)
            .into_iter()
            .flat_map(|((key, tags), times)| times.into_keys().map(move |t| (key.clone(), tags.clone(), t)))
            .collect();
        assert_eq!(written.len(), 96);
        let mut asked = BTreeSet::new();
        drive(&small(&text, &RUN), (0, 1), 1, 5000, |operation| {
            let fields: Vec<String> = operation.fields.iter().map(str::to_owned).collect();
            let (timestamp, tags) = fields.split_last().unwrap();
            let timestamp = timestamp.strip_prefix("YCSBTS=").unwrap().parse().unwrap();
            asked.insert((operation.key.clone(), tags.to_vec(), timestamp));
            assert_eq!((1..=9).contains(&operation.scan_length), operation.kind == OperationKind::Scan);
        });
        assert!(asked.is_subset(&written), "{distribution}");
        assert_eq!(asked.len(), 96, "{distribution}: scans reach everything");
    }
}

#[test]
fn spans_are_whole_intervals_below_or_up_to_the_longest() {
    for (extra, unit, spans) in [("", 60, 4), ("exacttimeseries=true\n", 60, 5)] {
        let text = format!(
            "recordcount=1\nquerytimespan=299\nqueryrandomtimespan=true\nupdateproportion=0\n{extra}"
        );
        let mut seen = BTreeSet::new();
        drive(&small(&text, &RUN), (0, 1), 1, 500, |operation| {
            let times = operation.fields.iter().last().unwrap().strip_prefix("YCSBTS=").unwrap();
            let (from, to) = times.split_once(',').unwrap();
            assert_eq!(from, "1000");
            seen.insert(to.parse::<i64>().unwrap() - 1000);
        });
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), (0..spans).map(|i| i * unit).collect::<Vec<_>>());
    }
}

#[test]
fn updates_are_of_older_timestamps() {
    let text =
        "recordcount=100\nfieldcount=1\ntagcount=1\ntagcardinality=2\nreadproportion=0\nupdateproportion=1\n";
    for extra in ["", "randomwritetimestamporder=true\n", "exacttimeseries=true\n"] {
        let (mut number, mut seen) = (0, BTreeSet::new());
        drive(&small(&format!("{text}{extra}"), &RUN), (0, 1), 2, 200, |operation| {
            let timestamp = decode_long(operation.record.get("YCSBTS").unwrap()).unwrap();
            assert_eq!((timestamp - 1000).rem_euclid(60), 0);
            if extra != "randomwritetimestamporder=true\n" {
                assert!((1000..=1000 + 60 * (number / 2 - 1).max(0)).contains(&timestamp), "{timestamp}");
            }
            seen.insert(timestamp);
            number += 1;
        });
        assert!(seen.len() > 10, "{extra}");
    }
}

#[test]
fn the_clock_begins_one_interval_ago() {
    for (units, first) in [
        ("SECONDS", 1_700_000_000 - 60),
        ("milliseconds", 1_700_000_000_123 - 60),
        ("MINUTES", 1_700_000_000 - 3600),
        ("HOURS", 1_700_000_000 - 60 * 3600),
        ("DAYS", 1_700_000_000 - 60 * 86_400),
    ] {
        let text = format!("recordcount=100\ntimestampunits={units}\ndelayedseries=0\ninsertstart=\n");
        let workload = open(&text, &LOAD).unwrap();
        drive(&workload, (0, 1), 1, 1, |operation| {
            assert_eq!(decode_long(operation.record.get("YCSBTS").unwrap()), Some(first), "{units}");
        });
        // The queries of a run would miss it.
        assert_eq!(workload.warnings().len(), 0);
        assert!(open(&text, &RUN).unwrap().warnings()[0].contains("insertstart"));
    }
}

#[test]
fn equal_seeds_give_equal_streams() {
    let text = "recordcount=1000\nreadproportion=1\nupdateproportion=1\ninsertproportion=1\nscanproportion=1\n\
                deleteproportion=1\nsparsity=0.3\nrandomwritetimestamporder=true\nrequestdistribution=zipfian\n";
    let stream = |seed| {
        let mut lines = Vec::new();
        drive(&open(text, &RUN).unwrap(), (1, 3), seed, 500, |o| lines.push(line(o, Some("value"))));
        lines
    };
    assert_eq!(stream(1), stream(1));
    assert_ne!(stream(1), stream(2));
    let kinds: HashSet<_> = stream(1).iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(kinds.len(), 5);
    let demands = open(text, &RUN).unwrap().demands();
    assert_eq!(demands.len(), 5);
    assert_eq!(demands[4].because, "deleteproportion=1");
}

#[test]
fn a_load_stops_at_a_failure_and_not_at_a_batch() {
    let workload = small("recordcount=10\ninsertcount=7\n", &LOAD);
    assert_eq!(workload.units(), Some(7));
    let mut client = workload.client(Place { index: 0, count: 1, units: None, seed: 1 }, Rng::new(1));
    let mut operation = Operation::new("usertable");
    let batched = Outcome { status: Status::BatchedOk, message: None };
    for (outcome, stop) in [(batched, false), (Outcome::error("no"), true)] {
        client.step(Last::Begin, &mut operation);
        let step = client.step(Last::Outcome(&outcome, &mut Reply::new()), &mut operation);
        assert_eq!(step, Step::End(End { stop, ..End::of(&outcome) }));
    }
    // A run continues.
    let mut client = small("recordcount=10\n", &RUN)
        .client(Place { index: 0, count: 1, units: None, seed: 1 }, Rng::new(1));
    assert_eq!(client.step(Last::Begin, &mut operation), Step::Issue { more: false });
}

#[test]
fn the_schema_names_the_fields() {
    let workload = small("recordcount=10\ntagcount=2\ntimestampkey=B\nvaluekey=A\ntable=t\n", &RUN);
    let schema = workload.schema();
    assert_eq!((schema.table.as_str(), schema.fields.join(" ")), ("t", "A AA AB B".into()));
    assert!(workload.sample_keys().is_empty());
}

#[test]
fn settings_that_stop_ycsb_work_or_are_faults() {
    for golden in include_str!("../../golden/timeseries_faults.txt").lines() {
        let mut parts = golden.splitn(3, ' ');
        let (exception, verb, text) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
        let share = format!("{}proportion=1", verb.to_lowercase());
        let clients = if text.contains("threadcount=3") { 3 } else { 1 };
        let text = format!("readproportion=0\nupdateproportion=0\n{share}\n{}", text.replace(' ', "\n"));
        let opened = open(&text, &Circumstances { clients, ..RUN });
        // Serval refuses what YCSB refuses, and accepts what makes YCSB crash.
        let refused = exception == "WorkloadException" || text.contains("valuetype=mixed");
        assert_eq!(opened.is_err(), refused, "{golden}: {opened:?}");
        if let Ok(workload) = opened {
            drive(&workload, (0, 1), 1, 500, |operation| {
                assert_eq!(operation.kind.name(), verb.to_uppercase());
            });
        }
    }
}

#[test]
fn all_faults_are_reported_together() {
    let faults = |text: &str, facts: &Circumstances| -> Vec<String> {
        match open(text, facts) {
            Ok(_) => panic!("{text} is accepted"),
            Err(faults) => faults.0.iter().map(ToString::to_string).collect(),
        }
    };
    for (text, part) in [
        ("fieldcount=0", "fieldcount=0"),
        ("tagcardinality=1,x", "'x' is not a whole number"),
        ("tagcardinality=0,1", "at least 1 value"),
        ("tagcardinality=99999999,99999999,99999999", "series"),
        ("tagcount=53\ntagkeylength=1", "only 52"),
        ("timestampinterval=0", "timestampinterval=0"),
        ("timestampinterval=-60", "timestampinterval=-60"),
        ("timestampunits=NANOSECONDS", "must be one of SECONDS"),
        ("timestampunits=MICROSECONDS", "must be one of SECONDS"),
        ("valuetype=mixed", "mixednumbers"),
        ("requestdistribution=latest", "must be one of uniform, sequential, zipfian, hotspot"),
        ("insertstart=soon", "insertstart=soon"),
        ("insertstart=9223372036854775807", "beyond 2^63"),
        ("valuekey=YCSBTS", "must differ"),
        ("tagkeylength=1\ntimestampkey=C", "name of a tag"),
        ("tagkeylength=2\nvaluekey=AA", "name of a tag"),
        ("groupbyfunction=sum", "groupbykeys"),
        ("groupbyfunction=sum\ngroupbykeys=1,0", "has 2 numbers, and there are 4 tags"),
        ("downsamplingfunction=sum", "downsamplinginterval"),
        ("exacttimeseries=true\nsparsity=1", "below 1"),
        ("readmodifywriteproportion=0.1", "no read-modify-write"),
        ("readproportion=0\nupdateproportion=0", "nothing to do"),
        (
            "recordcount=99999999999999999\nfieldcount=1\ntagcount=0\nrandomwritetimestamporder=true",
            "too long",
        ),
    ] {
        let found = faults(text, &RUN);
        assert!(found.iter().any(|fault| fault.contains(part)), "{text}: {found:?}");
    }
    assert!(faults("fieldcount=3", &Circumstances { clients: 4, ..RUN })[0].contains("clients, 4"));
    assert!(faults("fieldcount=3", &LOAD)[0].contains("recordcount or insertcount"));
    let integrity = &faults(
        "dataintegrity=true\ngroupbyfunction=sum\ngroupbykeys=1,1,1,1\ndownsamplingfunction=sum\n\
         downsamplinginterval=5\nquerytimespan=5",
        &RUN,
    )[0];
    for part in
        ["integers", "groupby", "downsampling", "querytimespan=0", "randomtimeseriesorder", "insertstart"]
    {
        assert!(integrity.contains(part), "{integrity}");
    }
    let many =
        faults("timestampinterval=0\nvaluetype=x\nsparsity=2\ngroupbyfunction=f\nmaxscanlength=0", &RUN);
    assert!(many.len() >= 5, "{many:?}");
}

#[test]
fn ycsbs_files_work_unchanged() {
    let ycsbs = "recordcount=1474560\nfieldlength=8\nfieldcount=64\ntagcount=4\ntagcardinality=1,2,4,2\nsparsity=0.0\n\
                 delayedSeries=0.0\ndelayedIntervals=0\ntimestampunits=SECONDS\ntimestampinterval=60\n\
                 querytimespan=3600\nreadproportion=0.10\nupdateproportion=0.00\ninsertproportion=0.90\n";
    assert_eq!(open(ycsbs, &RUN).unwrap().series(), 1024);
    let ignored: Vec<&str> = PROPERTIES
        .properties
        .iter()
        .filter(|p| p.source == PropertySource::Ignored)
        .map(|p| p.name)
        .collect();
    assert_eq!(ignored, ["delayedSeries", "delayedIntervals"]);
    // Serval's files contain known names only.
    for name in ["tsworkloada", "tsworkload_template"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads").join(name);
        let mut properties = Properties::new();
        properties.load_file(&path).unwrap();
        for (name, _) in properties.iter() {
            let client = ["workload", "operationcount"].contains(&name);
            assert!(client || PROPERTIES.properties.iter().any(|p| p.name == name), "{name}");
        }
        let mut reader = Reader::new(&properties);
        let workload = TimeSeriesWorkload::open(&mut reader, &RUN, NOW);
        reader.finish().unwrap();
        assert!(workload.is_some());
    }
}

#[test]
fn the_template_gives_the_defaults() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads/tsworkload_template");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut properties = Properties::new();
    properties.load(text.as_bytes(), &path).unwrap();
    for property in PROPERTIES.properties.iter().filter(|property| property.source != PropertySource::Ignored)
    {
        match (property.default, properties.get(property.name)) {
            (Some(default), Some(setting)) => assert_eq!(setting.value, default, "{}", property.name),
            (None, None) => {
                assert!(text.contains(&format!("\n#{}=", property.name)), "{} is missing", property.name);
            }
            (default, setting) => panic!("{}: {default:?} and {setting:?}", property.name),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn arbitrary_settings_do_not_panic(
        (records, keys, clients) in (0u64..200, 1u64..9, 1usize..9),
        counts in proptest::collection::vec(1u64..5, 0..5),
        tags in 0usize..6,
        (sparsity, delayed, lag) in (0.0f64..=1.0, 0.0f64..=1.0, 0u64..6),
        (interval, span) in (1u64..200, 0u64..500),
        (units, distribution) in (0usize..5, 0usize..4),
        flags in any::<u8>(),
        seed: u64,
    ) {
        let clients = clients.min(keys as usize);
        let flag = |bit: u8| flags >> bit & 1 == 1;
        let exact = flag(0);
        let list = counts.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        let list = if list.is_empty() { "1".into() } else { list };
        let start = if flag(1) { "insertstart=5000000000\n" } else { "" };
        let text = format!(
            "recordcount={records}\nfieldcount={keys}\nfieldlength=3\ntagcount={tags}\ntagcardinality={list}\n\
             tagkeylength=2\ntagvaluelength=1\nsparsity={sparsity}\ndelayedseries={delayed}\ndelayedintervals={lag}\n\
             timestampinterval={interval}\nquerytimespan={span}\nqueryrandomtimespan={}\n\
             randomwritetimestamporder={}\nrandomtimeseriesorder={}\nexacttimeseries={exact}\n\
             timestampunits={}\nrequestdistribution={}\nvaluetype=mixednumbers\n\
             readproportion=1\nupdateproportion=1\ninsertproportion=1\nscanproportion=1\ndeleteproportion=1\n{start}",
            flag(2),
            flag(3),
            flag(4),
            ["SECONDS", "MILLISECONDS", "MINUTES", "HOURS", "DAYS"][units],
            ["uniform", "sequential", "zipfian", "hotspot"][distribution],
        );
        let facts = Circumstances { clients, ..RUN };
        prop_assume!(!(exact && sparsity >= 1.0));
        let workload = open(&text, &facts).map_err(|faults| TestCaseError::fail(faults.to_string()))?;
        let names: HashSet<String> = (b'A'..b'A' + keys as u8).map(|c| format!("AA{}", c as char)).collect();
        for index in 0..clients {
            drive(&workload, (index, clients), seed, 100, |operation| {
                let key = operation.key.split(':').next().unwrap();
                assert!(names.contains(key), "{key}");
                let writes = matches!(operation.kind, OperationKind::Insert | OperationKind::Update);
                let asks = matches!(operation.kind, OperationKind::Read | OperationKind::Scan);
                assert_eq!(operation.record.len(), if writes { tags + 2 } else { 0 });
                assert_eq!(operation.fields.len(), if asks { tags + 1 } else { 0 });
            });
        }
    }
}
