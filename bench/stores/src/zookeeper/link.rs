//! Sessions: opening and closing them, checks of the set-up, and advice for
//! failures.

use super::settings::{Login, ZookeeperSettings};
use rustls::{ClientConnection, pki_types::ServerName};
use serval_model::{Purpose, StoreError};
use serval_tls::CertificateVerification;
use std::{io, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time,
};
use zookeeper_client::{Client as Session, Connector, CreateMode, Error, SessionState};

/// Maximum bytes of the answer to `srvr`, which has a few hundred.
const ANSWER_MAX: u64 = 1 << 14;

/// Maximum SASL login attempts. The driver (0.11) starts the login without waiting for
/// the session, and treats an answer that arrives before the session's as a protocol
/// error. At a busy server this happens to up to half of the attempts.
const SASL_ATTEMPTS: usize = 30;

/// Time limit for optional facts about servers.
const FACTS_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns whether the session is connected to a server.
pub(super) fn is_connected(session: &Session) -> bool {
    session.state() == SessionState::SyncConnected
}

fn connector(settings: &ZookeeperSettings) -> Connector {
    let mut connector =
        Session::connector().with_session_timeout(settings.session_timeout).with_fail_eagerly();
    match &settings.login {
        Some(Login::Digest(login)) => connector = connector.with_auth("digest", login.as_bytes()),
        Some(Login::Sasl(options)) => connector = connector.with_sasl(options.clone()),
        None => {}
    }
    match &settings.tls {
        Some(tls) => connector.with_tls(tls.options.clone()),
        None => connector,
    }
}

async fn try_open(settings: &ZookeeperSettings, connector: Connector) -> Result<Session, Error> {
    match &settings.tls {
        Some(_) => connector.secure_connect(&settings.connect_string).await,
        None => connector.connect(&settings.connect_string).await,
    }
}

/// Opens a session with any of the servers; tries each once.
pub(super) async fn open(settings: &ZookeeperSettings) -> Result<Session, StoreError> {
    let attempts = if matches!(settings.login, Some(Login::Sasl(_))) { SASL_ATTEMPTS } else { 1 };
    let opening = async {
        for _ in 1..attempts {
            match try_open(settings, connector(settings)).await {
                Err(Error::NoHosts) => {}
                done => return done,
            }
        }
        try_open(settings, connector(settings)).await
    };
    match time::timeout(settings.connect_timeout, opening).await {
        Ok(Ok(session)) => Ok(session),
        Ok(Err(error)) => Err(settings.error(format!("cannot connect: {}", reason(settings, &error)))),
        Err(_) => Err(settings.error(format!(
            "cannot connect: no session within {:?} (zookeeper.connect_timeout). Does zookeeper.connectString name a \
             ZooKeeper that is part of a quorum?",
            settings.connect_timeout
        ))),
    }
}

fn reason(settings: &ZookeeperSettings, error: &Error) -> String {
    match (error, &settings.login) {
        (Error::AuthFailed, Some(_)) => {
            format!("{error}. Check zookeeper.username, zookeeper.password and zookeeper.auth")
        }
        (Error::AuthFailed, None) => {
            format!("{error}. The servers want to know their clients: set zookeeper.username and zookeeper.auth=sasl")
        }
        (Error::NoHosts, _) if settings.tls.is_none() => "no server took the session. Do they run, as parts of a \
            quorum, on a port without TLS (or zookeeper.tls=true), for so many clients (maxClientCnxns)?"
            .to_owned(),
        (Error::NoHosts, _) => "no server took the session. Do they run, do they talk TLS on this port \
            (secureClientPort), do they want a certificate (zookeeper.tls_certificate), and do they take so many \
            clients from one host (maxClientCnxns)?"
            .to_owned(),
        _ => error.to_string(),
    }
}

/// Checks that at least one server accepts connections, with TLS if it is on. Reports the
/// failure of each server, which the driver does not.
pub(super) async fn reach(settings: &ZookeeperSettings) -> Result<(), StoreError> {
    let mut problems = Vec::new();
    for (host, port) in &settings.servers {
        match time::timeout(settings.connect_timeout, greet(settings, host, *port)).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(problem)) => problems.push(format!("{host}:{port}: {problem}")),
            Err(_) => problems.push(format!(
                "{host}:{port}: no answer within {:?} (zookeeper.connect_timeout)",
                settings.connect_timeout
            )),
        }
    }
    let advice = if settings.tls.is_some() {
        "Is the server running, does zookeeper.connectString name its port for TLS (secureClientPort), and are \
         zookeeper.tls_ca and zookeeper.tls_certificate right?"
    } else {
        "Is the server running, and does zookeeper.connectString name it?"
    };
    Err(settings.error(format!("cannot connect: {}. {advice}", problems.join("; "))))
}

