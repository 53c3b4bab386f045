//! The engine against a reference: a list of everything committed.
//!
//! The reference knows no node layout, no versions and no marks. It finds what a snapshot sees by
//! walking the list, and conflicts by the table of `docs/yesquel/nodes.md`. Nodes are only a map
//! from keys to the node that answers for them over time, so that a split must be invisible except
//! for `Moved`.
//!
//! A seed draws a list of steps; `SEEDS=from..to` chooses seeds. A failing list is shortened before
//! it is printed.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod canonical;
#[path = "../common/mod.rs"]
mod common;
mod reference;
mod run;
mod steps;

use run::Run;
use steps::{Step, steps};
use yesquel_seeds::check_steps;

#[test]
fn every_seed_agrees_with_the_reference() {
    check_steps(10_000, steps, |steps: &[Step]| {
        let mut run = Run::new();
        steps.iter().for_each(|step| run.step(step));
        run.end();
    });
}
