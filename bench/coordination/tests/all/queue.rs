//! The queue in a real ZooKeeper: every item is taken once, by any consumer, and items beyond
//! the capacity are counted.
//!
//! `cargo xtask test` starts the server and names it in the environment; without it
//! these tests are ignored, and fail if they are run nevertheless.

use serval_coordination::{
    directory::DirectoryError,
    queue::{ITEM_MAX, QueueLocation, ZooKeeperQueue, remove},
};
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

/// Returns the location of a queue that only one test uses.
fn place(max: usize) -> Option<QueueLocation> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let Ok(cluster) = std::env::var("SERVAL_TEST_ZOOKEEPER") else {
        panic!("SERVAL_TEST_ZOOKEEPER is not set: 'cargo xtask test' starts the server and sets it");
    };
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let node = format!("/serval-queue-{}/{number}", std::process::id());
    Some(QueueLocation { cluster, node, timeout: Duration::from_secs(6), max })
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn every_item_is_taken_once_by_any_consumer() {
    const ITEMS: usize = 2000;
    let Some(place) = place(100_000) else { return };
    let producer = ZooKeeperQueue::open(&place, false).unwrap();
    let consumers = [0, 1].map(|_| ZooKeeperQueue::open(&place, true).unwrap());
    let mut taken = Vec::new();
    let mut sent = 0;
    while taken.len() < ITEMS {
        // At most as many in flight as the buffer can hold.
        while sent < ITEMS && sent < taken.len() + 500 {
            assert!(producer.offer(sent.to_string().into_bytes()));
            sent += 1;
        }
        for consumer in &consumers {
            taken.extend(std::iter::from_fn(|| consumer.take()));
        }
        std::thread::yield_now();
    }
    let mut numbers: Vec<usize> =
        taken.iter().map(|item| std::str::from_utf8(item).unwrap().parse().unwrap()).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..ITEMS));
    assert_eq!(producer.dropped(), 0);
    drop(consumers);
    assert_eq!(remove(&place).unwrap(), 0);
}

/// In an ensemble each end has its own server, which may lag behind the others.
#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER SERVAL_TEST_ZOOKEEPER_ENSEMBLE"]
fn a_drained_queue_is_empty() {
    const ITEMS: usize = 500;
    let Some(alone) = place(100_000) else { return };
    let servers = std::env::var("SERVAL_TEST_ZOOKEEPER_ENSEMBLE").unwrap_or(alone.cluster.clone());
    let at = |server: &str| QueueLocation { cluster: server.to_owned(), ..alone.clone() };
    let ends: Vec<QueueLocation> = servers.split(',').map(at).collect();
    let producer = ZooKeeperQueue::open(&ends[0], false).unwrap();
    let consumer = ZooKeeperQueue::open(ends.last().unwrap(), true).unwrap();
    assert!(consumer.take().is_none());
    for item in 0..ITEMS {
        assert!(producer.offer(item.to_string().into_bytes()));
    }
    producer.flush(Duration::from_secs(60));
    let mut taken = 0;
    while !consumer.drained() {
        taken += std::iter::from_fn(|| consumer.take()).count();
        std::thread::yield_now();
    }
    assert_eq!((taken, producer.dropped()), (ITEMS, 0));
    drop(consumer);
    assert_eq!(remove(&ends[0]).unwrap(), 0);
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn items_beyond_the_capacity_are_counted_and_leftovers_removed() {
    let Some(place) = place(10) else { return };
    let producer = ZooKeeperQueue::open(&place, false).unwrap();
    assert!(!producer.offer(vec![0; ITEM_MAX + 1]));
    for item in 0..100u8 {
        assert!(producer.offer(vec![item]));
    }
    producer.flush(Duration::from_secs(5));
    assert_eq!(producer.dropped(), 90);
    let consumer = ZooKeeperQueue::open(&place, true).unwrap();
    let first = loop {
        if let Some(item) = consumer.take() {
            break item;
        }
        std::thread::yield_now();
    };
    assert!(first[0] < 10);
    assert_eq!(consumer.earlier(), 10);
    drop(consumer);
    drop(producer);
    // Items delivered to a consumer are removed with it.
    assert!(remove(&place).unwrap() < 10);
    assert_eq!(remove(&place).unwrap(), 0);
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn an_unreachable_zookeeper_is_reported() {
    let unreachable = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let place =
        QueueLocation { cluster: unreachable, node: "x".to_owned(), timeout: Duration::from_secs(2), max: 1 };
    match ZooKeeperQueue::open(&place, true) {
        Err(DirectoryError::Unreachable { .. } | DirectoryError::Silent { .. }) => {}
        other => panic!("{other:?}"),
    }
}
