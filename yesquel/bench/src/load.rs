//! Loads on one table.

use crate::{
    LoadWorkload, Result, cluster,
    measure::{LoadSchedule, measure},
    plan::LoadPlan,
    target::{LoadClient, ThreadConnections, key},
    worker::{LAST, LoadWorker},
};
use std::{
    sync::atomic::Ordering::Relaxed,
    thread,
    time::{Duration, Instant},
};
use yesquel::status::RequestStatus;
use yesquel_seeds::Random;

/// Time limit for a started server to recover its data.
const READY_MAX: Duration = Duration::from_secs(300);

/// Waits until a server has recovered.
pub(crate) fn wait(plan: &LoadPlan) -> Result<serde_json::Value> {
    let begun = Instant::now();
    loop {
        let asked = ThreadConnections::connect(&plan.target).and_then(|shared| match shared.client()? {
            LoadClient::Yesquel(database, map) => Ok(database.get(map, &key(0))?.is_some()),
            LoadClient::Sql(mut sql) => sql.read(0),
            LoadClient::Redis(mut redis) => Ok(redis.get(&key(0))?),
        });
        match asked {
            Ok(true) => return Ok(serde_json::json!({ "seconds": begun.elapsed().as_secs_f64() })),
            Ok(false) => return Err("it has forgotten what it had stored".into()),
            // Not listening yet, or still recovering.
            Err(error) if begun.elapsed() > READY_MAX => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(5)),
        }
    }
}

pub(crate) fn run(plan: &LoadPlan) -> Result<serde_json::Value> {
    let shared = (0..plan.clients.clamp(1, plan.threads)).map(|_| ThreadConnections::connect(&plan.target));
    let shared: Vec<ThreadConnections> = shared.collect::<Result<_>>()?;
    if matches!(plan.workload, LoadWorkload::InsertMono | LoadWorkload::InsertMonoRead) {
        // Above the existing keys, and in a separate range for each process.
        LAST.store(plan.keys + (plan.process << 40), Relaxed);
    }
    let worker = |thread: u32| -> Result<LoadWorker<'_>> {
        Ok(LoadWorker {
            plan,
            client: shared[thread as usize % shared.len()].client()?,
            thread: plan.process * u64::from(plan.threads) + u64::from(thread),
            random: Random::new(plan.process << 32 | u64::from(thread)),
            value: vec![b'v'; plan.value_bytes],
            aborts: 0,
            keys: Vec::new(),
        })
    };
    let schedule = LoadSchedule {
        threads: plan.threads,
        warm_up: plan.warm_up,
        measured: (!plan.is_load()).then_some(plan.measured),
        rate: plan.rate,
    };
    measure(&schedule, worker, || requests(&shared[0]))
}

/// Returns the request counts of all servers so far.
fn requests(shared: &ThreadConnections) -> Result<RequestStatus> {
    match shared {
        ThreadConnections::Yesquel(database, _) => cluster::requests(database.store()),
        ThreadConnections::Sql(_, Some(store)) => cluster::requests(store),
        ThreadConnections::Sql(_, None) | ThreadConnections::Redis(_) => Ok(RequestStatus::default()),
        #[cfg(feature = "mariadb")]
        ThreadConnections::Maria(_) => Ok(RequestStatus::default()),
    }
}
