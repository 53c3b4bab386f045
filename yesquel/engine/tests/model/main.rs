//! The engine against a plain reference: a list of all that was committed.
//!
//! The reference knows no nodes' insides, no versions and no marks. What a
//! snapshot sees is found by going through the list, what is in a
//! transaction's way by the table of `docs/yesquel/nodes.md`. Nodes are only
//! a map of who answers for which keys since when, so that a split must be
//! invisible but for `Moved`.
//!
//! A seed makes a list of steps; `SEEDS=from..to` chooses seeds. A failing
//! list is shortened before it is shown.

#![allow(clippy::unwrap_used, reason = "a failure is what a test is for")]

#[path = "../common/mod.rs"]
mod common;
mod reference;
mod run;
mod steps;

use run::Run;
use steps::{Step, steps};
use yesquel_seeds::check_steps;

#[test]
fn every_seed_does_as_the_reference() {
    check_steps(10_000, steps, |steps: &[Step]| {
        let mut run = Run::new();
        steps.iter().for_each(|step| run.step(step));
        run.end();
    });
}
