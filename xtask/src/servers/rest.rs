//! An nginx that keeps resources as files (its WebDAV), on loopback only.
//!
//! nginx has no POST; the configuration passes one on to itself as a PUT, so that a real server
//! answers the requests that YCSB's binding sends by default.

use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;

use super::process::{self, ServerProcess};
use super::{Fixture, ServerHandle, ServerKind, ServerOptions, redis};
use crate::Result;
use crate::children::Children;
use crate::setup::ProgramPurpose;

/// It takes 0.05 s on an idle machine.
const START_SECONDS_MAX: u64 = 20;

/// User of a server with a password.
const USER: &str = "serval";

/// The socket beside the port.
const SOCKET: &str = "nginx.sock";

/// Its entry for the tests and `cargo xtask serve`.
pub(crate) const KIND: ServerKind = ServerKind {
    name: "rest",
    purpose: ProgramPurpose::Rest,
    serve: |children, options| Ok(Box::new(RestServer::start(children, options, Requests::Many)?)),
    fixture,
    variables: &[
        "SERVAL_TEST_REST",
        "SERVAL_TEST_REST_SOCKET",
        "SERVAL_TEST_REST_AUTH",
        "SERVAL_TEST_REST_PASSWORD",
        "SERVAL_TEST_REST_CERTIFICATE",
    ],
};

/// Requests that a connection may carry before the server closes it.
#[derive(Clone, Copy)]
enum Requests {
    /// So few that tests see it happen.
    Few = 100,
    /// So many that it does not.
    Many = 1_000_000_000,
}

/// One without a password, and one with a password and TLS.
fn fixture(children: &Children) -> Result<Fixture> {
    let open = RestServer::start(children, &ServerOptions::default(), Requests::Few)?;
    let password = redis::generated_password()?;
    let options = ServerOptions { password: Some(password.clone()), ..ServerOptions::default() };
    let guarded = RestServer::start(children, &options, Requests::Few)?;
    let variables = vec![
        ("SERVAL_TEST_REST", open.address()),
        ("SERVAL_TEST_REST_SOCKET", open.file(SOCKET).display().to_string()),
        ("SERVAL_TEST_REST_AUTH", guarded.address()),
        ("SERVAL_TEST_REST_PASSWORD", password),
        ("SERVAL_TEST_REST_CERTIFICATE", guarded.file("server.crt").display().to_string()),
    ];
    Ok(Fixture { servers: vec![Box::new(open), Box::new(guarded)], variables })
}

/// A server that answers. Dropping it stops it and removes its files.
///
/// With a password it requires the password (basic authentication, user `serval`) and TLS; without
/// one it requires none and has no TLS.
struct RestServer {
    process: ServerProcess,
    port: u16,
    password: Option<String>,
}

