//! The database of a program, and the library that it runs on.

use std::{
    fs,
    net::TcpListener,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use tempfile::TempDir;
use yesquel::{Address, EngineSettings, ListenOptions, LogOptions, PeerOptions, Server, ServerId};

/// Prepared files of `cargo xtask test`.
pub(crate) struct Ready {
    /// The folder in which Yesquel's library has the name of SQLite's.
    stand_in: PathBuf,
    /// Files of the programs that no Debian package contains.
    pub(crate) programs: PathBuf,
}

/// Returns the prepared programs; panics without them.
pub(crate) fn ready() -> Option<Ready> {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let (stand_in, programs) = (folder("YESQUEL_TEST_STAND_IN"), folder("YESQUEL_TEST_PROGRAMS"));
    if stand_in.is_none() || programs.is_none() {
        panic!("YESQUEL_TEST_PROGRAMS is not set: 'cargo xtask test' installs the programs and sets it");
    }
    Some(Ready { stand_in: stand_in?, programs: programs? })
}

/// Returns the version in SQLite's header.
pub(crate) fn defined(stand_in: &Path, name: &str) -> String {
    let header = fs::read_to_string(stand_in.join("include/yesquel/sqlite3.h")).unwrap();
    let rest = header.split(&format!("#define {name} ")).nth(1).unwrap();
    rest.split('"').nth(1).unwrap().to_owned()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A plain file, opened by Debian's own library; the reference for all others.
    Debian,
    /// A plain file.
    File,
    /// Trees in a folder.
    Folder,
    /// Trees at a server on a Unix socket.
    Unix,
    /// Trees at a server on TCP.
    Tcp,
    /// Trees at three servers, over which tables are distributed.
    Cluster,
}

pub(crate) const OURS: [Kind; 5] = [Kind::File, Kind::Folder, Kind::Unix, Kind::Tcp, Kind::Cluster];

/// Returns addresses whose ports were free a moment ago.
fn free_addresses(count: usize) -> Vec<Address> {
    let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let address = |listener: &TcpListener| Address::Tcp {
        host: "127.0.0.1".to_owned(),
        port: listener.local_addr().unwrap().port(),
    };
    listeners.iter().map(address).collect()
}

/// Starts a server at each address. They share databases.
fn start(addresses: &[Address]) -> Vec<Server> {
    let numbered = |(number, address): (usize, &Address)| (ServerId(number as u16), address.clone());
    let all: Vec<_> = addresses.iter().enumerate().map(numbered).collect();
    let start = |(server, address): &(ServerId, Address)| {
        let servers = all.iter().filter(|(other, _)| other != server).cloned().collect();
        let listen = ListenOptions {
            addresses: vec![address.clone()],
            peers: PeerOptions { servers, ..PeerOptions::default() },
            ..ListenOptions::default()
        };
        let settings = EngineSettings { server: *server, ..EngineSettings::default() };
        Server::start(None, settings, LogOptions::default(), listen).unwrap()
    };
    all.iter().map(start).collect()
}

/// Working folder of a program, removed when this is dropped.
pub(crate) struct Place {
    pub(crate) kind: Kind,
    pub(crate) folder: TempDir,
    servers: Vec<Server>,
    stand_in: PathBuf,
}

impl Place {
    pub(crate) fn new(ready: &Ready, kind: Kind) -> Place {
        let folder = tempfile::tempdir().unwrap();
        let addresses = match kind {
            Kind::Debian | Kind::File | Kind::Folder => Vec::new(),
            Kind::Unix => vec![Address::Unix(folder.path().join("server"))],
            Kind::Tcp => vec![Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 }],
            Kind::Cluster => free_addresses(3),
        };
        Place { kind, folder, servers: start(&addresses), stand_in: ready.stand_in.clone() }
    }

    pub(crate) fn on_trees(&self) -> bool {
        !matches!(self.kind, Kind::Debian | Kind::File)
    }

    /// Returns the address of a database, if it is on trees.
    pub(crate) fn address(&self, name: &str) -> Option<String> {
        let folder = self.folder.path().display();
        let servers: Vec<String> =
            self.servers.iter().map(|server| server.addresses()[0].to_string()).collect();
        let servers = servers.join(",");
        match self.kind {
            Kind::Debian | Kind::File => None,
            Kind::Folder => Some(format!("yesquel:{folder}/trees?durability=none&database={name}")),
            Kind::Unix => Some(format!("yesquel://{folder}/server/{name}")),
            Kind::Tcp => Some(format!("yesquel://{servers}/{name}")),
            Kind::Cluster => Some(format!("yesquel://{servers}/{name}?placement=tables")),
        }
    }

    /// Returns the name that programs open.
    pub(crate) fn name(&self, name: &str) -> String {
        match self.address(name) {
            Some(address) => format!("file:{address}"),
            None => self.folder.path().join(format!("{name}.db")).display().to_string(),
        }
    }

    /// Returns a command in this folder, with limits on its memory and time.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", "300", "prlimit", "--as=8589934592", program]);
        command.current_dir(self.folder.path()).env("TMPDIR", self.folder.path());
        command.env_remove("YESQUEL_TEST_DATABASES").env_remove("LD_PRELOAD").env_remove("PYTHONPATH");
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        if self.kind == Kind::Debian {
            command.env_remove("LD_LIBRARY_PATH").env_remove("YESQUEL_TEST_SOURCE_ID");
        } else {
            command.env("LD_LIBRARY_PATH", self.stand_in.join("lib"));
            command.env("YESQUEL_TEST_SOURCE_ID", defined(&self.stand_in, "SQLITE_SOURCE_ID"));
        }
        command.env("YESQUEL_TEST_ON_TREES", if self.on_trees() { "1" } else { "0" });
        command.stdin(Stdio::null()).process_group(0);
        command
    }

    /// Returns the output of a program that must succeed.
    #[track_caller]
    pub(crate) fn printed(&self, command: &mut Command) -> String {
        let output = command.output().unwrap();
        let (said, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{:?}: {}\n{said}\n{errors}", self.kind, output.status);
        said.into_owned()
    }
}

/// Returns the path of a file in the folder of the tests.
pub(crate) fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

/// Runs the same on all kinds of databases. The output on Yesquel's library must equal that on
/// Debian's.
pub(crate) fn same_everywhere(run: impl Fn(&Place) -> String) {
    let Some(ready) = ready() else { return };
    let expected = run(&Place::new(&ready, Kind::Debian));
    assert!(expected.lines().count() >= 5, "too little output: {expected}");
    for kind in OURS {
        let found = run(&Place::new(&ready, kind));
        assert_eq!(found, expected, "{kind:?}");
    }
}
