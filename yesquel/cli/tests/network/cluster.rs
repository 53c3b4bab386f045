//! Four servers and the machines of the clients.

use crate::{
    client,
    lists::GROUPS,
    namespaces::{Machine, Namespaces, run},
    place::Place,
    sql,
    support::Process,
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    process::Child,
    thread,
    time::{Duration, Instant},
};
use yesquel::{SocketOptions, Store, status::ServerStatus};
use yesquel_client::Client;
use yesquel_model::ServerId;
use yesquel_transport::{SocketTransport, block_on};
use yesquel_tree::Trees;

/// Number of machines with a client.
pub(crate) const CLIENTS: usize = 3;
/// The server whose disk can be filled: a small file system in memory.
pub(crate) const SMALL_DISK: usize = GROUPS - 1;
const SMALL_DISK_BYTES: &str = "size=96m";
/// Bytes of log between checkpoints.
const CHECKPOINT_EVERY: &str = "256K";
/// Limit of waits for servers that no fault affects.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two looks at a server's status.
const STATUS_PAUSE: Duration = Duration::from_millis(20);

/// A client's process, and the file that it writes.
pub(crate) struct RunningClient {
    pub(crate) number: u64,
    process: Child,
}

/// The machines, and the processes on them.
pub(crate) struct NetworkCluster {
    pub(crate) place: Place,
    pub(crate) namespaces: Namespaces,
    servers: [Option<Process>; GROUPS],
    clients: [Option<RunningClient>; CLIENTS],
    /// Number of the last client. Each process has its own.
    last_client: u64,
    faketime: PathBuf,
}

/// Returns the library of libfaketime for programs with threads.
fn faketime() -> PathBuf {
    let folders = fs::read_dir("/usr/lib").unwrap().flatten().map(|entry| entry.path());
    let library = folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1")).find(|path| path.exists());
    library.expect("Debian's package libfaketime is installed")
}

fn client_machine(client: usize) -> Machine {
    Machine(GROUPS + client)
}

impl NetworkCluster {
    /// Creates the machines, starts the servers, and creates a tree in each group and a database of SQL
    /// at all of them.
    pub(crate) fn start(folder: &Path) -> NetworkCluster {
        let place = Place::at(folder.to_owned());
        place.fill();
        let namespaces = Namespaces::create(GROUPS + CLIENTS);
        namespaces.enter_hub();
        let mut cluster = NetworkCluster {
            place,
            namespaces,
            servers: Default::default(),
            clients: Default::default(),
            last_client: 0,
            faketime: faketime(),
        };
        for group in 0..GROUPS {
            fs::create_dir(cluster.place.disk(group)).unwrap();
            cluster.set_clock(group, 0);
        }
        let disk = cluster.place.disk(SMALL_DISK);
        run("mount", &["-t", "tmpfs", "-o", SMALL_DISK_BYTES, "tmpfs", disk.to_str().unwrap()]);
        (0..GROUPS).for_each(|group| cluster.start_server(group));
        let trees = cluster.connect();
        let create = |group| block_on(trees.create(ServerId(group as u16))).unwrap();
        cluster.place.set_trees(&(0..GROUPS).map(create).collect::<Vec<_>>());
        sql::set_up(&cluster.place);
        cluster
    }

    /// Starts a server, which must open its folder.
    #[track_caller]
    pub(crate) fn start_server(&mut self, group: usize) {
        let process = self.spawn_server(group);
        process.wait_until_ready();
        self.servers[group] = Some(process);
    }

    /// Starts a server, and does not wait.
    pub(crate) fn spawn_server(&self, group: usize) -> Process {
        let place = &self.place;
        let mut command = self.namespaces.command(Machine(group));
        command.arg(env!("CARGO_BIN_EXE_yesquel")).arg("serve");
        command.arg("--data").arg(place.disk(group).join("data"));
        command.arg("--listen").arg(Place::address(group).to_string());
        command.args(["--server", &group.to_string(), "--checkpoint-every", CHECKPOINT_EVERY]);
        // Leaves of SQL's tables and indexes go to each group in turn. Maps have one group each.
        command.args(["--placement", "spread"]);
        command.arg("--tls-cert").arg(place.certificate()).arg("--tls-key").arg(place.key());
        command.arg("--credential-file").arg(place.credential());
        command.arg("--peer-credential-file").arg(place.peer_credential());
        command.arg("--peer-tls-ca").arg(place.certificate());
        for other in (0..GROUPS).filter(|other| *other != group) {
            command.arg("--peer").arg(format!("{other}={}", Place::address(other)));
        }
        command.env("LD_PRELOAD", &self.faketime).env("DONT_FAKE_MONOTONIC", "1");
        command.env("FAKETIME_TIMESTAMP_FILE", place.clock(group)).env("FAKETIME_CACHE_DURATION", "1");
        command.env("FAKETIME_DISABLE_SHM", "1");
        Process::spawn(&mut command)
    }

    /// Sends a signal to a server.
    pub(crate) fn signal_server(&self, group: usize, signal: Signal) {
        if let Some(server) = &self.servers[group] {
            server.signal(signal);
        }
    }

