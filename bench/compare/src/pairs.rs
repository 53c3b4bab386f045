//! Which runs of A are compared with which runs of B.

use crate::{
    error::CompareError,
    points::MeasuredPoint,
    run::ComparedRun,
    side::{CurveSaturation, Side},
};
use serval_report::text::printable;

/// Runs of both sides that are compared with one another.
pub(crate) struct RunPair<'a> {
    /// The point's name; empty if sides are results.
    pub(crate) name: String,
    pub(crate) a: Vec<&'a ComparedRun>,
    pub(crate) b: Vec<&'a ComparedRun>,
    /// The point in A, if sides are experiments.
    pub(crate) point: Option<&'a MeasuredPoint>,
}

/// Whether points match by the curve's name too: if a side has several curves.
pub(crate) fn by_curve(a: &Side, b: &Side) -> bool {
    a.curves().len() > 1 || b.curves().len() > 1
}

/// Returns the runs to compare, and a sentence for each point that the other side lacks.
pub(crate) fn pairs<'a>(a: &'a Side, b: &'a Side) -> Result<(Vec<RunPair<'a>>, Vec<String>), CompareError> {
    let (of_a, of_b) = (a.points(), b.points());
    // Results, and one point of an experiment, are sets of repeats.
    if of_a.len() <= 1 && of_b.len() <= 1 && (of_a.is_empty() || of_b.is_empty()) {
        let (a, b) = (a.runs_of(None, false), b.runs_of(None, false));
        return Ok((vec![RunPair { name: String::new(), a, b, point: None }], Vec::new()));
    }
    let phases = of_a.iter().chain(&of_b).any(|point| point.is_phase());
    comparable(a, b, phases)?;
    let by_curve = by_curve(a, b);
    let mut pairs = Vec::new();
    let mut unmatched = Vec::new();
    let mut taken: Vec<&MeasuredPoint> = Vec::new();
    for point in of_a {
        // Repeats of a point may have targets that differ a little.
        if taken.iter().any(|other| other.matches(point, by_curve)) {
            continue;
        }
        taken.push(point);
        let name = point.name(by_curve);
        let runs = b.runs_of(Some(point), by_curve);
        if runs.is_empty() {
            unmatched.push(format!("{name} is in A only."));
        } else {
            pairs.push(RunPair { name, a: a.runs_of(Some(point), by_curve), b: runs, point: Some(point) });
        }
    }
    for point in of_b.iter().filter(|point| a.runs_of(Some(point), by_curve).is_empty()) {
        unmatched.push(format!("{} is in B only.", point.name(by_curve)));
    }
    match pairs.is_empty() {
        false => Ok((pairs, unmatched)),
        true if phases => Err(CompareError::Unfit(format!(
            "no phase of {} is one of {}: phases are compared with phases of the same name. To compare two of different names \
             name one a side, as DIR:PHASE",
            a.given, b.given
        ))),
        true => Err(CompareError::Unfit(format!(
            "no point of {} is one of {}: points match by workload and offered load{}, a rate with the same rate and a share of \
             the saturation with the same share",
            a.given,
            b.given,
            if by_curve { ", and by the curve's name" } else { "" }
        ))),
    }
}

/// Refuses an experiment beside a result, and several curves beside one.
fn comparable(a: &Side, b: &Side, phases: bool) -> Result<(), CompareError> {
    let (curves_a, curves_b) = (a.curves(), b.curves());
    if curves_a.is_empty() != curves_b.is_empty() {
        let (experiment, results) = if curves_a.is_empty() { (b, a) } else { (a, b) };
        return Err(CompareError::Unfit(format!(
            "{} is an experiment of several points and {} is not: compare experiments with experiments, or name \
             folders of runs on both sides",
            experiment.given, results.given
        )));
    }
    if !phases && (curves_a.len() > 1) != (curves_b.len() > 1) {
        let (many, one, curves) = if curves_a.len() > 1 { (a, b, curves_a) } else { (b, a, curves_b) };
        let names: Vec<&str> = curves.into_iter().collect();
        return Err(CompareError::Unfit(format!(
            "{} has several curves, {} has one: name one as {}:CURVE, of {}",
            many.given,
            one.given,
            many.given,
            printable(&names.join(", "), 300)
        )));
    }
    Ok(())
}

/// Where a curve saturates, in the experiments of both sides.
pub(crate) struct SaturationPair<'a> {
    /// Name of the curve, or of the workload where each side has one curve.
    pub(crate) name: String,
    pub(crate) a: Vec<&'a CurveSaturation>,
    pub(crate) b: Vec<&'a CurveSaturation>,
}

/// Returns the saturations that both sides found.
pub(crate) fn saturations<'a>(a: &'a Side, b: &'a Side) -> Vec<SaturationPair<'a>> {
    let by_curve = by_curve(a, b);
    let name = |of: &CurveSaturation| printable(if by_curve { &of.curve } else { &of.workload }, 60);
    let mut pairs: Vec<SaturationPair<'_>> = Vec::new();
    for found in &a.saturations {
        match pairs.iter_mut().find(|pair| pair.name == name(found)) {
            Some(pair) => pair.a.push(found),
            None => pairs.push(SaturationPair { name: name(found), a: vec![found], b: Vec::new() }),
        }
    }
    for found in &b.saturations {
        if let Some(pair) = pairs.iter_mut().find(|pair| pair.name == name(found)) {
            pair.b.push(found);
        }
    }
    pairs.retain(|pair| !pair.b.is_empty());
    pairs
}
