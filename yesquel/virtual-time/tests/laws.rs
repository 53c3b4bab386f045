//! Laws of queues that hold whatever the code under simulation does.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::{collections::BTreeMap, sync::Arc, time::Duration};
use yesquel::{Database, Map, Placement, ServerId, Techniques};
use yesquel_seeds::Random;
use yesquel_virtual_time::{
    ClientCosts, CostModel, LoadError, NetworkCosts, Quota, ServerCosts, VirtualClient, VirtualError,
    VirtualLoad, VirtualPlan, VirtualResult, run,
};

const KEYS: u64 = 600;

/// Reads or updates of a random key of a random map; there is one at each server.
struct MapLoad {
    servers: usize,
    updates: bool,
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn name(server: usize) -> String {
    format!("map-{server}")
}

impl VirtualLoad for MapLoad {
    fn set_up(&self, client: &VirtualClient) -> Result<(), LoadError> {
        let database = client.store().create_database_at("laws", &Placement::Tables)?;
        for server in 0..self.servers {
            let mut transaction = database.begin();
            let map = transaction.create_map_at(&database, ServerId(server as u16), &name(server))?;
            (0..KEYS).try_for_each(|number| transaction.put(map, &key(number), b"a value"))?;
            transaction.commit()?;
        }
        Ok(())
    }

