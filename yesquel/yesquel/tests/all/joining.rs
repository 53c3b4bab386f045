//! Machines that join a cluster by tokens, leave it, and start from copied folders.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::mpsc::channel,
    thread,
    time::Duration,
};
use tempfile::TempDir;
use yesquel::{
    Address, ConnectError, DataFolder, Denial, EngineSettings, Error, JoinOptions, ListenOptions, LogOptions,
    ManagementRefusal, ManualTime, PeerOptions, Placement, Role, Server, ServerId, SocketOptions, Store,
    Time, WallTime,
    status::{
        DirectoryStatus,
        MachineState::{self, Joining, Removed, Serving},
    },
};
use yesquel_client::Client;
use yesquel_server::issue_token;
use yesquel_transport::{SocketTransport, block_on};
use yesquel_wire::{
    JoinToken,
    machines::{JoinRequest, JoinedMachine, ManagementReply},
};

const HOUR: Duration = Duration::from_secs(3_600);
const CREDENTIAL: &[u8] = b"of servers";

/// Folder with the data and the sockets of servers, each of which has a name.
struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn address(&self, name: &str) -> Address {
        Address::Unix(self.path(&format!("{name}.sock")))
    }

    fn options(&self, name: &str) -> ListenOptions {
        ListenOptions {
            addresses: vec![self.address(name)],
            has_group_of_folder: true,
            ..ListenOptions::default()
        }
    }

    fn start_with(
        &self,
        name: &str,
        listen: ListenOptions,
        time: impl Time + Clone + 'static,
    ) -> Result<Server, Error> {
        let (data, settings) = (self.path(name), EngineSettings::default());
        Server::start_with_clock(Some(&data), settings, LogOptions::default(), listen, time)
    }

    /// Starts a server that has a data folder already, or founds a cluster.
    fn start(&self, name: &str) -> Result<Server, Error> {
        self.start_with(name, self.options(name), WallTime::default())
    }

    /// Starts the founder of a cluster whose servers have a credential.
    fn found(&self, name: &str) -> Server {
        let peers = PeerOptions { credential: Some(CREDENTIAL.into()), ..PeerOptions::default() };
        let listen = ListenOptions { peers, ..self.options(name) };
        self.start_with(name, listen, WallTime::default()).unwrap()
    }

    /// Starts a server with a new folder that joins the cluster of another one.
    fn join(&self, name: &str, other: &str, token: &str) -> Result<Server, Error> {
        let token_file = self.path(&format!("{name}.token"));
        fs::write(&token_file, token).unwrap();
        let join = Some(JoinOptions { addresses: vec![self.address(other)], token_file });
        self.start_with(name, ListenOptions { join, ..self.options(name) }, WallTime::default())
    }

    fn operator(&self, name: &str) -> Store {
        let (credential, role) = (CREDENTIAL.into(), Role::Operator);
        let options = SocketOptions { credential, role, ..SocketOptions::default() };
        Store::connect(&self.address(name), options).unwrap()
    }

    fn client(&self, name: &str) -> Store {
        Store::connect(&self.address(name), SocketOptions::default()).unwrap()
    }

    fn token(&self, name: &str) -> String {
        self.operator(name).add_machine(HOUR).unwrap()
    }

    /// Waits until a server knows the machines with these states.
    fn wait_for(&self, name: &str, expected: &[(u32, MachineState)]) -> DirectoryStatus {
        let store = self.client(name);
        loop {
            let directory = store.directory().unwrap();
            let found: Vec<_> = directory.machines.iter().map(|entry| (entry.machine, entry.state)).collect();
            if found == expected {
                return directory;
            }
            thread::yield_now();
        }
    }
}

/// Number and group of a server's machine.
fn numbers(server: &Server) -> (u32, u16) {
    let identity = server.host().transport().core().identity();
    (identity.machine, identity.group.0)
}

