//! Recording of the intervals of a run: the series, the histogram log and YCSB's `.hdr` files.

use crate::{costs::Costs, folder::FolderError, session::merged};
use serval_measure::{hdr_log::HdrLog, histogram::Histogram, recorder::Pair};
use serval_model::{Metric, Status};
use serval_report::ycsb;
use serval_result::document::{IntervalMetric, IntervalPacing, IntervalSummary, IntervalTimes, levels};
use serval_runner::{Interval, Observer};
use std::{
    collections::BTreeMap,
    io::{self, Write},
    time::{Duration, SystemTime},
};

/// Observer that records a run for its result and passes each event on to `show`.
pub(crate) struct Recording<'a> {
    custom: Vec<String>,
    costs: Costs,
    pub(crate) series: Vec<IntervalSummary>,
    log_file: Option<Box<dyn Write>>,
    log: Option<HdrLog<Box<dyn Write>>>,
    log_error: Option<io::Error>,
    hdr_files: Option<HdrFiles>,
    show: &'a mut dyn Observer,
}

/// Merges pairs by metric: first those of successful operations, second those of failed ones.
pub(crate) fn by_metric<'a>(
    pairs: impl IntoIterator<Item = (&'a (Metric, Status), &'a Pair)>,
) -> BTreeMap<Metric, (Pair, Pair)> {
    let mut metrics: BTreeMap<Metric, (Vec<&Pair>, Vec<&Pair>)> = BTreeMap::new();
    for ((metric, status), pair) in pairs {
        let (ok, failed) = metrics.entry(*metric).or_default();
        if status.is_ok() { ok.push(pair) } else { failed.push(pair) }
    }
    metrics.into_iter().map(|(metric, (ok, failed))| (metric, (merged(ok), merged(failed)))).collect()
}

impl<'a> Recording<'a> {
    pub(crate) fn new(
        custom: Vec<String>,
        costs: Costs,
        log_file: Option<Box<dyn Write>>,
        hdr_files: Option<HdrFiles>,
        show: &'a mut dyn Observer,
    ) -> Self {
        Recording { custom, costs, series: Vec::new(), log_file, log: None, log_error: None, hdr_files, show }
    }

    /// Closes the logs. Returns the series and the costs also if a log cannot be written.
    pub(crate) fn finish(
        self,
        failed: impl FnOnce(io::Error) -> FolderError,
    ) -> (Vec<IntervalSummary>, Costs, Option<FolderError>) {
        let result = match (self.log_error, self.log) {
            (Some(error), _) => Err(error),
            (None, Some(log)) => log.finish().map(drop),
            (None, None) => Ok(()),
        };
        let log = result.map_err(failed).err();
        let files = self.hdr_files.and_then(|files| files.finish().err());
        (self.series, self.costs, log.or(files))
    }

    fn write_log(&mut self, interval: &Interval) -> io::Result<()> {
        let Some(log) = &mut self.log else { return Ok(()) };
        let custom: Vec<&str> = self.custom.iter().map(String::as_str).collect();
        for (metric, (ok, failed)) in by_metric(&interval.pairs) {
            let name = metric.name(&custom);
            let mut write = |tag: &str, histogram: &Histogram| {
                if histogram.is_empty() {
                    return Ok(());
                }
                log.interval(Some(tag), interval.start, interval.length, histogram)
            };
            let warm = if interval.warm_up { "-WARMUP" } else { "" };
            for (pair, outcome) in [(&ok, ""), (&failed, "-FAILED")] {
                if interval.paced {
                    write(&format!("{name}{outcome}{warm}"), &pair.response)?;
                    write(&format!("{name}{outcome}-SERVICE{warm}"), &pair.service)?;
                } else {
                    write(&format!("{name}{outcome}{warm}"), &pair.service)?;
                }
            }
        }
        if !interval.lateness.is_empty() {
            log.interval(Some("LATENESS"), interval.start, interval.length, &interval.lateness)?;
        }
        Ok(())
    }
}

