//! Live views as a user requests them.

use crate::common::{program, serval, workload};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::Stdio,
};

/// Returns the page at an address, if it is served.
fn scraped(address: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

#[test]
fn prometheus_scrapes_a_running_bench() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = program();
    command.current_dir(folder.path()).args(["bench", &workload("workloada"), "--store", "memory"]);
    command.args(["--time", "1h", "--warm-up", "10ms", "--target", "1000", "--plain"]);
    command.args(["--prometheus", "127.0.0.1:0"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let address = lines
        .find_map(|line| Some(line.strip_prefix("metrics: http://")?.strip_suffix("/metrics")?.to_owned()));
    let address = address.unwrap();
    // The page exists while the run lasts, and the run lasts until the page is read.
    let seen = loop {
        let text = scraped(&address).unwrap();
        if text.contains("serval_operations_total{part=\"measured\",metric=\"READ\",status=\"OK\"}") {
            break text;
        }
    };
    for words in [
        "application/openmetrics-text",
        "serval_clients 1.0",
        "serval_step_info{curve=\"\",kind=\"run\"",
        "serval_operations_total{part=\"load\",metric=\"INSERT\",status=\"OK\"} 1000.0",
        "# EOF",
    ] {
        assert!(seen.contains(words), "{words}:\n{seen}");
    }
    // Older scrapers request plain text.
    let mut stream = TcpStream::connect(&address).unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: text/plain;version=0.0.4\r\n\r\n")
        .unwrap();
    let mut older = String::new();
    stream.read_to_string(&mut older).unwrap();
    assert!(older.contains("text/plain; version=0.0.4"), "{older}");
    assert!(older.contains("# TYPE serval_operations_total counter") && !older.contains("# EOF"), "{older}");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let rest: Vec<String> = lines.collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
    assert!(rest.iter().any(|line| line.starts_with("result: ")), "{rest:?}");
    assert!(scraped(&address).is_none(), "the endpoint is closed");
}

#[test]
fn unavailable_endpoints_are_reported_before_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let run = |more: &str| {
        serval(folder.path(), &format!("load noop -P {} -threads 1 {more}", workload("workloada")))
    };
    let refused = run(&format!("--prometheus {address} --result out")).expect(2);
    assert!(refused.stderr.contains(&format!("--prometheus {address}")), "{}", refused.stderr);
    let refused = run("--prometheus nowhere").expect(2);
    assert!(refused.stderr.contains("HOST:PORT"), "{}", refused.stderr);
    let refused = run("--otlp localhost:4318").expect(2);
    assert!(refused.stderr.contains("begins with http://"), "{}", refused.stderr);
    let refused = run("--otlp https://me:secret@localhost:4318 --result out").expect(2);
    let words = if cfg!(feature = "opentelemetry") { "no password" } else { "--features opentelemetry" };
    assert!(refused.stderr.contains(words) && !refused.stderr.contains("secret"), "{}", refused.stderr);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
}

#[cfg(feature = "opentelemetry")]
#[test]
fn an_unreachable_collector_does_not_affect_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let words = format!("load noop -P {} --otlp http://{gone}", workload("workloada"));
    let ran = serval(folder.path(), &words).expect(0);
    assert_eq!(ran.stderr.matches("does not take metrics").count(), 1, "{}", ran.stderr);
    assert_eq!(ran.value("[INSERT], Return=OK, "), 1000.0);
}

#[cfg(feature = "opentelemetry")]
#[test]
fn the_environment_sets_the_collectors_address() {
    let folder = tempfile::tempdir().unwrap();
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // The flag without a value precedes other flags, YCSB's among them.
    let mut command = program();
    command.current_dir(folder.path()).args([
        "load",
        "noop",
        "-P",
        &workload("workloada"),
        "--otlp",
        "-threads",
        "2",
    ]);
    let ran = command.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{gone}")).output().unwrap();
    let stderr = String::from_utf8(ran.stderr).unwrap();
    assert!(
        ran.status.success() && stderr.contains(&format!("collector at {gone} does not take")),
        "{stderr}"
    );
}
