//! A memcached on loopback only.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use super::process::{self, Account, ServerProcess};
use super::{Fixture, ServerHandle, ServerKind, ServerOptions, redis};
use crate::Result;
use crate::children::Children;
use crate::setup::ProgramPurpose;

/// It takes 0.03 s on an idle machine.
const START_SECONDS_MAX: u64 = 20;

const REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// Servers that share keys by hash.
const SEVERAL: usize = 3;

const USER: &str = "serval";

/// Its entry for the tests and `cargo xtask serve`.
pub(crate) const KIND: ServerKind = ServerKind {
    name: "memcached",
    purpose: ProgramPurpose::Memcached,
    serve: |children, options| Ok(Box::new(MemcachedServer::start(children, options)?)),
    fixture,
    variables: &["SERVAL_TEST_MEMCACHED", "SERVAL_TEST_MEMCACHED_AUTH", "SERVAL_TEST_MEMCACHED_PASSWORD"],
};

/// Several without a password, and one with a password.
fn fixture(children: &Children) -> Result<Fixture> {
    let open = (0..SEVERAL).map(|_| MemcachedServer::start(children, &ServerOptions::default()));
    let mut servers = open.collect::<Result<Vec<_>>>()?;
    let addresses: Vec<String> = servers.iter().map(ServerHandle::address).collect();
    let password = redis::generated_password()?;
    let options = ServerOptions { password: Some(password.clone()), ..ServerOptions::default() };
    let guarded = MemcachedServer::start(children, &options)?;
    let variables = vec![
        ("SERVAL_TEST_MEMCACHED", addresses.join(",")),
        ("SERVAL_TEST_MEMCACHED_AUTH", guarded.address()),
        ("SERVAL_TEST_MEMCACHED_PASSWORD", password),
    ];
    servers.push(guarded);
    let servers = servers.into_iter().map(|server| Box::new(server) as Box<dyn ServerHandle>).collect();
    Ok(Fixture { servers, variables })
}

/// A memcached that answers. Dropping it stops it and removes its files.
struct MemcachedServer {
    process: ServerProcess,
    port: u16,
    password: Option<String>,
}

impl ServerHandle for MemcachedServer {
    fn address(&self) -> String {
        format!("{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }

    fn properties(&self) -> Vec<String> {
        let mut properties = vec![format!("memcached.hosts={}", self.address())];
        if let Some(password) = &self.password {
            properties.push(format!("memcached.username={USER}"));
            properties.push(format!("memcached.password={password}"));
        }
        properties
    }

    fn wait_for_interrupt(&self) -> Result<()> {
        self.process.wait_for_interrupt()
    }
}

impl MemcachedServer {
    fn start(children: &Children, options: &ServerOptions) -> Result<Self> {
        process::on_a_port(options.port, children, |port| Self::start_on(port, children, options))
    }

    fn start_on(port: u16, children: &Children, options: &ServerOptions) -> Result<Self> {
        let folder = process::folder("memcached")?;
        // It refuses to be root's, and its package makes it a user.
        let account = Account::of_server("memcache")?;
        process::give(folder.path(), account)?;
        let mut command = process::command_as(account, "memcached");
        // Errors rather than records that are forgotten when memory is full.
        command
            .args(["-l", "127.0.0.1", "-U", "0", "-m", "256", "-M", "-t", "2", "-p"])
            .arg(port.to_string());
        if let Some(password) = &options.password {
            if password.is_empty() || password.contains(char::is_control) {
                return Err("a memcached password is not empty and has no control characters".to_owned());
            }
            let file = folder.path().join("users");
            process::write(&file, &format!("{USER}:{password}\n"))?;
            process::give(&file, account)?;
            command.arg("-Y").arg(file);
        }
        let process = ServerProcess::start(children, "memcached", folder, &mut command)?;
        let server = Self { process, port, password: options.password.clone() };
        server.process.wait_until_ready(START_SECONDS_MAX, || server.check())?;
        Ok(server)
    }

    /// That it answers, and is no stranger's on our port.
    fn check(&self) -> Result<()> {
        let asked = || {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
            stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
            if let Some(password) = &self.password {
                let login = format!("{USER} {password}");
                write!(stream, "set serval 0 0 {}\r\n{login}\r\n", login.len())?;
            }
            stream.write_all(b"stats\r\nquit\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok::<String, std::io::Error>(answer)
        };
        let answer = asked().map_err(|error| error.to_string())?;
        let ours = format!("STAT pid {}", self.process.pid());
        if answer.lines().any(|line| line == ours) {
            Ok(())
        } else {
            Err(format!("port {} belongs to another server", self.port))
        }
    }
}
