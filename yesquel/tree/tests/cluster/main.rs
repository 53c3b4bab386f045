//! Trees at several servers, whose clients, network, disks and clocks are
//! simulated, against a plain reference.
//!
//! Clients run transactions over trees at three servers, whose nodes split and
//! go; connections are slow, overtake each other and are cut; servers cannot be
//! reached, fall with what their disks had not synced, and come back; clients
//! die between the two phases of a commit. All that was read at any snapshot,
//! and all that is there in the end, must be what the committed transactions
//! say, in the order of their times. `docs/yesquel/testing.md` has the rest.
//!
//! A seed makes a list of steps; `SEEDS=from..to` chooses seeds. A failing list
//! is shortened before it is shown.

#![allow(clippy::unwrap_used, reason = "a failure is what a test is for")]

mod clients;
mod disk;
mod laws;
mod network;
mod reference;
mod run;
mod server;
mod steps;
mod world;

use std::sync::Mutex;
use steps::{Step, steps};
use world::Counts;
use yesquel_seeds::check_steps;

#[test]
fn every_seed_does_as_the_reference() {
    let all = Mutex::new((0, Counts::default()));
    check_steps(2_000, steps, |steps: &[Step]| {
        let counts = run::run(steps);
        let mut all = all.lock().unwrap();
        all.0 += 1;
        all.1.add(&counts);
    });
    let (runs, counts) = *all.lock().unwrap();
    println!("{runs} runs: {counts:?}");
    // Of few seeds nothing can be asked.
    assert!(runs < 2_000 || counts.least() > 100, "{counts:?}");
}
