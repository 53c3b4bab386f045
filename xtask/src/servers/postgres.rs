//! A PostgreSQL that keeps nothing, on loopback only.

use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use rustix::process::Signal;
use tempfile::TempDir;

use super::process::{self, Account, ServerProcess};
use super::{Fixture, ServerHandle, ServerKind, ServerOptions, redis};
use crate::Result;
use crate::children::Children;
use crate::setup::ProgramPurpose;

/// It takes 0.3 s on an idle machine, once its files are made.
const START_SECONDS_MAX: u64 = 60;

/// An immediate shutdown takes some milliseconds.
const END_SECONDS_MAX: u64 = 5;

const USER: &str = "postgres";

/// Its entry for the tests and `cargo xtask serve`.
pub(crate) const KIND: ServerKind = ServerKind {
    name: "postgres",
    purpose: ProgramPurpose::Postgres,
    serve: |children, options| Ok(Box::new(PostgresServer::start(children, options)?)),
    fixture,
    variables: &[
        "SERVAL_TEST_POSTGRES",
        "SERVAL_TEST_POSTGRES_PRIMARY",
        "SERVAL_TEST_POSTGRES_REPLICA",
        "SERVAL_TEST_POSTGRES_AUTH",
        "SERVAL_TEST_POSTGRES_PASSWORD",
        "SERVAL_TEST_POSTGRES_CERTIFICATE",
    ],
};

/// One for anyone, and one with a password and TLS.
fn fixture(children: &Children) -> Result<Fixture> {
    let open = PostgresServer::start(children, &ServerOptions::default())?;
    let replica = PostgresServer::replica_of(&open, children)?;
    let password = redis::generated_password()?;
    let options = ServerOptions { password: Some(password.clone()), ..ServerOptions::default() };
    let guarded = PostgresServer::start(children, &options)?;
    let variables = vec![
        ("SERVAL_TEST_POSTGRES", open.address()),
        ("SERVAL_TEST_POSTGRES_PRIMARY", open.address()),
        ("SERVAL_TEST_POSTGRES_REPLICA", replica.address()),
        ("SERVAL_TEST_POSTGRES_AUTH", guarded.address()),
        ("SERVAL_TEST_POSTGRES_PASSWORD", password),
        ("SERVAL_TEST_POSTGRES_CERTIFICATE", guarded.certificate().display().to_string()),
    ];
    Ok(Fixture { servers: vec![Box::new(replica), Box::new(open), Box::new(guarded)], variables })
}

/// A primary and a streaming replica: for `cargo xtask serve`, the tests have them from [`KIND`].
pub(crate) const REPLICA: ServerKind = ServerKind {
    name: "postgres-replica",
    purpose: ProgramPurpose::Postgres,
    serve: |children, options| {
        if options.password.is_some() {
            return Err(
                "the replica follows a primary that anyone may ask: leave the password out".to_owned()
            );
        }
        // Else its log would wait up to 0.2 s for the server's own writer before it goes to the
        // replica, and that would be the lag.
        let primary = PostgresServer::start_with(children, options, Commit::Synchronous)?;
        let replica = PostgresServer::replica_of(&primary, children)?;
        Ok(Box::new(ReplicatedPostgres { replica, primary }))
    },
    fixture: |_| Ok(Fixture { servers: Vec::new(), variables: Vec::new() }),
    variables: &[],
};

/// The replica goes first, for it waits for its primary.
struct ReplicatedPostgres {
    replica: PostgresServer,
    primary: PostgresServer,
}

impl ServerHandle for ReplicatedPostgres {
    fn address(&self) -> String {
        format!("{}, its replica on {}", self.primary.address(), self.replica.address())
    }

    fn properties(&self) -> Vec<String> {
        let mut properties = self.primary.properties();
        properties.push(format!("postgres.replica={}", self.replica.address()));
        properties
    }

    fn wait_for_interrupt(&self) -> Result<()> {
        self.primary.wait_for_interrupt()
    }
}

/// Whether a commit waits until the server has handed over its log.
#[derive(Clone, Copy)]
enum Commit {
    Asynchronous,
    Synchronous,
}

/// A server that answers. Dropping it stops it and removes its files.
///
/// With a password it requires the password (SCRAM), offers TLS, and requires a certificate of the
/// user `certified`; without one it requires none and has no TLS.
pub(crate) struct PostgresServer {
    process: ServerProcess,
    port: u16,
    password: Option<String>,
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // Killed, it would leave its shared memory behind.
        self.process.end_with(Signal::QUIT, END_SECONDS_MAX);
    }
}

