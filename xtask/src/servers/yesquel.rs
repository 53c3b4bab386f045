//! Yesquel's own servers, on this machine only: one, or several that share databases.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::process::{self, ServerProcess};
use super::{Fixture, ServerHandle, ServerKind, ServerOptions, redis, wait_for_all};
use crate::Result;
use crate::children::Children;
use crate::cpu;
use crate::setup::ProgramPurpose;

/// It takes 0.05 s on an idle machine.
const START_SECONDS_MAX: u64 = 20;

/// Servers of a cluster.
const SEVERAL: usize = 3;

/// Name of the database in the printed commands.
const DATABASE: &str = "ycsb";

/// Name of a server's Unix socket in its folder.
const SOCKET: &str = "socket";

/// Name of the file with the token that admits a server to a cluster.
const TOKEN: &str = "token";

const CREDENTIAL: &str = "credential";
const PEER_CREDENTIAL: &str = "peer-credential";

/// One server. Tests of Yesquel start their own.
pub(crate) const KIND: ServerKind = ServerKind {
    name: "yesquel",
    purpose: ProgramPurpose::Yesquel,
    serve: |children, options| Ok(Box::new(YesquelServers::start(children, options, 1)?)),
    fixture: |_| Ok(Fixture { servers: Vec::new(), variables: Vec::new() }),
    variables: &[],
};

/// Three servers that share databases.
pub(crate) const CLUSTER: ServerKind = ServerKind {
    name: "yesquel-cluster",
    purpose: ProgramPurpose::Yesquel,
    serve: |children, options| Ok(Box::new(YesquelServers::start(children, options, SEVERAL)?)),
    fixture: |_| Ok(Fixture { servers: Vec::new(), variables: Vec::new() }),
    variables: &[],
};

/// Three servers in memory that share databases, without files, and the program.
pub(crate) fn cluster_in_memory(children: &Children) -> Result<(Box<dyn ServerHandle>, PathBuf)> {
    let program = build(children)?;
    let servers = YesquelServers::start_at(&program, children, (None, SEVERAL), (None, &["--in-memory"]))?;
    Ok((Box::new(servers), program))
}

/// Builds the program. Cargo does nothing if it is up to date.
fn build(children: &Children) -> Result<PathBuf> {
    let build = ["build", "--release", "--package", "yesquel-cli", "--bin", "yesquel"];
    children.check(crate::cargo().args(build))?;
    Ok(crate::target().join("release/yesquel"))
}

/// How clients reach servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// By loopback ports, as on other machines.
    Ports,
    /// By Unix sockets.
    Sockets,
}

/// A server of Yesquel. Dropping it stops it and removes its files.
struct YesquelServer {
    process: ServerProcess,
    /// `host:port`, or the path of a Unix socket.
    address: String,
}

impl ServerHandle for YesquelServer {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn properties(&self) -> Vec<String> {
        Vec::new()
    }

    fn wait_until_ready(&self) -> Result<()> {
        self.process.wait_until_ready(START_SECONDS_MAX, || {
            if self.process.log_has("ready") { Ok(()) } else { Err("it does not serve yet".to_owned()) }
        })
    }

    fn wait_for_interrupt(&self) -> Result<()> {
        self.process.wait_for_interrupt()
    }
}

/// One server, or several that share databases.
pub(crate) struct YesquelServers {
    servers: Vec<YesquelServer>,
    /// File with the credential of clients, if they need one.
    credential: Option<PathBuf>,
}

impl ServerHandle for YesquelServers {
    fn address(&self) -> String {
        // A client learns the others from the first one, and a path cannot be one of several
        // addresses.
        let reached = self.servers.iter().take_while(|server| !server.address.starts_with('/'));
        let several: Vec<&str> = reached.map(|server| server.address.as_str()).collect();
        match self.servers.first() {
            Some(first) if several.is_empty() => first.address.clone(),
            _ => several.join(","),
        }
    }

    fn properties(&self) -> Vec<String> {
        vec![format!("yesquel.address={}", self.database(DATABASE))]
    }

    fn wait_for_interrupt(&self) -> Result<()> {
        wait_for_all(&self.servers)
    }
}

fn loopback(port: u16) -> String {
    format!("{}:{port}", Ipv4Addr::LOCALHOST)
}

/// Arguments of a server that knows the others.
fn peers(own: usize, ports: &[u16]) -> Vec<String> {
    let others = ports.iter().enumerate().filter(|(other, _)| *other != own);
    let others =
        others.flat_map(|(other, port)| ["--peer".to_owned(), format!("{other}={}", loopback(*port))]);
    ["--server".to_owned(), own.to_string()].into_iter().chain(others).collect()
}

impl YesquelServers {
    /// Starts servers and returns once all of them serve.
    fn start(children: &Children, options: &ServerOptions, count: usize) -> Result<Self> {
        let program = build(children)?;
        let storage = ["--data", "data"];
        let password = options.password.as_deref();
        Self::start_at(&program, children, (options.port, count), (password, &storage))
    }