#[test]
fn machines_join_at_the_same_time_and_learn_of_each_other() {
    let place = Place::new();
    let _founder = place.found("a");
    let tokens: Vec<String> = (0..3).map(|_| place.token("a")).collect();
    let mut servers: Vec<Server> = thread::scope(|scope| {
        let joins: Vec<_> = ["b", "c", "d"]
            .iter()
            .zip(&tokens)
            .map(|(name, token)| scope.spawn(|| place.join(name, "a", token).unwrap()))
            .collect();
        joins.into_iter().map(|join| join.join().unwrap()).collect()
    });
    servers.sort_by_key(numbers);
    assert_eq!(servers.iter().map(numbers).collect::<Vec<_>>(), [(2, 1), (3, 2), (4, 3)]);
    for name in ["a", "b", "c", "d"] {
        let directory = place.wait_for(name, &[1, 2, 3, 4].map(|machine| (machine, Serving)));
        let mut addresses: Vec<_> = directory.machines.into_iter().map(|entry| entry.address).collect();
        addresses.sort();
        assert_eq!(addresses, ["a", "b", "c", "d"].map(|name| place.address(name).to_string()));
    }
    // One transaction over all groups, by a client of a machine that has joined.
    let store = place.client("d");
    let database = store.create_database_at("wide", &Placement::Tables).unwrap();
    let maps: Vec<_> = (0..4).map(|number| database.map(&format!("map {number}")).unwrap()).collect();
    let mut groups: Vec<u16> = maps.iter().map(|map| map.group().0).collect();
    groups.sort_unstable();
    assert_eq!(groups, [0, 1, 2, 3]);
    let written =
        database.run(|transaction| maps.iter().try_for_each(|map| transaction.put(*map, b"k", b"v")));
    written.unwrap();
    // Later starts need neither a token nor an address.
    drop(store);
    drop(servers);
    let servers: Vec<Server> = ["b", "c", "d"].iter().map(|name| place.start(name).unwrap()).collect();
    let mut groups: Vec<u16> = servers.iter().map(|server| numbers(server).1).collect();
    groups.sort_unstable();
    assert_eq!(groups, [1, 2, 3]);
    let database = place.client("b").database("wide").unwrap();
    for (number, map) in maps.iter().enumerate() {
        assert_eq!(database.map(&format!("map {number}")).unwrap(), *map);
        assert_eq!(database.get(*map, b"k").unwrap().as_deref(), Some(&b"v"[..]));
    }
}

#[test]
fn wrong_tokens_are_refused() {
    let place = Place::new();
    let _founder = place.found("a");
    let token = place.token("a");
    let parsed: JoinToken = token.parse().unwrap();
    let _joined = place.join("b", "a", &token).unwrap();
    let refused = |token: &str| place.join("c", "a", token).unwrap_err();
    let error = refused(&token);
    assert!(matches!(error, Error::Management(ManagementRefusal::UsedToken { machine: 2 })), "{error}");
    // Signed by servers, but not issued.
    let forged = issue_token(parsed.cluster, false, u64::MAX, Some(&CREDENTIAL.into())).unwrap();
    let error = refused(&forged.to_string());
    assert!(matches!(error, Error::Management(ManagementRefusal::UnknownToken)), "{error}");
    let forged = issue_token(parsed.cluster, false, u64::MAX, None).unwrap();
    let error = refused(&forged.to_string());
    assert!(matches!(error, Error::RejectedToken(_)) && error.to_string().contains("cluster add"), "{error}");
    let _other = place.found("other");
    let error = refused(&place.token("other"));
    let is_other = |error: &Error| {
        matches!(
            error,
            Error::Connect(
                ConnectError::OtherCluster { .. }
                    | ConnectError::Denied { denial: Denial::OtherCluster(_), .. }
            )
        )
    };
    assert!(is_other(&error), "{error}");
    for text in ["", "secret", &token[1..]] {
        let error = refused(text);
        assert!(error.to_string().contains("no token of a cluster"), "{error}");
    }
    // The folder is still good.
    let joined = place.join("c", "b", &place.token("b")).unwrap();
    assert_eq!(numbers(&joined), (3, 2));
}

#[test]
fn a_token_expires() {
    let (place, time) = (Place::new(), ManualTime::default());
    let peers = PeerOptions { credential: Some(CREDENTIAL.into()), ..PeerOptions::default() };
    let _founder =
        place.start_with("a", ListenOptions { peers, ..place.options("a") }, time.clone()).unwrap();
    let tokens = [place.token("a"), place.operator("a").add_machine(HOUR * 2).unwrap()];
    time.pass(HOUR.as_millis() as u64);
    let error = place.join("b", "a", &tokens[0]).unwrap_err();
    assert!(matches!(error, Error::Management(ManagementRefusal::ExpiredToken)), "{error}");
    assert_eq!(numbers(&place.join("b", "a", &tokens[1]).unwrap()), (2, 1));
}

