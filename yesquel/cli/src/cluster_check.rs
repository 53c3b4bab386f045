//! `yesquel cluster check`: checks the trees of a cluster, beside writers.

use crate::{
    connect::ServerArguments,
    connection::{DatabaseAccess, open},
    failure::CliError,
    interrupt::Interrupt,
    progress::CopyProgress,
    show,
};
use clap::Args;
use serde_json::{Value, json};
use std::{
    io::Write,
    time::{Duration, Instant},
};
use yesquel::{CheckObserver, CheckProgress, CheckSummary, FoundFault, Store, StoreFault};

const ABOUT: &str = "All trees are read at one snapshot: each key must be in one leaf, each long value have its pieces, \
    each map its tree, each tree its map, and the copies of a database's cookies must agree. A tree whose snapshot \
    the servers have dropped is read again at a new one. --sql also compares each index with its table, which costs \
    a round trip for many of the rows. The exit status is 1 if there are faults.";

/// Faults that are printed. All are counted.
const FAULTS_SHOWN_MAX: u64 = 1_000;

/// Messages that SQLite makes about one database.
const SQL_MESSAGES_MAX: u64 = 100;

#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct ClusterCheckArguments {
    #[command(flatten)]
    server: ServerArguments,
    /// Check this database only, and the catalog of names
    database: Option<String>,
    /// Also compare indexes with tables, and foreign keys: PRAGMA integrity_check and foreign_key_check
    #[arg(long)]
    sql: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Print faults only
    #[arg(long, short)]
    quiet: bool,
}

/// A fault, as it is printed.
struct ShownFault {
    database: Option<String>,
    map: Option<String>,
    tree: Option<u64>,
    code: &'static str,
    message: String,
}

impl ShownFault {
    fn of_database(name: &str, code: &'static str, message: String) -> ShownFault {
        ShownFault { database: Some(name.to_owned()), map: None, tree: None, code, message }
    }

    /// The place of the fault, as far as it is known.
    fn place(&self) -> String {
        match (&self.database, &self.map, self.tree) {
            (Some(database), Some(map), _) => format!("{database}/{map}: "),
            (Some(database), None, _) => format!("{database}: "),
            (None, _, Some(0)) => "catalog: ".to_owned(),
            (None, _, Some(tree)) => format!("tree {tree:x}: "),
            (None, _, None) => String::new(),
        }
    }

    fn json(&self) -> Value {
        let ShownFault { database, map, tree, code, message } = self;
        json!({ "code": code, "database": database, "map": map, "tree": tree, "message": message })
    }
}

/// Prints faults, or collects them for JSON, and shows the progress.
struct FaultReport<'i> {
    is_json: bool,
    faults: u64,
    shown: Vec<Value>,
    /// The first error of the output.
    failed: Option<std::io::Error>,
    progress: CopyProgress,
    interrupt: &'i Interrupt,
}

impl FaultReport<'_> {
    fn add(&mut self, fault: &ShownFault) {
        self.faults += 1;
        if self.faults > FAULTS_SHOWN_MAX {
            return;
        }
        if self.is_json {
            self.shown.push(fault.json());
            return;
        }
        let bad = anstyle::AnsiColor::Red.on_default();
        let mut text = format!("{bad}{}{}{bad:#}\n", fault.place(), fault.message);
        if self.faults == FAULTS_SHOWN_MAX {
            text += "(further faults are counted only)\n";
        }
        let written = anstream::stdout().write_all(text.as_bytes());
        self.failed = self.failed.take().or(written.err());
    }
}

impl CheckObserver for FaultReport<'_> {
    fn fault(&mut self, found: &FoundFault) {
        let FoundFault { database, map, tree, fault } = found.clone();
        let node = if let StoreFault::Tree(fault) = &fault { Some(fault.node().tree.number()) } else { None };
        let (code, message) = (fault.code(), fault.to_string());
        self.add(&ShownFault { database, map, tree: tree.or(node), code, message });
    }

    fn progress(&mut self, progress: &CheckProgress) -> bool {
        let CheckProgress { trees_done, trees_all, nodes, keys } = *progress;
        let note = format!("trees, {} nodes, {} keys", show::count(nodes), show::count(keys));
        self.progress.count(trees_done, trees_all, note);
        !self.interrupt.is_pressed() && self.failed.is_none()
    }
}

