//! Command line, keys and costs of a bare loop.

use rustix::time::{ClockId, clock_gettime};
use std::{error::Error, time::Instant};

/// Returns the CPU time of this process, s.
fn processor_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Arguments of the command line.
pub(crate) struct BarePlan {
    /// Address of the store.
    pub(crate) address: String,
    pub(crate) clients: u64,
    pub(crate) operations: u64,
    pub(crate) records: u64,
}

pub(crate) fn plan() -> Result<BarePlan, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, clients, operations, records] = &arguments[..] else {
        return Err("arguments: ADDRESS CLIENTS OPERATIONS RECORDS".into());
    };
    Ok(BarePlan {
        address: address.clone(),
        clients: clients.parse()?,
        operations: operations.parse()?,
        records: records.parse()?,
    })
}

/// Returns the key of a record, chosen uniformly.
pub(crate) fn next_key(random: &mut u64, records: u64) -> String {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    format!("user{}", (*random >> 33) % records)
}

/// Time and CPU time since a start.
pub(crate) struct MeasuredCost {
    start: Instant,
    before: f64,
}

impl MeasuredCost {
    pub(crate) fn start() -> Self {
        MeasuredCost { start: Instant::now(), before: processor_s() }
    }

    /// Prints the cost of an operation, in the format that `cargo xtask bench
    /// bindings` reads.
    pub(crate) fn print(&self, operations: u64) {
        let (elapsed, used) = (self.start.elapsed().as_secs_f64(), processor_s() - self.before);
        println!(
            "{:.0} operations/s, {:.2} us of processor time an operation",
            operations as f64 / elapsed,
            used / operations as f64 * 1e6
        );
    }
}
