//! A MariaDB that keeps nothing, on loopback only.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use super::process::{self, Account, ServerProcess};
use super::{Fixture, ServerHandle, ServerKind, ServerOptions, redis};
use crate::Result;
use crate::children::Children;
use crate::setup::ProgramPurpose;

/// It takes 0.5 s on an idle machine, once its files are made.
const START_SECONDS_MAX: u64 = 60;

const USER: &str = "mysql";

/// The database that it has.
const DATABASE: &str = "ycsb";

/// Its entry for the tests and `cargo xtask serve`.
pub(crate) const KIND: ServerKind = ServerKind {
    name: "mysql",
    purpose: ProgramPurpose::Mysql,
    serve: |children, options| Ok(Box::new(MariaServer::start(children, options)?)),
    fixture,
    variables: &[
        "SERVAL_TEST_MYSQL",
        "SERVAL_TEST_MYSQL_AUTH",
        "SERVAL_TEST_MYSQL_PASSWORD",
        "SERVAL_TEST_MYSQL_CERTIFICATE",
    ],
};

/// One without a password, and one with a password and TLS; shards use both.
fn fixture(children: &Children) -> Result<Fixture> {
    let open = MariaServer::start(children, &ServerOptions::default())?;
    let password = redis::generated_password()?;
    let options = ServerOptions { password: Some(password.clone()), ..ServerOptions::default() };
    let guarded = MariaServer::start(children, &options)?;
    let variables = vec![
        ("SERVAL_TEST_MYSQL", open.address()),
        ("SERVAL_TEST_MYSQL_AUTH", guarded.address()),
        ("SERVAL_TEST_MYSQL_PASSWORD", password),
        ("SERVAL_TEST_MYSQL_CERTIFICATE", guarded.certificate().display().to_string()),
    ];
    Ok(Fixture { servers: vec![Box::new(open), Box::new(guarded)], variables })
}

/// A server that answers. Dropping it stops it and removes its files.
///
/// With a password it requires the password and offers TLS; without one it requires none and has no
/// TLS.
pub(crate) struct MariaServer {
    process: ServerProcess,
    port: u16,
    password: Option<String>,
}

impl ServerHandle for MariaServer {
    fn address(&self) -> String {
        format!("{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }

    fn properties(&self) -> Vec<String> {
        let mut properties = vec![format!("mysql.port={}", self.port)];
        properties.extend(self.password.as_ref().map(|password| format!("mysql.password={password}")));
        properties
    }

    fn wait_for_interrupt(&self) -> Result<()> {
        self.process.wait_for_interrupt()
    }
}

impl MariaServer {
    /// Starts a server and returns once it answers.
    pub(crate) fn start(children: &Children, options: &ServerOptions) -> Result<Self> {
        Self::start_with(children, options, &[])
    }

    /// Starts a server with these settings, which take precedence over the defaults.
    pub(crate) fn start_with(
        children: &Children,
        options: &ServerOptions,
        settings: &[(&str, &str)],
    ) -> Result<Self> {
        process::on_a_port(options.port, children, |port| Self::start_on(port, children, options, settings))
    }

    /// The server's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    fn start_on(
        port: u16,
        children: &Children,
        options: &ServerOptions,
        settings: &[(&str, &str)],
    ) -> Result<Self> {
        let account = Account::of_server(USER)?;
        let folder = process::folder("mysql")?;
        process::give(folder.path(), account)?;
        let file = |name: &str| folder.path().join(name).display().to_string();
        let data = format!("--datadir={}", file("data"));
        let mut install = process::command_as(account, "mariadb-install-db");
        install.args(["--no-defaults", &data, "--auth-root-authentication-method=normal", "--skip-test-db"]);
        process::set_up(children, folder.path(), &mut install)?;
        // In a file of a folder that only the server can read, since any user can see the arguments
        // of a process.
        process::write(&folder.path().join("init.sql"), &init_sql(options)?)?;
        process::give(&folder.path().join("init.sql"), account)?;
        let mut command = process::command_as(account, "mariadbd");
        command.args(["--no-defaults", &data]);
        for (name, value) in [
            ("port", port.to_string()),
            ("bind-address", Ipv4Addr::LOCALHOST.to_string()),
            ("socket", file("socket")),
            ("pid-file", file("pid")),
            ("tmpdir", folder.path().display().to_string()),
            ("init-file", file("init.sql")),
            ("max-connections", "200".to_owned()),
            ("innodb-buffer-pool-size", "64M".to_owned()),
            ("innodb-log-file-size", "32M".to_owned()),
            // Its files go with it.
            ("innodb-flush-log-at-trx-commit", "0".to_owned()),
        ] {
            command.arg(format!("--{name}={value}"));
        }
        command.arg("--skip-name-resolve");
        // The last of a name counts.
        command.args(settings.iter().map(|(name, value)| format!("--{name}={value}")));
        if options.password.is_some() {
            process::certificate(children, folder.path(), account)?;
            command.arg(format!("--ssl-cert={}", file("server.crt")));
            command.arg(format!("--ssl-key={}", file("server.key")));
            // The CA of client certificates.
            let client = process::client_certificate(children, folder.path(), account)?;
            command.arg(format!("--ssl-ca={}", client.display()));
        }
        let process = ServerProcess::start(children, "mariadbd", folder, &mut command)?;
        let server = Self { process, port, password: options.password.clone() };
        // The server reports when it accepts connections, and exits if another process uses the
        // port.
        server.process.wait_until_ready(START_SECONDS_MAX, || {
            if server.process.log_has("ready for connections") {
                Ok(())
            } else {
                Err("it does not say that it is ready".to_owned())
            }
        })?;
        Ok(server)
    }

    /// The certificate of a server with TLS.
    fn certificate(&self) -> PathBuf {
        self.process.folder().join("server.crt")
    }
}

/// What the server does before it takes connections.
fn init_sql(options: &ServerOptions) -> Result<String> {
    let password = options.password.as_deref().unwrap_or_default();
    // Its file has a statement a line.
    if options.password.is_some() && (password.is_empty() || password.contains(char::is_control)) {
        return Err("a MariaDB password is not empty and has no control characters".to_owned());
    }
    let password = password.replace('\\', "\\\\").replace('\'', "''");
    Ok(format!(
        "CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4;\n\
         CREATE OR REPLACE USER root@'127.0.0.1' IDENTIFIED BY '{password}';\n\
         GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpStream;

    #[test]
    fn a_server_answers_and_goes_with_its_files() {
        // Nothing to test where no MariaDB is; `cargo xtask test` says so.
        if ["mariadbd", "mariadb-install-db", "openssl"].iter().any(|name| crate::setup::find(name).is_none())
        {
            return;
        }
        let children = Children::default();
        let options =
            ServerOptions { password: Some("two 'words' \\".to_owned()), ..ServerOptions::default() };
        let server = MariaServer::start(&children, &options).unwrap();
        let mut greeting = [0; 5];
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).unwrap();
        stream.read_exact(&mut greeting).unwrap();
        assert_eq!(greeting[4], 10, "the version of the protocol");
        let folder = server.process.folder().to_owned();
        assert!(folder.is_dir() && server.certificate().is_file());
        let port = server.port;
        drop(server);
        assert!(!folder.exists());
        assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
    }

    #[test]
    fn a_password_that_no_statement_can_hold_is_refused() {
        for password in ["", "line\nbreak"] {
            let options = ServerOptions { password: Some(password.to_owned()), ..ServerOptions::default() };
            assert!(init_sql(&options).is_err());
        }
    }
}
