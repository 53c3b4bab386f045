//! A group of three or five replicas under faults, in virtual time.
//!
//! At all times: one leader a term; a leader has every committed entry; logs that agree at an index
//! agree below it; all replicas apply the same entries and have the same states; what was
//! acknowledged is committed; a read sees all that was acknowledged before it. After the faults end
//! the group makes progress within a bounded time.
//!
//! `SEEDS=from..to` chooses seeds; each is ten minutes of virtual time. With `--nocapture` the counts
//! are shown.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
#![allow(unreachable_pub, reason = "modules of one test")]

mod counts;
mod faults;
mod ledger;
mod machine;
mod network;
mod world;

use counts::FaultCounts;
use std::cell::RefCell;
use world::World;
use yesquel_seeds::check_seeds;

/// Faults last so long, then the group recovers.
const FAULTS_US: u64 = 50_000_000;
/// Longest time to progress after the faults.
const RECOVERY_US: u64 = 60_000_000;
const ROUNDS: u64 = 10;

fn run(seed: u64, rounds: u64) -> World {
    let mut world = World::new(seed);
    world.is_faulty = true;
    for _ in 0..rounds {
        let until = world.queue.now() + FAULTS_US;
        world.run_until(until);
        world.heal(RECOVERY_US);
    }
    world.compare_logs();
    world
}

#[test]
fn a_group_keeps_its_promises() {
    let total = RefCell::new(FaultCounts::default());
    check_seeds(4, |seed| {
        let world = run(seed, ROUNDS);
        let mut total = total.borrow_mut();
        let before = total.get("longest recovery in ms");
        total.merge(&world.counts);
        let longest = before.max(world.counts.get("longest recovery in ms"));
        total.0.insert("longest recovery in ms", longest);
        total.add("virtual seconds", world.queue.now() / 1_000_000);
        total.one("seeds");
    });
    total.borrow().print();
}

#[test]
fn a_seed_runs_the_same_again() {
    let [one, again] = [run(77, 3), run(77, 3)];
    assert_eq!((one.digest, one.counts), (again.digest, again.counts));
}
