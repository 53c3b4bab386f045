//! Several servers in the test's process.

use rusqlite::Connection;
use yesquel::{
    Address, EngineSettings, LeafPlacement, ListenOptions, LogOptions, PeerOptions, Server, ServerId,
};

/// Servers by TCP that know each other. The first one has the home group.
pub(crate) struct Cluster {
    pub(crate) servers: Vec<Server>,
}

/// Returns addresses whose ports were free a moment ago.
fn free_addresses<const N: usize>() -> [Address; N] {
    let listeners = [(); N].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| Address::Tcp {
        host: "127.0.0.1".to_owned(),
        port: listener.local_addr().unwrap().port(),
    })
}

impl Cluster {
    pub(crate) fn start() -> Cluster {
        Cluster::start_with(EngineSettings::default())
    }

    pub(crate) fn start_with(settings: EngineSettings) -> Cluster {
        Cluster::start_placing(settings, LeafPlacement::default())
    }

    pub(crate) fn start_placing(settings: EngineSettings, placement: LeafPlacement) -> Cluster {
        assert!(yesquel_sqlite::is_linked());
        let addresses = free_addresses::<3>();
        let start = |server: u16| {
            let all = addresses.iter().enumerate().map(|(at, other)| (ServerId(at as u16), other.clone()));
            let servers = all.filter(|(other, _)| other.0 != server).collect();
            let listen = ListenOptions {
                addresses: vec![addresses[usize::from(server)].clone()],
                peers: PeerOptions { servers, ..PeerOptions::default() },
                placement,
                ..ListenOptions::default()
            };
            let settings = EngineSettings { server: ServerId(server), ..settings };
            Server::start(None, settings, LogOptions::default(), listen).unwrap()
        };
        Cluster { servers: (0..3).map(start).collect() }
    }

    pub(crate) fn address(&self, server: usize) -> &Address {
        &self.servers[server].addresses()[0]
    }

    /// The name of a database by the addresses of these servers.
    pub(crate) fn named(&self, servers: &[usize], name: &str, options: &str) -> String {
        let addresses: Vec<_> = servers.iter().map(|server| self.address(*server).to_string()).collect();
        format!("file:yesquel://{}/{name}?{options}", addresses.join(","))
    }

    /// Opens a database by these servers.
    pub(crate) fn open(&self, servers: &[usize], name: &str, options: &str) -> Connection {
        let connection = Connection::open(self.named(servers, name, options)).unwrap();
        connection.busy_timeout(std::time::Duration::from_secs(60)).unwrap();
        connection
    }

    /// Waits until the groups have these numbers of trees, without catalogs. A group takes decisions a
    /// moment after the client has returned.
    pub(crate) fn await_trees(&self, numbers: [usize; 3]) {
        let count = |server: &Server| server.status().trees.iter().filter(|tree| tree.tree != 0).count();
        while self.servers.iter().map(count).ne(numbers) {
            std::thread::yield_now();
        }
    }

    /// Waits until all servers know how transactions over several of them have ended. A client that
    /// has seen nothing else yet might read a moment before the end of one, as `session` allows.
    pub(crate) fn settle(&self) {
        while self.servers.iter().any(|server| server.status().transactions.undecided > 0) {
            std::thread::yield_now();
        }
    }
}