impl Observer for Recording<'_> {
    fn pass_on(&mut self, event: &mut dyn FnMut(&mut dyn Observer)) {
        event(self.show);
    }

    fn started(&mut self, at: SystemTime) {
        if let Some(file) = self.log_file.take() {
            let comment =
                "Serval: response times in ns by operation; -SERVICE: service times; -FAILED: failures";
            match HdrLog::new(file, at, comment, 1) {
                Ok(log) => self.log = Some(log),
                Err(error) => self.log_error = Some(error),
            }
        }
        if let Some(files) = &mut self.hdr_files {
            files.started = at;
        }
        self.show.started(at);
    }

    fn measuring(&mut self) {
        self.costs.begin();
        self.show.measuring();
    }

    fn measured(&mut self) {
        self.costs.end();
        self.show.measured();
    }

    fn interval(&mut self, interval: &Interval) {
        if self.log_error.is_none()
            && let Err(error) = self.write_log(interval)
        {
            self.log_error = Some(error);
        }
        if let Some(files) = &mut self.hdr_files
            && !interval.warm_up
        {
            files.add(interval, &self.custom);
        }
        let custom: Vec<&str> = self.custom.iter().map(String::as_str).collect();
        let metrics = by_metric(&interval.pairs).into_iter().map(|(metric, (ok, failed))| {
            let service = IntervalTimes::of(&ok.service);
            let response = if interval.paced { IntervalTimes::of(&ok.response) } else { service };
            let summary = IntervalMetric {
                ok: ok.service.count(),
                failed: failed.service.count(),
                response,
                service,
                levels: levels(if interval.paced { &ok.response } else { &ok.service }),
            };
            (metric.name(&custom).to_owned(), summary)
        });
        self.series.push(IntervalSummary {
            start_s: interval.start.as_secs_f64(),
            length_s: interval.length.as_secs_f64(),
            warm_up: interval.warm_up,
            metrics: metrics.collect(),
            pacing: interval
                .due
                .map(|due| IntervalPacing { due, lateness: IntervalTimes::of(&interval.lateness) }),
        });
        self.show.interval(interval);
    }
}

/// YCSB's `.hdr` files: one per metric, in microseconds, with one entry per status interval.
#[derive(Debug)]
pub(crate) struct HdrFiles {
    prefix: String,
    every: Option<Duration>,
    times: ycsb::IntervalMode,
    started: SystemTime,
    /// Begin and end of the open entry, from the start of the run.
    since: Duration,
    until: Duration,
    /// Histograms of the open entry.
    sums: BTreeMap<String, Histogram>,
    logs: BTreeMap<String, Vec<(Duration, Duration, Histogram)>>,
}

impl HdrFiles {
    /// Makes files whose paths begin with `prefix`. `None` for `every` gives one entry for the whole run.
    pub(crate) fn new(prefix: String, every: Option<Duration>, times: ycsb::IntervalMode) -> Self {
        HdrFiles {
            prefix,
            every,
            times,
            started: SystemTime::UNIX_EPOCH,
            since: Duration::ZERO,
            until: Duration::ZERO,
            sums: BTreeMap::new(),
            logs: BTreeMap::new(),
        }
    }

    fn add(&mut self, interval: &Interval, custom: &[String]) {
        if self.sums.is_empty() {
            self.since = interval.start;
        }
        self.until = interval.start + interval.length;
        let custom: Vec<&str> = custom.iter().map(String::as_str).collect();
        for (metric, (ok, failed)) in by_metric(&ycsb::terms::metrics(&interval.pairs)) {
            let name = metric.name(&custom);
            for (pair, outcome) in [(ok, ""), (failed, "-FAILED")] {
                let response = if interval.paced { &pair.response } else { &pair.service };
                let mut sum = |name: String, histogram: &Histogram| {
                    if !histogram.is_empty() {
                        self.sums.entry(name).or_default().merge(histogram);
                    }
                };
                match self.times {
                    ycsb::IntervalMode::Intended => sum(format!("{name}{outcome}"), response),
                    ycsb::IntervalMode::Op => sum(format!("{name}{outcome}"), &pair.service),
                    ycsb::IntervalMode::Both => {
                        sum(format!("{name}{outcome}"), &pair.service);
                        sum(format!("Intended-{name}{outcome}"), response);
                    }
                }
            }
        }
        if self.every.is_some_and(|every| self.until - self.since >= every) {
            self.close_entry();
        }
    }

    fn close_entry(&mut self) {
        for (name, histogram) in std::mem::take(&mut self.sums) {
            self.logs.entry(name).or_default().push((self.since, self.until - self.since, histogram));
        }
    }

    fn finish(mut self) -> Result<(), FolderError> {
        self.close_entry();
        for (name, entries) in &self.logs {
            let path = std::path::PathBuf::from(format!("{}{name}.hdr", self.prefix));
            let write = || -> io::Result<()> {
                let file = io::BufWriter::new(std::fs::File::create(&path)?);
                let mut log = HdrLog::new(file, self.started, &format!("Logging for: {name}"), 1000)?;
                for (start, length, histogram) in entries {
                    log.interval(None, *start, *length, histogram)?;
                }
                log.finish().map(drop)
            };
            write().map_err(|error| FolderError::File { path: path.clone(), error })?;
        }
        Ok(())
    }
}
