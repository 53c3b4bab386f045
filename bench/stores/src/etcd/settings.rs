//! Properties of the etcd store.

use serval_model::properties::{Faults, Kind, Properties, Property, Reader};
use serval_tls::{CertificateVerification, Verifier};
use std::{fs, net::Ipv6Addr, sync::Arc, time::Duration};
use tonic::transport::{ClientTlsConfig, Identity};

/// Default port.
const PORT: u16 = 2379;

pub(super) const ENDPOINTS: Property = Property::serval(
    "etcd.endpoints",
    Kind::Names,
    "Members of the cluster, host or host:port, separated by commas; the default port is 2379. Client n \
     uses member n modulo their number, and the next member if that one is lost.",
)
.default("localhost:2379");
pub(super) const READ: Property = Property::serval(
    "etcd.read",
    Kind::Choice(&["linearizable", "serializable"]),
    "Consistency of reads and scans. linearizable: they see all earlier writes, for which the member asks \
     the others. serializable: the member answers from its own state, which may be stale. Updates always \
     read linearizably.",
)
.default("linearizable");
pub(super) const UPDATE: Property = Property::serval(
    "etcd.update",
    Kind::Choice(&["merge", "replace"]),
    "Kind of update. merge: reads the record and writes it back with the given fields changed, if no \
     other client has changed it since. replace: writes the given fields and drops all others, in one \
     round trip.",
)
.default("merge");
pub(super) const CONNECTIONS: Property = Property::serval(
    "etcd.connections",
    Kind::Choice(&["client", "loop"]),
    "Use of connections. client: each client has a connection of its own. loop: the clients of an event \
     loop share one, with their requests in flight concurrently (HTTP/2).",
)
.default("client");
pub(super) const USERNAME: Property = Property::serval(
    "etcd.username",
    Kind::Text,
    "User name, for clusters with authentication; needs etcd.password.",
);
pub(super) const PASSWORD: Property =
    Property::serval("etcd.password", Kind::Text, "Password of etcd.username.");
pub(super) const TIMEOUT: Property = Property::serval(
    "etcd.timeout",
    Kind::MILLISECONDS,
    "Timeout for a connection and its first answer. Operations have a timeout of their own, \
     etcd.operation.timeout.",
)
.default("2000")
.unit("ms");
pub(super) const OPERATION_TIMEOUT: Property = Property::serval(
    "etcd.operation.timeout",
    Kind::MILLISECONDS,
    "Timeout for the answer to a request. The operation then fails, and its connection is reopened. If \
     unset: no timeout, so that a slow server shows as slow.",
)
.unit("ms");
pub(super) const TLS: Property =
    Property::serval("etcd.tls", Kind::Flag, "Whether to connect with TLS.").default("false");
pub(super) const TLS_ROOTS: Property = Property::serval(
    "etcd.tls.roots",
    Kind::Path,
    "PEM file of the root certificates to trust. If unset: those that browsers trust.",
);
pub(super) const TLS_CERTIFICATE: Property = Property::serval(
    "etcd.tls.certificate",
    Kind::Path,
    "PEM file of the client's certificate, for servers that ask for one; needs etcd.tls.key.",
);
pub(super) const TLS_KEY: Property =
    Property::serval("etcd.tls.key", Kind::Path, "PEM file of the private key of etcd.tls.certificate.");
pub(super) const TLS_SERVER_NAME: Property = Property::serval(
    "etcd.tls.server.name",
    Kind::Text,
    "Name that the servers' certificates must have. If unset: the host of each of etcd.endpoints.",
);
pub(super) const TLS_ACCEPT_ANY: Property = Property::serval(
    "etcd.tls.insecure.accept.any.certificate",
    Kind::Flag,
    "Whether to accept any certificate, regardless of signer and name. Anyone on the network path can \
     then read and change all traffic, including passwords.",
)
.default("false");

pub(super) const ALL: &[&Property] = &[
    &ENDPOINTS,
    &READ,
    &UPDATE,
    &CONNECTIONS,
    &USERNAME,
    &PASSWORD,
    &TIMEOUT,
    &OPERATION_TIMEOUT,
    &TLS,
    &TLS_ROOTS,
    &TLS_CERTIFICATE,
    &TLS_KEY,
    &TLS_SERVER_NAME,
    &TLS_ACCEPT_ANY,
];

/// Values of the properties.
#[derive(Debug)]
pub(super) struct EtcdSettings {
    /// The members, as host:port.
    pub(super) endpoints: Vec<String>,
    pub(super) serializable: bool,
    pub(super) merge: bool,
    /// Whether the clients of an event loop share a connection.
    pub(super) shared: bool,
    /// User name and password.
    pub(super) login: Option<(String, String)>,
    pub(super) timeout: Duration,
    pub(super) operation_timeout: Option<Duration>,
    pub(super) tls: Option<EtcdTls>,
}

/// TLS settings.
#[derive(Debug)]
pub(super) struct EtcdTls {
    pub(super) config: ClientTlsConfig,
    pub(super) verifier: Arc<Verifier>,
}

