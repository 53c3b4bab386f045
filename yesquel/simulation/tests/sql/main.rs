//! SQL on a simulated cluster, while the schema changes and faults strike.
//!
//! Clients are SQLite on threads that take turns with the simulation (`blocking.rs` there). They append
//! to lists in several tables, and read them: the history must be possible at the isolation level. They
//! change schemas and note the change in a row of the same transaction: each statement must see a schema
//! that fits the row. See `docs/yesquel/testing.md`.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod application;
mod client;
mod draw;
#[path = "../cluster/maintenance.rs"]
mod maintenance;
mod record;
mod steps;

use application::run_steps;
use draw::steps;
use record::WorkCounts;
use std::sync::Mutex;
use steps::Step;
use yesquel_seeds::check_steps;
use yesquel_simulation::EventCounts;

#[test]
fn sql_of_every_seed_is_right() {
    yesquel_sqlite::set_connector(application::connector);
    let all = Mutex::new((0, EventCounts::default(), WorkCounts::default()));
    check_steps(60, steps, |steps: &[Step]| {
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
        0..60 => return,
        60..1_000 => 3,
        _ => 100,
    };
    assert!(work.all().into_iter().all(|count| count >= least), "fewer than {least}: {work:?}");
}