impl ServerHandle for RestServer {
    fn address(&self) -> String {
        format!("{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }

    fn properties(&self) -> Vec<String> {
        let address = self.address();
        match &self.password {
            None => vec![format!("rest.url=http://{address}/"), "rest.layout=json".to_owned()],
            Some(password) => vec![
                format!("rest.url=https://{address}/"),
                "rest.layout=json".to_owned(),
                format!("rest.user={USER}"),
                format!("rest.password={password}"),
                format!("rest.tls.roots={}", self.file("server.crt").display()),
            ],
        }
    }

    fn wait_for_interrupt(&self) -> Result<()> {
        self.process.wait_for_interrupt()
    }
}

impl RestServer {
    /// Starts a server and returns once it answers.
    fn start(children: &Children, options: &ServerOptions, requests: Requests) -> Result<Self> {
        process::on_a_port(options.port, children, |port| Self::start_on(port, children, options, requests))
    }

    fn start_on(port: u16, children: &Children, options: &ServerOptions, requests: Requests) -> Result<Self> {
        let folder = process::folder("nginx")?;
        for name in ["data", "temporary"] {
            let path = folder.path().join(name);
            fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        if let Some(password) = &options.password {
            if password.is_empty() || password.contains(char::is_control) {
                return Err("an nginx password is not empty and has no control characters".to_owned());
            }
            process::certificate(children, folder.path(), None)?;
            process::write(&folder.path().join("password"), &format!("{USER}:{{PLAIN}}{password}\n"))?;
        }
        let text = configuration(port, options.password.is_some(), requests);
        process::write(&folder.path().join("nginx.conf"), &text)?;
        let program = crate::setup::find("nginx").unwrap_or_else(|| "nginx".into());
        let mut command = Command::new(program);
        command.arg("-p").arg(folder.path()).args(["-c", "nginx.conf", "-e", "stderr"]);
        let process = ServerProcess::start(children, "nginx", folder, &mut command)?;
        let server = Self { process, port, password: options.password.clone() };
        let pid = server.process.pid().to_string();
        server.process.wait_until_ready(START_SECONDS_MAX, || {
            // It writes its process id once its ports are bound; another server may answer on the
            // port.
            let written = fs::read_to_string(server.file("nginx.pid")).unwrap_or_default();
            if written.trim() == pid { Ok(()) } else { Err("it has not written its process id".to_owned()) }
        })?;
        Ok(server)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.process.folder().join(name)
    }
}

/// Paths are relative to the server's folder.
fn configuration(port: u16, guarded: bool, requests: Requests) -> String {
    let requests = requests as u32;
    let (tls, lines) = if guarded {
        let lines = "ssl_certificate server.crt; ssl_certificate_key server.key; auth_basic serval; \
                     auth_basic_user_file password;";
        (" ssl", lines)
    } else {
        ("", "")
    };
    let scheme = if guarded { "https" } else { "http" };
    // As root the process would run as the user `nobody`, which may not enter the folder.
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    // One process: a second one would outlive a first that is killed.
    format!(
        "daemon off; master_process off; {user} pid nginx.pid;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path temporary/body; proxy_temp_path temporary/proxy; fastcgi_temp_path temporary/fastcgi;
  uwsgi_temp_path temporary/uwsgi; scgi_temp_path temporary/scgi;
  client_max_body_size 2560k; client_body_buffer_size 2560k; keepalive_requests {requests};
  server {{
    listen 127.0.0.1:{port}{tls};
    listen unix:{SOCKET};
    {lines}
    root data;
    dav_methods PUT DELETE; create_full_put_path on;
    # nginx takes a PUT of a record that is there for a new one.
    error_page 418 = @post;
    location / {{ if ($request_method = POST) {{ return 418; }} }}
    location @post {{ proxy_method PUT; proxy_pass {scheme}://127.0.0.1:{port}; }}
  }}
}}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    fn ask(port: u16, request: &str) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn a_server_answers_and_goes_with_its_files() {
        // Nothing to test where no nginx is; `cargo xtask test` says so.
        if ["nginx", "openssl"].iter().any(|name| crate::setup::find(name).is_none()) {
            return;
        }
        let children = Children::default();
        for password in [None, Some("two 'words' \\".to_owned())] {
            let options = ServerOptions { password: password.clone(), ..ServerOptions::default() };
            let server = RestServer::start(&children, &options, Requests::Few).unwrap();
            let folder = server.process.folder().to_owned();
            let port = server.port;
            let head = "HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
            if password.is_none() {
                let made = ask(port, &format!("POST /a/b {head}Content-Length: 2\r\n\r\nhi"));
                assert!(made.starts_with("HTTP/1.1 201"), "{made}");
                let found = ask(port, &format!("GET /a/b {head}\r\n"));
                assert!(found.starts_with("HTTP/1.1 200") && found.ends_with("\r\n\r\nhi"), "{found}");
            } else {
                let plain = ask(port, &format!("GET /a/b {head}\r\n"));
                assert!(plain.contains("plain HTTP request was sent to HTTPS port"), "{plain}");
            }
            drop(server);
            assert!(!folder.exists());
            assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
        }
    }
}