impl EtcdSettings {
    pub(super) fn read(properties: &Properties) -> Result<EtcdSettings, Faults> {
        let mut reader = Reader::new(properties);
        let endpoints = endpoints(&mut reader);
        let settings = EtcdSettings {
            endpoints,
            serializable: reader.choice(&READ) == "serializable",
            merge: reader.choice(&UPDATE) == "merge",
            shared: reader.choice(&CONNECTIONS) == "loop",
            login: login(&mut reader),
            timeout: above_zero(&mut reader, &TIMEOUT),
            operation_timeout: reader
                .given(&OPERATION_TIMEOUT)
                .then(|| above_zero(&mut reader, &OPERATION_TIMEOUT)),
            tls: encryption(&mut reader),
        };
        reader.finish()?;
        Ok(settings)
    }
}

fn above_zero(reader: &mut Reader<'_>, property: &'static Property) -> Duration {
    let duration = reader.duration(property);
    if duration.is_zero() && reader.given(property) {
        reader.fault(property, "must be above zero");
    }
    duration
}

fn endpoints(reader: &mut Reader<'_>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for name in reader.names(&ENDPOINTS) {
        match endpoint(&name) {
            Some(endpoint) if found.contains(&endpoint) => {
                reader.fault(&ENDPOINTS, format!("names '{name}' twice"));
            }
            Some(endpoint) => found.push(endpoint),
            None if name.contains("://") => {
                reader.fault(
                    &ENDPOINTS,
                    format!("'{name}' is a URL: leave out http://, and set etcd.tls for https"),
                );
            }
            None => reader.fault(&ENDPOINTS, format!("'{name}' is no host or host:port")),
        }
    }
    if found.is_empty() {
        reader.fault(&ENDPOINTS, "names no server");
    }
    found
}

/// Parses a host with an optional port into host:port; IPv6 addresses have brackets.
fn endpoint(text: &str) -> Option<String> {
    let text = text.trim();
    let address = |text: &str| text.parse::<Ipv6Addr>().ok();
    if let Some(address) = address(text) {
        return Some(format!("[{address}]:{PORT}"));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, digits)) if !digits.ends_with(']') => (host, digits.parse().ok()?),
        _ => (text, PORT),
    };
    let host = match host.strip_prefix('[') {
        Some(rest) => format!("[{}]", address(rest.strip_suffix(']')?)?),
        None => host.to_owned(),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let named = !host.is_empty() && (host.starts_with('[') || host.chars().all(plain));
    (named && port > 0).then(|| format!("{host}:{port}"))
}

fn login(reader: &mut Reader<'_>) -> Option<(String, String)> {
    let (username, password) = (reader.optional_text(&USERNAME), reader.optional_text(&PASSWORD));
    if username.is_some() != password.is_some() {
        reader.fault(&USERNAME, "and etcd.password need each other");
    }
    username.zip(password)
}

fn encryption(reader: &mut Reader<'_>) -> Option<EtcdTls> {
    let (wanted, accept_any) = (reader.flag(&TLS), reader.flag(&TLS_ACCEPT_ANY));
    for property in [&TLS_ROOTS, &TLS_CERTIFICATE, &TLS_KEY, &TLS_SERVER_NAME] {
        if reader.given(property) && !wanted {
            reader.fault(property, "needs etcd.tls=true");
        }
    }
    if accept_any && !wanted {
        reader.fault(&TLS_ACCEPT_ANY, "needs etcd.tls=true");
    }
    if accept_any && reader.given(&TLS_ROOTS) {
        reader.fault(&TLS_ACCEPT_ANY, "makes etcd.tls.roots pointless: leave out one of them");
    }
    let roots = serval_tls::roots(reader.path(&TLS_ROOTS).as_deref())
        .map_err(|problem| reader.fault(&TLS_ROOTS, problem));
    let demand = if accept_any { CertificateVerification::Nothing } else { CertificateVerification::Full };
    let files = (reader.path(&TLS_CERTIFICATE), reader.path(&TLS_KEY));
    let identity = serval_tls::identity(reader, (&TLS_CERTIFICATE, files.0), (&TLS_KEY, files.1));
    if !wanted {
        return None;
    }
    let mut config = ClientTlsConfig::new();
    if let Some(name) = reader.optional_text(&TLS_SERVER_NAME) {
        if rustls::pki_types::ServerName::try_from(name.as_str()).is_err() {
            reader.fault(&TLS_SERVER_NAME, format!("'{name}' is no host name"));
        }
        config = config.domain_name(name);
    }
    if let Some(identity) = identity {
        // The files were read above.
        let certificate = fs::read(identity.certificate_file).ok()?;
        let key = fs::read(identity.key_file).ok()?;
        config = config.identity(Identity::from_pem(certificate, key));
    }
    match serval_tls::verifier(roots.ok()?, demand) {
        Ok(verifier) => Some(EtcdTls { config, verifier }),
        Err(problem) => {
            reader.fault(&TLS_ROOTS, problem);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_have_a_port_or_the_default_one() {
        for (text, expected) in [
            ("a", "a:2379"),
            (" a:1 ", "a:1"),
            ("10.0.0.1:7", "10.0.0.1:7"),
            ("::1", "[::1]:2379"),
            ("[::1]", "[::1]:2379"),
            ("[::1]:7", "[::1]:7"),
        ] {
            assert_eq!(endpoint(text).as_deref(), Some(expected), "{text}");
        }
        for wrong in ["", ":1", "a:0", "a:x", "a:65536", "http://a:1", "a/b", "u@a", "[a]:1", "[::1:7", "a b"]
        {
            assert_eq!(endpoint(wrong), None, "{wrong:?}");
        }
    }
}
