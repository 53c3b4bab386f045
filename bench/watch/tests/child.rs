//! A real process that computes and uses a real connection, compared with its own figures.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use rustix::time::{ClockId, clock_gettime};
use serval_watch::{MemoryReading, Selection, Snapshot, System};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Command, Stdio},
};

const SENT: usize = 300_000;
const RECEIVED: usize = 70_000;
const BURNT_S: f64 = 0.3;
const ADDRESS: &str = "SERVAL_WATCHED_CHILD";

fn own_cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The child: this test in a process of its own.
#[test]
fn the_child_process() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let mut stream = TcpStream::connect(address).unwrap();
    // Before the first snapshot, so not counted.
    stream.write_all(b"hello").unwrap();
    let mut answer = [0; 2];
    stream.read_exact(&mut answer).unwrap();
    let before = own_cpu_s();
    let mut input = std::io::stdin().lines();
    eprintln!("ready");
    input.next();
    stream.write_all(&vec![1; SENT]).unwrap();
    stream.read_exact(&mut vec![0; RECEIVED]).unwrap();
    while own_cpu_s() - before < BURNT_S {}
    let after = own_cpu_s();
    eprintln!("{} {after}", after - before);
    input.next();
}

fn exchange(listener: TcpListener) {
    let address = listener.local_addr().unwrap().to_string();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_child_process", "--nocapture"])
        .env(ADDRESS, &address)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    stream.read_exact(&mut [0; 5]).unwrap();
    stream.write_all(b"go").unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");

    let system = System::this();
    let group = system.find(&Selection::Process(child.id())).unwrap();
    assert_eq!(group.pids(), [child.id()]);
    let earlier = Snapshot::take(&system.look(), &group, MemoryReading::Leave);
    input.write_all(b"go\n").unwrap();
    stream.read_exact(&mut vec![0; SENT]).unwrap();
    stream.write_all(&vec![2; RECEIVED]).unwrap();
    let line = lines.next().unwrap().unwrap();
    let later = Snapshot::take(&system.look(), &group, MemoryReading::Read);
    input.write_all(b"end\n").unwrap();
    assert!(child.wait().unwrap().success());

    let (burnt, whole) = line.split_once(' ').unwrap();
    let (burnt, whole): (f64, f64) = (burnt.parse().unwrap(), whole.parse().unwrap());
    let usage = later.since(&earlier);
    // User and system time are truncated to ticks of 10 ms at both ends.
    assert!(usage.cpu_s >= burnt - 0.02 && usage.cpu_s <= whole + 0.05, "{usage:?}, {line}");
    // Its threads ran for that time as well, by the other counter.
    let busy: f64 = later.threads_since(&earlier).iter().map(|thread| thread.share).sum();
    let span = later.span_since(&earlier).as_secs_f64();
    assert!(busy * span >= burnt * 0.9 && busy <= 2.0, "{busy} of {span} s");
    assert!(usage.run_queue_s.unwrap() >= 0.0);
    let memory = usage.memory_bytes.unwrap();
    assert!((1 << 20..1 << 30).contains(&memory), "{memory}");
    match later.no_bytes() {
        Some(why) => eprintln!("bytes are not compared: {why}"),
        None => {
            assert_eq!((usage.sent_bytes, usage.received_bytes), (Some(SENT as u64), Some(RECEIVED as u64)))
        }
    }
    assert!(system.find(&Selection::Process(child.id())).is_err());
}

#[test]
fn cpu_time_and_bytes_equal_those_of_the_process() {
    exchange(TcpListener::bind("127.0.0.1:0").unwrap());
}

#[test]
fn connections_over_ipv6_are_counted() {
    match TcpListener::bind("[::1]:0") {
        Ok(listener) => exchange(listener),
        Err(error) => eprintln!("skipped: no IPv6 here ({error})"),
    }
}

#[test]
fn the_utilization_of_the_machine_is_between_0_and_1() {
    let system = System::this();
    let earlier = system.machine().unwrap();
    assert_eq!(earlier.busy_since(&earlier), None);
    let mut later = earlier;
    while later == earlier {
        later = system.machine().unwrap();
    }
    let busy = later.busy_since(&earlier).unwrap();
    assert!((0.0..=1.0).contains(&busy), "{busy}");
}