pub(crate) fn run(arguments: &ClusterCheckArguments) -> Result<(), CliError> {
    let (began, interrupt) = (Instant::now(), Interrupt::listen());
    let store = arguments.server.connect()?;
    let mut report = FaultReport {
        is_json: arguments.json,
        faults: 0,
        shown: Vec::new(),
        failed: None,
        progress: CopyProgress::new("check", arguments.quiet || arguments.json),
        interrupt: &interrupt,
    };
    let checked = {
        let _waits = interrupt.cancel_calls();
        check(arguments, &store, &mut report)
    };
    report.progress.end();
    if let Some(error) = report.failed {
        return Err(error.into());
    }
    if interrupt.is_pressed() {
        return Err(CliError::Interrupted(": not all is checked"));
    }
    let summary = checked?;
    let mut out = anstream::stdout();
    if arguments.json {
        writeln!(out, "{}", json_of(&summary, report.faults, report.shown, began.elapsed()))?;
    } else if !arguments.quiet {
        writeln!(out, "{}", text_of(&summary, began.elapsed()))?;
    }
    if report.faults == 0 { Ok(()) } else { Err(CliError::Faults(report.faults)) }
}

fn check(
    arguments: &ClusterCheckArguments,
    store: &Store,
    report: &mut FaultReport<'_>,
) -> Result<CheckSummary, CliError> {
    let summary = store.check(arguments.database.as_deref(), report)?;
    let names = match &arguments.database {
        Some(name) => vec![name.clone()],
        None => store.databases()?,
    };
    for name in names {
        if report.interrupt.is_pressed() {
            return Err(yesquel::Error::Interrupted(String::new()).into());
        }
        match schema(arguments, store, &name, report) {
            // Dropped meanwhile.
            Err(CliError::Yesquel(yesquel::Error::NoDatabase(_) | yesquel::Error::NoMap(_))) => {}
            Err(
                error @ (CliError::Interrupted(_)
                | CliError::Output(_)
                | CliError::Yesquel(yesquel::Error::Interrupted(_))),
            ) => return Err(error),
            Err(error) => report.add(&ShownFault::of_database(&name, "not_checked", error.to_string())),
            Ok(()) => {}
        }
    }
    Ok(summary)
}

/// Checks the schema of a database, and on request its indexes.
fn schema(
    arguments: &ClusterCheckArguments,
    store: &Store,
    name: &str,
    report: &mut FaultReport<'_>,
) -> Result<(), CliError> {
    let database = store.database(name)?;
    for fault in yesquel_sqlite::copy_faults(&database)? {
        report.add(&ShownFault::of_database(name, fault.code(), fault.to_string()));
    }
    if !arguments.sql || !yesquel_sqlite::has_schema(&database)? {
        return Ok(());
    }
    let Some(address) = arguments.server.database_address(name) else {
        let why = "it is not checked with SQL: no address can have this name".to_owned();
        report.add(&ShownFault::of_database(name, "not_checked", why));
        return Ok(());
    };
    report.progress.say("comparing indexes with tables");
    let mut connection = open(&address, DatabaseAccess::Read)?;
    report.interrupt.attend(&mut connection)?;
    // Both read one snapshot.
    connection.execute_batch("BEGIN")?;
    let mut messages = connection.prepare(&format!("PRAGMA integrity_check({SQL_MESSAGES_MAX})"))?;
    let mut rows = messages.query([])?;
    while let Some(row) = rows.next()? {
        let message: String = row.get(0)?;
        if message != "ok" {
            report.add(&ShownFault::of_database(name, "integrity_check", message));
        }
    }
    let mut violations = connection.prepare("PRAGMA foreign_key_check")?;
    let mut rows = violations.query([])?;
    while let Some(row) = rows.next()? {
        let (table, rowid, parent): (String, Option<i64>, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let rowid = rowid.map_or_else(String::new, |rowid| format!(" {rowid}"));
        let message = format!("row{rowid} of table {table} refers to a missing row of {parent}");
        report.add(&ShownFault::of_database(name, "foreign_key_check", message));
    }
    Ok(())
}

fn json_of(summary: &CheckSummary, faults: u64, shown: Vec<Value>, time: Duration) -> Value {
    let CheckSummary { databases, trees, counts, snapshots, .. } = summary;
    json!({
        "databases": databases,
        "trees": trees,
        "inner_nodes": counts.inner_nodes,
        "leaves": counts.leaves,
        "keys": counts.keys,
        "long_values": counts.long_values,
        "long_values_without_owner": counts.without_owner,
        "snapshots": snapshots + 1,
        "seconds": (time.as_secs_f64() * 1e3).round() / 1e3,
        "faults": faults,
        "found": shown,
    })
}

fn text_of(summary: &CheckSummary, time: Duration) -> String {
    let CheckSummary { databases, trees, counts, snapshots, .. } = summary;
    let mut text = format!(
        "checked {} in {}: {}, {}, {}, in {}",
        show::things(*trees, "tree", "trees"),
        show::things(*databases, "database", "databases"),
        show::things(counts.nodes(), "node", "nodes"),
        show::things(counts.keys, "key", "keys"),
        show::things(counts.long_values, "long value", "long values"),
        show::duration(time.as_millis().try_into().unwrap_or(u64::MAX)),
    );
    if *snapshots > 0 {
        text += &format!(", at {} snapshots", snapshots + 1);
    }
    text
}
