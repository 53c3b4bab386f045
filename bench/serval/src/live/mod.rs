//! Live views of a run: a dashboard on a terminal, plain lines elsewhere, metrics for Prometheus
//! and OpenTelemetry.
//!
//! The conductor's thread writes a small state once an interval. Threads of their own copy it to
//! draw, serve and send; clients are not involved.

mod background;
mod dashboard;
mod draw;
mod lines;
mod live_state;
#[cfg(feature = "opentelemetry")]
mod otlp;
mod prometheus;
#[cfg(test)]
mod sample_run;
#[cfg(test)]
mod tests;
mod totals;

use crate::{failure::Failure, interrupt::Unfinished, locked};
use clap::Args;
use dashboard::Dashboard;
use lines::PlainLines;
use live_state::LiveState;
use prometheus::{ScrapeAddress, Serving};
use serval_experiment::watcher::{ExperimentStep, Watcher};
use serval_plan::Plan;
use serval_result::{
    document::ResultDocument,
    experiment::{ExperimentDocument, RunEntry},
};
use serval_runner::{Control, Interval, Observer, Progress};
use serval_workload::core::Phase;
use std::{
    sync::{Arc, Mutex},
    time::Instant,
};
use totals::LiveTotals;

/// How to look on.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct LiveArgs {
    /// Print plain lines, even on a terminal
    #[arg(long)]
    pub(crate) plain: bool,
    /// Address that serves metrics to Prometheus during the run; port 0: any free port
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) prometheus: Option<ScrapeAddress>,
    /// OpenTelemetry collector that receives metrics during the run [without URL:
    /// OTEL_EXPORTER_OTLP_ENDPOINT]
    #[arg(long, value_name = "URL", value_parser = collector_url)]
    pub(crate) otlp: Option<Option<String>>,
}

/// The value of `--otlp` looks like an address. What stands behind a flag without
/// a value is easily taken for one.
fn collector_url(text: &str) -> Result<String, String> {
    if ["http://", "https://"].iter().any(|scheme| text.starts_with(scheme)) {
        return Ok(text.to_owned());
    }
    Err("an address begins with http:// or https://; --otlp without one stands last, or before another option".to_owned())
}

/// An address as it is written: an IPv6 address is in brackets.
fn host_and_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// All who look on.
pub(crate) struct Live {
    seen: Arc<Mutex<LiveState>>,
    totals: Arc<Mutex<LiveTotals>>,
    /// Plain lines, for an experiment without a dashboard.
    lines: Option<PlainLines>,
    dashboard: Option<Dashboard>,
    /// Whether any view shows totals.
    exports: bool,
    _prometheus: Option<Serving>,
    #[cfg(feature = "opentelemetry")]
    _otlp: Option<otlp::Sending>,
}

/// Says what is wrong: on the dashboard, or on standard error.
#[cfg(feature = "opentelemetry")]
type Warn = Box<dyn Fn(&str) + Send>;

#[cfg(not(feature = "opentelemetry"))]
fn without_otlp(args: &LiveArgs) -> Result<(), Failure> {
    match args.otlp {
        None => Ok(()),
        Some(_) => Err(Failure::usage(
            "--otlp: this serval was built without OpenTelemetry. Build it with 'cargo build --release --features \
             opentelemetry', or use --prometheus",
        )),
    }
}

impl Live {
    /// For an experiment: all that was asked for, and a dashboard or lines.
    pub(crate) fn begin(
        args: &LiveArgs,
        control: &Control,
        unfinished: &Unfinished,
    ) -> Result<Live, Failure> {
        let on_dashboard = !args.plain && dashboard::possible();
        let mut live = Live::exporting(args, on_dashboard)?;
        if on_dashboard {
            // A terminal that cannot be had is no reason not to run.
            live.dashboard = Dashboard::begin(&live.seen, control, unfinished).ok();
        }
        if live.dashboard.is_none() {
            live.lines = Some(PlainLines::new(Box::new(|line| tell!("{line}"))));
        }
        Ok(live)
    }

    /// For runs whose command shows them itself: what was asked for of
    /// metrics.
    pub(crate) fn of_runs(args: &LiveArgs) -> Result<Live, Failure> {
        Live::exporting(args, false)
    }

