//! `serval compare A B`: from stored runs to a verdict.

use crate::{
    args::CompareArgs,
    failure::{Exit, Failure},
    render, stdout,
};
use serval_compare::{CompareError, CompareOptions, Side, document::OverallVerdict};
use std::{
    io::IsTerminal,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Paths that a pattern may stand for at most.
const MATCHES_MAX: usize = 1_000;

impl From<CompareError> for Failure {
    fn from(error: CompareError) -> Self {
        Failure::usage(error.to_string())
    }
}

/// A path, or those that a pattern stands for, in order.
fn expanded(path: &Path, into: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let pattern = path.to_str().filter(|text| text.contains(['*', '?', '[']));
    let Some(pattern) = pattern.filter(|_| !path.exists()) else {
        into.push(path.to_owned());
        return Ok(());
    };
    let fault = |what: String| Failure::usage(format!("{pattern}: {what}"));
    let matches = glob::glob(pattern).map_err(|error| fault(format!("not a pattern: {error}")))?;
    let before = into.len();
    for found in matches {
        into.push(found.map_err(|error| fault(format!("cannot be looked through: {error}")))?);
        if into.len() - before > MATCHES_MAX {
            return Err(fault(format!("more than {MATCHES_MAX} paths match, which is the most; name less")));
        }
    }
    if into.len() == before { Err(fault("no path matches".into())) } else { Ok(()) }
}

fn side(name: &str, paths: &[PathBuf]) -> Result<Side, Failure> {
    let mut all = Vec::new();
    for path in paths {
        expanded(path, &mut all)?;
    }
    Ok(Side::read(name, &all)?)
}

/// The paths of both sides.
fn sides(args: &CompareArgs) -> Result<[Vec<PathBuf>; 2], Failure> {
    let missing = |which: &str| {
        Failure::usage(format!("side {which} is missing: serval compare A B, or --a PATH... and --b PATH..."))
    };
    let mut sides = [Vec::new(), Vec::new()];
    match args.sides.as_slice() {
        [] => (),
        [a, b] => {
            sides[0].push(a.clone());
            sides[1].push(b.clone());
        }
        // One of the sides may be given by its flag alone.
        [one] if args.a.is_empty() && !args.b.is_empty() => sides[0].push(one.clone()),
        [one] if args.b.is_empty() && !args.a.is_empty() => sides[1].push(one.clone()),
        [one] if !args.a.is_empty() => {
            return Err(Failure::usage(format!(
                "{}: on which side? --a and --b name both: add it to one of them",
                one.display()
            )));
        }
        _ => return Err(missing("B")),
    }
    sides[0].extend_from_slice(&args.a);
    sides[1].extend_from_slice(&args.b);
    for (side, name) in sides.iter().zip(["A", "B"]) {
        if side.is_empty() {
            return Err(missing(name));
        }
    }
    Ok(sides)
}

fn options(args: &CompareArgs) -> Result<CompareOptions, Failure> {
    let alpha = args.alpha.trim().parse::<f64>().ok().filter(|alpha| *alpha > 0.0 && *alpha <= 0.5);
    let alpha = alpha.ok_or_else(|| {
        Failure::usage(format!("--alpha {}: a share above 0 and up to 0.5, for example 0.05", args.alpha))
    })?;
    let percent = args.threshold.trim().strip_suffix('%').unwrap_or(&args.threshold).trim().parse::<f64>();
    let percent = percent.ok().filter(|percent| (0.0..=1_000.0).contains(percent)).ok_or_else(|| {
        Failure::usage(format!("--threshold {}: a percentage from 0 to 1000, for example 2%", args.threshold))
    })?;
    Ok(CompareOptions { alpha, threshold: percent / 100.0, seed: args.seed, ..CompareOptions::default() })
}

/// `serval compare A B`.
pub(crate) fn compare(args: &CompareArgs) -> Result<ExitCode, Failure> {
    let options = options(args)?;
    let [a, b] = sides(args)?;
    let (a, b) = (side("A", &a)?, side("B", &b)?);
    let same = args
        .aa
        .iter()
        .map(|path| side("--aa", std::slice::from_ref(path)))
        .collect::<Result<Vec<Side>, _>>()?;
    let found = serval_compare::compare(&a, &b, &same, &options)?;
    let text = if args.json {
        render::pretty(&found)?
    } else if args.markdown {
        serval_compare::markdown(&found).into_bytes()
    } else {
        serval_compare::table(&found, &render::styles(std::io::stdout().is_terminal())).into_bytes()
    };
    stdout(&text)?;
    Ok(match found.verdict {
        OverallVerdict::Worse => Exit::Worse.into(),
        OverallVerdict::Inconclusive => Exit::Inconclusive.into(),
        OverallVerdict::Better | OverallVerdict::NoDifference => ExitCode::SUCCESS,
    })
}
