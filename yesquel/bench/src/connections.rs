//! What a connection by SQLite's interface takes: time until its first SELECT
//! is answered, and memory while it does nothing.

use crate::{
    Result,
    sql::{self, Place},
};
use hdrhistogram::Histogram;
use rusqlite::Connection;
use serde_json::{Value, json};
use std::{fs, time::Instant};

/// What is to be measured.
pub(crate) struct Plan {
    pub(crate) place: Place,
    /// How many connections.
    pub(crate) count: u64,
    /// The process of the server, whose memory is looked at too.
    pub(crate) server: Option<u32>,
}

/// Opens a connection and reads a row, as what just wants one does.
fn open(place: &Place) -> Result<Connection> {
    let connection = place.open()?;
    if sql::first_read(&connection, 0)? { Ok(connection) } else { Err("the first row is missing".into()) }
}

/// Times of opening and of closing again, in nanoseconds.
struct Times {
    open: Histogram<u64>,
    close: Histogram<u64>,
}

impl Times {
    fn measure(place: &Place, count: u64) -> Result<Times> {
        let new = || Histogram::new_with_max(60_000_000_000, 3);
        let mut times = Times { open: new()?, close: new()? };
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

/// Opens and closes, first where the process has no other connection to the
/// store, then where it has one.
pub(crate) fn times(plan: &Plan) -> Result<Value> {
    let begun = Instant::now();
    let first = open(&plan.place)?;
    let first_us = begun.elapsed().as_secs_f64() * 1e6;
    drop(first);
    let alone = Times::measure(&plan.place, plan.count)?;
    let held = open(&plan.place)?;
    let beside = Times::measure(&plan.place, plan.count)?;
    drop(held);
    Ok(json!({ "first_us": first_us, "alone": alone.json(), "beside": beside.json() }))
}

/// Memory of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Size {
    /// All of it that is there.
    resident: i64,
    /// Without what is only looked at in files, such as the program itself.
    own: i64,
}

impl Size {
    /// By /proc/PID/status.
    fn parse(status: &str) -> Option<Size> {
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.trim().split(' ').next()?.parse::<i64>().ok().map(|kib| kib * 1_024)
        };
        Some(Size { resident: bytes("VmRSS")?, own: bytes("RssAnon")? })
    }

    fn of(process: &str) -> Result<Size> {
        let path = format!("/proc/{process}/status");
        Size::parse(&fs::read_to_string(&path)?).ok_or_else(|| format!("{path} is not understood").into())
    }
}

/// How much the process and its server grow by the first connection, and by
/// each of those that follow; all stay open.
pub(crate) fn memory(plan: &Plan) -> Result<Value> {
    let sizes = || -> Result<(Size, Size)> {
        let server = plan.server.map(|server| Size::of(&server.to_string())).transpose()?;
        Ok((Size::of("self")?, server.unwrap_or_default()))
    };
    let mut connections = Vec::with_capacity(plan.count as usize + 1);
    // What looking takes is not the connection's.
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
        assert_eq!(Size::parse(status), Some(Size { resident: 8_200 * 1_024, own: 3_100 * 1_024 }));
        assert_eq!(Size::parse("VmRSS:\t1 kB\n"), None);
        assert!(Size::of("self").unwrap().own > 10_000);
    }
}