    fn exporting(args: &LiveArgs, on_dashboard: bool) -> Result<Live, Failure> {
        let seen = Arc::new(Mutex::new(LiveState::default()));
        let totals = Arc::new(Mutex::new(LiveTotals::default()));
        #[cfg(not(feature = "opentelemetry"))]
        let _ = (without_otlp(args)?, on_dashboard);
        #[cfg(feature = "opentelemetry")]
        let otlp = {
            let notes = Arc::clone(&seen);
            let warn: Warn = Box::new(move |words| match on_dashboard {
                true => locked(&notes).note(words),
                false => tell!("warning: {words}"),
            });
            let begin = |url: &Option<String>| {
                otlp::begin(url.as_deref(), &totals, otlp::ExportTimes::default(), warn)
            };
            args.otlp.as_ref().map(begin).transpose()?
        };
        let prometheus =
            args.prometheus.as_ref().map(|address| prometheus::serve(address, &totals)).transpose()?;
        if let Some(serving) = &prometheus {
            for address in serving.addresses() {
                tell!("metrics: http://{address}/metrics");
            }
        }
        Ok(Live {
            seen,
            totals,
            lines: None,
            dashboard: None,
            exports: args.prometheus.is_some() || args.otlp.is_some(),
            _prometheus: prometheus,
            #[cfg(feature = "opentelemetry")]
            _otlp: otlp,
        })
    }

    /// A run of a plan is next: the names of its workload's own metrics, and,
    /// if it is of no experiment, what it is.
    pub(crate) fn plan(&mut self, plan: &Plan) {
        let custom = plan.workload.metrics();
        locked(&self.seen).custom.clone_from(&custom);
        let mut totals = locked(&self.totals);
        totals.custom = custom;
        if !self.is_shown() {
            totals.run(&format!("{} {}", plan.workload_name, plan.store.name), plan.phase == Phase::Load);
        }
    }

    /// Whether an experiment is shown here; single runs show themselves.
    fn is_shown(&self) -> bool {
        self.lines.is_some() || self.dashboard.is_some()
    }
}

impl Drop for Live {
    /// Gives the terminal back, with the notes that went with it.
    fn drop(&mut self) {
        if let Some(dashboard) = self.dashboard.take() {
            drop(dashboard);
            for note in &locked(&self.seen).notes {
                tell!("note: {note}");
            }
        }
    }
}

impl Observer for Live {
    fn connected(&mut self, clients: usize, of: usize) {
        locked(&self.seen).connected(clients, of);
        locked(&self.totals).connected(clients);
    }

    fn measured(&mut self) {
        locked(&self.totals).connected(0);
    }

    fn progress(&mut self, progress: &Progress) {
        let mut seen = locked(&self.seen);
        seen.progress(progress);
        locked(&self.totals).progress(progress.elapsed, progress.warming_up);
        if let Some(lines) = &mut self.lines {
            lines.progress(&seen);
        }
    }

    fn interval(&mut self, interval: &Interval) {
        if !self.exports && !self.is_shown() {
            return;
        }
        let mut seen = locked(&self.seen);
        seen.interval(interval);
        if self.exports {
            let mut totals = locked(&self.totals);
            totals.interval(interval);
            if let Some(last) = &seen.last {
                totals.rate(last.rate.done, last.rate.offered);
            }
        }
    }
}

impl Watcher for Live {
    fn experiment(&mut self, document: &ExperimentDocument) {
        let mut seen = locked(&self.seen);
        seen.experiment(document);
        locked(&self.totals).done(seen.done, seen.planned);
        if let Some(lines) = &mut self.lines {
            lines.experiment(&seen);
        }
    }

    fn step(&mut self, step: &ExperimentStep) {
        let now = Instant::now();
        let mut seen = locked(&self.seen);
        seen.custom.clone_from(&step.metrics);
        seen.begin(step, now);
        let mut totals = locked(&self.totals);
        totals.custom.clone_from(&step.metrics);
        totals.step(step, seen.curve(step.curve), now);
        drop(totals);
        if let Some(lines) = &mut self.lines {
            lines.step(&seen, step);
        }
    }

    fn ended(&mut self, entry: &RunEntry, result: &ResultDocument) {
        let mut seen = locked(&self.seen);
        seen.ended(entry, result);
        let mut totals = locked(&self.totals);
        totals.done(seen.done, seen.planned);
        totals.between();
        if let Some(lines) = &mut self.lines {
            lines.ended(&seen);
        }
    }

    fn note(&mut self, words: &str) {
        let mut seen = locked(&self.seen);
        seen.note(words);
        if let (Some(lines), Some(note)) = (&mut self.lines, seen.notes.back()) {
            lines.note(note);
        }
    }
}

/// Two who look on.
pub(crate) struct Both<'a>(pub(crate) &'a mut dyn Observer, pub(crate) &'a mut dyn Observer);

impl Observer for Both<'_> {
    fn pass_on(&mut self, event: &mut dyn FnMut(&mut dyn Observer)) {
        event(self.0);
        event(self.1);
    }
}

/// For tests: compares with a file of `golden/`, which the environment
/// variable `GOLDEN=write` has written anew.
#[cfg(test)]
#[track_caller]
fn golden(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/live/golden").join(name);
    if std::env::var("GOLDEN").is_ok_and(|how| how == "write") {
        std::fs::write(&path, text).unwrap();
    }
    let wanted = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, wanted, "{name} is now\n{text}\nand should be\n{wanted}");
}
