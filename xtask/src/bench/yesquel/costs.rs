//! The cost model of `yesquel-virtual`: what messages cost a server and statements a client, in
//! processor time, and how long a message takes.
//!
//! One server in memory runs without a quota, and three shapes of a load of reads tell apart what a
//! request costs it: one connection; 16 connections of one process, whose messages share a socket; and
//! 16 processes. With `W` wakings for each request (voluntary switches, from `/proc`) and `C` looks at
//! a connection for each request, the processor time of a request is `wake W + connection C + read`.
//! `C` is 1 where each connection has one request at a time, and `W` where all share a socket, as the
//! server sleeps after each look. Updates and scans of the second shape give the rest.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use serde_json::{Value, json};

use super::groups::{Hosting, ServerGroup};
use super::side::SystemUnderTest;
use super::tables::TablesLoad;
use super::{Programs, closed_loop, options};
use crate::Result;
use crate::bench::BenchContext;
use crate::bench::measure::{self, MachineDescription, MedianRange, ResultTable};

/// The model's file in the workspace.
const FILE: &str = "yesquel/virtual-time/costs.json";
/// Connections where there are several.
const CONNECTIONS: usize = 16;
/// Rows of the table.
const KEYS: usize = 10_000;
/// Statements of a connection in the two runs whose costs are subtracted.
const STATEMENTS: [usize; 2] = [500, 10_500];
/// Rate of the network, Mbit/s. It is the paper's, as the own one has no limit.
const MEGABITS: f64 = 10_000.0;
/// Share of a request's processor time below which nothing is believed: noise may leave nothing.
const LEAST_SHARE: f64 = 0.05;

/// How connections are distributed over processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientShape {
    /// One connection.
    One,
    /// Several of one process.
    Shared,
    /// Several processes with one each.
    Apart,
}

impl ClientShape {
    /// Number of processes, and of connections of each.
    fn numbers(self) -> (usize, usize) {
        match self {
            ClientShape::One => (1, 1),
            ClientShape::Shared => (1, CONNECTIONS),
            ClientShape::Apart => (CONNECTIONS, 1),
        }
    }
}

/// What a statement takes.
#[derive(Debug, Clone, Copy)]
struct StatementCost {
    server_us: f64,
    client_us: f64,
    /// Wakings of the server.
    wakings: f64,
    requests: f64,
    p50_us: f64,
}

/// Sums of a run.
#[derive(Debug, Clone, Copy)]
struct RunSums {
    server_us: f64,
    client_us: f64,
    wakings: f64,
    requests: f64,
    p50_us: f64,
}

/// Returns the voluntary switches of all threads of a process: how often they have slept.
fn sleeps(pid: u32) -> Result<f64> {
    let folder = format!("/proc/{pid}/task");
    let threads = fs::read_dir(&folder).map_err(|error| format!("{folder}: {error}"))?;
    // A thread may end while the folder is read.
    let texts = threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok());
    let of = |text: String| {
        let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse::<f64>().ok()
    };
    texts.map(of).sum::<Option<f64>>().ok_or_else(|| format!("{folder}: no voluntary switches"))
}

/// Runs so many statements of each connection.
fn run(
    bench: &BenchContext,
    programs: &Programs,
    server: &ServerGroup,
    (statement, shape, statements): (&str, ClientShape, usize),
) -> Result<RunSums> {
    let (processes, connections) = shape.numbers();
    let load =
        TablesLoad { statement, tables: 1, connections, operations: statements * connections, keys: KEYS };
    let pid = server.pids().next().ok_or("there is no server")?;
    let (cpu_before, sleeps_before) = (server.cpu_us()?, sleeps(pid)?);
    let results: Vec<Result<measure::Measured>> = thread::scope(|scope| {
        let one = |process: usize| {
            let mut client = load.command(Command::new(&programs.load), server);
            client.args(["--process", &process.to_string()]);
            measure::run(bench.children, &mut client)
        };
        let threads: Vec<_> = (0..processes).map(|process| scope.spawn(move || one(process))).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|joined| joined.map_err(|_panic| "a load panicked".to_owned())?).collect()
    });
    let (mut client_us, mut requests, mut p50_us) = (0.0, 0.0, 0.0);
    for measured in results {
        let measured = measured?;
        client_us += measured.cpu_seconds() * 1e6;
        let result: Value = serde_json::from_str(&measured.stdout).map_err(|error| error.to_string())?;
        let by_group = result["requests_by_group"].as_array().ok_or("the client printed no requests")?;
        requests += by_group.iter().filter_map(Value::as_f64).sum::<f64>();
        p50_us = result["p50_us"].as_f64().ok_or("the client printed no response time")?;
    }
    Ok(RunSums {
        server_us: server.cpu_us()? - cpu_before,
        client_us,
        wakings: sleeps(pid)? - sleeps_before,
        requests,
        p50_us,
    })
}

