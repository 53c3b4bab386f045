//! Addresses of databases.
//!
//! ```text
//! yesquel:                         in memory, until the connection ends
//! yesquel:?cache=shared            in memory, shared by all connections of the process
//!                                  that name the same database, until the last ends
//! yesquel:FOLDER                   in a folder, opened by this process
//! yesquel://HOST:PORT/NAME         at a server
//! yesquel://A:PORT,B:PORT/NAME     at a cluster, by any of its servers
//! yesquel:///PATH/OF/SOCKET/NAME   at a server on this machine
//! ```
//!
//! Options follow as in any URI: `?timeout=2000&durability=none`, with `%26` for `&`. For servers
//! there are also `tls`, `tls-ca`, `credential-file`, `credential` and `placement`.

use crate::{
    address_file::SCHEME,
    secrets::{self, Secrets, decoded},
};
use std::{borrow::Cow, fmt, path::PathBuf, time::Duration};
use thiserror::Error;
use yesquel::{Address, AddressError, Addresses, Durability, Placement, PlacementError, ServerEncryption};

/// Default name of a database in a folder or in memory.
const DEFAULT_NAME: &str = "main";

/// Invalid address of a database.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("'{address}' is no address of a database: {what}")]
pub struct DatabaseAddressError {
    address: String,
    what: String,
}

/// Location of a database.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DatabaseLocation {
    /// In memory, for one connection.
    Memory,
    /// In memory, shared by the connections of the process that use the same name.
    SharedMemory,
    /// In a folder.
    Folder(PathBuf),
    /// At a server, or at a cluster with servers at these addresses.
    Server(Addresses),
}

/// Isolation of transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum IsolationLevel {
    /// `isolation=snapshot`: write skew is possible.
    #[default]
    Snapshot,
    /// `isolation=serializable`: the transactions that write have an order. Transactions fail that
    /// read what a concurrent one has written.
    Serializable,
}

/// Which commits of other clients a transaction sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum ConsistencyLevel {
    /// `consistency=session`: those that its own client has seen before, and mostly all others.
    #[default]
    Session,
    /// `consistency=linear`: all that were acknowledged before it began.
    Linear,
    /// `consistency=strict`: the same, at one snapshot from the beginning.
    Strict,
}

/// Access that an address allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AccessMode {
    /// Whatever the caller opens it for.
    #[default]
    Any,
    /// `mode=rw`: does not create a database.
    Existing,
    /// `mode=ro`: read-only.
    ReadOnly,
}

/// Address of a database, with options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseAddress {
    /// Location.
    pub location: DatabaseLocation,
    /// Name.
    pub name: String,
    /// Timeout of requests to a server.
    pub timeout: Option<Duration>,
    /// Limit on the access that the caller asks for: `mode`, where SQLite does not parse it because
    /// the address is not a `file:` URI.
    pub mode: AccessMode,
    /// Maximum age of the snapshot that a read statement of its own may use.
    pub staleness: Duration,
    /// When commits are on disk, for a folder.
    pub durability: Durability,
    /// Bytes that a transaction buffers for tables and indexes that it creates before it sends them
    /// ahead of its commit.
    pub bulk_load_bytes: Option<usize>,
    /// Whether the process watches what it reads often, so that reading it again costs no round trip.
    pub watches: bool,
    /// Isolation of the connection's transactions.
    pub isolation: IsolationLevel,
    /// Which commits of other clients its transactions see.
    pub consistency: ConsistencyLevel,
    /// Where the database is placed if it does not exist.
    pub placement: Placement,
    /// Encryption and credential for a server.
    pub secrets: Secrets,
}

impl AccessMode {
    fn of(value: &str, location: &DatabaseLocation) -> Result<AccessMode, &'static str> {
        let is_memory = matches!(location, DatabaseLocation::Memory | DatabaseLocation::SharedMemory);
        match value {
            "ro" => Ok(AccessMode::ReadOnly),
            "rw" => Ok(AccessMode::Existing),
            "rwc" => Ok(AccessMode::Any),
            "memory" if is_memory => Ok(AccessMode::Any),
            "memory" => Err("only 'yesquel:' itself is in memory"),
            _ => Err("it is 'ro', 'rw' or 'rwc'"),
        }
    }
}

impl fmt::Display for DatabaseAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.location {
            DatabaseLocation::Memory => f.write_str(SCHEME),
            DatabaseLocation::SharedMemory => write!(f, "{SCHEME}?cache=shared&database={}", self.name),
            DatabaseLocation::Folder(folder) => write!(f, "{SCHEME}{}", folder.display()),
            DatabaseLocation::Server(servers) => match servers.first() {
                Some(Address::Unix(path)) => write!(f, "{SCHEME}//{}/{}", path.display(), self.name),
                _ => write!(f, "{SCHEME}//{servers}/{}", self.name),
            },
        }
    }
}

