//! Properties of the yesquel-tree store.

use serval_model::properties::{Faults, Kind, Properties, Property, Reader};
use std::{fs, path::PathBuf, time::Duration};
use yesquel::{Address, Addresses, Durability, LogOptions, SocketOptions};

pub(super) const ADDRESS: Property = Property::serval(
    "yesquel-tree.address",
    Kind::Text,
    "Address of the server: host:port, host (port 7411), or the path of a Unix socket; several of one \
     cluster are separated by commas. If unset: a storage server inside Serval, in the folder \
     yesquel-tree.path or, without that, in memory.",
);
pub(super) const PATH: Property = Property::serval(
    "yesquel-tree.path",
    Kind::Path,
    "Folder of the storage server inside Serval; the load creates it. Replaces yesquel-tree.address.",
);
pub(super) const DATABASE: Property =
    Property::serval("yesquel-tree.database", Kind::Text, "Name of the database; the load creates it.")
        .default("ycsb");
pub(super) const DURABILITY: Property = Property::serval(
    "yesquel-tree.durability",
    Kind::Choice(&["sync", "interval", "none"]),
    "When a write to yesquel-tree.path is on disk. sync: before it is acknowledged. interval: within \
     yesquel-tree.sync_interval. none: when the operating system writes it. A server has a setting of its \
     own.",
)
.default("sync");
pub(super) const SYNC_INTERVAL: Property = Property::serval(
    "yesquel-tree.sync_interval",
    Kind::MILLISECONDS,
    "Time of writes that yesquel-tree.durability=interval may lose in a power failure.",
)
.default("100ms")
.unit("ms");
pub(super) const CREDENTIAL_FILE: Property = Property::serval(
    "yesquel-tree.credential_file",
    Kind::Path,
    "File whose first line is the server's credential, if the server requires one.",
);
pub(super) const CONNECT_TIMEOUT: Property = Property::serval(
    "yesquel-tree.connect_timeout",
    Kind::MILLISECONDS,
    "Timeout for a connection, and the time for which operations try to reconnect after a connection was \
     lost.",
)
.default("5s")
.unit("ms");
pub(super) const TIMEOUT: Property = Property::serval(
    "yesquel-tree.timeout",
    Kind::MILLISECONDS,
    "Longest silence of the server while an operation waits. The connection is then closed, and all \
     operations in flight on it fail.",
)
.default("30s")
.unit("ms");
pub(super) const TLS: Property =
    Property::serval("yesquel-tree.tls", Kind::Flag, "Whether to connect with TLS.").default("false");
pub(super) const TLS_ROOTS: Property = Property::serval(
    "yesquel-tree.tls.roots",
    Kind::Path,
    "PEM file of the root certificates to trust. If unset: those that browsers trust.",
)
.aliases(&["yesquel-tree.tls.ca"]);

pub(super) const ALL: &[&Property] = &[
    &ADDRESS,
    &PATH,
    &DATABASE,
    &DURABILITY,
    &SYNC_INTERVAL,
    &CREDENTIAL_FILE,
    &CONNECT_TIMEOUT,
    &TIMEOUT,
    &TLS,
    &TLS_ROOTS,
];

/// Location of the storage server.
#[derive(Debug)]
pub(super) enum TreeLocation {
    Memory,
    Folder(PathBuf, LogOptions),
    Server(Addresses, SocketOptions),
}

/// Values of the properties.
#[derive(Debug)]
pub(super) struct YesquelTreeSettings {
    pub(super) place: TreeLocation,
    pub(super) database: String,
}