    fn connect(&self, client: &VirtualClient) -> Result<(), LoadError> {
        let database = client.store().database("laws")?;
        let maps = (0..self.servers).map(|server| database.map(&name(server)));
        let maps: Vec<Map> = maps.collect::<Result<_, _>>()?;
        for map in maps.iter().filter(|_| client.number() == 0) {
            (0..KEYS).try_for_each(|number| database.get(*map, &key(number)).map(drop))?;
        }
        let mut random = Random::new(client.seed());
        client.run(|| {
            let map = maps[random.next(maps.len() as u64) as usize];
            self.statement(&database, map, &key(random.next(KEYS)))
        })
    }
}

impl MapLoad {
    fn statement(&self, database: &Database, map: Map, key: &[u8]) -> Result<(), LoadError> {
        if !self.updates {
            return database.get(map, key)?.map(drop).ok_or_else(|| "a key is missing".into());
        }
        let mut transaction = database.begin();
        transaction.put(map, key, b"another value")?;
        transaction.commit()?;
        Ok(())
    }
}

/// Costs whose sums are easy to see.
fn costs() -> CostModel {
    CostModel {
        measured: "by hand".to_owned(),
        server: ServerCosts {
            wake_us: 3.0,
            connection_us: 2.0,
            read_us: 10.0,
            write_us: 20.0,
            message_us: 0.0,
            kib_us: 0.0,
        },
        client: ClientCosts { request_us: 4.0, statements_us: BTreeMap::from([("map".to_owned(), 6.0)]) },
        network: NetworkCosts { one_way_us: 50.0, megabits_per_second: 1e6 },
    }
}

fn plan(servers: usize, processes: usize, connections: usize) -> VirtualPlan {
    VirtualPlan {
        servers,
        processes,
        connections,
        client_processors: 1,
        quota: None,
        statement: "map".to_owned(),
        techniques: Techniques::default(),
        caches_inner_nodes: true,
        ramp: Duration::from_millis(10),
        measured: Duration::from_millis(100),
        seed: 1,
    }
}

fn measured(plan: &VirtualPlan, costs: &CostModel, updates: bool) -> VirtualResult {
    run(plan, costs, Arc::new(MapLoad { servers: plan.servers, updates })).unwrap()
}

/// Checks what holds in each run without a quota.
fn check(result: &VirtualResult, service_us: f64) {
    // No processor is used more than there is time.
    let uses = result.server_use.iter().chain([&result.client_use]);
    uses.for_each(|used| assert!((0.0..=1.0).contains(used), "{result:?}"));
    // Little's law for a closed loop without think time.
    let in_flight = result.throughput() * result.mean_us / 1e6;
    let expected = result.connections as f64;
    assert!((in_flight / expected - 1.0).abs() < 0.03, "{in_flight} of {expected} in flight: {result:?}");
    // No server answers faster than it serves.
    let most = result.server_use.len() as f64 * 1e6 / service_us;
    assert!(result.throughput() <= most * 1.001, "{} of {most}: {result:?}", result.throughput());
    assert!(result.requests.iter().sum::<u64>() as f64 >= result.statements as f64 * 0.99, "{result:?}");
}

#[test]
fn runs_obey_the_laws_of_queues() {
    for (updates, service_us) in [(false, 10.0), (true, 20.0)] {
        for (servers, processes, connections) in [(1, 1, 4), (1, 3, 8), (3, 4, 6)] {
            let result = measured(&plan(servers, processes, connections), &costs(), updates);
            check(&result, service_us);
        }
    }
}

#[test]
fn a_lone_client_waits_for_the_sum_of_the_costs() {
    for (updates, service_us) in [(false, 10.0), (true, 20.0)] {
        let result = measured(&plan(1, 1, 1), &costs(), updates);
        // Statement, request, both ways, waking, connection, service.
        let expected = 6.0 + 4.0 + 100.0 + 3.0 + 2.0 + service_us;
        assert!((result.p50_us / expected - 1.0).abs() < 0.002, "{expected}: {result:?}");
        assert!((result.batch - 1.0).abs() < 0.05, "{result:?}");
    }
}

#[test]
fn a_saturated_server_shares_its_overhead_among_the_requests() {
    let result = measured(&plan(1, 8, 16), &costs(), false);
    check(&result, 10.0);
    assert!(result.server_use[0] > 0.99, "{result:?}");
    let overhead_us = 2.0 / result.connection_batch;
    let expected = 1e6 / (10.0 + overhead_us);
    assert!((result.throughput() / expected - 1.0).abs() < 0.01, "{expected}: {result:?}");
    assert!(result.connection_batch > 1.5, "{result:?}");
}

#[test]
fn a_seed_has_one_result() {
    let plan = plan(2, 2, 5);
    let [one, same, other] = [1, 1, 2].map(|seed| {
        let plan = VirtualPlan { seed, ..plan.clone() };
        measured(&plan, &costs(), true)
    });
    assert_eq!(one, same);
    assert_ne!(one, other);
}

#[test]
fn a_quota_is_the_servers_part_of_the_throughput() {
    let (period_ns, share_ns) = (20_000_000, 2_000_000);
    let free = plan(1, 8, 16);
    let limited = VirtualPlan {
        quota: Some(Quota { period_ns, share_ns, tick_ns: 1_000_000 }),
        ramp: Duration::from_millis(100),
        measured: Duration::from_secs(2),
        ..free.clone()
    };
    let (free, limited) = (measured(&free, &costs(), false), measured(&limited, &costs(), false));
    assert!((limited.server_use[0] - 0.1).abs() < 0.005, "{limited:?}");
    // Requests wait together, so the overhead is less.
    let part = limited.throughput() / free.throughput();
    assert!((0.095..0.13).contains(&part), "{part}: {free:?} {limited:?}");
    assert!(limited.p99_us > 15_000.0, "{limited:?}");
}

#[test]
fn throughput_grows_with_the_servers() {
    let [one, four] = [1, 4].map(|servers| measured(&plan(servers, 4 * servers, 8), &costs(), false));
    let efficiency = four.throughput() / one.throughput() / 4.0;
    assert!((0.85..=1.02).contains(&efficiency), "{efficiency}: {one:?} {four:?}");
    assert!(four.busiest() < 1.1, "{four:?}");
}

#[test]
fn without_caches_a_read_asks_for_the_root_too() {
    let cached = plan(1, 2, 2);
    let bare = VirtualPlan { caches_inner_nodes: false, ..cached.clone() };
    let [cached, bare] = [&cached, &bare].map(|plan| {
        let result = measured(plan, &costs(), false);
        result.requests.iter().sum::<u64>() as f64 / result.statements as f64
    });
    assert!((0.98..1.02).contains(&cached), "{cached}");
    assert!(bare > 1.9, "{bare}");
}

#[test]
fn what_cannot_be_run_is_refused() {
    let load = || Arc::new(MapLoad { servers: 1, updates: false });
    let refused = |plan: &VirtualPlan| run(plan, &costs(), load()).unwrap_err();
    assert!(matches!(refused(&plan(0, 1, 1)), VirtualError::Plan(_)));
    assert!(matches!(refused(&plan(1, 1_000, 1_000)), VirtualError::Plan(_)));
    let unknown = VirtualPlan { statement: "other".to_owned(), ..plan(1, 1, 1) };
    assert!(matches!(refused(&unknown), VirtualError::Costs(_)));
    // A client that fails ends the run.
    let other = run(&plan(2, 1, 2), &costs(), Arc::new(MapLoad { servers: 3, updates: false }));
    assert!(matches!(other.unwrap_err(), VirtualError::Client(_)));
}
