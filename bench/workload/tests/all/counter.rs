//! The acknowledged counter compared with a simple model, and under threads.

use proptest::prelude::*;
use serval_workload::distribution::AcknowledgedCounter;
use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    thread,
};

/// Keeps all outstanding keys and searches them.
struct Model {
    next: u64,
    outstanding: BTreeSet<u64>,
}

impl Model {
    fn last(&self) -> Option<u64> {
        self.outstanding.first().copied().unwrap_or(self.next).checked_sub(1)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn the_counter_equals_its_model(start in prop_oneof![Just(0u64), 0..1000u64, Just(1 << 62)], steps in prop::collection::vec(0usize..8, 0..300)) {
        let counter = AcknowledgedCounter::new(start, 8);
        let mut model = Model { next: start, outstanding: BTreeSet::new() };
        let mut keys = [None; 8];
        for client in steps {
            // A client with a key acknowledges it; others begin one.
            match keys[client].take() {
                Some(key) => {
                    counter.acknowledge(client, key);
                    model.outstanding.remove(&key);
                }
                None => {
                    let key = counter.begin(client);
                    prop_assert_eq!(key, model.next);
                    model.next += 1;
                    model.outstanding.insert(key);
                    keys[client] = Some(key);
                }
            }
            prop_assert_eq!(counter.last(), model.last());
            prop_assert_eq!(counter.end(), model.last().map_or(0, |last| last + 1));
        }
    }
}

#[test]
fn a_counter_starts_before_the_first_key() {
    assert_eq!(AcknowledgedCounter::new(0, 1).last(), None);
    assert_eq!(AcknowledgedCounter::new(5, 1).last(), Some(4));
    let counter = AcknowledgedCounter::new(0, 3);
    let keys = [counter.begin(0), counter.begin(1), counter.begin(2)];
    assert_eq!((keys, counter.clients()), ([0, 1, 2], 3));
    counter.acknowledge(2, 2);
    counter.acknowledge(1, 1);
    assert_eq!(counter.last(), None);
    counter.acknowledge(0, 0);
    assert_eq!(counter.last(), Some(2));
}

#[test]
#[should_panic(expected = "before it acknowledged")]
fn a_second_key_is_refused() {
    let counter = AcknowledgedCounter::new(0, 1);
    counter.begin(0);
    counter.begin(0);
}

#[test]
#[should_panic(expected = "did not begin")]
fn a_foreign_key_is_refused() {
    let counter = AcknowledgedCounter::new(0, 2);
    counter.begin(0);
    counter.acknowledge(1, 0);
}

/// Releases all threads of a round at the same moment. Spins, because threads
/// woken one by one would rarely overlap.
struct Gate {
    arrived: AtomicUsize,
    threads: usize,
}

impl Gate {
    fn new(threads: usize) -> Self {
        Gate { arrived: AtomicUsize::new(0), threads }
    }

    fn pass(&self) {
        let round = self.arrived.fetch_add(1, SeqCst) / self.threads;
        let mut spins = 0u32;
        while self.arrived.load(SeqCst) < (round + 1) * self.threads {
            spins += 1;
            if spins.is_multiple_of(100) {
                thread::yield_now();
            }
        }
    }
}

#[test]
fn concurrent_acknowledgements_are_never_early_and_never_decrease() {
    const EACH: u64 = 100_000;
    const START: u64 = 17;
    for clients in [2, 3, 8] {
        let counter = AcknowledgedCounter::new(START, clients);
        thread::scope(|scope| {
            for client in 0..clients {
                let counter = &counter;
                scope.spawn(move || {
                    let mut newest = START;
                    for turn in 0..EACH {
                        let key = counter.begin(client);
                        // An outstanding key of this client must not be acknowledged by
                        // any other.
                        for _ in 0..3 {
                            let end = counter.end();
                            assert!((newest..=key).contains(&end), "{end} is not in {newest}..={key}");
                            newest = end;
                        }
                        // Some take longer, so that others overtake them.
                        if (turn + client as u64).is_multiple_of(64) {
                            thread::yield_now();
                            assert!(counter.end() <= key);
                        }
                        counter.acknowledge(client, key);
                    }
                });
            }
        });
        assert_eq!(counter.end(), START + clients as u64 * EACH, "{clients} clients: too low");
    }
}

#[test]
fn with_all_clients_idle_every_key_is_acknowledged() {
    // One key per client and round: the end of each is the critical moment.
    const CLIENTS: usize = 2;
    const ROUNDS: u64 = 100_000;
    let counter = AcknowledgedCounter::new(0, CLIENTS);
    let gate = Gate::new(CLIENTS);
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (counter, gate) = (&counter, &gate);
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    gate.pass();
                    counter.acknowledge(client, counter.begin(client));
                    gate.pass();
                    if counter.end() != round * CLIENTS as u64 {
                        // No panic, because the other thread waits at the gate.
                        eprintln!("round {round}: {} is too low", counter.end());
                        std::process::abort();
                    }
                }
            });
        }
    });
}

