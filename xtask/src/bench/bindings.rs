//! Client cost of the built-in bindings, against a bare loop over the same driver crate: reads by
//! key, the same statements, records and concurrency.
//!
//! The bare loops are the examples `bare_STORE` of serval-stores. Each prints its CPU time per
//! operation; Serval's result contains it.

use std::path::Path;
use std::process::Command;

use super::BenchContext;
use super::figures::{json_number, workload_c};
use super::measure::{self, ResultTable, alternate};
use crate::Result;
use crate::servers::{self, ServerOptions};
use crate::setup::{self, Missing};

/// Records of a store.
const RECORDS: &str = "10000";
/// Reads of a run against a server, which take a few seconds.
const OPERATIONS: &str = "200000";
/// Reads of a run of an embedded store, which take a few seconds.
const OPERATIONS_EMBEDDED: &str = "4000000";
/// Concurrent clients.
const CLIENTS: &str = "32";
/// Clients of the load: few, since SQLite has one writer at a time.
const LOADERS: &str = "4";

/// Stores with a server and a bare loop.
const BINDINGS: &[&str] =
    &["redis", "cassandra", "etcd", "memcached", "mongodb", "mysql", "postgres", "rest", "zookeeper"];

/// Embedded stores with a bare loop, each with the property of its file or folder.
const EMBEDDED: &[(&str, &str)] = &[("sqlite", "sqlite.path"), ("fjall", "fjall.path")];

/// Features of the examples: the stores that are not in the default build.
const FEATURES: &str = "cassandra,etcd,fjall,memcached,mongodb,mysql,postgres,rest,zookeeper";

/// Compares all bindings; reports and skips a store without its server.
pub(super) fn bindings(bench: &BenchContext) -> Result<()> {
    let build = |more: &[&str]| {
        let mut command = crate::cargo();
        command.args(["build", "--release"]).args(more);
        bench.children.check(&mut command)
    };
    build(&["--package", "serval", "--features", "full"])?;
    build(&["--package", "serval-stores", "--examples", "--features", FEATURES])?;
    let serval = BenchContext::built("serval")?;
    let mut table = ResultTable::new([
        "reads, 32 clients",
        "serval: CPU us/operation",
        "bare loop",
        "serval over bare",
        "wanted",
    ]);
    let mut compare = |side: &StoreUnderTest| -> Result<()> {
        let pairs = side.compare(bench, &serval).map_err(|error| format!("{}: {error}", side.store))?;
        table.row([
            side.store.to_owned(),
            format!("{:.2}", pairs.a()),
            format!("{:.2}", pairs.b()),
            format!("{:.2}", pairs.ratio()),
            "1.3 or less".to_owned(),
        ]);
        Ok(())
    };
    for name in BINDINGS {
        let kind = servers::kind(name).ok_or_else(|| format!("unknown server '{name}'"))?;
        if let Err(reason) = setup::provide(bench.children, kind.purpose, Missing::Report) {
            println!("{name} skipped: {reason}");
            continue;
        }
        let server = (kind.serve)(bench.children, &ServerOptions::default())?;
        compare(&StoreUnderTest {
            store: kind.name,
            properties: server.properties(),
            address: server.address(),
            operations: OPERATIONS,
        })?;
    }
    for (store, property) in EMBEDDED {
        let folder = tempfile::tempdir().map_err(|error| format!("no folder for {store}: {error}"))?;
        let path = folder.path().join("bare").display().to_string();
        let properties = vec![format!("{property}={path}")];
        compare(&StoreUnderTest { store, properties, address: path, operations: OPERATIONS_EMBEDDED })?;
    }
    print!("{table}");
    Ok(())
}

/// A store and its address.
struct StoreUnderTest {
    store: &'static str,
    /// Serval's properties of the store.
    properties: Vec<String>,
    /// The bare loop's argument.
    address: String,
    operations: &'static str,
}

impl StoreUnderTest {
    fn compare(&self, bench: &BenchContext, serval: &Path) -> Result<measure::PairedMeasurements> {
        let StoreUnderTest { store, properties, address, operations } = self;
        let example = BenchContext::built(&format!("examples/bare_{store}"))?;
        let ask = |verb: &str, more: &[&str]| {
            let mut command = Command::new(serval);
            command.args([verb, store]).args(workload_c());
            let record_count = format!("recordcount={RECORDS}");
            for property in ["insertorder=ordered", "requestdistribution=uniform", &record_count] {
                command.args(["-p", property]);
            }
            for property in properties {
                command.args(["-p", property]);
            }
            measure::run(bench.children, command.args(more))
        };
        ask("load", &["-threads", LOADERS])?;
        let ours = || {
            let operations = format!("operationcount={operations}");
            let text = ask("run", &["-threads", CLIENTS, "-p", &operations, "-p", "exporter=json"])?.stdout;
            let done = json_number(&text, "overall", "operations")?;
            Ok(json_number(&text, "overall", "client_cpu_s")? * 1e6 / done)
        };
        let theirs = || {
            let mut command = Command::new(&example);
            command.args([address, CLIENTS, operations, RECORDS]);
            bare_cost(&measure::run(bench.children, &mut command)?.stdout)
        };
        alternate(bench.pairs, ours, theirs)
    }
}

/// Returns the CPU time per operation in a bare loop's output, us.
fn bare_cost(text: &str) -> Result<f64> {
    let words = text.split_once("operations/s, ").and_then(|(_, rest)| rest.split(' ').next());
    words.and_then(|words| words.parse().ok()).ok_or_else(|| format!("no cost in: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_in_a_bare_loops_output_is_parsed() {
        assert_eq!(bare_cost("81234 operations/s, 9.87 us of processor time an operation\n"), Ok(9.87));
        assert!(bare_cost("nothing").is_err());
    }

    #[test]
    fn every_binding_has_a_server() {
        assert!(BINDINGS.iter().all(|name| servers::kind(name).is_some()));
    }
}
