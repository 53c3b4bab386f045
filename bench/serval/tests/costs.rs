//! Costs of a run, and the warning when the client limited the result.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use common::{folder, serval};
use serval_result::document::ResultDocument;
use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::{Mutex, PoisonError},
    thread,
};

fn result(place: &Path) -> ResultDocument {
    serval_report::json::read_file(&place.join("r/result.json")).unwrap()
}

#[test]
fn a_no_op_store_is_reported_as_client_bound() {
    let place = folder();
    // Long enough that the load of other processes affects both sides equally.
    serval(place.path(), "run noop -p recordcount=100 -p operationcount=3000000 --result r").expect(0);
    let document = result(place.path());
    let client = document.client.as_ref().unwrap();
    assert_eq!(client.threads, 1);
    assert!(client.outside_store.unwrap() > 0.5, "{client:?}");
    assert!(client.bound_by_client[0].starts_with("The client bounded this result: clients spent"));
    // Before all other warnings of a result.
    assert_eq!(document.warnings[0], client.bound_by_client[0]);
    let summary = std::fs::read_to_string(place.path().join("r/summary.txt")).unwrap();
    let first = summary.lines().find(|line| line.starts_with('!')).unwrap();
    assert!(first.starts_with("! The client bounded this result"), "{summary}");
    assert!(summary.contains("\nCOST "), "{summary}");
    assert_eq!(client.usage.sent_bytes, Some(0));
    assert!(document.processes.is_empty());
}

#[test]
fn an_idle_paced_client_is_not_reported_as_client_bound() {
    let place = folder();
    // A busy thread of an embedded store counts as the store's work.
    let words = "bench --out r --records 200 --time 500ms --warm-up 0";
    let file = common::workload("workloada");
    serval(place.path(), &format!("{words} {file} --store sqlite -p target=200")).expect(0);
    let document = result(place.path());
    let client = document.client.unwrap();
    assert_eq!(client.outside_store, None);
    assert!(!client.bound_by_client.iter().any(|reason| reason.contains("outside")), "{client:?}");
    assert!(client.machine_busy.is_some() && client.busiest_thread.is_some());
}

#[test]
fn watching_a_missing_process_is_refused_by_name() {
    let place = folder();
    let words = "run noop -p recordcount=1 -p operationcount=1 -p watch=no-such-server,4294967295";
    let ran = serval(place.path(), words).expect(2);
    assert!(
        ran.stderr.contains("no process on this machine has 'no-such-server' in its command line"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("has the id 4294967295") && ran.stderr.contains("watch: "), "{}", ran.stderr);
}

/// Held by tests that send data: the traffic of this process's children counts as
/// this process's.
static NETWORK: Mutex<()> = Mutex::new(());

/// The answer to a read.
const RECORD: &str = "*2\r\n$6\r\nfield0\r\n$5\r\nhello\r\n";

/// Answers the commands of one connection like a Redis with one record under every
/// key.
fn answer(stream: TcpStream) -> std::io::Result<()> {
    let mut output = stream.try_clone()?;
    let mut lines = BufReader::new(stream).lines();
    while let Some(line) = lines.next() {
        // An array of bulk strings without line ends.
        let words: usize = line?.trim_start_matches('*').parse().unwrap();
        let mut command = Vec::new();
        for _ in 0..words {
            lines.next().unwrap()?;
            command.push(lines.next().unwrap()?.to_ascii_uppercase());
        }
        output.write_all(match command[0].as_str() {
            "HGETALL" => RECORD.as_bytes(),
            "EXISTS" => b":1\r\n",
            "INFO" => b"$21\r\nredis_version:7.0.15\n\r\n",
            _ => b"+OK\r\n",
        })?;
    }
    Ok(())
}

/// The server receives every byte that the client sends and vice versa, although both are
/// counted while the connections are open.
#[test]
fn a_server_costs_what_the_client_sends_and_receives() {
    let _alone = NETWORK.lock().unwrap_or_else(PoisonError::into_inner);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || answer(stream.unwrap()));
        }
    });
    let place = folder();
    let watch = std::process::id();
    let words = format!(
        "run redis -p redis.host=127.0.0.1 -p redis.port={port} -p recordcount=10 -p operationcount=1000 -threads 4 \
         -p readproportion=1 -p updateproportion=0 -p watch={watch} --result r"
    );
    serval(place.path(), &words).expect(0);
    let document = result(place.path());
    let [process] = &document.processes[..] else { panic!("{:?}", document.processes) };
    assert_eq!((process.name.as_str(), &process.pids[..]), (&*watch.to_string(), &[watch][..]));
    assert!(process.command.contains("costs"), "{process:?}");
    let (client, server) = (document.client.unwrap().usage, &process.usage);
    let Some(sent) = client.sent_bytes else {
        eprintln!("bytes are not compared: the kernel does not tell");
        return;
    };
    // A thousand commands, each with its key.
    assert!((20_000..2_000_000).contains(&sent), "{client:?}");
    assert_eq!(server.received_bytes, Some(sent));
    let answer = RECORD.len() as u64;
    assert_eq!(client.received_bytes, Some(1000 * answer));
    // The last answers may be unacknowledged.
    let sent_by_server = server.sent_bytes.unwrap();
    assert!((996 * answer..=1000 * answer).contains(&sent_by_server), "{sent_by_server}");
    let summary = std::fs::read_to_string(place.path().join("r/summary.txt")).unwrap();
    assert!(summary.contains(&format!("\n{watch} ")), "{summary}");
}

#[test]
#[ignore = "needs SERVAL_TEST_REDIS"]
fn a_real_redis_costs_what_its_clients_see() {
    let Ok(address) = std::env::var("SERVAL_TEST_REDIS") else {
        panic!("SERVAL_TEST_REDIS is not set: 'cargo xtask test' starts the server and sets it");
    };
    let _alone = NETWORK.lock().unwrap_or_else(PoisonError::into_inner);
    let (host, port) = address.rsplit_once(':').unwrap();
    let place = folder();
    let words = format!("redis -p redis.host={host} -p redis.port={port} -p recordcount=200 -threads 8");
    serval(place.path(), &format!("load {words}")).expect(0);
    serval(place.path(), &format!("run {words} -p operationcount=5000 -p watch=:{port} --result r"))
        .expect(0);
    let document = result(place.path());
    let server = &document.processes[0];
    assert!(server.command.contains("redis"), "{server:?}");
    let client = document.client.unwrap();
    assert!(server.usage.received_bytes.unwrap() >= client.usage.sent_bytes.unwrap());
    assert!(
        server.usage.memory_bytes.unwrap() > 1 << 20 && client.usage.received_bytes.unwrap() > 5000 * 100
    );
}
