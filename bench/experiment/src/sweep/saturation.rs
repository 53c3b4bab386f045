//! Search for the saturation of a store: the number of clients doubles until throughput no longer rises
//! (`docs/experiments.md`).

use super::conduct::{PlannedRun, SweepConductor};
use crate::error::ConductError;
use serval_model::Execution;
use serval_report::units::{plural, rate};
use serval_result::{
    document::ResultDocument,
    experiment::{Curve, RunEntry, RunKind, Saturation},
    note::Note,
};
use std::time::Duration;

/// Smallest factor of throughput that counts as a gain of a doubling.
const GAIN_MIN: f64 = 1.05;

/// Consecutive doublings without a gain after which the store is saturated.
const DOUBLINGS_WITHOUT_GAIN: u32 = 2;

/// Share of the highest throughput that the reported number of clients must reach.
const NEAR: f64 = 0.98;

/// Share of the saturation that a point at or beyond it must reach; below it, the store or the machine has become
/// slower. It is well below 1, because a search takes the best of several short runs.
const REACHED: f64 = 0.9;

/// Most clients that a search tries, as tasks and as threads.
const CLIENTS_MAX: u64 = 1024;
const THREADS_MAX: u64 = 256;

/// Measured time of a search's run: divisor of a point's time, and minimum.
const TIME_PART: u32 = 3;
const TIME_MIN: Duration = Duration::from_secs(1);

/// Trials of a search so far: clients, in rising order, and throughput.
#[derive(Debug, Default)]
pub(super) struct SaturationSearch {
    tried: Vec<(u64, f64)>,
}

/// Next step of a search.
#[derive(Debug, PartialEq)]
pub(super) enum NextTrial {
    /// Run with this number of clients.
    Try(u64),
    /// The search is over.
    Found(Saturation),
}

impl SaturationSearch {
    /// Adds a trial.
    pub(super) fn add(&mut self, clients: u64, throughput: f64) {
        self.tried.push((clients, throughput));
    }

    /// Returns the next step. The search tries at most `max` clients.
    pub(super) fn next(&self, max: u64) -> NextTrial {
        let Some(&(last, _)) = self.tried.last() else { return NextTrial::Try(1) };
        let best = self.tried.iter().map(|(_, throughput)| *throughput).fold(0.0, f64::max);
        let saturated = self.trials_without_gain() >= DOUBLINGS_WITHOUT_GAIN;
        if saturated || last >= max {
            let fewest = self.tried.iter().find(|(_, throughput)| *throughput >= NEAR * best);
            let clients = fewest.map_or(last, |(clients, _)| *clients);
            return NextTrial::Found(Saturation { throughput: best, clients, found: saturated });
        }
        NextTrial::Try((last * 2).min(max))
    }

    /// Returns the number of trials since the last gain.
    fn trials_without_gain(&self) -> u32 {
        let (mut best, mut without) = (0.0, 0);
        for (_, throughput) in &self.tried {
            if *throughput >= best * GAIN_MIN && *throughput > 0.0 {
                without = 0;
            } else {
                without += 1;
            }
            best = f64::max(best, *throughput);
        }
        without
    }
}

impl SweepConductor<'_> {
    /// Finds the saturation of every curve that has none yet. The curves take turns, one trial each.
    pub(super) fn find_saturations(&mut self) -> Result<(), ConductError> {
        let curves = self.experiment.curves.len();
        let mut searches: Vec<SaturationSearch> =
            (0..curves).map(|curve| self.search_so_far(curve)).collect();
        loop {
            let mut busy = false;
            for (curve, search) in searches.iter_mut().enumerate() {
                if self.lost[curve] || self.journal.document.curves[curve].saturation.is_some() {
                    continue;
                }
                busy = true;
                let clients = match self.next_trial(curve, search) {
                    NextTrial::Try(clients) => clients,
                    NextTrial::Found(saturation) if saturation.throughput <= 0.0 => {
                        // Shares of a saturation of zero are no load.
                        self.give_up(curve, "saturation", "no operation succeeded")?;
                        continue;
                    }
                    NextTrial::Found(saturation) => {
                        let name = &self.journal.document.curves[curve].name;
                        let words = format!(
                            "{name}: saturation {} operations/s by {}",
                            rate(saturation.throughput),
                            plural(saturation.clients, "client")
                        );
                        self.watcher.note(&words);
                        self.journal.document.curves[curve].saturation = Some(saturation);
                        self.journal.write()?;
                        self.watcher.experiment(&self.journal.document);
                        continue;
                    }
                };
                let job = PlannedRun {
                    curve,
                    kind: RunKind::Search,
                    point: 0,
                    repeat: search.tried.len() as u32,
                    target: None,
                    clients,
                    time: (self.settings().time / TIME_PART).max(TIME_MIN.min(self.settings().time)),
                    what: format!("saturation by {}", plural(clients, "client")),
                };
                if let Some(document) = self.attempt(&job)? {
                    search.add(clients, succeeded(&document));
                }
            }
            if !busy {
                return Ok(());
            }
        }
    }

    /// Notes curves whose points stayed well below their saturation.
    pub(super) fn note_saturations_not_reached(&mut self) {
        let document = &self.journal.document;
        let of_curve = |(number, curve)| {
            let of = |run: &&RunEntry| run.kind == RunKind::Point && run.curve == number;
            not_reached(curve, &document.runs.iter().filter(of).collect::<Vec<_>>())
        };
        let notes: Vec<Note> = document.curves.iter().enumerate().filter_map(of_curve).collect();
        notes.into_iter().for_each(|note| self.note(note));
    }

    fn next_trial(&self, curve: usize, search: &SaturationSearch) -> NextTrial {
        // Each process has the same number of clients.
        let rounded = |clients: u64| self.threads(clients) * self.processes();
        match (self.settings().clients.map(rounded), search.tried.first()) {
            (Some(clients), None) => NextTrial::Try(clients),
            // A given number of clients needs one trial only.
            (Some(clients), Some((_, throughput))) => {
                NextTrial::Found(Saturation { throughput: *throughput, clients, found: false })
            }
            (None, _) => match search.next(self.clients_max(curve) * self.processes()) {
                NextTrial::Try(clients) => NextTrial::Try(rounded(clients)),
                found => found,
            },
        }
    }

    fn clients_max(&self, curve: usize) -> u64 {
        match self.execution(curve) {
            Some(Execution::EventLoops) => CLIENTS_MAX,
            // Threads cost more than tasks.
            _ => THREADS_MAX,
        }
    }

    /// Returns the trials of an interrupted search.
    fn search_so_far(&self, curve: usize) -> SaturationSearch {
        let of = |entry: &&RunEntry| {
            entry.kind == RunKind::Search && entry.curve == curve && entry.target.is_none()
        };
        let runs = self.journal.document.runs.iter().filter(of);
        let succeeded = |entry: &RunEntry| entry.throughput - entry.failed_per_s;
        SaturationSearch { tried: runs.map(|entry| (entry.clients, succeeded(entry))).collect() }
    }
}