impl YesquelTreeSettings {
    pub(super) fn read(properties: &Properties) -> Result<YesquelTreeSettings, Faults> {
        let mut reader = Reader::new(properties);
        let database = reader.text(&DATABASE);
        if database.is_empty() {
            reader.fault(&DATABASE, "must name a database");
        }
        let options = options(&mut reader);
        let socket_options = socket_options(&mut reader);
        let is_encrypted = socket_options.tls.is_some();
        let path = reader.path(&PATH);
        if path.is_none() && reader.given(&PATH) {
            reader.fault(&PATH, "must name a folder");
        }
        let place = match (addresses(&mut reader), path) {
            (Some(addresses), None) => TreeLocation::Server(addresses, socket_options),
            (None, Some(path)) => TreeLocation::Folder(path, options),
            (None, None) => TreeLocation::Memory,
            (Some(_), Some(_)) => {
                reader.fault(&PATH, "cannot stand together with yesquel-tree.address");
                TreeLocation::Memory
            }
        };
        // Properties without effect here are faults.
        if !matches!(place, TreeLocation::Folder(..)) && options.durability != Durability::Sync {
            reader.fault(&DURABILITY, "is of the folder of yesquel-tree.path, which is not set");
        }
        for property in [&TLS_ROOTS, &CREDENTIAL_FILE] {
            if reader.given(property) && !reader.given(&ADDRESS) {
                reader.fault(property, "needs yesquel-tree.address");
            }
        }
        if is_encrypted
            && !matches!(&place, TreeLocation::Server(addresses, _) if !addresses.is_unix_socket())
        {
            reader.fault(&TLS, "needs a yesquel-tree.address with a host");
        }
        reader.finish()?;
        Ok(YesquelTreeSettings { place, database })
    }
}

fn addresses(reader: &mut Reader<'_>) -> Option<Addresses> {
    let text = reader.optional_text(&ADDRESS)?;
    let addresses = text.trim().parse::<Addresses>();
    let has_port_0 = |addresses: &Addresses| {
        addresses.iter().any(|address| matches!(address, Address::Tcp { port: 0, .. }))
    };
    if addresses.as_ref().is_ok_and(has_port_0) {
        reader.fault(&ADDRESS, "has port 0, on which no server listens");
    }
    addresses.map_err(|error| reader.fault(&ADDRESS, error)).ok()
}

/// Reads the properties for a folder.
fn options(reader: &mut Reader<'_>) -> LogOptions {
    let interval = above_zero(reader, &SYNC_INTERVAL);
    let durability = match reader.choice(&DURABILITY) {
        "interval" => Durability::Interval(u64::try_from(interval.as_millis()).unwrap_or(u64::MAX).max(1)),
        "none" => Durability::None,
        _ => Durability::Sync,
    };
    LogOptions { durability, ..LogOptions::default() }
}

/// Reads the properties for a server.
fn socket_options(reader: &mut Reader<'_>) -> SocketOptions {
    let tls = reader.flag(&TLS);
    if reader.given(&TLS_ROOTS) && !tls {
        reader.fault(&TLS_ROOTS, "needs yesquel-tree.tls=true");
    }
    let roots = reader.path(&TLS_ROOTS);
    let config = tls.then(|| yesquel::tls::client(roots.as_deref())).transpose();
    let tls = config.map_err(|error| reader.fault(&TLS_ROOTS, error)).ok().flatten();
    SocketOptions {
        credential: credential(reader).unwrap_or_default(),
        tls,
        connect_timeout: above_zero(reader, &CONNECT_TIMEOUT),
        timeout: above_zero(reader, &TIMEOUT),
        ..SocketOptions::default()
    }
}

/// Reads the first line of the credential's file, as Yesquel's commands do.
fn credential(reader: &mut Reader<'_>) -> Option<Box<[u8]>> {
    let path = reader.path(&CREDENTIAL_FILE)?;
    let problem = match fs::read(&path) {
        Ok(bytes) => {
            let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if !line.is_empty() {
                return Some(line.into());
            }
            "its first line is empty".to_owned()
        }
        Err(error) => error.to_string(),
    };
    reader.fault(&CREDENTIAL_FILE, format!("{}: {problem}", path.display()));
    None
}

fn above_zero(reader: &mut Reader<'_>, property: &'static Property) -> Duration {
    let duration = reader.duration(property);
    if duration.is_zero() && reader.given(property) {
        reader.fault(property, "must be above zero");
    }
    duration
}
