//! The series of a run as CSV: a line for each interval and metric.

use serval_result::{
    document::{IntervalPacing, IntervalSummary, IntervalTimes},
    lag::LagKey,
};
use std::io::Write;

/// The columns, separated by commas. Later versions add columns at the end only.
pub const COLUMNS: &str = "\
    start_s,length_s,warm_up,metric,ok,failed,response_mean_us,response_p50_us,response_p95_us,\
    response_p99_us,response_p999_us,response_max_us,service_mean_us,service_p50_us,service_p95_us,\
    service_p99_us,service_p999_us,service_max_us,offered_per_s,late_p99_us,late_max_us";

/// The columns of `lag-keys.csv`, separated by commas. Later versions add columns at the end only.
pub const LAG_COLUMNS: &str = "\
    key,stamp,fate,reads,acknowledged_ns,hand_over_ns,lag_ns,poll_ns,lower_ns,upper_ns,clock_error_ns";

/// Writes a table: its columns, separated by commas, and its records.
pub(crate) fn table<R: IntoIterator<Item: AsRef<[u8]>>>(
    out: impl Write,
    columns: &str,
    records: impl IntoIterator<Item = R>,
) -> Result<(), ::csv::Error> {
    let mut csv = ::csv::Writer::from_writer(out);
    csv.write_record(columns.split(','))?;
    records.into_iter().try_for_each(|record| csv.write_record(record))?;
    csv.flush()?;
    Ok(())
}

/// Writes the fates of sampled keys (`docs/lag.md`).
pub fn write_lag(keys: &[LagKey], out: impl Write) -> Result<(), ::csv::Error> {
    let or_nothing = |ns: Option<u64>| ns.map_or_else(String::new, |ns| ns.to_string());
    let record = |line: &LagKey| {
        [
            line.key.clone(),
            line.stamp.clone(),
            line.fate.word().to_owned(),
            line.reads.to_string(),
            line.acknowledged_ns.map_or_else(String::new, |ns| ns.to_string()),
            or_nothing(line.hand_over_ns),
            or_nothing(line.lag_ns),
            or_nothing(line.poll_ns),
            or_nothing(line.lower_ns),
            or_nothing(line.upper_ns),
            line.clock_error_ns.to_string(),
        ]
    };
    table(out, LAG_COLUMNS, keys.iter().map(record))
}

/// Writes a series.
pub fn write(series: &[IntervalSummary], out: impl Write) -> Result<(), ::csv::Error> {
    let records = series.iter().flat_map(|interval| {
        interval.metrics.iter().map(|(name, metric)| {
            let mut fields = vec![
                format!("{:.3}", interval.start_s),
                format!("{:.3}", interval.length_s),
                interval.warm_up.to_string(),
                name.clone(),
                metric.ok.to_string(),
                metric.failed.to_string(),
            ];
            fields.extend(times(&metric.response));
            fields.extend(times(&metric.service));
            // Of the whole interval; empty without an offered load.
            let pacing = interval.pacing.filter(|_| interval.length_s > 0.0);
            fields.extend(pacing.map_or_else(Default::default, |IntervalPacing { due, lateness }| {
                let offered = format!("{:.1}", due / interval.length_s);
                [offered, micros(lateness.p99_ns), micros(lateness.max_ns)]
            }));
            fields
        })
    });
    table(out, COLUMNS, records)
}

/// Mean, p50, p95, p99, p99.9 and maximum in microseconds.
pub(crate) fn times(times: &IntervalTimes) -> [String; 6] {
    let IntervalTimes { mean_ns, p50_ns, p95_ns, p99_ns, p999_ns, max_ns } = *times;
    let [p50, p95, p99, p999, max] = [p50_ns, p95_ns, p99_ns, p999_ns, max_ns].map(micros);
    [format!("{:.3}", mean_ns / 1000.0), p50, p95, p99, p999, max]
}

/// Nanoseconds as microseconds with three decimals.
pub(crate) fn micros(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serval_result::{document::IntervalMetric, lag::Fate};

    #[test]
    fn a_line_for_each_sampled_key() {
        let found = LagKey {
            key: "a,b".to_owned(),
            stamp: "w.1".to_owned(),
            fate: Fate::Later,
            reads: 3,
            acknowledged_ns: Some(-5),
            hand_over_ns: Some(1),
            lag_ns: Some(20),
            poll_ns: Some(10),
            lower_ns: Some(11),
            upper_ns: Some(21),
            clock_error_ns: 0,
        };
        let unread = LagKey {
            fate: Fate::Unread,
            reads: 0,
            acknowledged_ns: None,
            hand_over_ns: None,
            lag_ns: None,
            poll_ns: None,
            lower_ns: None,
            upper_ns: None,
            ..found.clone()
        };
        let mut text = Vec::new();
        write_lag(&[found, unread], &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], LAG_COLUMNS);
        assert_eq!(lines[1..], ["\"a,b\",w.1,later,3,-5,1,20,10,11,21,0", "\"a,b\",w.1,unread,0,,,,,,,0"]);
    }

    #[test]
    fn a_line_for_each_interval_and_metric() {
        let response = IntervalTimes {
            mean_ns: 1500.5,
            p50_ns: 999,
            p95_ns: 2000,
            p99_ns: 3,
            p999_ns: 4,
            max_ns: 12_345,
        };
        let metric = IntervalMetric {
            ok: 5,
            failed: 1,
            response,
            service: IntervalTimes::default(),
            levels: String::new(),
        };
        let pacing = IntervalPacing { due: 50.0, lateness: response };
        let unpaced = IntervalSummary {
            start_s: 1.0,
            length_s: 0.5,
            warm_up: true,
            metrics: [("A,\"B\"".to_owned(), metric)].into(),
            pacing: None,
        };
        let paced = IntervalSummary { start_s: 1.5, pacing: Some(pacing), ..unpaced.clone() };
        let mut out = Vec::new();
        write(&[unpaced, paced], &mut out).unwrap();
        let expected = "1.000,0.500,true,\"A,\"\"B\"\"\",5,1,1.500,0.999,2.000,0.003,0.004,12.345,\
                        0.000,0.000,0.000,0.000,0.000,0.000,,,\n\
                        1.500,0.500,true,\"A,\"\"B\"\"\",5,1,1.500,0.999,2.000,0.003,0.004,12.345,\
                        0.000,0.000,0.000,0.000,0.000,0.000,100.0,0.003,12.345\n";
        assert_eq!(String::from_utf8(out).unwrap(), format!("{COLUMNS}\n{expected}"));
    }
}