/// Asks to join, as a machine does whose folder has begun to.
fn ask_to_join(place: &Place, folder: &Path, token: &str) -> JoinedMachine {
    let nonce = DataFolder::take(folder).unwrap().cluster_files().begin_join().unwrap();
    let token: JoinToken = token.parse().unwrap();
    let (credential, role) = (token.encode().into(), Role::Joiner);
    let options = SocketOptions { credential, role, lanes: 0, ..SocketOptions::default() };
    let transport = SocketTransport::connect(&[place.address("a")], 77, options).unwrap();
    let (nonce, address) = (format!("{nonce:032x}"), place.address("b").to_string());
    let request = JoinRequest { token: token.to_string(), nonce, address };
    let request = serde_json::to_vec(&request).unwrap();
    let reply = block_on(Client::new(transport, 77).join(ServerId(0), &request)).unwrap();
    match serde_json::from_slice(&reply).unwrap() {
        ManagementReply::Joined(joined) => *joined,
        reply => panic!("{reply:?}"),
    }
}

#[test]
fn an_interrupted_join_continues_with_the_same_numbers() {
    let place = Place::new();
    let _founder = place.found("a");
    let token = place.token("a");
    // The reply is lost: the directory has the machine, and the folder has not.
    let joined = ask_to_join(&place, &place.path("b"), &token);
    assert_eq!((joined.machine, joined.group), (2, 1));
    place.wait_for("a", &[(1, Serving), (2, Joining)]);
    let error = place.start("b").unwrap_err();
    assert!(
        matches!(error, Error::UnfinishedJoin(_)) && error.to_string().contains("--token-file"),
        "{error}"
    );
    // Another folder gets neither its numbers nor others for the token.
    let error = place.join("c", "a", &token).unwrap_err();
    assert!(matches!(error, Error::Management(ManagementRefusal::UsedToken { machine: 2 })), "{error}");
    let again = ask_to_join(&place, &place.path("b"), &token);
    assert_eq!((again.machine, again.group), (2, 1));
    let server = place.join("b", "a", &token).unwrap();
    assert_eq!(numbers(&server), (2, 1));
    assert!(!place.path("b").join("joining").exists());
    place.wait_for("a", &[(1, Serving), (2, Serving)]);
}

/// Changes the file `machine` of a folder.
fn change_machine(folder: &Path, change: impl FnOnce(&mut Vec<String>)) {
    let path = folder.join("machine");
    let mut lines: Vec<String> = fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect();
    change(&mut lines);
    fs::write(path, lines.join("\n") + "\n").unwrap();
}