impl DatabaseAddress {
    /// Parses an address and its options.
    pub fn parse<'a>(
        address: &'a str,
        options: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<DatabaseAddress, DatabaseAddressError> {
        let wrong = |what: String| DatabaseAddressError { address: secrets::shown(address), what };
        let rest =
            address.strip_prefix(SCHEME).ok_or_else(|| wrong(format!("it does not begin with {SCHEME}")))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut name = None;
        let mut location = match rest.strip_prefix("//") {
            None if rest.is_empty() => DatabaseLocation::Memory,
            None => DatabaseLocation::Folder(rest.into()),
            Some(at) => {
                let (server, database) = at
                    .rsplit_once('/')
                    .filter(|(server, database)| !server.is_empty() && !database.is_empty())
                    .ok_or_else(|| wrong("it is yesquel://HOST:PORT/NAME".to_owned()))?;
                name = Some(database.to_owned());
                DatabaseLocation::Server(
                    server.parse().map_err(|error: AddressError| wrong(error.to_string()))?,
                )
            }
        };
        let (mut timeout, mut durability, mut secrets) = (None, Durability::default(), Secrets::default());
        let (mut bulk_load_bytes, mut mode, mut staleness) = (None, AccessMode::default(), Duration::ZERO);
        let (mut watches, mut placement) = (true, Placement::default());
        let (mut isolation, mut consistency) = (IsolationLevel::default(), ConsistencyLevel::default());
        let own = query.split('&').filter(|option| !option.is_empty());
        let own = own.map(|option| option.split_once('=').unwrap_or((option, "")));
        let own = own.map(|(option, value)| (option, Cow::Owned(decoded(value))));
        let given = options.into_iter().map(|(option, value)| (option, Cow::Borrowed(value)));
        for (option, value) in own.chain(given) {
            let value = &*value;
            let bad = |what: &str| match option {
                "credential" => wrong(format!("{option}: {what}")),
                _ => wrong(format!("{option}={value}: {what}")),
            };
            if let DatabaseLocation::Server(servers) = &location
                && secrets.take(option, value).map_err(bad)?
            {
                if servers.is_unix_socket() && secrets.encryption != ServerEncryption::None {
                    return Err(bad("what is said at a socket of this machine is not encrypted"));
                }
                continue;
            }
            match option {
                "timeout" => {
                    let ms = value.parse().ok().filter(|ms| *ms > 0);
                    timeout =
                        Some(Duration::from_millis(ms.ok_or_else(|| bad("it is a number of milliseconds"))?));
                }
                "staleness" => {
                    let ms = value.parse().ok().filter(|ms| *ms <= STALENESS_MS_MAX);
                    let ms = ms.ok_or_else(|| bad("it is a number of milliseconds, at most 200"))?;
                    staleness = Duration::from_millis(ms);
                }
                "durability" => {
                    durability = match (value, value.parse()) {
                        ("sync", _) => Durability::Sync,
                        ("none", _) => Durability::None,
                        (_, Ok(ms)) => Durability::Interval(ms),
                        _ => return Err(bad("it is 'sync', 'none', or a number of milliseconds")),
                    };
                }
                "ahead" => bulk_load_bytes = Some(value.parse().map_err(|_| bad("it is a number of bytes"))?),
                "database" if !matches!(location, DatabaseLocation::Server(_)) => {
                    name = Some(value.to_owned())
                }
                // Folders and servers are shared within a process anyway.
                "cache" if value == "shared" && location == DatabaseLocation::Memory => {
                    location = DatabaseLocation::SharedMemory
                }
                "placement" if matches!(location, DatabaseLocation::Server(_)) => {
                    placement = value.parse().map_err(|error: PlacementError| bad(&error.to_string()))?;
                }
                "mode" => mode = AccessMode::of(value, &location).map_err(bad)?,
                "isolation" => {
                    isolation = match value {
                        "snapshot" => IsolationLevel::Snapshot,
                        "serializable" => IsolationLevel::Serializable,
                        _ => return Err(bad("it is 'snapshot' or 'serializable'")),
                    }
                }
                "consistency" => {
                    consistency = match value {
                        "session" => ConsistencyLevel::Session,
                        "linear" => ConsistencyLevel::Linear,
                        "strict" => ConsistencyLevel::Strict,
                        _ => return Err(bad("it is 'session', 'linear' or 'strict'")),
                    }
                }
                "watch" => {
                    watches = match value {
                        "yes" => true,
                        "no" => false,
                        _ => return Err(bad("it is 'yes' or 'no'")),
                    }
                }
                // Options of SQLite that concern files.
                "vfs" | "cache" | "psow" | "nolock" | "immutable" | "modeof" => {}
                "tls" | "tls-ca" | "credential" | "credential-file" | "placement" => {
                    return Err(bad("it is of servers"));
                }
                _ => {
                    let known = "timeout, staleness, isolation, consistency, watch, durability, ahead and database, and of \
                        servers tls, tls-ca, credential-file, credential and placement";
                    return Err(bad(&format!("there is no such option; there are {known}")));
                }
            }
        }
        if !staleness.is_zero() && consistency != ConsistencyLevel::Session {
            let what = "staleness: a read is not older than its statement with 'consistency'";
            return Err(wrong(what.to_owned()));
        }
        let name = name.unwrap_or_else(|| DEFAULT_NAME.to_owned());
        Ok(DatabaseAddress {
            location,
            name,
            timeout,
            mode,
            staleness,
            durability,
            bulk_load_bytes,
            watches,
            isolation,
            consistency,
            placement,
            secrets,
        })
    }
}