/// Measures a statement in rounds.
fn cost(
    bench: &BenchContext,
    programs: &Programs,
    server: &ServerGroup,
    (statement, shape): (&str, ClientShape),
) -> Result<StatementCost> {
    eprintln!("{statement}, {shape:?}: {} rounds", bench.pairs);
    let statements = if bench.quick { STATEMENTS.map(|count| count / 10) } else { STATEMENTS };
    let (processes, connections) = shape.numbers();
    let count = ((statements[1] - statements[0]) * processes * connections) as f64;
    let rounds = (0..bench.pairs).map(|_| {
        let few = run(bench, programs, server, (statement, shape, statements[0]))?;
        let many = run(bench, programs, server, (statement, shape, statements[1]))?;
        Ok(StatementCost {
            server_us: (many.server_us - few.server_us) / count,
            client_us: (many.client_us - few.client_us) / count,
            wakings: (many.wakings - few.wakings) / count,
            // Those of other processes at the same time are counted by each.
            requests: many.requests / (statements[1] * processes * connections) as f64 / processes as f64,
            p50_us: many.p50_us,
        })
    });
    let rounds: Vec<StatementCost> = rounds.collect::<Result<_>>()?;
    let median = |of: fn(&StatementCost) -> f64| {
        let values: Vec<f64> = rounds.iter().map(of).collect();
        MedianRange::of(&values).map(|range| range.median).ok_or("nothing was measured")
    };
    Ok(StatementCost {
        server_us: median(|cost| cost.server_us)?,
        client_us: median(|cost| cost.client_us)?,
        wakings: median(|cost| cost.wakings)?,
        requests: median(|cost| cost.requests)?,
        p50_us: median(|cost| cost.p50_us)?,
    })
}

/// Costs of a server.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ServerFit {
    wake: f64,
    connection: f64,
    read: f64,
    write: f64,
    kib: f64,
}

/// Bytes of the requests of each statement with their replies, in KiB.
#[derive(Debug, Clone, Copy)]
struct RequestSizes {
    read: f64,
    scan: f64,
    write: f64,
}

/// Solves the equations of the module's description.
fn fit(
    [one, shared, apart]: [&StatementCost; 3],
    (update, scan): (&StatementCost, &StatementCost),
    sizes: RequestSizes,
) -> ServerFit {
    let least = one.server_us * LEAST_SHARE;
    // One connection and many of a request each differ by the wakings.
    let slept_less = one.wakings - apart.wakings;
    let wake = if slept_less > LEAST_SHARE { (one.server_us - apart.server_us) / slept_less } else { least };
    let wake = wake.clamp(least, one.server_us);
    // One connection and a shared one differ by both.
    let looked_less = 1.0 - shared.wakings;
    let saved = one.server_us - shared.server_us - wake * (one.wakings - shared.wakings);
    let connection = if looked_less > LEAST_SHARE { saved / looked_less } else { least };
    let connection = connection.clamp(least, one.server_us);
    let look = |cost: &StatementCost| cost.wakings.min(cost.requests) * (wake + connection);
    let whole_read = (shared.server_us - look(shared)).max(least);
    let kib = (scan.server_us - look(scan) - whole_read) / (sizes.scan - sizes.read).max(0.1);
    let kib = kib.max(0.0);
    let read = (whole_read - kib * sizes.read).max(least);
    let reads = (update.requests - 1.0).max(0.0);
    let write = update.server_us - look(update) - reads * whole_read - kib * sizes.write;
    ServerFit { wake, connection, read, write: write.max(least), kib }
}

/// Returns the mean sizes of the requests of a statement, from a simulation: they do not depend on costs.
fn sizes(bench: &BenchContext, programs: &Programs) -> Result<RequestSizes> {
    let of = |statement: &str, name: &str| -> Result<f64> {
        let mut command = Command::new(&programs.load);
        command.arg("virtual").args(options(&[
            ("statement", statement.to_owned()),
            ("keys", KEYS.to_string()),
            ("client-processes", "1".to_owned()),
            ("threads", "4".to_owned()),
            ("warm-up", "0.01".to_owned()),
            ("seconds", "0.1".to_owned()),
        ]));
        let measured = measure::run(bench.children, &mut command)?;
        let result: Value = serde_json::from_str(&measured.stdout).map_err(|error| error.to_string())?;
        let bytes = result[name].as_f64().ok_or_else(|| format!("the simulation printed no {name}"))?;
        Ok(bytes / 1024.0)
    };
    Ok(RequestSizes {
        read: of("read", "read_bytes")?,
        scan: of("scan", "read_bytes")?,
        write: of("update", "write_bytes")?,
    })
}

/// Returns the date, as `2026-11-27`.
fn today(bench: &BenchContext) -> Result<String> {
    let measured = measure::run(bench.children, Command::new("date").args(["-u", "+%F"]))?;
    Ok(measured.stdout.trim().to_owned())
}

