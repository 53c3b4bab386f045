//! An etcd that keeps nothing, on loopback only; also three as a cluster.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
#[cfg(test)]
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::process::{self, ServerProcess};
use super::{Fixture, ServerHandle, ServerKind, ServerOptions, redis};
use crate::Result;
use crate::children::Children;
use crate::setup::ProgramPurpose;

/// It takes 1 s on an idle machine.
const START_SECONDS_MAX: u64 = 60;

/// Setting a password takes some time by design.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// Members of a cluster.
const SEVERAL: usize = 3;

/// Bytes that a server stores before it refuses writes. The default of 2 GiB is too little for a
/// longer benchmark.
const QUOTA: u64 = 8 << 30;

/// With authentication, this user may read and write everything, and the user below only the table
/// `guest`; both have the same password.
const USER: &str = "serval";
const GUEST: &str = "guest";

/// Its entry for the tests and `cargo xtask serve`.
pub(crate) const KIND: ServerKind = ServerKind {
    name: "etcd",
    purpose: ProgramPurpose::Etcd,
    serve: |children, options| Ok(Box::new(EtcdServer::start(children, options, ServerTls::No)?)),
    fixture,
    variables: &[
        "SERVAL_TEST_ETCD",
        "SERVAL_TEST_ETCD_CLUSTER",
        "SERVAL_TEST_ETCD_AUTH",
        "SERVAL_TEST_ETCD_PASSWORD",
        "SERVAL_TEST_ETCD_TLS",
        "SERVAL_TEST_ETCD_TLS_FOLDER",
    ],
};

/// Whether a server speaks TLS, and then wants a certificate of its clients.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ServerTls {
    No,
    Yes,
}

/// One without a password, a cluster, one with a password, and one with TLS.
fn fixture(children: &Children) -> Result<Fixture> {
    let open = EtcdServer::start(children, &ServerOptions::default(), ServerTls::No)?;
    let members = process::on_a_port(None, children, |_| EtcdServer::start_cluster(children))?;
    let password = redis::generated_password()?;
    let options = ServerOptions { password: Some(password.clone()), ..ServerOptions::default() };
    let guarded = EtcdServer::start(children, &options, ServerTls::No)?;
    let tls = EtcdServer::start(children, &ServerOptions::default(), ServerTls::Yes)?;
    let addresses: Vec<String> = members.iter().map(EtcdServer::address).collect();
    let variables = vec![
        ("SERVAL_TEST_ETCD", open.address()),
        ("SERVAL_TEST_ETCD_CLUSTER", addresses.join(",")),
        ("SERVAL_TEST_ETCD_AUTH", guarded.address()),
        ("SERVAL_TEST_ETCD_PASSWORD", password),
        ("SERVAL_TEST_ETCD_TLS", tls.address()),
        ("SERVAL_TEST_ETCD_TLS_FOLDER", tls.process.folder().display().to_string()),
    ];
    let all = [open, guarded, tls].into_iter().chain(members);
    Ok(Fixture { servers: all.map(|server| Box::new(server) as Box<dyn ServerHandle>).collect(), variables })
}

/// An etcd that answers. Dropping it stops it and removes its files.
struct EtcdServer {
    process: ServerProcess,
    port: u16,
    password: Option<String>,
}

impl ServerHandle for EtcdServer {
    fn address(&self) -> String {
        EtcdServer::address(self)
    }

    fn properties(&self) -> Vec<String> {
        let mut properties = vec![format!("etcd.endpoints={}", self.address())];
        if let Some(password) = &self.password {
            properties.push(format!("etcd.username={USER}"));
            properties.push(format!("etcd.password={password}"));
        }
        properties
    }

    fn wait_for_interrupt(&self) -> Result<()> {
        self.process.wait_for_interrupt()
    }
}

/// Ports of a member.
struct MemberAddresses {
    name: String,
    clients: u16,
    peers: u16,
}

impl EtcdServer {
    /// Starts a server and returns once it answers.
    fn start(children: &Children, options: &ServerOptions, tls: ServerTls) -> Result<Self> {
        process::on_a_port(options.port, children, |port| {
            let member =
                MemberAddresses { name: "one".to_owned(), clients: port, peers: process::free_port()? };
            let server = Self::start_member(children, &member, &member.url(), tls)?;
            server.wait(tls)?;
            match &options.password {
                None => Ok(server),
                Some(password) => server.guard(password),
            }
        })
    }

    /// Starts a cluster and returns once all of it answers.
    fn start_cluster(children: &Children) -> Result<Vec<Self>> {
        let members = (1..=SEVERAL).map(|number| {
            let name = format!("member{number}");
            Ok(MemberAddresses { name, clients: process::free_port()?, peers: process::free_port()? })
        });
        let members = members.collect::<Result<Vec<_>>>()?;
        let all: Vec<String> = members.iter().map(MemberAddresses::url).collect();
        let servers = members
            .iter()
            // None is ready before most are there.
            .map(|member| Self::start_member(children, member, &all.join(","), ServerTls::No))
            .collect::<Result<Vec<_>>>()?;
        servers.iter().try_for_each(|server| server.wait(ServerTls::No))?;
        Ok(servers)
    }