async fn greet(settings: &ZookeeperSettings, host: &str, port: u16) -> Result<(), String> {
    let mut stream = TcpStream::connect((host, port)).await.map_err(|error| error.to_string())?;
    let Some(options) = &settings.tls else { return Ok(()) };
    let config =
        serval_tls::config(options.roots.clone(), CertificateVerification::Full, options.identity.clone())?;
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    let mut tls = ClientConnection::new(Arc::new(config), name).map_err(|error| error.to_string())?;
    shake_hands(&mut tls, &mut stream).await.map_err(|error| error.to_string())
}

/// Performs a TLS handshake.
async fn shake_hands(tls: &mut ClientConnection, stream: &mut TcpStream) -> io::Result<()> {
    let mut bytes = vec![0; 1 << 14];
    while tls.is_handshaking() {
        let mut out = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut out)?;
        }
        stream.write_all(&out).await?;
        let count = stream.read(&mut bytes).await?;
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it hung up in the TLS handshake"));
        }
        let mut read = &bytes[..count];
        while !read.is_empty() {
            tls.read_tls(&mut read)?;
            tls.process_new_packets().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
    }
    Ok(())
}

/// Checks that the records' root node exists and is readable; creates it for a
/// load.
pub(super) async fn look_at_root(
    settings: &ZookeeperSettings,
    session: &Session,
    purpose: Purpose,
) -> Result<(), StoreError> {
    let root = settings.root.as_deref().unwrap_or("/");
    let looking = async {
        if session.check_stat("/").await?.is_some() {
            return Ok(true);
        }
        if purpose == Purpose::Load {
            // Needs a session without a root, because paths are relative to it.
            let whole = session.clone().chroot("/").map_err(|_| Error::NoNode)?;
            whole.mkdir(root, &CreateMode::Persistent.with_acls(settings.acls())).await?;
            return Ok(true);
        }
        Ok(false)
    };
    match time::timeout(settings.connect_timeout, looking).await {
        Ok(Ok(true)) => Ok(()),
        Ok(Ok(false)) => Err(settings.error(format!(
            "there is no node {root}. Load records first, or check the path at the end of zookeeper.connectString"
        ))),
        Ok(Err(Error::NoAuth)) => Err(settings.error(format!(
            "we may not use the node {root}. Check zookeeper.username and zookeeper.password"
        ))),
        Ok(Err(error)) => Err(settings.error(format!("cannot look at the node {root}: {error}"))),
        Err(_) => Err(settings.error(format!(
            "no answer within {:?} (zookeeper.connect_timeout)",
            settings.connect_timeout
        ))),
    }
}

/// Closes a session and waits, for a limited time, until the server knows. Returns whether
/// it does. A session without a connection expires by itself.
pub(super) async fn close(settings: &ZookeeperSettings, session: Session) -> bool {
    if !is_connected(&session) {
        return true;
    }
    let mut states = session.state_watcher();
    drop(session);
    let ended = async { while !states.changed().await.is_terminated() {} };
    // Otherwise the session expires at the server.
    time::timeout(settings.connect_timeout, ended).await.is_ok()
}

/// Returns facts about the first server that answers; none if it disables the
/// command.
pub(super) async fn facts(settings: &ZookeeperSettings) -> Vec<(String, String)> {
    if settings.tls.is_some() {
        return Vec::new();
    }
    for (host, port) in &settings.servers {
        let asking = async {
            let mut stream = TcpStream::connect((host.as_str(), *port)).await?;
            stream.write_all(b"srvr").await?;
            let mut answer = String::new();
            stream.take(ANSWER_MAX).read_to_string(&mut answer).await?;
            Ok::<_, io::Error>(answer)
        };
        if let Ok(Ok(answer)) = time::timeout(FACTS_TIMEOUT, asking).await {
            return facts_of(&answer);
        }
    }
    Vec::new()
}

fn facts_of(answer: &str) -> Vec<(String, String)> {
    let lines = answer.lines().filter_map(|line| line.split_once(": "));
    let found = lines.filter_map(|(name, value)| match name {
        // The commit and the build's date follow the version.
        "Zookeeper version" => {
            Some(("version".to_owned(), value.split(['-', ',']).next().unwrap_or(value).to_owned()))
        }
        "Mode" => Some(("mode".to_owned(), value.to_owned())),
        _ => None,
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_of_a_server_is_parsed() {
        let answer = "Zookeeper version: 3.8.0-${mvngit.commit.id}, built on 2022-09-23\nLatency min/avg/max: 0/0.0/0\n\
                      Mode: standalone\nNode count: 5\n";
        let facts = facts_of(answer);
        let expected = [("version", "3.8.0"), ("mode", "standalone")];
        assert_eq!(facts, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert!(facts_of("srvr is not executed because it is not in the whitelist.").is_empty());
    }
}
