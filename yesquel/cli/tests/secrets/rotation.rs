//! Three servers change their authority, certificates and credentials one after the other, while
//! clients work.

use crate::{
    certificates::Authority,
    machine::{Files, Machine, free_address, serve},
    support::Process,
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
};
use yesquel::{Address, ConnectError, Denial, Role, ServerId, Store};
use yesquel_client::Client;
use yesquel_transport::{SocketTransport, block_on};
use yesquel_tree::{Tree, TreeError, Trees};

const SERVERS: u16 = 3;
const WORKERS: u64 = 2;

/// Clients that connect anew for each transaction, as short-lived programs do.
#[derive(Default)]
struct Load {
    stops: AtomicBool,
    /// Rounds that have ended, by worker.
    rounds: [AtomicU64; WORKERS as usize],
    failure: Mutex<Option<String>>,
}

fn connect(
    addresses: &[Address],
    files: &Files,
    client: u64,
) -> Result<Trees<SocketTransport>, ConnectError> {
    let options = files.options("credential", Role::Client);
    Ok(Trees::new(Client::new(SocketTransport::connect(addresses, client, options)?, client)))
}

/// Writes a number into a tree of each server in one transaction, and reads all of them.
fn write_and_read(trees: &Trees<SocketTransport>, all: &[Tree], number: u64) -> Result<(), TreeError> {
    let value = number.to_be_bytes();
    let mut transaction = trees.begin();
    all.iter().try_for_each(|tree| transaction.put(*tree, b"key", &value))?;
    block_on(transaction.commit())?;
    let mut transaction = trees.begin();
    for tree in all {
        let read = block_on(transaction.get(*tree, b"key"))?;
        assert_eq!(read.as_deref(), Some(&value[..]));
    }
    Ok(())
}

/// Ends the work with the test, also with one that fails.
struct StopOnDrop<'a>(&'a Load);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stops.store(true, SeqCst);
    }
}

impl Load {
    /// Works until the end. A failure ends the waits for its rounds.
    fn work_or_fail(&self, worker: u64, addresses: &[Address], files: &Files) {
        let worked = catch_unwind(AssertUnwindSafe(|| self.work(worker, addresses, files)));
        if let Err(panicked) = worked {
            let text = panicked.downcast_ref::<String>().cloned();
            *self.failure.lock().unwrap() = Some(text.unwrap_or_else(|| "a worker has panicked".to_owned()));
        }
    }

    fn work(&self, worker: u64, addresses: &[Address], files: &Files) {
        let first = (worker + 1) << 32;
        let trees = connect(addresses, files, first).unwrap();
        let all: Vec<Tree> =
            (0..SERVERS).map(|group| block_on(trees.create(ServerId(group))).unwrap()).collect();
        drop(trees);
        for number in 1.. {
            if self.stops.load(SeqCst) {
                return;
            }
            let round = connect(addresses, files, first + number).map_err(|error| error.to_string());
            let round = round
                .and_then(|trees| write_and_read(&trees, &all, number).map_err(|error| error.to_string()));
            if let Err(error) = round {
                *self.failure.lock().unwrap() = Some(format!("round {number}: {error}"));
                return;
            }
            self.rounds[worker as usize].fetch_add(1, SeqCst);
        }
    }

    /// Waits until each worker has ended a round that has begun after this call.
    #[track_caller]
    fn wait_for_rounds(&self) {
        let now = || self.rounds.each_ref().map(|rounds| rounds.load(SeqCst));
        let before = now();
        // The one that runs now has begun before.
        while now().iter().zip(before).any(|(now, before)| *now < before + 2) {
            assert_eq!(*self.failure.lock().unwrap(), None);
            thread::yield_now();
        }
    }
}

/// What a machine, or the clients, have in a phase of the rotation.
struct Phase<'a> {
    signers: String,
    authority: &'a Authority,
    clients: &'a str,
    servers: &'a str,
}

impl Phase<'_> {
    fn write(&self, files: &Files) {
        files.write("ca.pem", &self.signers);
        files.write_certificate(&self.authority.certify(2040));
        files.write("clients", self.clients);
        files.write("servers", self.servers);
    }
}

