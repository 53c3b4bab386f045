//! Processes of servers and clients: ports, folders, options, processor time, and when servers listen.

use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;
use crate::children::Running;
use crate::cpu;

/// Returns a free port.
pub(super) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    listener.map(|address| address.port()).map_err(|error| format!("no port is free: {error}"))
}

pub(super) fn folder() -> Result<tempfile::TempDir> {
    tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))
}

/// Returns the CPU time of a process, us.
pub(super) fn cpu_us(pid: u32) -> Result<f64> {
    cpu::of_process(pid).map(|time| time.as_secs_f64() * 1e6)
}

/// Waits until a server listens.
pub(super) fn wait_until(running: &Running, place: &str, mut listens: impl FnMut() -> bool) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(20);
    while !listens() {
        if running.ended()? || Instant::now() > until {
            return Err(format!("no server came up at {place}"));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Waits until a server listens on a port.
pub(super) fn wait_for(running: &Running, port: u16) -> Result<()> {
    wait_until(running, &format!("port {port}"), || TcpStream::connect(("127.0.0.1", port)).is_ok())
}

/// Returns options with their values as arguments.
pub(super) fn options(pairs: &[(&str, String)]) -> Vec<String> {
    pairs.iter().flat_map(|(name, value)| [format!("--{name}"), value.clone()]).collect()
}
