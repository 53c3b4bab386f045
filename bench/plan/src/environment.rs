//! The client's machine, as the operating system describes it.

use serval_result::document::Environment;
use std::fs::read_to_string;

fn after_colon(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Describes this machine. A fact that cannot be read is empty or zero.
pub fn environment() -> Environment {
    let cpu_info = read_to_string("/proc/cpuinfo").unwrap_or_default();
    let memory = read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes =
        after_colon(&memory, "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    let system = rustix::system::uname();
    let words = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    Environment {
        cpu: after_colon(&cpu_info, "model name").unwrap_or_default(),
        cores: std::thread::available_parallelism().map_or(0, |cores| cores.get() as u64),
        memory_bytes: kilobytes.unwrap_or(0) * 1024,
        kernel: format!("{} {}", words(system.sysname()), words(system.release())),
        host: words(system.nodename()),
        build: format!(
            "{} {}",
            std::env::consts::ARCH,
            if cfg!(debug_assertions) {
                "debug: numbers of a debug build are not to be quoted"
            } else {
                "release"
            }
        ),
        debug: cfg!(debug_assertions),
    }
}
