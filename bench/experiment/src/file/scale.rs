//! Scaling down experiments of phases.

use super::{
    lines::PropertyLine,
    phase_entries::{PhaseWork, PhasesFile},
};
use serval_model::properties::units;
use std::time::Duration;

impl PhasesFile {
    /// Returns the experiment `by` times smaller: divides numbers of records and operations, ranges of keys, and
    /// times of runs and pauses. Rounds down, so that adjacent ranges do not overlap, but not below one record or
    /// one second.
    #[must_use]
    pub fn scaled(mut self, by: f64) -> PhasesFile {
        let span = |time: Duration| time.div_f64(by).max(Duration::from_secs(1).min(time));
        scale_lines(&mut self.properties, by);
        scale_lines(&mut self.store.properties, by);
        for phase in &mut self.phases {
            scale_lines(&mut phase.properties, by);
            phase.only.iter_mut().for_each(|only| scale_lines(&mut only.properties, by));
            if let PhaseWork::Pause(time) = &mut phase.work {
                *time = span(*time);
            }
        }
        self
    }
}

/// Counts that a scale divides.
const COUNTS: [&str; 4] = ["recordcount", "insertcount", "insertstart", "operationcount"];

/// Times of runs that a scale divides.
const TIMES: [&str; 2] = ["maxexecutiontime", "warmup"];

fn scale_lines(lines: &mut [PropertyLine], by: f64) {
    let bound = |text: &str| Some((text.trim().parse::<u64>().ok()? as f64 / by) as u64);
    let count = |text: &str| bound(text).map(|scaled| scaled.max(u64::from(text.trim() != "0")));
    for (name, value, _) in lines {
        let name = name.as_str();
        if COUNTS.contains(&name)
            && let Some(scaled) = if name == "insertstart" { bound(value) } else { count(value) }
        {
            *value = scaled.to_string();
        } else if TIMES.contains(&name)
            && let Ok(ns) = units::parse_duration(value, 1_000_000_000)
        {
            let scaled = (ns as f64 / by).max(1e9_f64.min(ns as f64));
            *value = units::format_duration(scaled as u64);
        } else if name == "insertrange"
            && let Some((low, high)) = value.split_once("..")
            && let (Some(low), Some(high)) = (bound(low), count(high))
        {
            *value = format!("{low}..{high}");
        }
    }
}
