//! The folder of a run: what servers, clients and the driver agree on.

use crate::{lists::GROUPS, namespaces::Machine};
use std::{
    fs,
    path::{Path, PathBuf},
};
use yesquel::{Address, NodeId, SocketOptions};
use yesquel_tree::Tree;

/// Port of every server.
const PORT: u16 = 7411;

/// Folder of a run, with fixed names.
#[derive(Debug, Clone)]
pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn at(folder: PathBuf) -> Place {
        Place(folder)
    }

    /// Creates the certificate of all servers, and the credentials.
    pub(crate) fn fill(&self) {
        let names: Vec<String> = (0..GROUPS).map(|group| Machine(group).ip()).collect();
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        fs::write(self.certificate(), made.cert.pem()).unwrap();
        fs::write(self.key(), made.signing_key.serialize_pem()).unwrap();
        fs::write(self.credential(), "of clients\n").unwrap();
        fs::write(self.peer_credential(), "of servers\n").unwrap();
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.0.join("certificate.pem")
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.0.join("key.pem")
    }

    pub(crate) fn credential(&self) -> PathBuf {
        self.0.join("credential")
    }

    pub(crate) fn peer_credential(&self) -> PathBuf {
        self.0.join("peer-credential")
    }

    /// Folder of a server, on which a file system may be mounted.
    pub(crate) fn disk(&self, group: usize) -> PathBuf {
        self.0.join(format!("server-{group}"))
    }

    /// File that says how wrong a server's clock is.
    pub(crate) fn clock(&self, group: usize) -> PathBuf {
        self.0.join(format!("clock-{group}"))
    }

    pub(crate) fn server_log(&self, group: usize) -> PathBuf {
        self.0.join(format!("server-{group}.log"))
    }

    pub(crate) fn client_log(&self, number: u64) -> PathBuf {
        self.0.join(format!("client-{number}.log"))
    }

    pub(crate) fn journal(&self, number: u64) -> PathBuf {
        self.0.join(format!("journal-{number}"))
    }

    pub(crate) fn address(group: usize) -> Address {
        Address::Tcp { host: Machine(group).ip(), port: PORT }
    }

    /// Options of a client.
    pub(crate) fn options(&self) -> SocketOptions {
        let credential = fs::read_to_string(self.credential()).unwrap();
        let tls = yesquel::tls::client(Some(&self.certificate())).unwrap();
        SocketOptions {
            credential: credential.trim_end().as_bytes().into(),
            tls: Some(tls),
            ..SocketOptions::default()
        }
    }

    fn tree_file(&self) -> PathBuf {
        self.0.join("trees")
    }

    /// Records the trees of the groups.
    pub(crate) fn set_trees(&self, trees: &[Tree]) {
        let lines: Vec<String> = trees.iter().map(|tree| tree.root().to_bits().to_string()).collect();
        fs::write(self.tree_file(), lines.join("\n")).unwrap();
    }

    /// Returns the trees, by group.
    pub(crate) fn trees(&self) -> Vec<Tree> {
        let text = fs::read_to_string(self.tree_file()).unwrap();
        text.lines().map(|line| Tree::at(NodeId::from_bits(line.parse().unwrap()))).collect()
    }
}