    fn start_member(
        children: &Children,
        member: &MemberAddresses,
        cluster: &str,
        tls: ServerTls,
    ) -> Result<Self> {
        let folder = process::folder("etcd")?;
        let scheme = if tls == ServerTls::Yes { "https" } else { "http" };
        let clients = format!("{scheme}://{}:{}", Ipv4Addr::LOCALHOST, member.clients);
        let peers = format!("http://{}:{}", Ipv4Addr::LOCALHOST, member.peers);
        let mut command = Command::new("etcd");
        command.args(["--name", &member.name, "--data-dir", "data", "--logger", "zap"]);
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.args(["--initial-cluster", cluster, "--quota-backend-bytes", &QUOTA.to_string()]);
        if tls == ServerTls::Yes {
            process::certificate(children, folder.path(), None)?;
            let client = process::client_certificate(children, folder.path(), None)?;
            command.args(["--cert-file", "server.crt", "--key-file", "server.key"]);
            command.args(["--client-cert-auth", "--trusted-ca-file"]).arg(client);
        }
        let process = ServerProcess::start(children, "etcd", folder, &mut command)?;
        Ok(Self { process, port: member.clients, password: None })
    }

    /// Waits until the server answers. It has bound its ports before it reports that it is ready,
    /// and exits if another process uses them.
    fn wait(&self, tls: ServerTls) -> Result<()> {
        self.process.wait_until_ready(START_SECONDS_MAX, || {
            if !self.process.log_has("serving client traffic") {
                return Err("it has not said that it is ready".to_owned());
            }
            // We speak no TLS.
            let question = if tls == ServerTls::Yes { None } else { Some(r#"{"key":"YQ=="}"#) };
            match question {
                None => TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))
                    .map(drop)
                    .map_err(|error| error.to_string()),
                Some(question) => self.post("kv/range", question),
            }
        })
    }

    /// Creates the users and enables authentication.
    fn guard(self, password: &str) -> Result<Self> {
        if password.is_empty() || password.contains(|c: char| c.is_control() || "\"\\".contains(c)) {
            return Err("an etcd password is not empty and has no control characters, quotes or backslashes"
                .to_owned());
        }
        for name in ["root", USER, GUEST] {
            self.post("auth/user/add", &format!(r#"{{"name":"{name}","password":"{password}"}}"#))?;
        }
        self.post("auth/user/grant", r#"{"user":"root","role":"root"}"#)?;
        // In base64: from the key of one zero byte to the end of all keys, and
        // from guest/ to guest0.
        for (user, from, to) in [(USER, "AA==", "AA=="), (GUEST, "Z3Vlc3Qv", "Z3Vlc3Qw")] {
            let keys = format!(r#"{{"permType":"READWRITE","key":"{from}","range_end":"{to}"}}"#);
            self.post("auth/role/add", &format!(r#"{{"name":"{user}"}}"#))?;
            self.post("auth/role/grant", &format!(r#"{{"name":"{user}","perm":{keys}}}"#))?;
            self.post("auth/user/grant", &format!(r#"{{"user":"{user}","role":"{user}"}}"#))?;
        }
        self.post("auth/enable", "{}")?;
        Ok(Self { password: Some(password.to_owned()), ..self })
    }

    /// `127.0.0.1:PORT`.
    fn address(&self) -> String {
        format!("{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }

    /// Asks the server's JSON gateway, which takes any request as a POST.
    fn post(&self, path: &str, body: &str) -> Result<()> {
        let asked = || {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
            stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
            let length = body.len();
            write!(
                stream,
                "POST /v3/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
            )?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok::<String, std::io::Error>(answer)
        };
        let answer = asked().map_err(|error| format!("{path}: {error}"))?;
        if answer.starts_with("HTTP/1.1 200 ") {
            Ok(())
        } else {
            Err(format!("it answers {path} with: {answer}"))
        }
    }

    #[cfg(test)]
    fn file(&self, name: &str) -> PathBuf {
        self.process.folder().join(name)
    }
}

impl MemberAddresses {
    /// As its cluster knows it.
    fn url(&self) -> String {
        format!("{}=http://{}:{}", self.name, Ipv4Addr::LOCALHOST, self.peers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without etcd there is nothing to test; the summary of `cargo xtask test` says so.
    fn absent() -> bool {
        ["etcd", "openssl"].iter().any(|name| crate::setup::find(name).is_none())
    }

    #[test]
    fn a_server_answers_asks_for_its_password_and_goes_with_its_files() {
        if absent() {
            return;
        }
        let children = Children::default();
        for password in [None, Some("two 'words'".to_owned())] {
            let options = ServerOptions { password: password.clone(), ..ServerOptions::default() };
            let server = EtcdServer::start(&children, &options, ServerTls::No).unwrap();
            let answer = server.post("kv/range", r#"{"key":"YQ=="}"#);
            assert_eq!(answer.is_ok(), password.is_none(), "{answer:?}");
            let data = server.file("data");
            assert!(data.is_dir());
            drop(server);
            assert!(!data.exists());
        }
        for password in ["", "a\nb", "\"", "\\"] {
            let options = ServerOptions { password: Some(password.to_owned()), ..ServerOptions::default() };
            assert!(EtcdServer::start(&children, &options, ServerTls::No).is_err(), "{password:?}");
        }
    }

    #[test]
    fn a_taken_port_is_reported_with_the_servers_own_words() {
        if absent() {
            return;
        }
        let children = Children::default();
        let first = EtcdServer::start(&children, &ServerOptions::default(), ServerTls::No).unwrap();
        let options = ServerOptions { port: Some(first.port), ..ServerOptions::default() };
        let error = EtcdServer::start(&children, &options, ServerTls::No).err().unwrap();
        assert!(error.contains("address already in use"), "{error}");
    }

    #[test]
    fn the_tests_find_all_their_servers() {
        if absent() {
            return;
        }
        let fixture = fixture(&Children::default()).unwrap();
        let names: Vec<&str> = fixture.variables.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, KIND.variables);
        assert_eq!(fixture.servers.len(), 3 + SEVERAL);
        assert_eq!(fixture.variables[1].1.split(',').count(), SEVERAL);
    }
}
