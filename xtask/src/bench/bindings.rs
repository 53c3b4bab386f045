//! What a built-in binding costs its client, against a bare loop over the same
//! driver crate: reads by key, the same statements, records and concurrency.
//!
//! The bare loops are the examples `bare_STORE` of serval-stores. Each says
//! what processor time an operation took; Serval says it in its result.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Bench;
use super::figures::{json_number, workload_c};
use super::measure::{self, Table, alternate};
use crate::Result;
use crate::servers::{self, Kind, Options};
use crate::setup::{self, Missing};

/// Records that a store holds.
const RECORDS: &str = "10000";
/// Reads of a run: some seconds.
const OPERATIONS: &str = "200000";
/// Concurrent clients.
const CLIENTS: &str = "32";

/// The stores that have a bare loop.
const BINDINGS: &[&str] =
    &["redis", "cassandra", "etcd", "memcached", "mongodb", "mysql", "postgres", "rest", "zookeeper"];

/// The ratio of every binding; a server that cannot be had is named and left
/// out.
pub(super) fn bindings(bench: &Bench) -> Result<()> {
    let build = |more: &[&str]| {
        let mut command = crate::cargo();
        command.args(["build", "--release"]).args(more);
        bench.children.check(&mut command)
    };
    build(&["--package", "serval", "--features", "full"])?;
    build(&["--package", "serval-stores", "--examples", "--features", &BINDINGS[1..].join(",")])?;
    let serval = Bench::built("serval")?;
    let mut table = Table::new([
        "reads, 32 clients",
        "serval: CPU us/operation",
        "bare loop",
        "serval over bare",
        "wanted",
    ]);
    for name in BINDINGS {
        let kind = servers::kind(name).ok_or_else(|| format!("there is no server '{name}'"))?;
        if let Err(reason) = setup::provide(bench.children, kind.purpose, Missing::Report) {
            println!("{name} is left out: {reason}");
            continue;
        }
        let example = Bench::built(&format!("examples/bare_{name}"))?;
        let pairs = compare(bench, kind, &serval, &example).map_err(|error| format!("{name}: {error}"))?;
        table.row([
            (*name).to_owned(),
            format!("{:.2}", pairs.a()),
            format!("{:.2}", pairs.b()),
            format!("{:.2}", pairs.ratio()),
            "1.3 or less".to_owned(),
        ]);
    }
    print!("{table}");
    Ok(())
}

fn compare(bench: &Bench, kind: &Kind, serval: &Path, example: &PathBuf) -> Result<measure::Pairs> {
    let server = (kind.serve)(bench.children, &Options::default())?;
    let ask = |verb: &str, more: &[&str]| {
        let mut command = Command::new(serval);
        command.args([verb, kind.name, "-threads", CLIENTS]).args(workload_c());
        let record_count = format!("recordcount={RECORDS}");
        for property in ["insertorder=ordered", "requestdistribution=uniform", &record_count] {
            command.args(["-p", property]);
        }
        for property in server.properties() {
            command.args(["-p", &property]);
        }
        measure::run(bench.children, command.args(more))
    };
    ask("load", &[])?;
    let ours = || {
        let operations = format!("operationcount={OPERATIONS}");
        let text = ask("run", &["-p", &operations, "-p", "exporter=json"])?.stdout;
        let done = json_number(&text, "overall", "operations")?;
        Ok(json_number(&text, "overall", "client_cpu_s")? * 1e6 / done)
    };
    let theirs = || {
        let mut command = Command::new(example);
        command.args([&server.address(), CLIENTS, OPERATIONS, RECORDS]);
        bare_cost(&measure::run(bench.children, &mut command)?.stdout)
    };
    alternate(bench.pairs, ours, theirs)
}

/// Microseconds of processor time an operation, as a bare loop prints them.
fn bare_cost(text: &str) -> Result<f64> {
    let words = text.split_once("operations/s, ").and_then(|(_, rest)| rest.split(' ').next());
    words.and_then(|words| words.parse().ok()).ok_or_else(|| format!("no cost in: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_a_bare_loop_is_read() {
        assert_eq!(bare_cost("81234 operations/s, 9.87 us of processor time an operation\n"), Ok(9.87));
        assert!(bare_cost("nothing").is_err());
    }

    #[test]
    fn every_binding_has_its_server() {
        assert!(BINDINGS.iter().all(|name| servers::kind(name).is_some()));
    }
}