#[test]
fn an_interrupted_start_continues() {
    let place = Place::new();
    let _founder = place.found("a");
    drop(place.join("b", "a", &place.token("a")).unwrap());
    let folder = place.path("b");
    let incarnation = || {
        let directory = place.client("a").directory().unwrap();
        directory.machines.iter().find(|entry| entry.machine == 2).unwrap().incarnation
    };
    // The next start is written, and the directory does not know it.
    change_machine(&folder, |lines| {
        lines.extend(["next-incarnation 2".to_owned(), format!("next-nonce {:032x}", 7)]);
    });
    drop(place.start("b").unwrap());
    place.wait_for("a", &[(1, Serving), (2, Serving)]);
    // The directory knows it, and the folder does not say so.
    change_machine(&folder, |lines| {
        let current: Vec<String> = lines[4..6].iter().map(|line| format!("next-{line}")).collect();
        lines[4] = "incarnation 1".to_owned();
        lines[5] = format!("nonce {:032x}", 7);
        lines.extend(current);
    });
    drop(place.start("b").unwrap());
    while incarnation() != 3 {
        thread::yield_now();
    }
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[test]
fn a_copied_folder_is_refused() {
    let place = Place::new();
    let _founder = place.found("a");
    let server = place.join("b", "a", &place.token("a")).unwrap();
    copy_folder(&place.path("b"), &place.path("copy"));
    let error = place.start("copy").unwrap_err();
    assert!(matches!(error, Error::MachineRuns { machine: 2, .. }), "{error}");
    drop(server);
    // The original has started since the copy was made.
    drop(place.start("b").unwrap());
    let error = place.start("copy").unwrap_err();
    assert!(matches!(error, Error::CopiedFolder { machine: 2, .. }), "{error}");
    // Of two equal folders, the one that starts first is the machine, at another address as well.
    copy_folder(&place.path("b"), &place.path("equal"));
    let server = place.start("equal").unwrap();
    assert_eq!(numbers(&server), (2, 1));
    let error = place.start("b").unwrap_err();
    assert!(matches!(error, Error::CopiedFolder { machine: 2, .. }), "{error}");
    drop(server);
    // So it is with two copies of a start that was interrupted.
    change_machine(&place.path("equal"), |lines| {
        lines.extend(["next-incarnation 9".to_owned(), format!("next-nonce {:032x}", 7)]);
    });
    copy_folder(&place.path("equal"), &place.path("second"));
    drop(place.start("second").unwrap());
    let error = place.start("equal").unwrap_err();
    assert!(matches!(error, Error::CopiedFolder { machine: 2, .. }), "{error}");
}

/// Both may find their start in the directory; one of them changes it.
#[test]
fn of_two_copies_that_start_at_the_same_time_one_starts() {
    let place = Place::new();
    let _founder = place.found("a");
    drop(place.join("b", "a", &place.token("a")).unwrap());
    copy_folder(&place.path("b"), &place.path("copy"));
    let started = thread::scope(|scope| {
        ["b", "copy"].map(|name| scope.spawn(|| place.start(name))).map(|start| start.join().unwrap())
    });
    let refused: Vec<&Error> = started.iter().filter_map(|start| start.as_ref().err()).collect();
    let [Error::CopiedFolder { machine: 2, .. } | Error::MachineRuns { machine: 2, .. }] = refused[..] else {
        panic!("{refused:?}")
    };
}

/// The machine is down, and its folder is replaced by a copy from before its last writes. The number of
/// its start is the same.
#[test]
fn an_older_copy_is_refused() {
    let place = Place::new();
    let _founder = place.found("a");
    let server = place.join("b", "a", &place.token("a")).unwrap();
    copy_folder(&place.path("b"), &place.path("older"));
    let store = place.client("b");
    let database = store.create_database("shop").unwrap();
    let map = database.map("stock").unwrap();
    for key in 0..10u8 {
        database.put(map, &[key], b"v").unwrap();
    }
    drop(store);
    drop(server);
    // A start notes the end of the log, and so does a machine every ten seconds.
    let server = place.start("b").unwrap();
    let machine = fs::read(place.path("b").join("machine")).unwrap();
    drop(server);
    fs::write(place.path("older").join("machine"), machine).unwrap();
    let error = place.start("older").unwrap_err();
    let Error::OlderCopy { machine: 2, log_end, known, .. } = error else { panic!("{error}") };
    assert!(log_end < known, "{log_end} {known}");
    // The newer folder is not harmed by the attempt.
    drop(place.start("b").unwrap());
    let machine = fs::read(place.path("b").join("machine")).unwrap();
    fs::write(place.path("older").join("machine"), machine).unwrap();
    let listen = ListenOptions { accepts_loss: true, ..place.options("older") };
    drop(place.start_with("older", listen, WallTime::default()).unwrap());
    // It is the machine from now on.
    drop(place.start("older").unwrap());
    let error = place.start("b").unwrap_err();
    assert!(matches!(error, Error::CopiedFolder { machine: 2, .. }), "{error}");
}

/// Waits for the error after which a server must end.
fn fatal_error(server: &Server) -> Error {
    let (sender, errors) = channel();
    server.on_fatal(move |error| sender.send(error).unwrap());
    errors.recv().unwrap()
}

#[test]
fn a_machine_without_databases_is_removed() {
    let place = Place::new();
    let _founder = place.found("a");
    let server = place.join("b", "a", &place.token("a")).unwrap();
    let at_b = place.client("b");
    at_b.create_database("near").unwrap();
    at_b.create_database_at("wide", &Placement::Tables).unwrap();
    let operator = place.operator("b");
    let error = operator.remove_machine(2).unwrap_err();
    let Error::Management(ManagementRefusal::HoldsDatabases { machine: 2, group: 1, databases }) = error
    else {
        panic!("{error}")
    };
    assert_eq!(databases, ["near", "wide"]);
    for (machine, expected) in
        [(1, ManagementRefusal::HomeGroup { machine: 1 }), (7, ManagementRefusal::NoMachine { machine: 7 })]
    {
        match operator.remove_machine(machine) {
            Err(Error::Management(refusal)) => assert_eq!(refusal, expected),
            result => panic!("{result:?}"),
        }
    }
    ["near", "wide"].iter().for_each(|name| at_b.drop_database(name).unwrap());
    operator.remove_machine(2).unwrap();
    let error = fatal_error(&server);
    assert!(matches!(error, Error::MachineRemoved { machine: 2 }), "{error}");
    drop(server);
    let directory = place.wait_for("a", &[(1, Serving), (2, Removed)]);
    assert_eq!(directory.groups.iter().map(|group| group.group).collect::<Vec<_>>(), [0]);
    let error = place.client("a").create_database_at("x", &Placement::Group(ServerId(1))).unwrap_err();
    assert!(matches!(error, Error::NoGroup(1)), "{error}");
    let error = place.start("b").unwrap_err();
    assert!(matches!(error, Error::MachineRemoved { machine: 2 }), "{error}");
    // Neither its number nor its group comes again.
    assert_eq!(numbers(&place.join("c", "a", &place.token("a")).unwrap()), (3, 2));
}

/// Either the database is created, or its group is removed.
#[test]
fn a_database_is_not_created_at_a_group_that_is_removed_meanwhile() {
    let place = Place::new();
    let _founder = place.found("a");
    for round in 0..4u32 {
        let name = format!("joined {round}");
        let server = place.join(&name, "a", &place.token("a")).unwrap();
        let (machine, group) = numbers(&server);
        let (creator, operator) = (place.client(&name), place.operator("a"));
        let (created, removed) = thread::scope(|scope| {
            let create = || creator.create_database_at("d", &Placement::Group(ServerId(group))).map(drop);
            let created = scope.spawn(create);
            let removed = operator.remove_machine(machine);
            (created.join().unwrap(), removed)
        });
        match (created, removed) {
            (Ok(()), Err(Error::Management(ManagementRefusal::HoldsDatabases { databases, .. }))) => {
                assert_eq!(databases, ["d"]);
                creator.drop_database("d").unwrap();
                operator.remove_machine(machine).unwrap();
            }
            (Err(_), Ok(())) => assert!(operator.databases().unwrap().is_empty()),
            results => panic!("{results:?}"),
        }
    }
}

/// Servers that were configured to know each other enter the directory when it is made, and need no
/// configuration after that.
#[test]
fn a_cluster_of_configured_servers_takes_more() {
    let place = Place::new();
    let names = ["a", "b"];
    let start = |own: u16| {
        let (name, other) = (names[usize::from(own)], 1 - own);
        let servers = vec![(ServerId(other), place.address(names[usize::from(other)]))];
        let peers = PeerOptions { servers, credential: Some(CREDENTIAL.into()), tls: None };
        let listen = ListenOptions { peers, has_group_of_folder: false, ..place.options(name) };
        let settings = EngineSettings { server: ServerId(own), ..EngineSettings::default() };
        Server::start(Some(&place.path(name)), settings, LogOptions::default(), listen).unwrap()
    };
    let founder = start(0);
    let second = start(1);
    assert_eq!(place.client("b").directory().unwrap().machines, []);
    let joined = place.join("c", "b", &place.token("b")).unwrap();
    assert_eq!(numbers(&joined), (3, 2));
    for name in ["a", "b", "c"] {
        place.wait_for(name, &[1, 2, 3].map(|machine| (machine, Serving)));
    }
    while !place.path("b").join("directory").exists() {
        thread::yield_now();
    }
    drop(second);
    let peers = PeerOptions { credential: Some(CREDENTIAL.into()), ..PeerOptions::default() };
    let listen = ListenOptions { peers, ..place.options("b") };
    let second = place.start_with("b", listen, WallTime::default()).unwrap();
    assert_eq!(numbers(&second), (2, 1));
    place.client("b").create_database_at("wide", &Placement::Tables).unwrap();
    drop((founder, second, joined));
}

/// The machine of the founder is down: the address of any other one is enough.
#[test]
fn new_clients_need_no_founder() {
    let place = Place::new();
    let founder = place.found("a");
    let _others: Vec<Server> =
        ["b", "c"].iter().map(|name| place.join(name, "a", &place.token("a")).unwrap()).collect();
    let store = place.client("a");
    let shop = store.create_database_at("shop", &"1".parse().unwrap()).unwrap();
    shop.put(shop.map("a").unwrap(), b"key", b"value").unwrap();
    for group in [1, 2] {
        while !store.is_name_copy_current(ServerId(group)).unwrap() {
            thread::yield_now();
        }
    }
    drop(founder);
    for addresses in [&["b"][..], &["a", "c"]] {
        let addresses: Vec<Address> = addresses.iter().map(|name| place.address(name)).collect();
        let store = Store::connect_any(&addresses, SocketOptions::default()).unwrap();
        let shop = store.database("shop").unwrap();
        assert!(shop.is_from_copy());
        let map = shop.map("a").unwrap();
        assert_eq!(shop.get(map, b"key").unwrap().as_deref(), Some(&b"value"[..]));
        shop.put(map, b"key", b"value").unwrap();
        assert!(matches!(shop.map("new"), Err(Error::HomeGroupUnreachable(_))));
    }
}
