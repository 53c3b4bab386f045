//! Measurements on stores with known visibility delays.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use common::{Run, run};
use serval_lag::analysis::verdicts;
use serval_synthetic::{ServiceDistribution, Staleness};
use std::collections::HashMap;

const MS: u64 = 1_000_000;

/// The paper's lag is the delay minus the hand-over, up to a poll and the time of a read. The bounds
/// contain the delay of each key.
#[test]
fn inserts_are_found_after_their_delay() {
    for (shape, mean) in [
        (ServiceDistribution::Constant, 50),
        (ServiceDistribution::Exponential, 50),
        (ServiceDistribution::Exponential, 3),
    ] {
        let run = run(&Run { delay: (shape, mean * MS), ..Run::inserts(2000) });
        let delays: HashMap<&str, u64> =
            run.log.iter().map(|(key, _, delay)| (key.as_str(), *delay)).collect();
        let parts = [run.part];
        let verdicts = verdicts(&parts);
        assert_eq!(verdicts.len(), 2000, "{shape:?}");
        let (mut at_once, mut slack) = (0, 0);
        for (trial, verdict) in verdicts {
            let delay = delays[trial.item.key.as_str()];
            let (lower, upper) = (verdict.lower.unwrap(), verdict.upper.unwrap());
            assert!(lower <= delay && delay <= upper, "{lower} <= {delay} <= {upper}");
            let hand_over = verdict.hand_over.unwrap();
            match verdict.poll {
                None => {
                    at_once += 1;
                    assert_eq!(verdict.lag, Some(0));
                    assert!(delay <= upper);
                }
                Some(poll) => {
                    let off = verdict.lag.unwrap() as i64 - (delay - hand_over) as i64;
                    // A read takes at most 1 ms and may see a write that became visible during it.
                    assert!(-(MS as i64) <= off && off <= poll as i64, "{off} of {poll}");
                    slack = slack.max(poll);
                }
            }
        }
        // Nearly always, since other keys may be read first.
        assert!(slack < 30 * MS, "{slack}");
        assert_eq!(run.result.keys.at_once, at_once);
        assert_eq!((run.result.keys.later, run.result.keys.censored), (2000 - at_once, 0));
        assert_eq!(run.result.writes.not_carried, 0);
        if shape == ServiceDistribution::Constant {
            assert_eq!(at_once, 0);
        }
    }
}

/// A store that delays without any guarantee violates all of them; one that does not delay keeps all.
#[test]
fn a_consistent_store_violates_nothing() {
    for updates in [false, true] {
        let run = run(&Run {
            writers: 4,
            consumers: 3,
            delay: (ServiceDistribution::Constant, 0),
            read_back: 0.5,
            ..Run::mixed(updates)
        });
        let versions = run.result.versions.unwrap();
        assert!(versions.read_your_writes.checked > 100, "{versions:?}");
        assert!(versions.monotonic_writes.checked > 100, "{versions:?}");
        for violations in [versions.read_your_writes, versions.monotonic_reads, versions.monotonic_writes] {
            assert_eq!((violations.violations, violations.undecided), (0, 0), "{versions:?}");
        }
        assert_eq!((versions.stale().1, versions.undecided), (0, 0));
        assert!(versions.last_stale.is_none());
        assert_eq!(run.result.keys.later + run.result.keys.censored + run.result.keys.undecided, 0);
    }
}

#[test]
fn a_store_that_delays_in_order_is_stale_and_keeps_monotonic_guarantees() {
    let run = run(&Run {
        writers: 4,
        consumers: 3,
        delay: (ServiceDistribution::Exponential, 20 * MS),
        read_back: 0.5,
        ..Run::mixed(true)
    });
    let versions = run.result.versions.unwrap();
    assert!(versions.read_your_writes.violations > 50, "{:?}", versions.read_your_writes);
    assert!(versions.monotonic_reads.checked > 100);
    assert_eq!((versions.monotonic_reads.violations, versions.monotonic_writes.violations), (0, 0));
    assert!(versions.stale().1 > 50 && versions.behind.len() > 2);
    let last = versions.last_stale.unwrap();
    // Delays of one key add up: each write waits for those before it.
    assert!(last.count > 50 && last.max_ns < 500 * MS, "{}", last.max_ns);
}

#[test]
fn occasional_old_versions_are_detected() {
    let staleness = Staleness { one_behind: 0.05, torn: 0.0 };
    let old = run(&Run {
        staleness,
        consumers: 2,
        delay: (ServiceDistribution::Constant, 0),
        read_back: 0.5,
        again: 1.0,
        ..Run::mixed(true)
    });
    let versions = old.result.versions.unwrap();
    assert!(versions.monotonic_reads.violations > 20, "{versions:?}");
    assert!(versions.read_your_writes.violations > 10, "{versions:?}");
    let (all, stale) = versions.stale();
    // One read in twenty, of those with an earlier version of this run.
    assert!((0.03..0.07).contains(&(stale as f64 / all as f64)), "{stale} of {all}");
    assert!(versions.behind.iter().all(|behind| behind.versions <= 1), "{:?}", versions.behind);
    let staleness = Staleness { one_behind: 0.0, torn: 0.2 };
    let torn =
        run(&Run { staleness, delay: (ServiceDistribution::Constant, 0), again: 1.0, ..Run::mixed(true) });
    assert!(torn.result.versions.unwrap().monotonic_writes.violations > 10);
}

#[test]
fn keys_not_found_in_time_are_censored() {
    let run = run(&Run {
        delay: (ServiceDistribution::Exponential, 2000 * MS),
        ends_after: 3000 * MS,
        ..Run::inserts(1000)
    });
    let keys = &run.result.keys;
    assert!(keys.censored > 100 && keys.at_once + keys.later + keys.censored == keys.tried, "{keys:?}");
    // The theoretical curve, within five standard errors of a share of a thousand keys, and a poll.
    let survival = run.result.survival.unwrap();
    for t in [500 * MS, 1000 * MS, 1500 * MS] {
        let law = (-(t as f64) / (2000.0 * MS as f64)).exp();
        for curve in [&survival.lower, &survival.upper] {
            let share = serval_result::lag::Survival::at(curve, t);
            assert!((share - law).abs() < 5.0 * 0.5 / 1000f64.sqrt(), "{share} for {law} at {t}");
        }
    }
}

#[test]
fn items_refused_by_the_queue_are_counted() {
    // The only consumer starts late.
    let run = run(&Run { queue_max: 10, consumers: 0, ..Run::inserts(500) });
    assert_eq!((run.result.writes.acknowledged, run.result.writes.carried), (500, 10));
    assert_eq!((run.result.writes.not_carried, run.result.keys.tried), (490, 0));
}

#[test]
fn items_left_in_the_queue_are_counted() {
    // Four writers write more than one consumer can read.
    let run = run(&Run { writers: 4, consumers: 1, ends_after: 100 * MS, ..Run::inserts(500) });
    let (keys, writes) = (&run.result.keys, &run.result.writes);
    assert!(keys.not_taken > 50, "{keys:?} of {writes:?}");
    assert_eq!(keys.tried + keys.unread + keys.not_taken, writes.carried);
}

#[test]
fn the_same_seed_gives_the_same_result() {
    let once = || run(&Run { delay: (ServiceDistribution::Exponential, 20 * MS), ..Run::mixed(true) }).result;
    assert_eq!(once(), once());
}
