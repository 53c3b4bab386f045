//! Facts about this process for its group.

use serval_coordination::message::ClientFacts;

/// Returns facts about this process.
pub(crate) fn facts() -> ClientFacts {
    let environment = serval_plan::environment();
    ClientFacts {
        host: environment.host,
        process: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        processors: std::thread::available_parallelism().map_or(1, |count| count.get() as u64),
        stores: serval_stores::STORES.iter().map(|store| store.name.to_owned()).collect(),
    }
}