/// Returns a note if all points that offered the saturation of a curve, or more, stayed well below it.
fn not_reached(curve: &Curve, points: &[&RunEntry]) -> Option<Note> {
    let saturation = curve.saturation.as_ref()?.throughput;
    let offered = |run: &&&RunEntry| run.target.is_none_or(|target| target >= saturation);
    let done = points.iter().filter(offered).map(|run| run.throughput - run.failed_per_s);
    let most = done.reduce(f64::max)?;
    let curve = curve.name.clone();
    (most < REACHED * saturation).then_some(Note::SaturationNotReached { curve, saturation, most })
}

/// Returns the rate of successful operations. A store that fails at once must not count as fast.
fn succeeded(document: &ResultDocument) -> f64 {
    document.overall.throughput - document.overall.failed_per_s()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(throughput: impl Fn(u64) -> f64, max: u64) -> (Saturation, Vec<u64>) {
        let mut search = SaturationSearch::default();
        loop {
            match search.next(max) {
                NextTrial::Try(clients) => search.add(clients, throughput(clients)),
                NextTrial::Found(saturation) => {
                    return (saturation, search.tried.iter().map(|(clients, _)| *clients).collect());
                }
            }
        }
    }

    #[test]
    fn a_store_with_eight_servers_saturates_with_eight_clients() {
        let (saturation, tried) = search(|clients| 1000.0 * clients.min(8) as f64, 1024);
        assert_eq!(saturation, Saturation { throughput: 8000.0, clients: 8, found: true });
        assert_eq!(tried, [1, 2, 4, 8, 16, 32]);
    }

    #[test]
    fn a_store_that_thrashes_saturates_at_its_highest_throughput() {
        let (saturation, _) =
            search(|clients| 1000.0 * clients as f64 / (1.0 + (clients as f64 / 8.0).powi(2)), 1024);
        assert_eq!((saturation.throughput, saturation.clients), (4000.0, 8));
    }

    #[test]
    fn a_store_that_never_saturates_is_tried_up_to_the_most_clients() {
        let (saturation, tried) = search(|clients| clients as f64, 100);
        assert_eq!(saturation, Saturation { throughput: 100.0, clients: 100, found: false });
        assert_eq!(tried.last(), Some(&100));
    }

    #[test]
    fn points_that_offer_the_saturation_must_reach_it() {
        let curve = |throughput| Curve {
            name: "redis".to_owned(),
            store: String::new(),
            binding: String::new(),
            workload: String::new(),
            at: None,
            saturation: Some(Saturation { throughput, clients: 8, found: true }),
            highest: None,
        };
        let run = |target: Option<f64>, throughput, failed_per_s| RunEntry {
            curve: 0,
            kind: RunKind::Point,
            point: 0,
            repeat: 0,
            target,
            share: None,
            clients: 8,
            folder: String::new(),
            started: String::new(),
            throughput,
            failed_per_s,
            duration_s: 1.0,
            warm_up_s: 0.0,
            whole_s: 1.0,
            records_before: None,
            flags: Vec::new(),
        };
        let noted = |runs: &[RunEntry]| not_reached(&curve(1000.0), &runs.iter().collect::<Vec<_>>());
        // A point of half the load is not expected to reach the saturation.
        assert_eq!(noted(&[run(Some(500.0), 500.0, 0.0)]), None);
        assert_eq!(noted(&[run(Some(1000.0), 950.0, 0.0), run(Some(1100.0), 700.0, 0.0)]), None);
        let note =
            noted(&[run(Some(1000.0), 800.0, 0.0), run(None, 890.0, 0.0), run(Some(500.0), 500.0, 0.0)]);
        let wanted =
            Note::SaturationNotReached { curve: "redis".to_owned(), saturation: 1000.0, most: 890.0 };
        assert_eq!(note, Some(wanted));
        // Failed operations do not count.
        assert!(noted(&[run(None, 1000.0, 500.0)]).is_some());
    }

    #[test]
    fn one_bad_trial_does_not_end_the_search() {
        let (saturation, _) = search(|clients| if clients == 4 { 1.0 } else { clients.min(16) as f64 }, 1024);
        assert_eq!(saturation.clients, 16);
        let (nothing, _) = search(|_| 0.0, 1024);
        assert_eq!(nothing.throughput, 0.0);
    }
}