fn start(place: &Path, phase: &Phase<'_>) -> (Vec<Machine>, Vec<Address>) {
    let addresses: Vec<Address> = (0..SERVERS).map(|_| free_address()).collect();
    let started: Vec<(Process, Files)> = (0..SERVERS)
        .map(|number| {
            let files = Files::create(place, &format!("machine-{number}"));
            phase.write(&files);
            let mut command = serve(&files, &addresses[usize::from(number)]);
            command.args(["--server", &number.to_string()]);
            for other in (0..SERVERS).filter(|other| *other != number) {
                command.args(["--peer", &format!("{other}={}", addresses[usize::from(other)])]);
            }
            (Process::spawn(&mut command), files)
        })
        .collect();
    let machines = started.into_iter().map(|(process, files)| Machine::started(process, &files)).collect();
    (machines, addresses)
}

#[test]
fn a_cluster_rotates_its_secrets_and_no_statement_fails() {
    let place = tempfile::tempdir().unwrap();
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let both = || old.pem() + &new.pem();
    let at_first = Phase { signers: old.pem(), authority: &old, clients: "c1\n", servers: "s1\n" };
    // Accept both, then present the new ones, then accept these only.
    let phases = [
        Phase { signers: both(), authority: &old, clients: "c1\nc2\n", servers: "s1\ns2\n" },
        Phase { signers: both(), authority: &new, clients: "c2\nc1\n", servers: "s2\ns1\n" },
        Phase { signers: new.pem(), authority: &new, clients: "c2\n", servers: "s2\n" },
    ];
    let (mut machines, addresses) = start(place.path(), &at_first);
    let files = Files::create(place.path(), "clients");
    files.write("ca.pem", &old.pem());
    files.write("credential", "c1\n");
    // A client that stays connected.
    let lasting = Store::connect_any(&addresses, files.options("credential", Role::Client)).unwrap();
    lasting.create_database("shop").unwrap();
    let load = Load::default();
    thread::scope(|scope| {
        let _stop = StopOnDrop(&load);
        for worker in 0..WORKERS {
            let (load, addresses, files) = (&load, &addresses, &files);
            scope.spawn(move || load.work_or_fail(worker, addresses, files));
        }
        load.wait_for_rounds();
        for (number, phase) in phases.iter().enumerate() {
            if number == 2 {
                // Clients present the new credential before the old one is removed.
                files.write("credential", "c2\n");
                load.wait_for_rounds();
            }
            for machine in &mut machines {
                phase.write(&machine.files);
                machine.reload();
                load.wait_for_rounds();
            }
            if number == 0 {
                files.write("ca.pem", &both());
            }
            // Servers are connected, at last by the new credential.
            for machine in &machines {
                let is_connected =
                    |machine: &Machine| machine.admitted("server", 1) + machine.admitted("server", 2) >= 2;
                machine.wait_until(is_connected);
                if number > 0 {
                    // Those by the old credential end before it is removed.
                    machine.wait_until(|machine| machine.admitted("server", 2) == 0);
                }
            }
        }
        files.write("ca.pem", &new.pem());
        load.wait_for_rounds();
    });
    assert_eq!(load.failure.into_inner().unwrap(), None);
    // Its connection was ended with its credential, and the new one presents the other.
    assert_eq!(lasting.databases().unwrap().len(), 1);
    for machine in &machines {
        machine.wait_until(|machine| machine.admitted("server", 1) >= 2);
        assert_eq!((machine.admitted("server", 2), machine.admitted("client", 2)), (0, 0));
    }
    // What was in force at first is refused now.
    files.write("credential", "c1\n");
    let denied = SocketTransport::connect(&addresses[..1], 7, files.options("credential", Role::Client));
    assert!(matches!(denied, Err(ConnectError::Denied { denial: Denial::Credential, .. })), "{denied:?}");
    files.write("ca.pem", &old.pem());
    let untrusted = SocketTransport::connect(&addresses[..1], 8, files.options("credential", Role::Client));
    assert!(matches!(untrusted, Err(ConnectError::Certificate { .. })), "{untrusted:?}");
}
