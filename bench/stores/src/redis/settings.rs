//! Properties of the redis store.

use super::server::{ConnectOptions, RedisEndpoint};
use crate::reconnecting::TimeLimit;
use redis::{ClientTlsConfig, RedisConnectionInfo, TlsCertificates};
use serval_model::properties::{Faults, Kind, Properties, Property, Reader};
use std::{sync::Arc, time::Duration};

pub(super) const HOST: Property =
    Property::ycsb("redis.host", Kind::Text, "Host name or address of the server.").default("localhost");
pub(super) const PORT: Property =
    Property::ycsb("redis.port", Kind::Count { min: 1, max: 65535 }, "TCP port of the server.")
        .default("6379");
pub(super) const HOSTS: Property = Property::serval(
    "redis.hosts",
    Kind::Names,
    "Several servers, host or host:port, separated by commas; the default port is redis.port. With \
     redis.cluster: nodes through which the others are found. Without it: independent servers; a key is \
     on server |Java hash code of the key| modulo their number, counted from 0 in this order. Replaces \
     redis.host.",
);
pub(super) const REPLICA: Property = Property::serval(
    "redis.replica",
    Kind::Text,
    "Replica of the server, host or host:port, for reads and scans; writes go to redis.host. A write that \
     has not reached the replica is not found there.",
);
pub(super) const PASSWORD: Property =
    Property::ycsb("redis.password", Kind::Text, "Password, if the server requires one (AUTH).");
pub(super) const USERNAME: Property = Property::serval(
    "redis.username",
    Kind::Text,
    "User name, for servers with access control lists (Redis 6 and later). If unset: the default user.",
);
pub(super) const TIMEOUT: Property = Property::ycsb(
    "redis.timeout",
    Kind::MILLISECONDS,
    "Timeout for a connection and its first answer. Operations have a timeout of their own, \
     redis.operation.timeout.",
)
.default("2000")
.unit("ms");
pub(super) const OPERATION_TIMEOUT: Property = Property::serval(
    "redis.operation.timeout",
    Kind::MILLISECONDS,
    "Timeout for the answer to a command. The operation then fails, and its connection is reopened. If \
     unset: no timeout, so that a slow server shows as slow.",
)
.unit("ms");
pub(super) const CLUSTER: Property = Property::ycsb(
    "redis.cluster",
    Kind::Flag,
    "Whether the server belongs to a Redis Cluster. The server then names the other nodes.",
)
.default("false");
pub(super) const DATABASE: Property = Property::serval(
    "redis.database",
    Kind::Count { min: 0, max: 1_000_000 },
    "Number of the database (SELECT). A Redis Cluster has only number 0.",
)
.default("0");
pub(super) const CONNECTIONS: Property = Property::serval(
    "redis.connections",
    Kind::Count { min: 0, max: 100_000 },
    "Connections to each server that the clients of one event loop share; commands of several clients \
     then leave in one write, and the server answers them in order. 0: each client has connections of its \
     own, as in YCSB.",
)
.default("0");
pub(super) const TLS: Property =
    Property::serval("redis.tls", Kind::Flag, "Whether to connect with TLS.").default("false");
pub(super) const TLS_ROOTS: Property = Property::serval(
    "redis.tls.roots",
    Kind::Path,
    "PEM file of the root certificates to trust. If unset: those that the system trusts.",
);
pub(super) const TLS_CERTIFICATE: Property = Property::serval(
    "redis.tls.certificate",
    Kind::Path,
    "PEM file of the client's certificate, for servers that ask for one; needs redis.tls.key.",
);
pub(super) const TLS_KEY: Property =
    Property::serval("redis.tls.key", Kind::Path, "PEM file of the private key of redis.tls.certificate.");
pub(super) const TLS_ACCEPT_ANY: Property = Property::serval(
    "redis.tls.insecure.accept.any.certificate",
    Kind::Flag,
    "Whether to accept any certificate, regardless of signer and name. Anyone on the network path can \
     then read and change all traffic, including passwords.",
)
.default("false");

