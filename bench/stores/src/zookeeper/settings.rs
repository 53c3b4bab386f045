//! Properties of the zookeeper store.

use super::node_name::is_node_name;
use rustls::RootCertStore;
use serval_model::{
    StoreError,
    properties::{Faults, Kind, Properties, Property, Reader},
};
use serval_tls::ClientIdentity;
use std::{fs, path::Path, time::Duration};
use zookeeper_client::{Acls, SaslOptions, TlsOptions};

/// Default port.
const PORT: u16 = 2181;

const CONNECT: Property = Property::ycsb(
    "zookeeper.connectString",
    Kind::Text,
    "Servers, host or host:port, separated by commas (default port 2181), optionally followed by the path \
     of the node below which the records are: a:2181,b:2181/benchmark.",
)
.default("127.0.0.1:2181");
const SESSION_TIMEOUT: Property = Property::ycsb(
    "zookeeper.sessionTimeout",
    Kind::MILLISECONDS,
    "Silence after which the servers end a session; they limit it to between 2 and 20 of their ticks. A \
     server that is silent for 2/5 of it is given up.",
)
.default("30000")
.unit("ms");
const WATCH: Property = Property::ycsb(
    "zookeeper.watchFlag",
    Kind::Flag,
    "Whether reads leave a watch on their node, to measure the cost of watches: each change of a node is \
     then sent to every client that has read it. Serval ignores the notifications.",
)
.default("false");
const USERNAME: Property =
    Property::serval("zookeeper.username", Kind::Text, "User name; needs zookeeper.password.");
const PASSWORD: Property =
    Property::serval("zookeeper.password", Kind::Text, "Password of zookeeper.username.");
const AUTH: Property = Property::serval(
    "zookeeper.auth",
    Kind::Choice(&["digest", "sasl"]),
    "Authentication scheme. digest: as addauth digest; the servers accept any user, and compare it with a \
     node's ACL. sasl: DIGEST-MD5, for servers that know their users.",
)
.default("digest");
const ACL: Property = Property::serval(
    "zookeeper.acl",
    Kind::Choice(&["open", "creator"]),
    "ACL of the nodes that inserts create. open: everyone, as in YCSB. creator: only the user that \
     created the node.",
)
.default("open");
const TLS: Property = Property::serval(
    "zookeeper.tls",
    Kind::Flag,
    "Whether to connect with TLS (to the servers' secureClientPort).",
)
.default("false");
const TLS_CA: Property = Property::serval(
    "zookeeper.tls_ca",
    Kind::Path,
    "PEM file of the certificates that sign the servers' certificates; needed with zookeeper.tls. A \
     server's certificate must name the host as zookeeper.connectString does.",
);
const TLS_CERTIFICATE: Property = Property::serval(
    "zookeeper.tls_certificate",
    Kind::Path,
    "PEM file of the client's certificate, for servers that ask for one, as they do by default; needs \
     zookeeper.tls_key.",
);
const TLS_KEY: Property = Property::serval(
    "zookeeper.tls_key",
    Kind::Path,
    "PEM file of the private key of zookeeper.tls_certificate.",
);
const CONNECT_TIMEOUT: Property = Property::serval(
    "zookeeper.connect_timeout",
    Kind::MILLISECONDS,
    "Timeout for a session, including authentication.",
)
.default("10s")
.unit("ms");
pub(super) const TIMEOUT: Property = Property::serval(
    "zookeeper.timeout",
    Kind::MILLISECONDS,
    "Timeout for the answer to a request. The operation then fails, but may still have been performed. If \
     unset: only the session's timeout, so that a slow server shows as slow.",
)
.unit("ms");
const REQUEST_MAX: Property = Property::serval(
    "zookeeper.maxbuffer",
    Kind::Count { min: 1024, max: i32::MAX as u64 },
    "Largest request that the servers accept, as their jute.maxbuffer says. Larger requests are \
     BAD_REQUEST and are not sent, because a server would close the connection.",
)
.default("1048575")
.unit("bytes");

