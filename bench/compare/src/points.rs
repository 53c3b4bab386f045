//! How runs of one side find their counterparts in the other: by phase, or by a curve's point.

use serval_report::{
    text::printable,
    units::{digits, rate},
};
use serval_result::experiment::RunEntry;
use std::cmp::Ordering;

/// Largest distance of offered loads that count as the same, as a share.
const SAME_LOAD: f64 = 0.005;

/// The load that was offered to a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum OfferedLoad {
    /// A share of the curve's own saturation.
    Share(f64),
    /// Operations/s.
    Rate(f64),
    /// As fast as the store answers.
    Unlimited,
}

impl OfferedLoad {
    pub(crate) fn of(run: &RunEntry) -> OfferedLoad {
        match (run.share, run.target) {
            (Some(share), _) => OfferedLoad::Share(share),
            (None, Some(rate)) => OfferedLoad::Rate(rate),
            (None, None) => OfferedLoad::Unlimited,
        }
    }

    fn matches(self, other: OfferedLoad) -> bool {
        let close = |a: f64, b: f64| (a - b).abs() <= SAME_LOAD * a.abs().max(b.abs());
        match (self, other) {
            (OfferedLoad::Share(a), OfferedLoad::Share(b)) => close(a, b),
            (OfferedLoad::Rate(a), OfferedLoad::Rate(b)) => close(a, b),
            (OfferedLoad::Unlimited, OfferedLoad::Unlimited) => true,
            _ => false,
        }
    }

    /// Shares, then rates, each in rising order, then as fast as the store answers.
    fn compare(self, other: OfferedLoad) -> Ordering {
        let key = |load| match load {
            OfferedLoad::Share(share) => (0, share),
            OfferedLoad::Rate(rate) => (1, rate),
            OfferedLoad::Unlimited => (2, 0.0),
        };
        let ((kind, value), (other_kind, other_value)) = (key(self), key(other));
        kind.cmp(&other_kind).then(value.total_cmp(&other_value))
    }

    fn words(self) -> String {
        match self {
            OfferedLoad::Share(share) => format!("{} % of the saturation offered", digits(share * 100.0)),
            OfferedLoad::Rate(target) => format!("{} operations/s offered", rate(target)),
            OfferedLoad::Unlimited => "as fast as the store answers".to_owned(),
        }
    }
}

/// What a run of an experiment measured.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum MeasuredPoint {
    /// A phase, by its name.
    Phase(String),
    /// A point of a curve.
    OfCurve {
        /// The curve's name.
        curve: String,
        workload: String,
        load: OfferedLoad,
        /// Number of the point in its curve, from 0.
        number: usize,
        /// Number among the curve's points of the same load, from 0.
        nth: usize,
    },
}

impl MeasuredPoint {
    /// The curve's name, or the phase's.
    pub(crate) fn curve(&self) -> &str {
        match self {
            MeasuredPoint::Phase(name) => name,
            MeasuredPoint::OfCurve { curve, .. } => curve,
        }
    }

    /// By load and number among those of the same load; phases stay as they are.
    pub(crate) fn by_load(&self, other: &MeasuredPoint) -> Ordering {
        use MeasuredPoint::OfCurve;
        match (self, other) {
            (OfCurve { load, nth, .. }, OfCurve { load: other_load, nth: other_nth, .. }) => {
                load.compare(*other_load).then(nth.cmp(other_nth))
            }
            _ => Ordering::Equal,
        }
    }

    pub(crate) fn is_phase(&self) -> bool {
        matches!(self, MeasuredPoint::Phase(_))
    }

    /// Whether the load was a share of the curve's own saturation.
    pub(crate) fn is_share(&self) -> bool {
        matches!(self, MeasuredPoint::OfCurve { load: OfferedLoad::Share(_), .. })
    }

    /// Whether runs of both points are compared; `by_curve`: only if they have the same name.
    pub(crate) fn matches(&self, other: &MeasuredPoint, by_curve: bool) -> bool {
        use MeasuredPoint::{OfCurve, Phase};
        let alike = match (self, other) {
            (Phase(_), Phase(_)) => true,
            (
                OfCurve { workload, load, nth, .. },
                OfCurve { workload: other_workload, load: other_load, nth: other_nth, .. },
            ) => load.matches(*other_load) && nth == other_nth && workload == other_workload,
            _ => false,
        };
        alike && (!by_curve || self.curve() == other.curve())
    }

    /// The point's name in a comparison.
    pub(crate) fn name(&self, with_curve: bool) -> String {
        let name = match self {
            MeasuredPoint::Phase(name) => format!("phase {name}"),
            MeasuredPoint::OfCurve { curve, workload, load, number, .. } => {
                let name = if with_curve { curve } else { workload };
                format!("{name}, point {}: {}", number + 1, load.words())
            }
        };
        printable(&name, 80)
    }
}
