//! Network namespaces on one bridge, and the faults of their links.
//!
//! The bridge is in a namespace of its own, the hub, and so are all devices: the machine's own
//! network is not touched.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::{
    fs::File,
    io::Write as _,
    os::fd::AsFd,
    process::{Command, Stdio},
};

/// Prefix of the names of everything that this program creates outside its folder. The process id
/// follows.
pub(crate) const PREFIX: &str = "yesquel-network-";

/// Machine of the test, in a namespace of its own. Servers come first, then clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Machine(pub(crate) usize);

impl Machine {
    /// Returns the machine's address.
    pub(crate) fn ip(self) -> String {
        format!("10.78.0.{}", 10 + self.0)
    }
}

/// How a link is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlowLink {
    /// Kilobits per second that leave the machine.
    Narrow(u64),
    /// Percent of packets that are lost on arrival.
    Lossy(u64),
    /// Milliseconds of delay, with packets duplicated, reordered and lost. Needs netem.
    Delayed(u64),
}

/// The namespaces of a cluster. Dropping it deletes them.
#[derive(Debug)]
pub(crate) struct Namespaces {
    machines: usize,
    /// Whether the kernel has netem.
    pub(crate) has_netem: bool,
}

/// Runs a program to its end; returns whether it succeeded.
pub(crate) fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Runs a program, which must succeed; returns its output.
#[track_caller]
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {}: {said}", arguments.join(" "));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn own_prefix() -> String {
    format!("{PREFIX}{}-", std::process::id())
}

fn hub() -> String {
    own_prefix() + "hub"
}

fn name(machine: Machine) -> String {
    format!("{}{}", own_prefix(), machine.0)
}

fn path(name: &str) -> String {
    format!("/run/netns/{name}")
}

const RULES: &str = "table inet faults {
    set cut { type ipv4_addr; }
    set broken { type ipv4_addr; }
    chain lossy {
    }
    chain arriving {
        type filter hook input priority 0;
        ip saddr @cut drop
        ip saddr @broken meta l4proto tcp reject with tcp reset
        jump lossy
    }
}
";

impl Namespaces {
    /// Creates the hub and this number of machines.
    pub(crate) fn create(machines: usize) -> Namespaces {
        let mut namespaces = Namespaces { machines, has_netem: false };
        let hub = hub();
        run("ip", &["netns", "add", &hub]);
        run("ip", &["-n", &hub, "link", "add", "bridge", "type", "bridge"]);
        run("ip", &["-n", &hub, "addr", "add", "10.78.0.1/24", "dev", "bridge"]);
        run("ip", &["-n", &hub, "link", "set", "bridge", "up"]);
        run("ip", &["-n", &hub, "link", "set", "lo", "up"]);
        for machine in (0..machines).map(Machine) {
            let (own, port) = (name(machine), format!("port{}", machine.0));
            run("ip", &["netns", "add", &own]);
            let pair = ["link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &own];
            run("ip", &[&["-n", &hub][..], &pair].concat());
            run("ip", &["-n", &hub, "link", "set", &port, "master", "bridge"]);
            run("ip", &["-n", &hub, "link", "set", &port, "up"]);
            run("ip", &["-n", &own, "addr", "add", &format!("{}/24", machine.ip()), "dev", "eth0"]);
            run("ip", &["-n", &own, "link", "set", "eth0", "up"]);
            run("ip", &["-n", &own, "link", "set", "lo", "up"]);
            namespaces.filter(machine, RULES);
        }
        let netem = namespaces.tc(Machine(0), &["add", "dev", "eth0", "root", "netem", "delay", "1ms"]);
        namespaces.has_netem = netem;
        namespaces.straighten(Machine(0));
        namespaces
    }

    /// Moves the calling thread, and the threads that it starts, to the hub.
    pub(crate) fn enter_hub(&self) {
        let namespace = File::open(path(&hub())).unwrap();
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    }

    /// Returns a command that runs a program on a machine, in the process that it starts.
    pub(crate) fn command(&self, machine: Machine) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", path(&name(machine)))).arg("--");
        command
    }

    /// Applies rules of nftables.
    fn filter(&self, machine: Machine, rules: &str) {
        let mut command = self.command(machine);
        command.args(["nft", "-f", "-"]).stdin(Stdio::piped());
        let mut nft = command.spawn().unwrap();
        nft.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
        assert!(nft.wait().unwrap().success(), "nft refuses: {rules}");
    }