    /// Starts a server with a folder, which founds a cluster, and others that join it one after
    /// the other. Returns the program too.
    pub(crate) fn start_and_join(
        children: &Children,
        count: usize,
        transport: Transport,
    ) -> Result<(Self, PathBuf)> {
        let program = build(children)?;
        let mut servers: Vec<YesquelServer> = Vec::new();
        for _ in 0..count.max(1) {
            let founder = servers.first().map(|founder| founder.address.as_str());
            servers.push(process::on_a_port(None, children, |port| {
                Self::start_one(&program, children, port, transport, founder)
            })?);
        }
        Ok((Self { servers, credential: None }, program))
    }

    /// Starts a server that founds a cluster, or joins that of a founder.
    fn start_one(
        program: &Path,
        children: &Children,
        port: u16,
        transport: Transport,
        founder: Option<&str>,
    ) -> Result<YesquelServer> {
        let folder = process::folder("yesquel")?;
        let address = match transport {
            Transport::Ports => loopback(port),
            Transport::Sockets => folder.path().join(SOCKET).display().to_string(),
        };
        let mut command = Command::new(program);
        serve(&mut command, &["--data", "data"], &address);
        if let Some(founder) = founder {
            let mut add = Command::new(program);
            add.args(["cluster", "add", founder, "--token-file", TOKEN]);
            process::set_up(children, folder.path(), without_credentials(&mut add))?;
            command.args(["--join", founder, "--token-file", TOKEN]);
        }
        let process = ServerProcess::start(children, "yesquel", folder, &mut command)?;
        let server = YesquelServer { process, address };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Starts servers, the first one at a port if one is given.
    fn start_at(
        program: &Path,
        children: &Children,
        (port, count): (Option<u16>, usize),
        options: (Option<&str>, &[&str]),
    ) -> Result<Self> {
        process::on_a_port(port, children, |port| {
            let free = (1..count).map(|_| process::free_port());
            let ports = [Ok(port)].into_iter().chain(free).collect::<Result<Vec<_>>>()?;
            Self::start_on(program, &ports, children, options)
        })
    }

    fn start_on(
        program: &Path,
        ports: &[u16],
        children: &Children,
        (password, storage): (Option<&str>, &[&str]),
    ) -> Result<Self> {
        // The secret of the servers among each other is not that of clients.
        let secrets = match password {
            None => None,
            Some(password) if password.is_empty() || password.contains(char::is_control) => {
                return Err("a password is not empty and has no control characters".to_owned());
            }
            Some(password) => Some((password.to_owned(), redis::generated_password()?)),
        };
        // None serves before it has compared its clock with the others'.
        let servers = (0..ports.len()).map(|own| {
            let folder = process::folder("yesquel")?;
            let mut command = Command::new(program);
            let address = loopback(ports[own]);
            serve(&mut command, storage, &address).args(peers(own, ports));
            if let Some((password, of_peers)) = &secrets {
                process::write(&folder.path().join(CREDENTIAL), &format!("{password}\n"))?;
                process::write(&folder.path().join(PEER_CREDENTIAL), &format!("{of_peers}\n"))?;
                command.args(["--credential-file", CREDENTIAL, "--peer-credential-file", PEER_CREDENTIAL]);
            }
            let process = ServerProcess::start(children, "yesquel", folder, &mut command)?;
            Ok(YesquelServer { process, address })
        });
        let servers = servers.collect::<Result<Vec<_>>>()?;
        servers.iter().try_for_each(ServerHandle::wait_until_ready)?;
        let folder = servers.first().map(|server| server.process.folder().join(CREDENTIAL));
        Ok(Self { servers, credential: folder.filter(|_| secrets.is_some()) })
    }

    /// Returns the processor time of all servers.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        self.servers.iter().map(|server| cpu::of_process(server.process.pid())).sum()
    }

    /// Returns the end of each server's log.
    pub(crate) fn logs(&self) -> String {
        let logs = self.servers.iter().map(|server| (&server.address, server.process.log_tail()));
        logs.map(|(address, log)| format!("server {address}{log}\n")).collect()
    }

    /// The address of a database, whose tables are distributed over all servers.
    pub(crate) fn database(&self, name: &str) -> String {
        let mut options = Vec::new();
        if self.servers.len() > 1 {
            options.push("placement=tables".to_owned());
        }
        if let Some(credential) = &self.credential {
            options.push(format!("credential-file={}", credential.display()));
        }
        let options = if options.is_empty() { String::new() } else { format!("?{}", options.join("&")) };
        format!("yesquel://{}/{name}{options}", self.address())
    }
}

/// Adds the arguments of a server.
fn serve<'a>(command: &'a mut Command, storage: &[&str], address: &str) -> &'a mut Command {
    without_credentials(command.arg("serve").args(storage).args(["--listen", address]))
}

/// Hides the credentials of the user's own servers.
fn without_credentials(command: &mut Command) -> &mut Command {
    command.env_remove("YESQUEL_CREDENTIAL_FILE").env_remove("YESQUEL_PEER_CREDENTIAL_FILE")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_knows_the_others() {
        let ports = [5, 6, 7];
        let of = |own| peers(own, &ports).join(" ");
        assert_eq!(of(0), "--server 0 --peer 1=127.0.0.1:6 --peer 2=127.0.0.1:7");
        assert_eq!(of(2), "--server 2 --peer 0=127.0.0.1:5 --peer 1=127.0.0.1:6");
        assert_eq!(peers(0, &ports[..1]), ["--server", "0"]);
    }
}
