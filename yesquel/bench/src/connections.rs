//! Cost of a connection by SQLite's interface: time until its first SELECT is answered, and its
//! memory while idle.

use crate::{
    Result,
    sql::{self, SqlLocation},
};
use hdrhistogram::Histogram;
use rusqlite::Connection;
use serde_json::{Value, json};
use std::{fs, time::Instant};

/// What to measure.
pub(crate) struct ConnectionPlan {
    pub(crate) place: SqlLocation,
    /// Number of connections.
    pub(crate) count: u64,
    /// Process of the server, whose memory is measured too.
    pub(crate) server: Option<u32>,
}

/// Opens a connection and reads a row.
fn open(place: &SqlLocation) -> Result<Connection> {
    let connection = place.open()?;
    if sql::first_read(&connection, 0)? { Ok(connection) } else { Err("the first row is missing".into()) }
}

/// Times of opening and closing, in nanoseconds.
struct OpenTimes {
    open: Histogram<u64>,
    close: Histogram<u64>,
}

impl OpenTimes {
    fn measure(place: &SqlLocation, count: u64) -> Result<OpenTimes> {
        let new = || Histogram::new_with_max(60_000_000_000, 3);
        let mut times = OpenTimes { open: new()?, close: new()? };
        for _ in 0..count {
            let begun = Instant::now();
            let connection = open(place)?;
            times.open.saturating_record(begun.elapsed().as_nanos() as u64);
            let begun = Instant::now();
            connection.close().map_err(|(_, error)| error)?;
            times.close.saturating_record(begun.elapsed().as_nanos() as u64);
        }
        Ok(times)
    }

    fn json(&self) -> Value {
        let us = |times: &Histogram<u64>, quantile| times.value_at_quantile(quantile) as f64 / 1_000.0;
        json!({
            "p50_us": us(&self.open, 0.5),
            "p99_us": us(&self.open, 0.99),
            "max_us": us(&self.open, 1.0),
            "close_p50_us": us(&self.close, 0.5),
        })
    }
}

/// Opens and closes connections, first while the process has no other connection to the store, then
/// while it has one.
pub(crate) fn times(plan: &ConnectionPlan) -> Result<Value> {
    let begun = Instant::now();
    let first = open(&plan.place)?;
    let first_us = begun.elapsed().as_secs_f64() * 1e6;
    drop(first);
    let alone = OpenTimes::measure(&plan.place, plan.count)?;
    let held = open(&plan.place)?;
    let beside = OpenTimes::measure(&plan.place, plan.count)?;
    drop(held);
    Ok(json!({ "first_us": first_us, "alone": alone.json(), "beside": beside.json() }))
}

/// Memory of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ProcessMemory {
    /// Resident memory.
    resident: i64,
    /// Anonymous memory, without files such as the program.
    own: i64,
}

impl ProcessMemory {
    /// Parses /proc/PID/status.
    fn parse(status: &str) -> Option<ProcessMemory> {
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.trim().split(' ').next()?.parse::<i64>().ok().map(|kib| kib * 1_024)
        };
        Some(ProcessMemory { resident: bytes("VmRSS")?, own: bytes("RssAnon")? })
    }

    fn of(process: &str) -> Result<ProcessMemory> {
        let path = format!("/proc/{process}/status");
        ProcessMemory::parse(&fs::read_to_string(&path)?)
            .ok_or_else(|| format!("{path} is not understood").into())
    }
}

/// Returns how much the process and its server grow by the first connection, and by each later one;
/// all stay open.
pub(crate) fn memory(plan: &ConnectionPlan) -> Result<Value> {
    let sizes = || -> Result<(ProcessMemory, ProcessMemory)> {
        let server = plan.server.map(|server| ProcessMemory::of(&server.to_string())).transpose()?;
        Ok((ProcessMemory::of("self")?, server.unwrap_or_default()))
    };
    let mut connections = Vec::with_capacity(plan.count as usize + 1);
    // The measurement itself allocates, too.
    sizes()?;
    let before = sizes()?;
    connections.push(open(&plan.place)?);
    let first = sizes()?;
    for _ in 0..plan.count {
        connections.push(open(&plan.place)?);
    }
    let all = sizes()?;
    let each = |bytes: i64| bytes as f64 / plan.count as f64;
    Ok(json!({
        "first_bytes": first.0.resident - before.0.resident,
        "first_own_bytes": first.0.own - before.0.own,
        "more_bytes": each(all.0.resident - first.0.resident),
        "server_first_bytes": first.1.resident - before.1.resident,
        "server_more_bytes": each(all.1.resident - first.1.resident),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_in_kib() {
        let status =
            "Name:\tyesquel\nVmHWM:\t    9000 kB\nVmRSS:\t    8200 kB\nRssAnon:\t    3100 kB\nThreads:\t3\n";
        assert_eq!(
            ProcessMemory::parse(status),
            Some(ProcessMemory { resident: 8_200 * 1_024, own: 3_100 * 1_024 })
        );
        assert_eq!(ProcessMemory::parse("VmRSS:\t1 kB\n"), None);
        assert!(ProcessMemory::of("self").unwrap().own > 10_000);
    }
}