impl ServerHandle for PostgresServer {
    fn address(&self) -> String {
        format!("{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }

    fn properties(&self) -> Vec<String> {
        let mut properties =
            vec!["postgres.host=127.0.0.1".to_owned(), format!("postgres.port={}", self.port)];
        properties.extend(self.password.as_ref().map(|password| format!("postgres.password={password}")));
        properties
    }

    fn wait_for_interrupt(&self) -> Result<()> {
        self.process.wait_for_interrupt()
    }
}

impl PostgresServer {
    /// Starts a server and returns once it answers.
    pub(crate) fn start(children: &Children, options: &ServerOptions) -> Result<Self> {
        Self::start_with(children, options, Commit::Asynchronous)
    }

    fn start_with(children: &Children, options: &ServerOptions, commit: Commit) -> Result<Self> {
        process::on_a_port(options.port, children, |port| Self::start_on(port, children, options, commit))
    }

    /// Starts a hot standby that streams from a server without a password.
    fn replica_of(primary: &PostgresServer, children: &Children) -> Result<Self> {
        process::on_a_port(None, children, |port| {
            let account = Account::of_server(USER)?;
            let folder = process::folder("postgres")?;
            process::give(folder.path(), account)?;
            let mut copy = process::command_as(account, "pg_basebackup");
            copy.args(["-h", "127.0.0.1", "-U", USER, "--checkpoint=fast", "--wal-method=stream"]);
            copy.args(["--write-recovery-conf", "--no-sync", "-p", &primary.port.to_string()]);
            copy.arg("-D").arg(folder.path().join("data"));
            process::set_up(children, folder.path(), &mut copy)?;
            Self::run(port, children, folder, account, &ServerOptions::default(), Commit::Asynchronous)
        })
    }

    fn start_on(port: u16, children: &Children, options: &ServerOptions, commit: Commit) -> Result<Self> {
        let account = Account::of_server(USER)?;
        let folder = process::folder("postgres")?;
        process::give(folder.path(), account)?;
        let data = folder.path().join("data");
        let mut initdb = process::command_as(account, "initdb");
        initdb.arg("-D").arg(&data).args(["-U", USER, "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"]);
        // A collation other than byte order, so that tests detect code that relies on byte order.
        initdb.args(["--locale-provider=icu", "--icu-locale=en"]);
        match &options.password {
            None => {
                initdb.arg("--auth=trust");
            }
            Some(password) => {
                if password.is_empty() || password.contains(char::is_control) {
                    return Err("a Postgres password is not empty and has no control characters".to_owned());
                }
                // In a file of a folder that only the server can read, since any user can see the
                // arguments of a process.
                let file = folder.path().join("password");
                process::write(&file, password)?;
                process::give(&file, account)?;
                initdb.arg("--auth=scram-sha-256").arg("--pwfile").arg(&file);
            }
        }
        process::set_up(children, folder.path(), &mut initdb)?;
        Self::run(port, children, folder, account, options, commit)
    }

    /// Starts a server whose files are made.
    fn run(
        port: u16,
        children: &Children,
        folder: TempDir,
        account: Option<Account>,
        options: &ServerOptions,
        commit: Commit,
    ) -> Result<Self> {
        let data = folder.path().join("data");
        let mut command = process::command_as(account, "postgres");
        command.arg("-D").arg(&data).arg("-p").arg(port.to_string());
        for setting in [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "max_connections=200",
            "shared_buffers=64MB",
            // Its files go with it.
            "fsync=off",
            match commit {
                Commit::Asynchronous => "synchronous_commit=off",
                Commit::Synchronous => "synchronous_commit=on",
            },
            "full_page_writes=off",
        ] {
            command.args(["-c", setting]);
        }
        if options.password.is_some() {
            process::certificate(children, folder.path(), account)?;
            command.args(["-c", "ssl=on"]);
            for name in ["cert", "key"] {
                let file = folder.path().join(if name == "key" { "server.key" } else { "server.crt" });
                command.arg("-c").arg(format!("ssl_{name}_file={}", file.display()));
            }
            let client = process::client_certificate(children, folder.path(), account)?;
            command.arg("-c").arg(format!("ssl_ca_file={}", client.display()));
            // One user authenticates by certificate only.
            let rules = folder.path().join("data/pg_hba.conf");
            let others =
                fs::read_to_string(&rules).map_err(|error| format!("{}: {error}", rules.display()))?;
            let first = "hostssl all certified 127.0.0.1/32 trust clientcert=verify-ca\n\
                         host all certified 127.0.0.1/32 reject\n";
            process::write(&rules, &format!("{first}{others}"))?;
            process::give(&rules, account)?;
        }
        let process = ServerProcess::start(children, "postgres", folder, &mut command)?;
        let server = Self { process, port, password: options.password.clone() };
        let pid = server.process.pid().to_string();
        server.process.wait_until_ready(START_SECONDS_MAX, || {
            // What pg_ctl waits for: the server writes its state as line 8,
            // behind its own process id.
            let text = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
            let mut lines = text.lines();
            let (first, state) = (lines.next(), lines.nth(6).map(str::trim));
            if first == Some(&pid) && state == Some("ready") {
                Ok(())
            } else {
                Err(format!("its state is {:?}", state.unwrap_or("unknown")))
            }
        })?;
        Ok(server)
    }

    /// The certificate of a server with TLS.
    fn certificate(&self) -> PathBuf {
        self.process.folder().join("server.crt")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    /// Returns the server's answer to a TLS request: S or N.
    fn tls(server: &PostgresServer) -> u8 {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).unwrap();
        stream.write_all(&[0, 0, 0, 8, 4, 210, 22, 47]).unwrap();
        let mut answer = [0];
        stream.read_exact(&mut answer).unwrap();
        answer[0]
    }

    #[test]
    fn a_server_answers_and_goes_with_its_files() {
        // Nothing to test where no Postgres is; `cargo xtask test` says so.
        if ["initdb", "postgres", "openssl"].iter().any(|name| crate::setup::find(name).is_none()) {
            return;
        }
        let children = Children::default();
        for password in [None, Some("two 'words' \\".to_owned())] {
            let options = ServerOptions { password: password.clone(), ..ServerOptions::default() };
            let server = PostgresServer::start(&children, &options).unwrap();
            assert_eq!(tls(&server), if password.is_some() { b'S' } else { b'N' });
            let folder = server.process.folder().to_owned();
            assert!(folder.is_dir());
            let port = server.port;
            drop(server);
            assert!(!folder.exists());
            assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
        }
    }
}
