//! `yesquel status`: shows a server's status, once or repeatedly.

use crate::{
    connect::{self, ServerArguments},
    failure::CliError,
    show,
};
use anstyle::Style;
use clap::Args;
use signal_hook::{consts::SIGINT, iterator::Signals};
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{IsTerminal, Write},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};
use yesquel::{
    Store,
    status::{Bucket, PeerClock, ServerStatus},
};

#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    server: ServerArguments,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Repeat at this interval, seconds (1 if omitted), until Ctrl-C
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "1",
        value_parser = interval)]
    watch: Option<Duration>,
}

/// Parses the interval between two reports.
fn interval(text: &str) -> Result<Duration, String> {
    let every = connect::seconds(text)?;
    if every < Duration::from_millis(100) { Err("it must be 0.1 or more".to_owned()) } else { Ok(every) }
}

/// Returns the names of the trees that are maps.
fn names(store: &Store) -> Result<BTreeMap<u64, String>, CliError> {
    let mut names = BTreeMap::from([(0, "(names)".to_owned())]);
    for database in store.databases()? {
        // A database that was dropped meanwhile has none.
        let Ok(maps) = store.database(&database).and_then(|found| found.maps()) else { continue };
        names.extend(maps.into_iter().map(|(name, map)| (map.tree(), format!("{database}/{name}"))));
    }
    Ok(names)
}

/// Status and the time at which it was taken.
struct TimedStatus {
    status: ServerStatus,
    at: Instant,
}

pub(crate) fn run(arguments: &StatusArguments) -> Result<(), CliError> {
    let store = arguments.server.connect()?;
    let Some(every) = arguments.watch else {
        return print(arguments, &store, &look(&store)?, None);
    };
    let (interrupted, interrupt) = mpsc::channel();
    let mut signals = Signals::new([SIGINT])?;
    thread::spawn(move || signals.forever().next().map(|_| interrupted.send(())));
    let mut before: Option<TimedStatus> = None;
    loop {
        let now = look(&store)?;
        if !arguments.json && std::io::stdout().is_terminal() {
            // Clear the screen.
            write!(anstream::stdout(), "\x1b[2J\x1b[H")?;
        }
        print(arguments, &store, &now, before.as_ref())?;
        before = Some(now);
        if interrupt.recv_timeout(every).is_ok() {
            return Ok(());
        }
    }
}

fn look(store: &Store) -> Result<TimedStatus, CliError> {
    Ok(TimedStatus { status: store.status()?, at: Instant::now() })
}

