//! Cost of a snapshot: of this process and of a watched one, with 50
//! connections between them.
//!
//! `cargo run --release -p serval-watch --example cost`

#![allow(clippy::unwrap_used, reason = "an example")]

use serval_watch::{MemoryReading, Selection, Snapshot, System};
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::{Command, Stdio},
    time::Instant,
};

const CONNECTIONS: usize = 50;
const LOOKS: u32 = 200;

fn main() {
    if let Some(address) = std::env::args().nth(1) {
        let held: Vec<_> = (0..CONNECTIONS).map(|_| TcpStream::connect(&address).unwrap()).collect();
        // Until the peer closes.
        let _ = (&held[0]).read(&mut [0]);
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .arg(listener.local_addr().unwrap().to_string())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let held: Vec<_> = (0..CONNECTIONS).map(|_| listener.accept().unwrap().0).collect();
    let system = System::this();
    let begin = Instant::now();
    let selection = Selection::Command("127.0.0.1:".into());
    let found = system.find(&selection).unwrap();
    println!("finding {:?} by command line: {:?}", found.pids(), begin.elapsed());
    let group = system.find(&Selection::Process(child.id())).unwrap();
    let own = system.own();
    for memory in [MemoryReading::Leave, MemoryReading::Read] {
        let begin = Instant::now();
        for _ in 0..LOOKS {
            let look = system.look();
            let _ = (
                Snapshot::take(&look, &own, memory),
                Snapshot::take(&look, &group, memory),
                system.machine(),
            );
        }
        println!("a look at both, memory {memory:?}: {:?}", begin.elapsed() / LOOKS);
    }
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let processes = processes.filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok());
    println!("processes on this machine: {}", processes.count());
    let _ = (&held[0]).write(&[0]);
    drop(held);
    child.wait().unwrap();
}
