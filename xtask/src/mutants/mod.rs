//! Kept faults of Yesquel's protocols. A simulation must find each one: they show that the
//! simulations are sharp enough.
//!
//! All of them are built into one copy of the sources, and a variable chooses one when a simulation
//! runs. So one build serves all.

mod copy;
mod list;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;

use crate::Result;
use crate::children::Children;
use crate::simulate::{self, SeededTest};
use list::MUTANTS;

/// Names the mutant that a simulation runs with.
const VARIABLE: &str = "YESQUEL_MUTANT";

/// Seeds of the first part; each next one has twice as many, up to a number from which on a test
/// counts what its seeds have reached.
const FIRST_PART: u64 = 50;
const PART_MAX: u64 = 400;

#[derive(Args)]
pub(crate) struct MutantsArguments {
    /// Run only this mutant
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(MUTANTS.iter().map(|mutant| mutant.name)))]
    only: Option<String>,
    /// Most seeds for each mutant
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// List the mutants
    #[arg(long)]
    list: bool,
}

/// A fault.
struct Mutant {
    name: &'static str,
    /// The page below `docs/yesquel/`, and the rule of it that the fault breaks.
    rule: &'static str,
    /// Below the workspace's root.
    file: &'static str,
    /// Text that occurs once in the file.
    find: &'static str,
    /// What replaces it. `MUTANT` in it is whether the fault is chosen; without that it replaces
    /// statements if the fault is chosen.
    replace: &'static str,
    /// The simulation that finds it, by the name that `simulate` has for it.
    simulation: &'static str,
}

impl Mutant {
    /// The text that replaces the found one, for the mutant's number.
    fn replacement(&self, number: usize) -> String {
        let chosen = format!("crate::mutant({number})");
        match self.replace.contains("MUTANT") {
            true => self.replace.replace("MUTANT", &chosen),
            false => format!("if {chosen} {{ {} }} else {{ {} }}", self.replace, self.find),
        }
    }
}

/// Runs the command; returns whether each mutant was found.
pub(crate) fn mutants(arguments: &MutantsArguments, children: &Children) -> Result<bool> {
    if arguments.list {
        for Mutant { name, rule, simulation, .. } in MUTANTS {
            println!("{name:30} {simulation:10} {rule}");
        }
        return Ok(true);
    }
    run(arguments.only.as_deref(), arguments.seeds, None, children)
}

/// Runs all mutants until a time is over, each with 10,000 seeds at most.
pub(crate) fn mutants_for(limit: Duration, children: &Children) -> Result<bool> {
    run(None, 10_000, Some(limit), children)
}

fn run(only: Option<&str>, seeds: u64, limit: Option<Duration>, children: &Children) -> Result<bool> {
    let meant: Vec<(usize, &Mutant)> = MUTANTS
        .iter()
        .enumerate()
        .map(|(place, mutant)| (place + 1, mutant))
        .filter(|(_, mutant)| only.is_none_or(|only| only == mutant.name))
        .collect();
    let folder = copy::make()?;
    let mut simulations: Vec<&str> = meant.iter().map(|(_, mutant)| mutant.simulation).collect();
    simulations.sort_unstable();
    simulations.dedup();
    for simulation in simulations {
        children.check(command(&folder, simulation)?.arg("--no-run"))?;
    }
    let start = Instant::now();
    let (mut tried, mut missed) = (0, Vec::new());
    for (number, mutant) in &meant {
        if limit.is_some_and(|limit| start.elapsed() >= limit) {
            break;
        }
        tried += 1;
        if !is_found(&folder, *number, mutant, seeds, children)? {
            missed.push(mutant.name);
        }
    }
    let all = meant.len();
    println!("{} of {tried} mutants found ({all} in all)", tried - missed.len());
    if !missed.is_empty() {
        println!("not found: {}", missed.join(", "));
    }
    Ok(missed.is_empty())
}

/// The command that runs a simulation of the copy.
fn command(folder: &std::path::Path, simulation: &str) -> Result<Command> {
    let SeededTest { package, test, .. } =
        simulate::test(simulation).ok_or_else(|| format!("there is no simulation '{simulation}'"))?;
    let mut command = crate::cargo();
    command.current_dir(folder).args(["test", "--quiet", "--package", package, "--test", test]);
    // Built once and run for minutes.
    command.env("CARGO_TARGET_DIR", folder.join("target")).env("CARGO_PROFILE_DEV_DEBUG", "false");
    Ok(command)
}

/// Runs a simulation with a mutant until a seed fails; returns whether one has.
fn is_found(
    folder: &std::path::Path,
    number: usize,
    mutant: &Mutant,
    seeds: u64,
    children: &Children,
) -> Result<bool> {
    let (start, mut from, mut part) = (Instant::now(), 0, FIRST_PART);
    while from < seeds {
        let to = (from + part).min(seeds);
        let mut command = command(folder, mutant.simulation)?;
        command.env("SEEDS", format!("{from}..{to}")).env("SHRINK", "0").env(VARIABLE, number.to_string());
        command.stderr(Stdio::null());
        if let Some(output) = simulate::failing_output(&mut command, children)? {
            let (seed, law) = simulate::failure_of(&output)
                .ok_or_else(|| format!("{}: no seed has failed:\n{output}", mutant.name))?;
            let seconds = start.elapsed().as_secs_f64();
            println!("{:30} found after {:5} seeds, {seconds:4.0} s: {law}", mutant.name, seed + 1);
            return Ok(true);
        }
        (from, part) = (to, PART_MAX.min(part * 2));
    }
    println!("{:30} NOT FOUND in {seeds} seeds, {:.0} s", mutant.name, start.elapsed().as_secs_f64());
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mutants that do not apply any more would be found by nothing, or find nothing.
    #[test]
    fn each_mutant_applies_to_one_place_of_its_own() {
        let mut taken: Vec<(&str, std::ops::Range<usize>)> = Vec::new();
        for (place, mutant) in MUTANTS.iter().enumerate() {
            let Mutant { name, file, find, .. } = mutant;
            assert!(MUTANTS.iter().skip(place + 1).all(|other| other.name != *name), "{name}: twice");
            assert!(simulate::test(mutant.simulation).is_some(), "{name}: no such simulation");
            let page = mutant.rule.split(',').next().unwrap_or_default();
            assert!(crate::root().join("docs/yesquel").join(page).is_file(), "{name}: no page {page}");
            let source = std::fs::read_to_string(crate::root().join(file)).expect(file);
            let places: Vec<usize> = source.match_indices(find).map(|(at, _)| at).collect();
            assert_eq!(places.len(), 1, "{name}: the text in {file}");
            let span = places[0]..places[0] + find.len();
            let meets = |(other, own): &(&str, std::ops::Range<usize>)| {
                other == file && own.start < span.end && span.start < own.end
            };
            assert!(!taken.iter().any(meets), "{name}: another mutant changes the same text");
            taken.push((file, span));
            assert_ne!(mutant.replacement(place + 1), *find, "{name}");
        }
        assert!(MUTANTS.len() >= 30, "{}", MUTANTS.len());
    }
}
