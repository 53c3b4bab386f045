//! The figures of both sides.

use std::time::Duration;

use super::load::{Edit, EditOutcome, RequestKind, Slice};
use crate::bench::latencies::Latencies;
use crate::bench::measure::ResultTable;

/// What one side has done in all its slices.
#[derive(Debug, Default)]
pub(super) struct Figures {
    took: Duration,
    views: Latencies,
    edits: Latencies,
    /// Longest time in which no request was answered.
    pub(super) stall: Duration,
    pub(super) php_cpu: Duration,
    pub(super) server_cpu: Duration,
    pub(super) sent: Vec<Edit>,
    pub(super) failures: Vec<String>,
}

impl Figures {
    /// Adds a slice.
    pub(super) fn add(&mut self, slice: Slice) {
        self.stall = self.stall.max(stall(&slice));
        self.took += slice.took;
        for finished in &slice.finished {
            let latencies = match finished.kind {
                RequestKind::View => &mut self.views,
                RequestKind::Edit => &mut self.edits,
            };
            latencies.record(u64::try_from(finished.took.as_micros()).unwrap_or(u64::MAX));
        }
        self.sent.extend(slice.edits);
        self.failures.extend(slice.failures);
    }

    /// Returns the number of edits with an outcome.
    pub(super) fn edits_that(&self, are: impl Fn(&EditOutcome) -> bool) -> usize {
        self.sent.iter().filter(|edit| are(&edit.outcome)).count()
    }

    fn a_second(&self, latencies: &Latencies) -> f64 {
        latencies.count() as f64 / self.took.as_secs_f64()
    }

    fn a_request(&self, time: Duration) -> f64 {
        time.as_secs_f64() * 1e3 / (self.views.count() + self.edits.count()) as f64
    }
}

/// Returns the longest time of a slice in which no request was answered.
pub(super) fn stall(slice: &Slice) -> Duration {
    let mut last = Duration::ZERO;
    let mut longest = Duration::ZERO;
    for at in slice.finished.iter().map(|finished| finished.at).chain([slice.took]) {
        longest = longest.max(at.saturating_sub(last));
        last = last.max(at);
    }
    longest
}

/// Returns the figures of both sides side by side.
pub(super) fn table(stock: &Figures, yesquel: &Figures) -> String {
    let mut table = ResultTable::new(["MediaWiki on", "stock SQLite", "Yesquel"]);
    let mut row = |name: &str, decimals: usize, value: &dyn Fn(&Figures) -> f64| {
        let cell = |figures| format!("{:.decimals$}", value(figures));
        table.row([name.to_owned(), cell(stock), cell(yesquel)]);
    };
    row("views/s", 2, &|side| side.a_second(&side.views));
    row("edits/s", 2, &|side| side.a_second(&side.edits));
    for (name, share) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
        row(&format!("view {name}, ms"), 1, &|side| side.views.quantile(share) / 1e3);
    }
    for (name, share) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
        row(&format!("edit {name}, ms"), 1, &|side| side.edits.quantile(share) / 1e3);
    }
    row("longest stall, s", 2, &|side| side.stall.as_secs_f64());
    row("CPU of a request: PHP, ms", 1, &|side| side.a_request(side.php_cpu));
    row("CPU of a request: servers, ms", 1, &|side| side.a_request(side.server_cpu));
    row("CPU of a request: all, ms", 1, &|side| side.a_request(side.php_cpu + side.server_cpu));
    row("views", 0, &|side| side.views.count() as f64);
    row("edits saved", 0, &|side| {
        side.edits_that(|outcome| matches!(outcome, EditOutcome::Saved { .. })) as f64
    });
    row("edits refused (edit conflict)", 0, &|side| {
        side.edits_that(|outcome| *outcome == EditOutcome::Conflict) as f64
    });
    row("requests that failed", 0, &|side| side.failures.len() as f64);
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::super::load::FinishedRequest;
    use super::*;

    fn slice(milliseconds: &[u64], took: u64) -> Slice {
        let finished = milliseconds.iter().map(|at| FinishedRequest {
            kind: RequestKind::View,
            at: Duration::from_millis(*at),
            took: Duration::from_millis(5),
        });
        Slice { took: Duration::from_millis(took), finished: finished.collect(), ..Slice::default() }
    }

    #[test]
    fn a_stall_is_the_longest_time_without_an_answer() {
        let stall = |at: &[u64], took| super::stall(&slice(at, took)).as_millis();
        assert_eq!(stall(&[10, 20, 90, 100], 100), 70);
        // At the start and at the end, too.
        assert_eq!(stall(&[50, 60], 100), 50);
        assert_eq!(stall(&[10, 20], 100), 80);
        assert_eq!(stall(&[], 100), 100);
    }

    #[test]
    fn figures_are_those_of_all_slices() {
        let mut figures = Figures::default();
        figures.add(slice(&[10, 20, 90, 100], 100));
        figures.add(slice(&[10], 100));
        figures.php_cpu = Duration::from_millis(10);
        let table = table(&figures, &figures);
        let row = |name: &str| {
            let row = table.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            row.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(row("views/s"), ["25.00", "25.00"]);
        assert_eq!(row("longest stall, s"), ["0.09", "0.09"]);
        assert_eq!(row("CPU of a request: all, ms"), ["2.0", "2.0"]);
    }
}
