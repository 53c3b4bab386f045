//! Whether the points of a curve reach the saturation that was found for it.

use serval_result::{
    experiment::{Curve, RunEntry},
    note::Note,
};

/// Share of the saturation that a point at or beyond it must reach: below, store or machine became slower. Searches
/// are short, and their best run was lucky too.
const REACHED: f64 = 0.9;

/// That points which offered the saturation of a curve, or more, did much less.
pub(super) fn not_reached(curve: &Curve, points: &[&RunEntry]) -> Option<Note> {
    let saturation = curve.saturation.as_ref()?.throughput;
    let offered = |run: &&&RunEntry| run.target.is_none_or(|target| target >= saturation);
    let done = points.iter().filter(offered).map(|run| run.throughput - run.failed_per_s);
    let most = done.reduce(f64::max)?;
    let curve = curve.name.clone();
    (most < REACHED * saturation).then_some(Note::SaturationNotReached { curve, saturation, most })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serval_result::experiment::{RunKind, Saturation};

    #[test]
    fn points_that_offered_the_saturation_must_reach_it() {
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
        // Half was offered, and half was done.
        assert_eq!(noted(&[run(Some(500.0), 500.0, 0.0)]), None);
        assert_eq!(noted(&[run(Some(1000.0), 950.0, 0.0), run(Some(1100.0), 700.0, 0.0)]), None);
        let note =
            noted(&[run(Some(1000.0), 800.0, 0.0), run(None, 890.0, 0.0), run(Some(500.0), 500.0, 0.0)]);
        let wanted =
            Note::SaturationNotReached { curve: "redis".to_owned(), saturation: 1000.0, most: 890.0 };
        assert_eq!(note, Some(wanted));
        // What failed was not done.
        assert!(noted(&[run(None, 1000.0, 500.0)]).is_some());
    }
}
