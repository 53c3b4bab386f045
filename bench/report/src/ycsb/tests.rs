//! Comparison with the output of YCSB itself; see `tests/golden/README.md`.

use super::*;
use serval_measure::{
    legacy::{LegacyKind, LegacyMeasurements},
    recorder::{Recorder, RecorderOptions, SampleOrigin, Totals},
    times::Times,
};
use serval_model::{Outcome, java::string_hash};
use std::sync::Arc;

fn text(lines: &[ExportLine]) -> String {
    let mut out = Vec::new();
    Exporter::Text.write(lines, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

type Golden = Vec<(String, String, f64)>;

fn number(text: &str) -> f64 {
    text.parse().unwrap()
}

/// Lines of a golden file in any of the three forms, without those about the JVM.
fn golden(text: &str) -> Golden {
    let all: Golden = if text.contains("[OVERALL]") {
        let lines = text.lines().filter(|line| line.starts_with('['));
        lines
            .map(|line| {
                let (metric, rest) = line[1..].split_once("], ").unwrap();
                let (measurement, value) = rest.rsplit_once(", ").unwrap();
                (metric.to_owned(), measurement.to_owned(), number(value))
            })
            .collect()
    } else {
        let array = text.replace("} {", "}, {");
        let array = if array.starts_with('[') { array } else { format!("[{array}]") };
        let objects: Vec<serde_json::Value> = serde_json::from_str(&array).unwrap();
        let part = |o: &serde_json::Value, name: &str| o[name].as_str().unwrap().to_owned();
        objects
            .iter()
            .map(|o| {
                let value = o["value"].as_f64().unwrap_or_else(|| number(o["value"].as_str().unwrap()));
                (part(o, "metric"), part(o, "measurement"), value)
            })
            .collect()
    };
    all.into_iter().filter(|(metric, ..)| !metric.starts_with("TOTAL_GC")).collect()
}

fn metric(name: &str) -> Option<Metric> {
    Metric::all().find(|metric| metric.name(&[]) == name)
}

/// Repeats the run of a golden file: its counts, and with a verbose histogram its times.
fn replay(golden: &Golden, paced: bool, kind: Option<LegacyKind>) -> (Totals, Legacy, Vec<RawSample>) {
    let (raw, thread) = serval_measure::raw::RawLog::to_memory();
    let options = RecorderOptions { paced, legacy: kind, raw: Some(raw) };
    let (recorder, handle) = Recorder::new(&options);
    let mut end_ns = 0;
    let mut record = |metric: Metric, status: Status, us: u64, n: f64| {
        for _ in 0..n as u64 {
            end_ns += 1_000_000;
            let times = Times { service: us * 1000 + 500, response: us * 1000 + 500 };
            let outcome = Outcome { status, message: None };
            handle.record(metric, &outcome, times, SampleOrigin { warm_up: false, client: 0, end_ns });
        }
    };
    let verbose =
        golden.iter().any(|(_, measurement, _)| measurement.parse::<u64>().is_ok()) && kind.is_none();
    for (name, measurement, value) in golden {
        let name = name.strip_prefix("Hdr").unwrap_or(name);
        let Some(metric) = metric(name) else { continue };
        match measurement.strip_prefix("Return=").and_then(Status::from_name) {
            _ if verbose => {
                if let Ok(us) = measurement.parse() {
                    record(metric, Status::Ok, us, *value);
                }
            }
            Some(status) => record(metric, status, 7, *value),
            None if measurement.ends_with("Operations") && names_without_returns().contains(&metric) => {
                record(metric, Status::Ok, 7, *value);
            }
            None => (),
        }
    }
    drop((handle, options));
    let legacy = recorder.legacy().unwrap_or_else(|| LegacyMeasurements::new(LegacyKind::Buckets(1)));
    let legacy = legacy.series().map(|(m, s, t, series)| ((m, s, t), series.clone())).collect();
    (Totals::of(&[Arc::clone(&recorder)]), legacy, thread.join().unwrap())
}

fn names_without_returns() -> [Metric; 3] {
    [Metric::READ_MODIFY_WRITE, Metric::SCAN_PER_RECORD, Metric::CLEANUP]
}

/// The lines by metric, with the metric's bin in Java's map: the order within a bin differs between
/// runs.
fn groups(lines: &Golden) -> Vec<(bool, usize, String, Golden)> {
    let mut groups: Vec<(String, Golden)> = Vec::new();
    let base = |name: &str| {
        name.strip_prefix("Hdr")
            .or(name.strip_prefix("Bucket"))
            .or(name.strip_prefix("Raw"))
            .unwrap_or(name)
            .to_owned()
    };
    for line in lines.iter().skip(2) {
        match groups.last_mut() {
            Some((name, group)) if *name == base(&line.0) => group.push(line.clone()),
            _ => groups.push((base(&line.0), vec![line.clone()])),
        }
    }
    let intended = |name: &str| name.starts_with("Intended-");
    let table = |side: bool| {
        let count = groups.iter().filter(|(name, _)| intended(name) == side).count();
        if count < 12 { 16 } else { 32 }
    };
    let mut result: Vec<_> = groups
        .iter()
        .map(|(name, group)| {
            let side = intended(name);
            let hash = string_hash(name.trim_start_matches("Intended-")) as u32;
            let bin = (hash ^ (hash >> 16)) as usize & (table(side) - 1);
            (side, bin, name.clone(), group.clone())
        })
        .collect();
    assert!(result.is_sorted_by_key(|(side, bin, ..)| (*side, *bin)), "not in the order of bins");
    result.sort_by(|a, b| (a.0, a.1, &a.2).cmp(&(b.0, b.1, &b.2)));
    result
}

fn is_number(text: &str) -> bool {
    text.trim_start_matches('>').parse::<u64>().is_ok()
}

/// Compares metrics, measurements and their order, and the values that the golden file fixes.
fn compare(golden_text: &str, options: Options<'_>, kind: Option<LegacyKind>) -> Golden {
    let theirs = golden(golden_text);
    let (totals, legacy, raw) = replay(&theirs, options.paced, kind);
    let report = Report {
        options,
        runtime_ms: theirs[0].2 as u64,
        operations: 300,
        metrics: &totals.measured,
        legacy: &legacy,
        raw: &raw,
    };
    let ours = golden(&text(&report.lines()));
    assert_eq!(ours[0], theirs[0]);
    assert_eq!(ours[1].1, theirs[1].1);
    let (our_groups, their_groups) = (groups(&ours), groups(&theirs));
    let names = |groups: &[(bool, usize, String, Golden)]| {
        groups.iter().map(|(.., name, _)| name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&our_groups), names(&their_groups));
    // Percentiles in a histogram of a few wide buckets, and units of time,
    // depend on the times.
    let fixed = |group: &Golden| -> Vec<(String, Option<u64>)> {
        let lines = group.iter().filter(|(_, m, _)| {
            options.kind == MeasurementType::Hdr || !is_number(m) || options.kind == MeasurementType::Buckets
        });
        lines
            .map(|(metric, m, value)| {
                let counted = m.ends_with("Operations") || m.starts_with("Return=");
                (format!("{metric} {m}"), counted.then_some(*value as u64))
            })
            .collect()
    };
    for (our_group, their_group) in our_groups.iter().zip(&their_groups) {
        assert_eq!(fixed(&our_group.3), fixed(&their_group.3));
    }
    ours
}

macro_rules! golden_file {
    ($name:literal) => {
        include_str!(concat!("../../tests/golden/", $name))
    };
}

#[test]
fn structure_is_ycsbs() {
    let plain = Options::default();
    compare(golden_file!("default.txt"), plain, None);
    compare(golden_file!("load.txt"), plain, None);
    compare(golden_file!("verify.txt"), plain, None);
    compare(golden_file!("json.txt"), plain, None);
    compare(golden_file!("json-array.txt"), plain, None);
    compare(golden_file!("failures.txt"), plain, None);
    compare(golden_file!("failures-json.txt"), plain, None);
    compare(golden_file!("failures-each.txt"), Options { report_each_error: true, ..plain }, None);
    let tracked = ["ERROR".to_owned(), "NOT_FOUND".to_owned()];
    compare(golden_file!("failures-tracked.txt"), Options { tracked_errors: &tracked, ..plain }, None);
    let percentiles = [1.0, 2.0, 3.0, 11.0, 12.0, 13.0, 21.0, 22.0, 50.0, 90.0, 99.9, 99.99, 100.0, 0.0];
    compare(golden_file!("percentiles.txt"), Options { percentiles: &percentiles, ..plain }, None);
}

#[test]
fn the_published_version_has_known_differences() {
    // The golden file has no SCAN-LATENCY-PER-RECORD.
    compare(golden_file!("published-0.17.0.txt"), Options::default(), None);
}

#[test]
fn structure_is_ycsbs_with_intended_times() {
    let of = |paced, interval| Options { paced, interval, ..Options::default() };
    compare(golden_file!("op-paced.txt"), of(true, IntervalMode::Op), None);
    compare(golden_file!("both.txt"), of(false, IntervalMode::Both), None);
    compare(golden_file!("both-paced.txt"), of(true, IntervalMode::Both), None);
    compare(golden_file!("intended-paced.txt"), of(true, IntervalMode::Intended), None);
    // The same as for `op`, paced or not.
    assert_eq!(Options::default().interval, IntervalMode::Op);
}

#[test]
fn structure_is_ycsbs_for_older_types() {
    let of = |kind| Options { kind, ..Options::default() };
    let buckets = Some(LegacyKind::Buckets(1000));
    compare(golden_file!("histogram.txt"), of(MeasurementType::Buckets), buckets);
    let five = Options { buckets: 5, verbose: true, ..of(MeasurementType::Buckets) };
    compare(golden_file!("histogram-verbose.txt"), five, Some(LegacyKind::Buckets(5)));
    let both = Options { interval: IntervalMode::Both, ..of(MeasurementType::HdrAndBuckets) };
    compare(golden_file!("hdr-histogram.txt"), both, buckets);
    let series = Some(LegacyKind::TimeSeries { granularity_ms: 100 });
    compare(
        golden_file!("timeseries.txt"),
        Options { paced: true, interval: IntervalMode::Op, ..of(MeasurementType::TimeSeries) },
        series,
    );
    compare(golden_file!("raw.txt"), of(MeasurementType::Raw), None);
    compare(
        golden_file!("raw-no-summary.txt"),
        Options { raw_no_summary: true, ..of(MeasurementType::HdrAndRaw) },
        None,
    );
}

#[test]
fn values_are_ycsbs() {
    // The verbose golden file has all times: compare all values.
    let theirs = golden(golden_file!("verbose.txt"));
    let ours = compare(golden_file!("verbose.txt"), Options { verbose: true, ..Options::default() }, None);
    for ((metric, measurement, ours), (.., theirs)) in ours.iter().zip(&theirs).skip(2) {
        // The replay records every time at the middle of its µs.
        let rounding = if measurement.starts_with("Average") { 0.51 } else { 0.0 };
        let near = rounding + theirs / 1000.0;
        assert!((ours - theirs).abs() <= near, "{metric} {measurement}: {ours} for {theirs}");
    }
}

#[test]
fn the_three_forms_are_ycsbs_to_the_byte() {
    let strip = |text: &str| {
        text.lines().filter(|l| !l.contains("TOTAL_GC")).map(|l| format!("{l}\n")).collect::<String>()
    };
    let lines = |text: &str| -> Vec<ExportLine> {
        let whole = |m: &str| !m.starts_with("Average") && !m.starts_with("Throughput") && !m.contains('%');
        let lines = golden_with_gc(text);
        lines
            .into_iter()
            .map(|(metric, measurement, value)| {
                let int = whole(&measurement);
                let value = if int { Value::Int(value as i64) } else { Value::Float(value) };
                ExportLine { metric, measurement, value }
            })
            .collect()
    };
    let theirs = strip(golden_file!("failures.txt"));
    assert_eq!(text(&lines(&theirs)), theirs);
    for (exporter, theirs) in [
        (Exporter::Json, golden_file!("json.txt")),
        (Exporter::Json, golden_file!("failures-json.txt")),
        (Exporter::JsonArray, golden_file!("json-array.txt")),
    ] {
        let mut out = Vec::new();
        exporter.write(&lines(theirs), &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), theirs);
    }
}

/// As `golden`, with the lines about the JVM.
fn golden_with_gc(text: &str) -> Golden {
    let renamed = text.replace("TOTAL_GC", "JVM_GC");
    let lines = golden(&renamed).into_iter();
    lines.map(|(metric, m, v)| (metric.replace("JVM_GC", "TOTAL_GC"), m, v)).collect()
}

#[test]
fn infinities_and_nan_are_quoted_as_by_jackson() {
    let line = ExportLine { metric: "A\"".into(), measurement: "b".into(), value: Value::Float(f64::NAN) };
    let mut out = Vec::new();
    Exporter::JsonArray.write(&[line], &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    assert_eq!(out, "[ {\n  \"metric\" : \"A\\\"\",\n  \"measurement\" : \"b\",\n  \"value\" : \"NaN\"\n} ]");
}

#[test]
fn remaining_time_has_ycsbs_format() {
    for line in golden_file!("remaining.txt").lines() {
        let (seconds, words) = line.split_once('|').unwrap();
        assert_eq!(remaining(seconds.parse().unwrap()), words);
    }
}

fn status_line(us: &[u64], options: Options<'_>, operations: u64, elapsed_ms: u64) -> String {
    let mut interval = Metrics::new();
    let pair = interval.entry((Metric::READ, Status::Ok)).or_default();
    us.iter().for_each(|us| pair.service.record(us * 1000));
    let now =
        jiff::civil::datetime(2026, 4, 5, 6, 7, 8, 9_000_000).to_zoned(jiff::tz::TimeZone::UTC).unwrap();
    let status = StatusLine {
        options,
        label: "mine ",
        now: &now,
        elapsed: std::time::Duration::from_millis(elapsed_ms),
        operations,
        current_rate: 1234.567,
        todo: 300,
        seen: &[(Metric::READ, Status::Ok)],
        interval: &interval,
    };
    status.line()
}

#[test]
fn the_status_line_is_ycsbs() {
    for line in golden_file!("summaries.txt").lines() {
        let (times, summary) = line.split_once('|').unwrap();
        let times: Vec<u64> =
            times.split(',').filter(|t| !t.is_empty()).map(|t| t.parse().unwrap()).collect();
        assert_eq!(
            status_line(&times, Options::default(), 100, 20_999),
            format!(
                "mine 2026-04-05 06:07:08:009 20 sec: 100 operations; 1234.57 current ops/sec; \
                 est completion in 1 minute {summary} "
            )
        );
    }
    let start = status_line(&[], Options { kind: MeasurementType::Buckets, ..Options::default() }, 0, 0);
    assert_eq!(start, "mine 2026-04-05 06:07:08:009 0 sec: 0 operations; est completion in 0 second  ");
    let stalled = status_line(&[], Options { kind: MeasurementType::Raw, ..Options::default() }, 0, 5);
    assert!(stalled.contains("in 106751991167300 days 15 hours "), "{stalled}");
}

#[test]
fn response_times_are_printed_where_they_belong() {
    let mut metrics = Metrics::new();
    let pair = metrics.entry((Metric::READ, Status::Ok)).or_default();
    pair.service.record(1_999);
    pair.response.record(5_000_000);
    let report = |interval| {
        let options = Options { paced: true, interval, percentiles: &[], ..Options::default() };
        let legacy = Legacy::new();
        let report =
            Report { options, runtime_ms: 0, operations: 1, metrics: &metrics, legacy: &legacy, raw: &[] };
        text(&report.lines())
    };
    let read = "Operations, 1\n[READ], AverageLatency(us), 1.999\n[READ], MinLatency(us), 1\n\
                [READ], MaxLatency(us), 1\n[READ], Return=OK, 1\n";
    let overall = "[OVERALL], RunTime(ms), 0\n[OVERALL], Throughput(ops/sec), Infinity\n[READ], ";
    assert_eq!(report(IntervalMode::Op), format!("{overall}{read}"));
    let both = report(IntervalMode::Both);
    assert!(both.starts_with(&format!("{overall}{read}[Intended-READ], Operations, 1\n")), "{both}");
    assert!(both.ends_with("[Intended-READ], MaxLatency(us), 5000\n"), "{both}");
    let intended = report(IntervalMode::Intended);
    assert!(intended.contains("[READ], MaxLatency(us), 5000\n[READ], Return=OK"), "{intended}");
}

/// Two batches of 10 and one of 3 that fails, recorded as a client records them.
fn batches(options: &RecorderOptions) -> (Totals, Legacy) {
    let (recorder, handle) = Recorder::new(options);
    for (inserts, outcome, end_ns) in [
        (10, Outcome::OK, 1_000_000),
        (10, Outcome::OK, 150_000_000),
        (3, Outcome::error("full"), 160_000_000),
    ] {
        let times = Times { service: 40_000_999, response: 50_000_000 };
        handle.record_batch(inserts, &outcome, times, SampleOrigin { warm_up: false, client: 0, end_ns });
    }
    handle.record(
        Metric::FLUSH,
        &Outcome::OK,
        Times { service: 5, response: 5 },
        SampleOrigin { warm_up: false, client: 0, end_ns: 5 },
    );
    let legacy = recorder.legacy();
    let series = legacy.iter().flat_map(|legacy| legacy.series());
    let series = series.map(|(m, s, t, series)| ((m, s, t), series.clone())).collect();
    (Totals::of(&[recorder]), series)
}

/// The lines of the batches, in YCSB's terms.
fn of_batches(kind: MeasurementType, legacy: Option<LegacyKind>) -> (String, String) {
    let raw = kind.is_raw().then(serval_measure::raw::RawLog::to_memory);
    let log = raw.as_ref().map(|(log, _)| log.clone());
    let options = RecorderOptions { paced: true, legacy, raw: log };
    let (totals, legacy) = batches(&options);
    drop(options);
    let samples = raw.map_or(Vec::new(), |(log, thread)| {
        drop(log);
        thread.join().unwrap()
    });
    let metrics = terms::metrics(&totals.measured);
    let legacy = terms::legacy(legacy, &totals.measured);
    let raw = terms::raw(&samples, &totals.measured);
    let options = Options { kind, paced: true, percentiles: &[50.0, 99.0], ..Options::default() };
    let report =
        Report { options, runtime_ms: 1000, operations: 23, metrics: &metrics, legacy: &legacy, raw: &raw };
    let mut points = Vec::new();
    report.write_raw_points(0, &mut points).unwrap();
    (text(&report.lines()), String::from_utf8(points).unwrap())
}

#[test]
fn batches_are_converted_as_by_ycsbs_bindings() {
    let overall = "[OVERALL], RunTime(ms), 1000\n[OVERALL], Throughput(ops/sec), 23.0\n";
    let (lines, _) = of_batches(MeasurementType::Hdr, None);
    let returns = "[INSERT], Return=OK, 2\n[INSERT], Return=BATCHED_OK, 20\n[INSERT], Return=ERROR, 1\n";
    let failed = "[INSERT-FAILED], Operations, 1\n[INSERT-FAILED], AverageLatency(us), 40000.999\n";
    assert!(lines.starts_with(overall), "{lines}");
    // 18 of the batches that were done, 2 of the one that failed, and the 2 that were done.
    assert!(
        lines.contains("[INSERT], Operations, 22\n[INSERT], AverageLatency(us), 3636.4544545454546\n"),
        "{lines}"
    );
    assert!(lines.contains("[INSERT], 50thPercentileLatency(us), 0\n"), "{lines}");
    assert!(lines.contains("[INSERT], 99thPercentileLatency(us), 40"), "{lines}");
    for line in returns.lines() {
        assert!(lines.contains(line), "{line} is not in {lines}");
    }
    assert!(lines.contains(failed), "{lines}");
    assert!(!lines.contains("BATCH]") && !lines.contains("FLUSH"), "{lines}");

    let (lines, _) = of_batches(MeasurementType::Buckets, Some(LegacyKind::Buckets(100)));
    assert!(lines.contains("[INSERT], Operations, 22\n[INSERT], AverageLatency(us), 3636."), "{lines}");
    assert!(lines.contains("[INSERT], MinLatency(us), 0\n[INSERT], MaxLatency(us), 40000\n"), "{lines}");
    assert!(lines.contains("[INSERT], 95thPercentileLatency(us), 40000\n"), "{lines}");

    let (lines, _) =
        of_batches(MeasurementType::TimeSeries, Some(LegacyKind::TimeSeries { granularity_ms: 100 }));
    assert!(lines.contains("[INSERT], Operations, 22\n"), "{lines}");
    // One batch in each; the second failed.
    assert!(lines.contains("[INSERT], 0, 4000.0\n[INSERT], 100, 3333."), "{lines}");

    let (lines, points) = of_batches(MeasurementType::Raw, None);
    assert!(lines.contains("[INSERT], Total Operations, 22\n"), "{lines}");
    assert_eq!(points.lines().filter(|line| *line == "INSERT,1,0").count(), 9, "{points}");
    assert_eq!(points.lines().filter(|line| line.starts_with("INSERT,")).count(), 22, "{points}");
    assert!(points.contains("INSERT,150,40000\n"), "{points}");
}

#[test]
fn raw_points_come_in_order_of_time() {
    let times = Times { service: 5_999, response: 7_000 };
    let sample = |end_ns| RawSample { metric: Metric::READ, status: Status::Ok, client: 1, end_ns, times };
    let mut metrics = Metrics::new();
    metrics.entry((Metric::READ, Status::Ok)).or_default().service.record(5_999);
    let options = Options { kind: MeasurementType::HdrAndRaw, ..Options::default() };
    let legacy = Legacy::new();
    let raw = [sample(9_000_000), sample(2_000_000)];
    let report =
        Report { options, runtime_ms: 1, operations: 1, metrics: &metrics, legacy: &legacy, raw: &raw };
    let mut out = Vec::new();
    report.write_raw_points(1000, &mut out).unwrap();
    let expected =
        "RawREAD latency raw data: op, timestamp(ms), latency(us)\nRawREAD,1002,5\nRawREAD,1009,5\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}