mod interleavings {
    //! The algorithm step by step, in every interleaving of the steps of some
    //! clients. Confirms the proof, and that each of its premises is needed.

    use std::collections::HashSet;

    const NONE: u64 = u64::MAX;

    /// A fault injected into the algorithm.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Fault {
        No,
        /// No lower bound before a key is taken.
        NoBound,
        /// `next` is read after the slots.
        NextReadLast,
        /// `next` is read before the own slot is released.
        NextReadEarly,
        /// The slots are read before the own one is released.
        LateRelease,
        /// `end` is set instead of raised.
        EndSet,
    }

    #[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
    struct Client {
        step: usize,
        keys: usize,
        bound: u64,
        key: u64,
        next: u64,
        limit: u64,
    }

    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    struct State {
        next: u64,
        end: u64,
        slots: Vec<u64>,
        acknowledged: u64,
        clients: Vec<Client>,
    }

    impl State {
        /// One step of a client; `None` if it has none left.
        fn step(&self, who: usize, keys: usize, fault: Fault) -> Option<State> {
            let mut state = self.clone();
            let slots = self.slots.len();
            let client = &mut state.clients[who];
            if client.keys == keys {
                return None;
            }
            let scan = 7..7 + slots;
            match client.step {
                0 => client.bound = self.next,
                1 if fault == Fault::NoBound => {}
                1 => state.slots[who] = client.bound,
                2 => {
                    client.key = self.next;
                    state.next += 1;
                }
                3 => state.slots[who] = client.key,
                4 => client.next = self.next,
                5 => {
                    state.acknowledged |= 1 << client.key;
                    if fault != Fault::LateRelease {
                        state.slots[who] = NONE;
                    }
                }
                6 => {
                    if fault != Fault::NextReadEarly {
                        client.next = self.next;
                    }
                    client.limit = client.next;
                }
                step if scan.contains(&step) => {
                    let at = step - scan.start;
                    // Skips the own slot if it is still taken.
                    if !(fault == Fault::LateRelease && at == who) {
                        client.limit = client.limit.min(self.slots[at]);
                    }
                }
                _ => {
                    if fault == Fault::NextReadLast && client.limit >= client.next {
                        // No key was outstanding, so all keys handed out count.
                        client.limit = self.next;
                    }
                    if fault == Fault::LateRelease {
                        state.slots[who] = NONE;
                    }
                    state.end =
                        if fault == Fault::EndSet { client.limit } else { self.end.max(client.limit) };
                    *client = Client { keys: client.keys + 1, ..Client::default() };
                    return Some(state);
                }
            }
            client.step += 1;
            Some(state)
        }
    }

    /// Explores all interleavings. Returns their number and the first violation, if any.
    fn explore(clients: usize, keys: usize, fault: Fault) -> (usize, Option<&'static str>) {
        let start = State {
            next: 0,
            end: 0,
            slots: vec![NONE; clients],
            acknowledged: 0,
            clients: vec![Client::default(); clients],
        };
        let mut seen = HashSet::from([start.clone()]);
        let mut open = vec![start];
        while let Some(state) = open.pop() {
            let mut rests = true;
            for after in (0..clients).filter_map(|who| state.step(who, keys, fault)) {
                rests = false;
                if after.end < state.end {
                    return (seen.len(), Some("went back"));
                }
                let below = (1 << after.end) - 1;
                if after.acknowledged & below != below {
                    return (seen.len(), Some("early"));
                }
                if seen.insert(after.clone()) {
                    open.push(after);
                }
            }
            if rests && state.end != state.next {
                return (seen.len(), Some("too low"));
            }
        }
        (seen.len(), None)
    }

    #[test]
    fn the_algorithm_is_correct_in_every_interleaving() {
        for (clients, keys) in [(1, 3), (2, 1), (2, 3), (3, 1)] {
            let (states, wrong) = explore(clients, keys, Fault::No);
            assert_eq!(wrong, None, "{clients} clients, {keys} keys each");
            println!("{clients} clients, {keys} keys each: {states} states");
        }
    }

    #[test]
    fn every_order_of_steps_but_the_actual_one_fails() {
        assert_eq!(explore(2, 1, Fault::NoBound).1, Some("early"));
        assert_eq!(explore(2, 2, Fault::NextReadLast).1, Some("early"));
        assert_eq!(explore(2, 1, Fault::NextReadEarly).1, Some("too low"));
        assert_eq!(explore(2, 1, Fault::LateRelease).1, Some("too low"));
        assert_eq!(explore(2, 2, Fault::EndSet).1, Some("went back"));
    }
}