pub(super) const ALL: &[&Property] = &[
    &HOST,
    &PORT,
    &HOSTS,
    &REPLICA,
    &CLUSTER,
    &PASSWORD,
    &USERNAME,
    &DATABASE,
    &TIMEOUT,
    &OPERATION_TIMEOUT,
    &CONNECTIONS,
    &TLS,
    &TLS_ROOTS,
    &TLS_CERTIFICATE,
    &TLS_KEY,
    &TLS_ACCEPT_ANY,
];

/// Values of the properties.
#[derive(Debug)]
pub(super) struct RedisSettings {
    /// The given servers, in their order.
    pub(super) servers: Vec<RedisEndpoint>,
    /// Replica for reads and scans.
    pub(super) replica: Option<RedisEndpoint>,
    /// Whether they are nodes of a Redis Cluster.
    pub(super) cluster: bool,
    /// Whether to use TLS.
    pub(super) tls: bool,
    /// Shared connections per server and event loop; 0: each client has its own.
    pub(super) connections: usize,
}

impl RedisSettings {
    pub(super) fn read(properties: &Properties) -> Result<RedisSettings, Faults> {
        let mut reader = Reader::new(properties);
        let port = reader.count(&PORT) as u16;
        let hosts = addresses(&mut reader, port);
        let cluster = reader.flag(&CLUSTER);
        let connections = reader.count(&CONNECTIONS) as usize;
        let timeout = above_zero(&mut reader, &TIMEOUT);
        let operation_timeout =
            reader.given(&OPERATION_TIMEOUT).then(|| above_zero(&mut reader, &OPERATION_TIMEOUT));
        let login = login(&mut reader, cluster);
        let (tls, accept_any, certificates) = tls(&mut reader);
        let options = Arc::new(ConnectOptions {
            cluster,
            login,
            tls: tls.then_some((accept_any, certificates)),
            timeout,
            limit: TimeLimit { time: operation_timeout, property: OPERATION_TIMEOUT.name },
        });
        let replica = replica(&mut reader, port, cluster || hosts.len() > 1);
        let replica = replica.map(|(host, port)| options.server(&host, port)).transpose();
        let servers: redis::RedisResult<Vec<RedisEndpoint>> =
            hosts.into_iter().map(|(host, port)| options.server(&host, port)).collect();
        // Only the files of TLS can be invalid here.
        let (servers, replica) = match servers.and_then(|servers| Ok((servers, replica?))) {
            Ok(both) => both,
            Err(error) => {
                reader.fault(&TLS_ROOTS, format!("cannot be used: {error}"));
                (Vec::new(), None)
            }
        };
        reader.finish()?;
        Ok(RedisSettings { servers, replica, cluster, tls, connections })
    }
}

fn above_zero(reader: &mut Reader<'_>, property: &'static Property) -> Duration {
    let duration = reader.duration(property);
    if duration.is_zero() && reader.given(property) {
        reader.fault(property, "must be above zero");
    }
    duration
}

fn addresses(reader: &mut Reader<'_>, port: u16) -> Vec<(String, u16)> {
    if !reader.given(&HOSTS) {
        return vec![(reader.text(&HOST), port)];
    }
    if reader.given(&HOST) {
        reader.fault(&HOSTS, "cannot stand together with redis.host");
    }
    let mut found: Vec<(String, u16)> = Vec::new();
    for name in reader.names(&HOSTS) {
        match address(&name, port) {
            Some(address) if found.contains(&address) => {
                reader.fault(&HOSTS, format!("names '{name}' twice"));
            }
            Some(address) => found.push(address),
            None => reader.fault(&HOSTS, format!("'{name}' is no host or host:port")),
        }
    }
    if found.is_empty() {
        reader.fault(&HOSTS, "names no server");
    }
    found
}

/// Reads the replica's address.
fn replica(reader: &mut Reader<'_>, port: u16, several: bool) -> Option<(String, u16)> {
    let text = reader.optional_text(&REPLICA)?;
    if several {
        reader.fault(
            &REPLICA,
            "is for one server, and not for a cluster or several (redis.cluster, redis.hosts)",
        );
    }
    let address = address(&text, port);
    if address.is_none() {
        reader.fault(&REPLICA, "is no host or host:port");
    }
    address
}

