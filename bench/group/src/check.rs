//! Plans that a group of processes cannot perform.

use serval_lag::properties as lag;
use serval_model::{
    Share,
    properties::{Faults, Origin, Properties, Property, Reader},
};
use serval_plan::{Plan, PlanRequest, embedded::EmbeddedStore, properties as p};
use serval_stores::StoreInfo;

/// Returns the number of clients of a group that consume.
pub(crate) fn consumers(properties: &Properties) -> usize {
    Reader::new(properties).count(&lag::CONSUMER_CLIENTS) as usize
}

/// The store whose records end with the process, so that each part of the work has its own.
const MEMORY: &str = "memory";

/// Returns why clients of a group cannot share a store with these properties; `None` if they can.
pub fn unshared(store: &StoreInfo, properties: &Properties) -> Option<Faults> {
    if store.name == MEMORY {
        return Some(Faults::one(
            "memory: each client of a group would have records of its own, and lose them with its part of the work: use a \
             store that is a server",
        ));
    }
    let embedded = EmbeddedStore::of(store, properties)?;
    Some(Faults::one(format!(
        "{}: the path of this embedded store is not set, so each client of a group would have one of its own: use a store \
         that is a server, or set {}",
        store.name, embedded.property
    )))
}

/// Refuses plans that this number of processes cannot perform together.
///
/// # Errors
///
/// A fault for each setting concerned.
pub fn check(plan: &Plan, raw: bool, clients: usize) -> Result<(), Faults> {
    let mut faults = unshared(plan.store, &plan.properties).unwrap_or_default();
    let mut refuse = |property: &Property, problem: &str| {
        faults.0.push(plan.properties.fault_of(property, format!("{}: {problem}", property.name)));
    };
    if plan.output.measurement_type != "hdrhistogram" {
        refuse(&p::MEASUREMENT_TYPE, "raw times and YCSB's older types need a single process");
    }
    if plan.options.share != Share::WHOLE {
        refuse(&p::SHARE, "a group divides the work itself");
    }
    let consumers = consumers(&plan.properties);
    if consumers > 0 && consumers >= clients {
        refuse(
            &lag::CONSUMER_CLIENTS,
            "must be below the number of clients, since at least one client writes",
        );
    }
    if raw {
        faults.push("--raw: raw times need a single process");
    }
    // The faults that clients would find in their shares; the first share is the smallest.
    let producers = clients.saturating_sub(consumers).max(1) as u64;
    if let Some(first) = Share::new(0, producers).filter(|_| faults.0.is_empty()) {
        let mut properties = plan.properties.clone();
        properties.set(p::SHARE.name, first.to_string(), Origin::Program("a client's part"));
        let request = PlanRequest { properties, phase: plan.phase, store: plan.store, strict: false };
        faults.take(Plan::new(request));
    }
    faults.or(())
}