pub(super) const PROPERTIES: &[&Property] = &[
    &CONNECT,
    &SESSION_TIMEOUT,
    &CONNECT_TIMEOUT,
    &TIMEOUT,
    &WATCH,
    &REQUEST_MAX,
    &USERNAME,
    &PASSWORD,
    &AUTH,
    &ACL,
    &TLS,
    &TLS_CA,
    &TLS_CERTIFICATE,
    &TLS_KEY,
];

#[derive(Debug)]
pub(super) struct ZookeeperSettings {
    /// The driver's connect string.
    pub(super) connect_string: String,
    /// Host and port of each server.
    pub(super) servers: Vec<(String, u16)>,
    /// Root node of the records.
    pub(super) root: Option<String>,
    pub(super) session_timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) timeout: Option<Duration>,
    pub(super) watch: bool,
    pub(super) request_max: usize,
    pub(super) login: Option<Login>,
    pub(super) creator_only: bool,
    pub(super) tls: Option<ZookeeperTls>,
}

/// Authentication of clients.
pub(super) enum Login {
    /// `USER:PASSWORD`.
    Digest(String),
    Sasl(SaslOptions),
}

impl std::fmt::Debug for Login {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.name())
    }
}

impl Login {
    fn name(&self) -> &'static str {
        match self {
            Login::Digest(_) => "digest",
            Login::Sasl(_) => "sasl",
        }
    }
}

#[derive(Debug)]
pub(super) struct ZookeeperTls {
    pub(super) options: TlsOptions,
    /// The same for Serval's own checks, which report failures in detail.
    pub(super) roots: RootCertStore,
    pub(super) identity: Option<ClientIdentity>,
}

impl ZookeeperSettings {
    pub(super) fn from(properties: &Properties) -> Result<ZookeeperSettings, Faults> {
        let mut reader = Reader::new(properties);
        let connect_string = reader.text(&CONNECT);
        let (servers, root) = servers(&mut reader, &connect_string);
        let session_timeout = above_zero(&mut reader, &SESSION_TIMEOUT);
        let connect_timeout = above_zero(&mut reader, &CONNECT_TIMEOUT);
        let timeout = reader.given(&TIMEOUT).then(|| above_zero(&mut reader, &TIMEOUT));
        if session_timeout.as_millis() > i32::MAX as u128 {
            reader.fault(&SESSION_TIMEOUT, "is longer than the protocol can say");
        }
        let watch = reader.flag(&WATCH);
        let request_max = reader.count(&REQUEST_MAX) as usize;
        let login = login(&mut reader);
        let creator_only = reader.choice(&ACL) == "creator";
        if creator_only && login.is_none() {
            reader.fault(&ACL, "'creator' needs zookeeper.username");
        }
        let tls = tls(&mut reader);
        reader.finish()?;
        Ok(ZookeeperSettings {
            connect_string,
            servers,
            root,
            session_timeout,
            connect_timeout,
            timeout,
            watch,
            request_max,
            login,
            creator_only,
            tls,
        })
    }

    /// Returns the access list of created nodes.
    pub(super) fn acls(&self) -> Acls<'static> {
        if self.creator_only { Acls::creator_all() } else { Acls::anyone_all() }
    }

    pub(super) fn error(&self, problem: impl Into<String>) -> StoreError {
        StoreError::new(format!("ZooKeeper at {}", self.connect_string), problem)
    }

    pub(super) fn describe(&self) -> Vec<(String, String)> {
        let login = self.login.as_ref().map_or("none", Login::name);
        vec![
            ("address".to_owned(), self.connect_string.clone()),
            ("sessions".to_owned(), "one a client".to_owned()),
            ("session timeout".to_owned(), format!("{:?}", self.session_timeout)),
            ("watches".to_owned(), self.watch.to_string()),
            ("authentication".to_owned(), login.to_owned()),
            ("tls".to_owned(), self.tls.is_some().to_string()),
        ]
    }
}