fn print(
    arguments: &StatusArguments,
    store: &Store,
    now: &TimedStatus,
    before: Option<&TimedStatus>,
) -> Result<(), CliError> {
    let text = if arguments.json {
        serde_json::to_string(&now.status).map_err(|error| CliError::Usage(error.to_string()))? + "\n"
    } else {
        text(arguments, &names(store)?, now, before)
    };
    let mut out = anstream::stdout();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Formats a histogram's buckets: `up to N: count`.
fn buckets(buckets: &[Bucket]) -> String {
    let one = |bucket: &Bucket| match bucket.up_to {
        0 => format!("0: {}", show::count(bucket.count)),
        up_to => format!("up to {}: {}", show::count(up_to), show::count(bucket.count)),
    };
    buckets.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Formats a count unless it is zero.
fn unless_zero(count: u64, phrase: impl FnOnce(u64) -> String) -> String {
    if count == 0 { String::new() } else { phrase(count) }
}

fn text(
    arguments: &StatusArguments,
    names: &BTreeMap<u64, String>,
    now: &TimedStatus,
    before: Option<&TimedStatus>,
) -> String {
    let status = &now.status;
    let mut text = String::new();
    let bold = Style::new().bold();
    let lines = [
        ("server", format!("{} at {}", status.server, arguments.server.addresses())),
        ("release", format!("{}, up {}", status.version, show::duration(status.uptime_ms))),
        ("memory", memory(status)),
        ("log", log(status)),
    ];
    let checkpoint = status.log.checkpoint.map(|last| {
        let (bytes, age) = (show::bytes(last.bytes), show::duration(last.age_ms));
        ("checkpoint", format!("{age} ago, as of record {}, {bytes}", show::count(last.lsn)))
    });
    let peers = (!status.peers.clocks.is_empty() || status.peers.not_serving.is_some())
        .then(|| ("peers", peers(status)));
    let more = [
        ("connections", connections(status)),
        ("transactions", transactions(status)),
        ("snapshots", snapshots(status)),
        ("requests", requests(now, before)),
        ("nodes", format!("by cells: {}", buckets(&status.nodes_by_cells))),
        ("", format!("by accesses in the last second: {}", buckets(&status.nodes_by_load))),
    ];
    for (name, what) in lines.into_iter().chain(checkpoint).chain(peers).chain(more) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{bold}{name:<13}{bold:#} {what}");
    }
    trees(&mut text, status, names);
    busiest_nodes(&mut text, status);
    text
}

fn memory(status: &ServerStatus) -> String {
    let memory = &status.memory;
    let most = memory.bytes_max.map_or_else(String::new, |most| format!(" of {}", show::bytes(most)));
    let copies = unless_zero(memory.copies, |copies| {
        format!(", {} of them for a checkpoint only", show::bytes(copies))
    });
    let refused = unless_zero(memory.refused, |count| format!(", {} refused for it", show::count(count)));
    format!("{}{most}{copies}{refused}", show::bytes(memory.bytes))
}

fn log(status: &ServerStatus) -> String {
    match (&status.log.failed, &status.log.full) {
        (Some(why), _) => format!("FAILED: {why}"),
        (None, Some(full)) => format!(
            "FULL for {}, no writes are accepted until there is space: {}",
            show::duration(full.since_ms),
            full.error
        ),
        (None, None) if status.durability == "memory" => "none: in memory only".to_owned(),
        (None, None) => format!(
            "{} records, {} of them on disk{}, durability {}",
            show::count(status.log.lsn),
            show::count(status.log.synced_lsn),
            unless_zero(status.log.bytes, |bytes| format!(", files of {}", show::bytes(bytes))),
            status.durability
        ),
    }
}

/// Age of a comparison of clocks from which on it is shown, in milliseconds: the server cannot be reached.
const CLOCK_AGE_MS_SHOWN: u64 = 2_000;

/// Formats the clocks of other servers.
fn peers(status: &ServerStatus) -> String {
    let clock = |clock: &PeerClock| {
        let age = if clock.age_ms < CLOCK_AGE_MS_SHOWN {
            String::new()
        } else {
            format!(" {} s ago", clock.age_ms / 1_000)
        };
        format!("server {}: {:+} ms{age}", clock.server, clock.ahead_ms)
    };
    let clocks = status.peers.clocks.iter().map(clock).collect::<Vec<_>>().join(", ");
    match &status.peers.not_serving {
        Some(why) => format!("SERVES NOTHING: {why} ({clocks})"),
        None => format!("clocks relative to this one: {clocks}"),
    }
}

fn connections(status: &ServerStatus) -> String {
    let connections = &status.connections;
    let paused = unless_zero(connections.paused, |count| {
        format!(", stopped for slow readers {} times", show::count(count))
    });
    format!(
        "{} open, {} taken, {} refused{paused}",
        connections.open, connections.accepted, connections.refused
    )
}

fn transactions(status: &ServerStatus) -> String {
    let transactions = &status.transactions;
    let age = unless_zero(transactions.undecided, |_| {
        format!(" (the oldest for {})", show::duration(transactions.undecided_oldest_ms))
    });
    format!(
        "{} undecided{age}, {} requests wait, {} leases, {} clients remembered",
        transactions.undecided, transactions.waiting, transactions.leases, transactions.clients
    )
}

fn snapshots(status: &ServerStatus) -> String {
    let cancelled = unless_zero(status.snapshots.cancelled, |count| {
        format!(", {} let go of for memory", show::count(count))
    });
    format!(
        "{} held, the oldest that may be read {} old{cancelled}",
        status.snapshots.holders,
        show::duration(status.snapshots.oldest_age_ms)
    )
}

/// Formats requests since the start of the server, or per second since an earlier status.
fn requests(TimedStatus { status, at }: &TimedStatus, before: Option<&TimedStatus>) -> String {
    let requests = &status.requests;
    let Some(TimedStatus { status: earlier, at: then }) = before else {
        return format!(
            "{} reads, {} commits, {} conflicts, {} moved, {} waits",
            show::count(requests.reads),
            show::count(requests.commits),
            show::count(requests.conflicts),
            show::count(requests.moved),
            show::count(requests.waits)
        );
    };
    let seconds = at.duration_since(*then).as_secs_f64().max(0.001);
    let rate = |now: u64, then: u64| show::count((now.saturating_sub(then) as f64 / seconds) as u64);
    let earlier = &earlier.requests;
    format!(
        "{} reads/s, {} commits/s, {} conflicts/s, {} moved/s",
        rate(requests.reads, earlier.reads),
        rate(requests.commits, earlier.commits),
        rate(requests.conflicts, earlier.conflicts),
        rate(requests.moved, earlier.moved)
    )
}

fn trees(text: &mut String, status: &ServerStatus, names: &BTreeMap<u64, String>) {
    let bold = Style::new().bold();
    let _ = writeln!(
        text,
        "\n{bold}{:>6}  {:>12}  {:>10}  {:>10}  {:>8}  {:>6}  {:>10}  map{bold:#}",
        "tree", "keys", "bytes", "memory", "leaves", "inner", "accesses/s"
    );
    for tree in &status.trees {
        let _ = writeln!(
            text,
            "{:>6}  {:>12}  {:>10}  {:>10}  {:>8}  {:>6}  {:>10}  {}",
            tree.tree,
            show::count(tree.cells),
            show::bytes(tree.bytes),
            show::bytes(tree.memory),
            show::count(tree.leaves),
            show::count(tree.inner),
            show::count(tree.load),
            names.get(&tree.tree).map_or("?", String::as_str)
        );
    }
}

fn busiest_nodes(text: &mut String, status: &ServerStatus) {
    let bold = Style::new().bold();
    if !status.busiest.is_empty() {
        let _ = writeln!(
            text,
            "\n{bold}{:<20}  {:>10}  {:>6}  keys{bold:#}",
            "busiest nodes", "accesses/s", "cells"
        );
    }
    for node in &status.busiest {
        let key = |hex: &str| show::text(&show::from_hex(hex).unwrap_or_default());
        let high = node.high.as_deref().map_or_else(|| "...".to_owned(), key);
        let _ = writeln!(
            text,
            "{:<20}  {:>10}  {:>6}  '{}' to '{high}'",
            node.node,
            show::count(node.load),
            node.cells,
            key(&node.low)
        );
    }
}
