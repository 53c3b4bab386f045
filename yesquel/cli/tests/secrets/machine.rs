//! A server in a process of its own, with files of secrets.

use crate::{
    PROGRAM, certificates::MadeCertificate, metrics::MetricsAddress, support::Process, waiting::wait_until,
};
use rustix::process::Signal;
use std::{
    collections::BTreeMap,
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};
use yesquel::{Address, ClientFiles, Role, ServerEncryption, SocketOptions};

/// Files of a machine, or of clients.
#[derive(Debug, Clone)]
pub(crate) struct Files(pub(crate) PathBuf);

impl Files {
    pub(crate) fn create(place: &Path, name: &str) -> Files {
        let folder = place.join(name);
        fs::create_dir(&folder).unwrap();
        Files(folder)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Replaces a file at once: a client may be reading it.
    pub(crate) fn write(&self, name: &str, content: &str) {
        let next = self.path("next");
        fs::write(&next, content).unwrap();
        fs::rename(next, self.path(name)).unwrap();
    }

    pub(crate) fn write_certificate(&self, made: &MadeCertificate) {
        self.write("certificate.pem", &made.certificate);
        self.write("key.pem", &made.key);
    }

    /// Options of connections that read `ca.pem`, if it exists, and a credential.
    pub(crate) fn options(&self, credential: &str, role: Role) -> SocketOptions {
        let signers = self.path("ca.pem");
        let encryption = match signers.exists() {
            true => ServerEncryption::SignedBy(signers),
            false => ServerEncryption::None,
        };
        let files = ClientFiles::open(&encryption, Some(&self.path(credential))).unwrap();
        SocketOptions { secrets: Some(Arc::new(files)), role, lanes: 0, ..SocketOptions::default() }
    }
}

/// A running server.
pub(crate) struct Machine {
    pub(crate) process: Process,
    pub(crate) files: Files,
    metrics: MetricsAddress,
    /// Reloads that were asked for, and have succeeded and failed.
    reloads: u64,
    failed: u64,
}

/// Returns the host of the servers of this process, which no other test takes ports of: a loopback address
/// of its own.
pub(crate) fn own_host() -> String {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    format!("127.{}.{middle}.{low}", 64 + high % 64)
}

/// Returns an address with an unused port. Servers that must know each other get it before they start.
pub(crate) fn free_address() -> Address {
    let host = own_host();
    let port = TcpListener::bind((host.as_str(), 0)).unwrap().local_addr().unwrap().port();
    Address::Tcp { host, port }
}

/// Returns the command of a server in memory at an address; `files` says which secrets it has.
pub(crate) fn serve(files: &Files, address: &Address) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--in-memory", "--metrics", "127.0.0.1:0", "--listen", &address.to_string()]);
    for (option, name) in [
        ("--tls-cert", "certificate.pem"),
        ("--tls-key", "key.pem"),
        ("--peer-tls-ca", "ca.pem"),
        ("--credential-file", "clients"),
        ("--peer-credential-file", "servers"),
    ] {
        if files.path(name).exists() {
            command.arg(option).arg(files.path(name));
        }
    }
    command.env("YESQUEL_LOG", "info");
    command
}

impl Machine {
    /// Takes a process that has been started.
    pub(crate) fn started(process: Process, files: &Files) -> Machine {
        process.wait_until_ready();
        let metrics = MetricsAddress::of(&process);
        Machine { process, files: files.clone(), metrics, reloads: 0, failed: 0 }
    }

    /// Returns the metrics, by name and labels.
    pub(crate) fn metrics(&self) -> BTreeMap<String, f64> {
        self.metrics.read()
    }

    pub(crate) fn metric(&self, name: &str) -> Option<u64> {
        self.metrics().get(name).map(|value| *value as u64)
    }

    /// Open connections of a role that the credential in a line has admitted.
    pub(crate) fn admitted(&self, role: &str, line: u64) -> u64 {
        let name = format!("yesquel_admitted_connections{{role=\"{role}\",line=\"{line}\"}}");
        self.metric(&name).unwrap_or_default()
    }

    #[track_caller]
    pub(crate) fn wait_until(&self, is_so: impl Fn(&Machine) -> bool) {
        wait_until(&self.process, || is_so(self));
    }

    /// Returns its log, once so many lines of it contain a text.
    #[track_caller]
    pub(crate) fn log_with(&self, text: &str, count: u64) -> String {
        let lines = || self.process.said().lines().filter(|line| line.contains(text)).count() as u64;
        wait_until(&self.process, || lines() >= count);
        self.process.said()
    }

    /// Sends SIGHUP, and waits until the numbers of reloads are these.
    #[track_caller]
    fn hang_up(&self, reloads: (u64, u64)) {
        self.process.signal(Signal::HUP);
        wait_until(&self.process, || {
            let metrics = self.metrics();
            let of = |result: &str| {
                metrics[&format!("yesquel_secret_reloads_total{{result=\"{result}\"}}")] as u64
            };
            let now = (of("success"), of("failure"));
            let is_early = now.0 + now.1 < reloads.0 + reloads.1;
            assert!(is_early || now == reloads, "{now:?} instead of {reloads:?}: {}", self.process.said());
            !is_early
        });
    }

    /// Makes it read its files again, which succeeds.
    #[track_caller]
    pub(crate) fn reload(&mut self) {
        self.reloads += 1;
        self.hang_up((self.reloads, self.failed));
    }

    /// Makes it read its files again, which fails. Returns the line of its log about that.
    #[track_caller]
    pub(crate) fn fail_to_reload(&mut self) -> String {
        self.failed += 1;
        self.hang_up((self.reloads, self.failed));
        let text = "cannot be read: the former stay in force";
        let said = self.log_with(text, self.failed);
        said.lines().rev().find(|line| line.contains(text)).unwrap().to_owned()
    }
}