    /// Runs `tc qdisc` for a machine; returns whether it succeeded.
    fn tc(&self, machine: Machine, arguments: &[&str]) -> bool {
        let own = name(machine);
        succeeds("tc", &[&["-n", &own, "qdisc"][..], arguments].concat())
    }

    /// Cuts a link in one direction: packets are lost, or connections are reset.
    pub(crate) fn cut(&self, from: Machine, to: Machine, resets: bool) {
        let set = if resets { "broken" } else { "cut" };
        self.filter(to, &format!("add element inet faults {set} {{ {} }}\n", from.ip()));
    }

    /// Makes the link of a machine slow.
    pub(crate) fn slow(&self, machine: Machine, how: SlowLink) {
        let done = match how {
            SlowLink::Narrow(kilobits) => {
                let rate = format!("{kilobits}kbit");
                let shape = ["tbf", "rate", &rate, "burst", "4kb", "latency", "2s"];
                self.tc(machine, &[&["add", "dev", "eth0", "root"][..], &shape].concat())
            }
            SlowLink::Lossy(percent) => {
                let rule = format!("add rule inet faults lossy numgen random mod 100 < {percent} drop\n");
                self.filter(machine, &rule);
                true
            }
            SlowLink::Delayed(ms) => {
                let (delay, jitter) = (format!("{ms}ms"), format!("{}ms", ms / 2));
                let shape = ["netem", "delay", &delay, &jitter, "loss", "2%", "duplicate", "5%"];
                self.tc(machine, &[&["add", "dev", "eth0", "root"][..], &shape, &["reorder", "10%"]].concat())
            }
        };
        assert!(done, "{how:?}");
    }

    /// Removes what [`slow`](Self::slow) did.
    pub(crate) fn straighten(&self, machine: Machine) {
        self.filter(machine, "flush chain inet faults lossy\n");
        // There may be none.
        self.tc(machine, &["del", "dev", "eth0", "root"]);
    }

    /// Removes all faults of all links.
    pub(crate) fn heal(&self) {
        for machine in (0..self.machines).map(Machine) {
            self.filter(machine, "flush set inet faults cut\nflush set inet faults broken\n");
            self.straighten(machine);
        }
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        sweep(std::process::id());
    }
}

/// Returns the process that created something of this name.
fn creator(name: &str) -> Option<u32> {
    let (_, after) = name.split_once(PREFIX)?;
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Kills the processes in the namespaces of a run of this program, and removes its namespaces and
/// mounts.
pub(crate) fn sweep(process: u32) {
    let names = Command::new("ip").args(["netns", "list"]).output().map(|output| output.stdout);
    let names = String::from_utf8(names.unwrap_or_default()).unwrap_or_default();
    for name in names.lines().filter_map(|line| line.split(' ').next()) {
        if creator(name) != Some(process) {
            continue;
        }
        let inside = Command::new("ip").args(["netns", "pids", name]).output().map(|output| output.stdout);
        for pid in String::from_utf8(inside.unwrap_or_default()).unwrap_or_default().split_whitespace() {
            // The test's own threads may be in the hub.
            if pid.parse() != Ok(std::process::id()) {
                succeeds("kill", &["-KILL", pid]);
            }
        }
        succeeds("ip", &["netns", "del", name]);
    }
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    for place in mounts.lines().filter_map(|line| line.split(' ').nth(1)) {
        if creator(place) == Some(process) && !place.starts_with("/run/") {
            succeeds("umount", &["--lazy", place]);
        }
    }
    sweep_shared_memory();
}

/// Removes what libfaketime shared within processes that are gone.
fn sweep_shared_memory() {
    for file in std::fs::read_dir("/dev/shm").into_iter().flatten().flatten().map(|entry| entry.path()) {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let process = name.strip_prefix("faketime_shm_").or_else(|| name.strip_prefix("sem.faketime_sem_"));
        if process.and_then(|process| process.parse().ok()).is_some_and(is_gone) {
            let _ = std::fs::remove_file(file);
        }
    }
}

fn is_gone(process: u32) -> bool {
    !std::path::Path::new(&format!("/proc/{process}")).exists()
}

/// Removes what earlier runs have left that were killed.
pub(crate) fn sweep_after_crashes() {
    let names = Command::new("ip").args(["netns", "list"]).output().map(|output| output.stdout);
    let names = String::from_utf8(names.unwrap_or_default()).unwrap_or_default();
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let mut creators: Vec<u32> = names.lines().chain(mounts.lines()).filter_map(creator).collect();
    creators.sort_unstable();
    creators.dedup();
    creators.into_iter().filter(|process| is_gone(*process)).for_each(sweep);
}
