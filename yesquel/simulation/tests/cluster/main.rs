//! Trees on a simulated cluster, against a plain reference.
//!
//! Clients run transactions over trees at three servers, whose nodes split and are removed, while the
//! faults of `yesquel-simulation` strike. All reads at any snapshot, and all data at the end, must
//! follow from the committed transactions in the order of their times. See
//! `docs/yesquel/testing.md`.
//!
//! A seed draws a list of steps; `SEEDS=from..to` chooses seeds. A failing list is shortened before it
//! is printed.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod application;
mod clients;
mod contention;
mod draw;
mod floating;
mod laws;
mod maintenance;
mod reference;
mod steps;
mod watching;
mod workload;

use application::run_steps;
use draw::steps;
use std::sync::Mutex;
use steps::Step;
use workload::WorkCounts;
use yesquel_seeds::check_steps;
use yesquel_simulation::EventCounts;

#[test]
fn every_seed_agrees_with_the_reference() {
    let all = Mutex::new((0, EventCounts::default(), WorkCounts::default()));
    check_steps(800, steps, |steps: &[Step]| {
        let (counts, work) = run_steps(steps);
        let mut all = all.lock().unwrap();
        all.0 += 1;
        all.1.add(&counts);
        all.2.add(&work);
    });
    let (runs, counts, work) = *all.lock().unwrap();
    println!("{runs} runs: {work:?}, {counts:?}");
    // A few seeds need not reach every event.
    let least = match runs {
        0..800 => return,
        800..3_000 => 30,
        _ => 100,
    };
    let is_enough = counts.all().into_iter().chain(work.all()).all(|count| count >= least);
    assert!(is_enough, "fewer than {least}: {work:?}, {counts:?}");
    // Few daily seeds take the rarest paths.
    let least = if least < 100 { 10 } else { least };
    let missed = counts.paths.below(least);
    assert!(missed.is_empty(), "paths that were taken fewer than {least} times: {missed:?}");
}