    /// Kills a server, and keeps its log.
    pub(crate) fn kill_server(&mut self, group: usize) {
        if let Some(mut server) = self.servers[group].take() {
            server.signal(Signal::KILL);
            server.wait();
            self.keep_log(group, &server);
        }
    }

    pub(crate) fn keep_log(&self, group: usize, server: &Process) {
        let mut log =
            OpenOptions::new().append(true).create(true).open(self.place.server_log(group)).unwrap();
        writeln!(log, "{}", server.said()).unwrap();
    }

    /// Shuts a server down by SIGTERM.
    pub(crate) fn stop_server(&mut self, group: usize) {
        if let Some(mut server) = self.servers[group].take() {
            server.terminate();
            self.keep_log(group, &server);
        }
    }

    /// Sets how many seconds a server's wall clock is ahead.
    pub(crate) fn set_clock(&self, group: usize, seconds: i64) {
        let (file, next) = (self.place.clock(group), self.place.clock(group).with_extension("next"));
        fs::write(&next, format!("{seconds:+}s\n")).unwrap();
        fs::rename(next, file).unwrap();
    }

    /// Starts a client on a machine.
    pub(crate) fn start_client(&mut self, client: usize, round: u64, seed: u64) {
        self.last_client += 1;
        let number = self.last_client;
        let command = self.namespaces.command(client_machine(client));
        let process = client::start(command, &self.place, number, round, seed);
        self.clients[client] = Some(RunningClient { number, process });
    }

    /// Sends a signal to a client.
    pub(crate) fn signal_client(&self, client: usize, signal: Signal) {
        if let Some(client) = &self.clients[client] {
            kill_process(Pid::from_child(&client.process), signal).unwrap();
        }
    }

    /// Kills a client.
    pub(crate) fn kill_client(&mut self, client: usize) {
        if let Some(mut client) = self.clients[client].take() {
            client.process.kill().unwrap();
            client.process.wait().unwrap();
        }
    }

    /// Lets all clients end their transactions; they must not have failed.
    pub(crate) fn stop_clients(&mut self) {
        for client in &mut self.clients {
            let Some(mut client) = client.take() else { continue };
            drop(client.process.stdin.take());
            let status = client.process.wait().unwrap();
            let log = || fs::read_to_string(self.place.client_log(client.number)).unwrap_or_default();
            assert!(status.success(), "client {}: {status}\n{}", client.number, log());
        }
    }

    /// Numbers of the clients that were started.
    pub(crate) fn client_numbers(&self) -> std::ops::RangeInclusive<u64> {
        1..=self.last_client
    }

    /// Connects to all servers, from the hub.
    pub(crate) fn connect(&mut self) -> Trees<SocketTransport> {
        self.last_client += 1;
        let number = self.last_client;
        let addresses: Vec<_> = (0..GROUPS).map(Place::address).collect();
        let until = Instant::now() + PATIENCE;
        loop {
            let options = SocketOptions { timeout: PATIENCE, ..self.place.options() };
            match SocketTransport::connect(&addresses, number, options) {
                Ok(transport) => return Trees::new(Client::new(transport, number)),
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Writes a value to a database of a server that is as large as its log between checkpoints. It
    /// may fail.
    pub(crate) fn write_much(&self, group: usize) -> Result<(), yesquel::Error> {
        let store = Store::connect(&Place::address(group), self.place.options());
        let put = |store: Store| {
            let database = store.database_or_create(&format!("ballast {group}"))?;
            database.put(database.map("ballast")?, b"key", &[7; 256 << 10])
        };
        store.and_then(put).map(drop)
    }

    /// Returns a server's status, if it serves.
    pub(crate) fn status(&self, group: usize) -> Result<ServerStatus, yesquel::Error> {
        Store::connect(&Place::address(group), self.place.options())?.status()
    }

    /// Waits until each server has reached all others from now on: a fault may have ended connections that
    /// neither end has noticed yet. Returns the first server that does not in time.
    pub(crate) fn wait_for_peers(&self) -> Option<usize> {
        let begun = Instant::now();
        let has_reached_all = |group| {
            let clocks = self.status(group).map(|status| status.peers.clocks).unwrap_or_default();
            let age_max = begun.elapsed();
            clocks.len() == GROUPS - 1
                && clocks.iter().all(|clock| Duration::from_millis(clock.age_ms) < age_max)
        };
        for group in 0..GROUPS {
            while !has_reached_all(group) {
                if begun.elapsed() > PATIENCE {
                    return Some(group);
                }
                thread::sleep(STATUS_PAUSE);
            }
        }
        None
    }

    /// Removes all faults of links, and lets stopped processes go on.
    pub(crate) fn heal(&self) {
        self.namespaces.heal();
        (0..GROUPS).for_each(|group| self.signal_server(group, Signal::CONT));
        (0..CLIENTS).for_each(|client| self.signal_client(client, Signal::CONT));
    }
}

impl Drop for NetworkCluster {
    fn drop(&mut self) {
        for group in 0..GROUPS {
            if let Some(server) = &self.servers[group] {
                self.keep_log(group, server);
            }
        }
        for client in self.clients.iter_mut().flatten() {
            // It may have ended.
            let _ = client.process.kill();
            let _ = client.process.wait();
        }
    }
}