/// Rounds to hundredths.
fn rounded(us: f64) -> f64 {
    (us.max(0.0) * 100.0).round() / 100.0
}

/// Measures the cost model, and writes its file.
pub(in crate::bench) fn costs(bench: &BenchContext) -> Result<()> {
    let programs = Programs::build(bench)?;
    let server = ServerGroup::start(
        bench,
        Hosting::Processes(1),
        || Command::new(&programs.yesquel),
        &["--in-memory"],
    )?;
    // Creates the table.
    run(bench, &programs, &server, ("read", ClientShape::One, 0))?;
    let of = |statement, shape| cost(bench, &programs, &server, (statement, shape));
    let shapes = [ClientShape::One, ClientShape::Shared, ClientShape::Apart];
    let [one, read, apart] = shapes.map(|shape| of("read", shape));
    let (one, read, apart) = (one?, read?, apart?);
    let (update, scan) = (of("update", ClientShape::Shared)?, of("scan", ClientShape::Shared)?);
    drop(server);
    // A request without SQL: by the ordered maps of the library.
    let maps = SystemUnderTest::yesquel(bench, &programs, false)?;
    maps.fill(bench, &programs.load, KEYS as u64)?;
    let request_us =
        maps.load(bench, &programs.load, "read", &closed_loop(CONNECTIONS as u64))?.client_cpu_us;
    drop(maps);
    let server = fit([&one, &read, &apart], (&update, &scan), sizes(bench, &programs)?);
    let statement_us = |cost: &StatementCost| cost.client_us - cost.requests * request_us;
    let on_the_way = one.p50_us - one.client_us - one.server_us;
    let mut table =
        ResultTable::new(["statement", "server us", "client us", "wakings", "requests", "p50, us"]);
    for (name, cost) in [
        ("SELECT of a row, one connection", &one),
        ("SELECT of a row, one process", &read),
        ("SELECT of a row, a process each", &apart),
        ("UPDATE of a row", &update),
        ("SELECT of ten rows", &scan),
    ] {
        table.row([
            name.to_owned(),
            format!("{:.2}", cost.server_us),
            format!("{:.2}", cost.client_us),
            format!("{:.3}", cost.wakings),
            format!("{:.3}", cost.requests),
            format!("{:.1}", cost.p50_us),
        ]);
    }
    print!("{table}");
    let model = json!({
        "measured": format!("{}, {}", today(bench)?, MachineDescription::read()),
        "server": {
            "wake_us": rounded(server.wake),
            "connection_us": rounded(server.connection),
            "read_us": rounded(server.read),
            "write_us": rounded(server.write),
            // As of a read: both are short.
            "message_us": rounded(server.read),
            "kib_us": rounded(server.kib),
        },
        "client": {
            "request_us": rounded(request_us),
            "statements_us": {
                "read": rounded(statement_us(&read)),
                "update": rounded(statement_us(&update)),
                "scan": rounded(statement_us(&scan)),
            },
        },
        "network": { "one_way_us": rounded(on_the_way / 2.0), "megabits_per_second": MEGABITS },
    });
    let json = serde_json::to_string_pretty(&model).map_err(|error| error.to_string())?;
    println!("{json}");
    if !bench.quick {
        let path: PathBuf = crate::root().join(FILE);
        fs::write(&path, json + "\n").map_err(|error| format!("{}: {error}", path.display()))?;
        println!("written to {FILE}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(server_us: f64, wakings: f64, requests: f64) -> StatementCost {
        StatementCost { server_us, client_us: 0.0, wakings, requests, p50_us: 0.0 }
    }

    #[test]
    fn the_equations_give_back_the_costs_that_they_are_made_of() {
        let (wake, connection, read, write, kib) = (4.0, 2.0, 3.0, 5.0, 0.5);
        let sizes = RequestSizes { read: 0.2, scan: 2.2, write: 0.4 };
        let whole_read = read + kib * sizes.read;
        let look = |wakings: f64| wakings * (wake + connection);
        let one = statement(wake + connection + whole_read, 1.0, 1.0);
        let shared = statement(look(0.4) + whole_read, 0.4, 1.0);
        let apart = statement(0.6 * wake + connection + whole_read, 0.6, 1.0);
        let update = statement(look(0.9) + whole_read + write + kib * sizes.write, 0.9, 2.0);
        let scan = statement(look(0.5) + read + kib * sizes.scan, 0.5, 1.0);
        let fitted = fit([&one, &shared, &apart], (&update, &scan), sizes);
        let pairs = [
            (fitted.wake, wake),
            (fitted.connection, connection),
            (fitted.read, read),
            (fitted.write, write),
            (fitted.kib, kib),
        ];
        for (fitted, expected) in pairs {
            assert!((fitted - expected).abs() < 1e-9, "{fitted} is not {expected}");
        }
    }
}
