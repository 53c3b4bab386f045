//! Clients without a coordinator meet at a barrier and leave it together.

use crate::common::{root, zookeeper};
use serval_coordination::barrier::{Barrier, BarrierError, Meeting};
use std::{
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    thread,
    time::Duration,
};

fn meeting(cluster: &str, place: &str, size: usize, number: usize) -> Meeting {
    Meeting {
        cluster: cluster.to_owned(),
        place: format!("{place}-run"),
        size,
        name: format!("host (process {number})"),
        wait: Duration::from_secs(30),
        timeout: Duration::from_secs(6),
    }
}

fn never() -> bool {
    false
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn processes_start_when_the_last_joins_and_leave_when_the_last_is_done() {
    let Some(cluster) = zookeeper() else { return };
    let place = root();
    // The same place twice: the second meeting must not see leftovers of the first.
    for round in 0..2 {
        let (came, left) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for number in 0..3 {
                let (cluster, place, came, left) = (&cluster, &place, &came, &left);
                scope.spawn(move || {
                    let barrier = Barrier::new(meeting(cluster, place, 3, number)).unwrap();
                    came.fetch_add(1, SeqCst);
                    let mut names = barrier.enter(&never).unwrap();
                    assert_eq!(came.load(SeqCst), 3, "round {round}");
                    names.sort();
                    assert_eq!(names, ["host (process 0)", "host (process 1)", "host (process 2)"]);
                    left.fetch_add(1, SeqCst);
                    assert_eq!(barrier.leave(None, &never).unwrap(), [""; 0]);
                    assert_eq!(left.load(SeqCst), 3, "round {round}");
                });
            }
        });
    }
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn a_dead_process_is_named_and_not_waited_for() {
    let Some(cluster) = zookeeper() else { return };
    let place = root();
    let barriers: Vec<Barrier> =
        (0..3).map(|number| Barrier::new(meeting(&cluster, &place, 3, number)).unwrap()).collect();
    thread::scope(|scope| {
        for barrier in &barriers {
            scope.spawn(|| barrier.enter(&never).unwrap());
        }
    });
    let mut barriers = barriers.into_iter();
    drop(barriers.next());
    thread::scope(|scope| {
        for barrier in barriers {
            scope.spawn(move || assert_eq!(barrier.leave(None, &never).unwrap(), ["host (process 0)"]));
        }
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn a_timeout_lists_the_present_processes_without_dead_ones() {
    let Some(cluster) = zookeeper() else { return };
    let place = root();
    let soon = |number| Meeting { wait: Duration::from_millis(300), ..meeting(&cluster, &place, 2, number) };
    // The first leaves before the second arrives.
    for number in 0..2 {
        let barrier = Barrier::new(soon(number)).unwrap();
        match barrier.enter(&never) {
            Err(BarrierError::Missing { came: 1, size: 2, names, .. }) => {
                assert_eq!(names, [format!("host (process {number})")]);
            }
            other => panic!("{other:?}"),
        }
    }
    // One process more than the barrier expects.
    let barriers: Vec<Barrier> = (0..2).map(|number| Barrier::new(soon(number)).unwrap()).collect();
    thread::scope(|scope| {
        for barrier in &barriers {
            scope.spawn(|| barrier.enter(&never).unwrap());
        }
    });
    let third = Barrier::new(soon(2)).unwrap();
    assert!(matches!(third.enter(&never), Err(BarrierError::Full { size: 2, .. })));
    // A live process that does not leave.
    let staying = barriers[0].leave(Some(Duration::from_millis(200)), &never);
    assert!(
        matches!(staying, Err(BarrierError::Staying { ref names, .. }) if names == &["host (process 1)"])
    );
    assert!(matches!(barriers[0].leave(None, &|| true), Err(BarrierError::Interrupted)));
}