/// Parses a host with an optional port; an IPv6 address with a port has brackets.
pub(super) fn address(text: &str, port: u16) -> Option<(String, u16)> {
    let text = text.trim();
    let (host, port) = match text.rsplit_once(':') {
        Some((host, _)) if host.contains(':') && !host.starts_with('[') => (text, port),
        Some((host, digits)) if !digits.ends_with(']') => (host, digits.parse().ok()?),
        _ => (text, port),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (!host.is_empty() && port > 0).then(|| (host.to_owned(), port))
}

fn login(reader: &mut Reader<'_>, cluster: bool) -> RedisConnectionInfo {
    let database = reader.count(&DATABASE);
    if cluster && database != 0 {
        reader.fault(&DATABASE, "must be 0 in a Redis Cluster");
    }
    // The server must get only the operations.
    let mut login = RedisConnectionInfo::default().set_db(database as i64).set_skip_set_lib_name();
    let (username, password) = (reader.optional_text(&USERNAME), reader.optional_text(&PASSWORD));
    if username.is_some() && password.is_none() {
        reader.fault(&USERNAME, "needs redis.password too");
    }
    if let Some(username) = username {
        login = login.set_username(username);
    }
    if let Some(password) = password {
        login = login.set_password(password);
    }
    login
}

/// Reads whether TLS is on, whether to accept any certificate, and the certificates.
fn tls(reader: &mut Reader<'_>) -> (bool, bool, TlsCertificates) {
    let (tls, accept_any) = (reader.flag(&TLS), reader.flag(&TLS_ACCEPT_ANY));
    for property in [&TLS_ROOTS, &TLS_CERTIFICATE, &TLS_KEY] {
        if reader.given(property) && !tls {
            reader.fault(property, "needs redis.tls=true");
        }
    }
    if accept_any && !tls {
        reader.fault(&TLS_ACCEPT_ANY, "needs redis.tls=true");
    }
    if accept_any && reader.given(&TLS_ROOTS) {
        reader.fault(&TLS_ACCEPT_ANY, "makes redis.tls.roots pointless: leave out one of them");
    }
    let root_cert = file(reader, &TLS_ROOTS);
    let client_tls = match (file(reader, &TLS_CERTIFICATE), file(reader, &TLS_KEY)) {
        (Some(client_cert), Some(client_key)) => Some(ClientTlsConfig { client_cert, client_key }),
        _ => None,
    };
    if reader.given(&TLS_CERTIFICATE) != reader.given(&TLS_KEY) {
        reader.fault(&TLS_CERTIFICATE, "and redis.tls.key need each other");
    }
    (tls, accept_any, TlsCertificates { client_tls, root_cert })
}

/// Reads a PEM file.
fn file(reader: &mut Reader<'_>, property: &'static Property) -> Option<Vec<u8>> {
    let path = reader.path(property)?;
    match std::fs::read(&path) {
        // A file without a certificate or key would fail only when connecting.
        Ok(bytes) if bytes.windows(11).any(|window| window == b"-----BEGIN ") => Some(bytes),
        Ok(_) => {
            reader.fault(property, format!("{} is no PEM file", path.display()));
            None
        }
        Err(error) => {
            reader.fault(property, format!("{}: {error}", path.display()));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_port_or_the_default_one() {
        let of = |text| address(text, 6379);
        assert_eq!(of("a"), Some(("a".into(), 6379)));
        assert_eq!(of(" a:1 "), Some(("a".into(), 1)));
        assert_eq!(of("::1"), Some(("::1".into(), 6379)));
        assert_eq!(of("[::1]:7"), Some(("::1".into(), 7)));
        assert_eq!(of("[::1]"), Some(("::1".into(), 6379)));
        for wrong in ["", ":1", "a:0", "a:x", "a:65536"] {
            assert_eq!(of(wrong), None, "{wrong:?}");
        }
    }
}