fn above_zero(reader: &mut Reader<'_>, property: &'static Property) -> Duration {
    let duration = reader.duration(property);
    if duration.is_zero() && reader.given(property) {
        reader.fault(property, "must be above zero");
    }
    duration
}

fn servers(reader: &mut Reader<'_>, connect_string: &str) -> (Vec<(String, u16)>, Option<String>) {
    let (hosts, root) = match connect_string.split_once('/') {
        Some((hosts, "")) => (hosts, None),
        Some((hosts, path)) => (hosts, Some(format!("/{path}"))),
        None => (connect_string, None),
    };
    let mut found = Vec::new();
    for name in hosts.split(',') {
        let (host, port) = match name.rsplit_once(':') {
            // The port of an IPv6 address follows a bracket.
            Some((host, digits)) if !name.ends_with(']') => (host, digits.parse().unwrap_or(0)),
            _ => (name, PORT),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let plain = !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || "/@[]".contains(c));
        if !plain || port == 0 || host.contains(':') != name.starts_with('[') {
            reader.fault(&CONNECT, format!("'{name}' is no host or host:port (or [address]:port)"));
        } else {
            found.push((host.to_owned(), port));
        }
    }
    let sound = |path: &str| path.split('/').skip(1).all(is_node_name);
    if root.as_deref().is_some_and(|path| !sound(path)) {
        reader.fault(&CONNECT, "the path at its end is none of ZooKeeper's");
    }
    (found, root)
}

fn login(reader: &mut Reader<'_>) -> Option<Login> {
    let (username, password) = (reader.optional_text(&USERNAME), reader.optional_text(&PASSWORD));
    let how = reader.choice(&AUTH);
    if username.is_some() != password.is_some() {
        reader.fault(&USERNAME, "and zookeeper.password need each other");
    }
    if how == "sasl" && username.is_none() {
        reader.fault(&AUTH, "'sasl' needs zookeeper.username");
    }
    let (username, password) = (username?, password?);
    if how == "sasl" {
        return Some(Login::Sasl(SaslOptions::digest_md5(username, password).into()));
    }
    if username.contains(':') {
        reader.fault(&USERNAME, "cannot have a colon");
    }
    Some(Login::Digest(format!("{username}:{password}")))
}

fn tls(reader: &mut Reader<'_>) -> Option<ZookeeperTls> {
    let wanted = reader.flag(&TLS);
    let (ca, certificate, key) = (reader.path(&TLS_CA), reader.path(&TLS_CERTIFICATE), reader.path(&TLS_KEY));
    if !wanted {
        for (property, path) in [(&TLS_CA, &ca), (&TLS_CERTIFICATE, &certificate), (&TLS_KEY, &key)] {
            if path.is_some() {
                reader.fault(property, "needs zookeeper.tls=true");
            }
        }
        return None;
    }
    let identity = serval_tls::identity(reader, (&TLS_CERTIFICATE, certificate), (&TLS_KEY, key));
    let Some(ca) = ca else {
        reader
            .fault(&TLS_CA, "is needed with zookeeper.tls: the driver has no trusted authorities of its own");
        return None;
    };
    // The driver uses the process's TLS provider, which may be installed only once. It
    // may be installed already.
    drop(rustls::crypto::ring::default_provider().install_default());
    let trusted =
        || Ok((serval_tls::roots(Some(&ca))?, TlsOptions::new().with_pem_ca(&text(&ca)?).map_err(message)?));
    let (roots, options) = trusted().map_err(|problem: String| reader.fault(&TLS_CA, problem)).ok()?;
    let Some(identity) = identity else {
        return Some(ZookeeperTls { options, roots, identity: None });
    };
    let handed = || {
        let (certificate, key) = (text(&identity.certificate_file)?, text(&identity.key_file)?);
        options.with_pem_identity(&certificate, &key).map_err(message)
    };
    let options = handed().map_err(|problem| reader.fault(&TLS_CERTIFICATE, problem)).ok()?;
    Some(ZookeeperTls { options, roots, identity: Some(identity) })
}

fn message(error: zookeeper_client::Error) -> String {
    error.to_string()
}

fn text(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}