/// Maximum of `staleness`, in milliseconds. A server keeps a snapshot for a second after it has given
/// it, in which a client that uses it again must report it.
const STALENESS_MS_MAX: u64 = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed() {
        let parse = |text| DatabaseAddress::parse(text, []).map(|address| (address.location, address.name));
        let named = |name: &str| name.to_owned();
        assert_eq!(parse("yesquel:"), Ok((DatabaseLocation::Memory, named("main"))));
        assert_eq!(parse("yesquel:?cache=private&database=b"), Ok((DatabaseLocation::Memory, named("b"))));
        let shared = DatabaseAddress::parse("yesquel:", [("database", "b"), ("cache", "shared")]).unwrap();
        assert_eq!((&shared.location, &*shared.name), (&DatabaseLocation::SharedMemory, "b"));
        assert_eq!(DatabaseAddress::parse(&shared.to_string(), []), Ok(shared));
        assert_eq!(
            parse("yesquel:shop?cache=shared"),
            Ok((DatabaseLocation::Folder("shop".into()), named("main")))
        );
        assert_eq!(
            parse("yesquel:/var/shop"),
            Ok((DatabaseLocation::Folder("/var/shop".into()), named("main")))
        );
        assert_eq!(
            parse("yesquel:shop?database=b"),
            Ok((DatabaseLocation::Folder("shop".into()), named("b")))
        );
        for (text, servers) in [
            ("yesquel://db:7000/shop", "db:7000"),
            ("yesquel://a:1,b,[::1]:2/shop", "a:1,b:7411,[::1]:2"),
            ("yesquel:///run/y,1.sock/shop", "/run/y,1.sock"),
        ] {
            let location = DatabaseLocation::Server(servers.parse().unwrap());
            assert_eq!(parse(text), Ok((location, named("shop"))), "{text}");
            let address = DatabaseAddress::parse(text, []).unwrap();
            assert_eq!(DatabaseAddress::parse(&address.to_string(), []), Ok(address));
        }
        let secured = DatabaseAddress::parse("yesquel://db/shop?tls-ca=a%26b&credential-file=c", []).unwrap();
        assert_eq!(secured.secrets.encryption, ServerEncryption::SignedBy("a&b".into()));
        assert_eq!(secured.secrets.credential, secrets::Credential::File("c".into()));
        let message = DatabaseAddress::parse("yesquel://db?credential=geheim", []).unwrap_err().to_string();
        assert!(!message.contains("geheim"), "{message}");
        for (given, isolation) in [
            ("yesquel:a", IsolationLevel::Snapshot),
            ("yesquel:a?isolation=snapshot", IsolationLevel::Snapshot),
            ("yesquel://db/shop?isolation=serializable", IsolationLevel::Serializable),
        ] {
            assert_eq!(DatabaseAddress::parse(given, []).unwrap().isolation, isolation, "{given}");
        }
        for (given, consistency) in [
            ("yesquel:a", ConsistencyLevel::Session),
            ("yesquel:a?consistency=session&staleness=9", ConsistencyLevel::Session),
            ("yesquel:a?consistency=linear", ConsistencyLevel::Linear),
            ("yesquel://db/shop?consistency=strict", ConsistencyLevel::Strict),
        ] {
            assert_eq!(DatabaseAddress::parse(given, []).unwrap().consistency, consistency, "{given}");
        }
        for (given, mode) in [
            ("yesquel://db/shop?mode=ro", AccessMode::ReadOnly),
            ("yesquel:shop?mode=rw", AccessMode::Existing),
            ("yesquel:shop?mode=rwc", AccessMode::Any),
            ("yesquel:?mode=memory&cache=shared", AccessMode::Any),
        ] {
            assert_eq!(DatabaseAddress::parse(given, []).unwrap().mode, mode, "{given}");
        }
        for wrong in [
            "yesquel:a?mode=memory",
            "yesquel://db/shop?mode=read",
            "shop.db",
            "yesquel://",
            "yesquel://db",
            "yesquel://db/",
            "yesquel:a?speed=9",
            "yesquel:a?isolation=read-committed",
            "yesquel:a?consistency=eventual",
            "yesquel:a?consistency=strict&staleness=9",
            "yesquel:a?timeout=x",
            "yesquel:a?ahead=1k",
            "yesquel:a?tls=yes",
            "yesquel:a?placement=local",
            "yesquel://db/shop?placement=near",
            "yesquel://a,/shop",
            "yesquel:?credential=c",
            "yesquel:///run/y.sock/shop?tls=yes",
            "yesquel://db/shop?tls=maybe",
            "yesquel://db/shop?tls-ca=",
            "yesquel://db/shop?password=c",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
