//! What is opened: addresses of databases.
//!
//! ```text
//! yesquel:                         in memory, and gone with the connection
//! yesquel:?cache=shared            in memory, the same for all connections of the
//!                                  process that name the same database, and gone
//!                                  with the last of them
//! yesquel:FOLDER                   in a folder, by this process
//! yesquel://HOST:PORT/NAME         at a server
//! yesquel:///PATH/OF/SOCKET/NAME   at a server on this machine
//! ```
//!
//! Options follow as in any URI: `?timeout=2000&durability=none`, with `%26` for
//! what stands for something else. Of servers they are also `tls`, `tls-ca`,
//! `credential-file` and `credential`.

use crate::secrets::{self, Encryption, Secrets, anchored, decoded};
use std::{
    borrow::Cow,
    fmt,
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    time::Duration,
};
use thiserror::Error;
use yesquel::Durability;

/// What all addresses begin with.
const SCHEME: &str = "yesquel:";

/// The database of a folder, or of memory, if no other is named.
const DEFAULT_NAME: &str = "main";

/// An address makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("'{address}' is no address of a database: {what}")]
pub struct AddressError {
    address: String,
    what: String,
}

/// Where a database is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Place {
    /// In memory, of one connection.
    Memory,
    /// In memory, of all connections of the process that give this name.
    SharedMemory,
    /// In a folder.
    Folder(PathBuf),
    /// At a server.
    Server(yesquel::Address),
}

/// What an address allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// What it is opened for.
    #[default]
    Any,
    /// No database is made: `mode=rw`.
    Existing,
    /// Nothing is written: `mode=ro`.
    ReadOnly,
}

/// A database, and how it is to be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Where.
    pub place: Place,
    /// Its name.
    pub name: String,
    /// How long a server may take.
    pub timeout: Option<Duration>,
    /// What may be done with it, less than it was opened for: `mode` where SQLite
    /// does not look for it, for the address is no URI of its own (`file:`).
    pub mode: Mode,
    /// When what was committed is on disk, in a folder.
    pub durability: Durability,
    /// How many bytes a transaction gathers for tables and indexes that it makes
    /// before it sends them ahead of its commit.
    pub ahead: Option<usize>,
    /// How a server is convinced, and trusted.
    pub secrets: Secrets,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Memory => f.write_str(SCHEME),
            Place::SharedMemory => write!(f, "{SCHEME}?cache=shared&database={}", self.name),
            Place::Folder(folder) => write!(f, "{SCHEME}{}", folder.display()),
            Place::Server(yesquel::Address::Unix(path)) => {
                write!(f, "{SCHEME}//{}/{}", path.display(), self.name)
            }
            Place::Server(server) => write!(f, "{SCHEME}//{server}/{}", self.name),
        }
    }
}

impl Address {
    /// Understands an address with its options.
    pub fn parse<'a>(
        address: &'a str,
        options: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Address, AddressError> {
        let wrong = |what: String| AddressError { address: secrets::shown(address), what };
        let rest =
            address.strip_prefix(SCHEME).ok_or_else(|| wrong(format!("it does not begin with {SCHEME}")))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut name = None;
        let mut place = match rest.strip_prefix("//") {
            None if rest.is_empty() => Place::Memory,
            None => Place::Folder(rest.into()),
            Some(at) => {
                let (server, database) = at
                    .rsplit_once('/')
                    .filter(|(server, database)| !server.is_empty() && !database.is_empty())
                    .ok_or_else(|| wrong("it is yesquel://HOST:PORT/NAME".to_owned()))?;
                if server.contains(',') {
                    return Err(wrong("databases at several servers are not there yet".to_owned()));
                }
                name = Some(database.to_owned());
                Place::Server(
                    server.parse().map_err(|error: yesquel::AddressError| wrong(error.to_string()))?,
                )
            }
        };
        let (mut timeout, mut durability, mut secrets) = (None, Durability::default(), Secrets::default());
        let (mut ahead, mut mode) = (None, Mode::default());
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
            if let Place::Server(server) = &place
                && secrets.take(option, value).map_err(bad)?
            {
                if matches!(server, yesquel::Address::Unix(_)) && secrets.encryption != Encryption::None {
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
                "durability" => {
                    durability = match (value, value.parse()) {
                        ("sync", _) => Durability::Sync,
                        ("none", _) => Durability::None,
                        (_, Ok(ms)) => Durability::Interval(ms),
                        _ => return Err(bad("it is 'sync', 'none', or a number of milliseconds")),
                    };
                }
                "ahead" => ahead = Some(value.parse().map_err(|_| bad("it is a number of bytes"))?),
                "database" if !matches!(place, Place::Server(_)) => name = Some(value.to_owned()),
                // Of a folder or a server there is one in a process anyway.
                "cache" if value == "shared" && place == Place::Memory => place = Place::SharedMemory,
                "mode" => {
                    mode = match value {
                        "ro" => Mode::ReadOnly,
                        "rw" => Mode::Existing,
                        "rwc" => Mode::Any,
                        "memory" if matches!(place, Place::Memory | Place::SharedMemory) => Mode::Any,
                        "memory" => return Err(bad("only 'yesquel:' itself is in memory")),
                        _ => return Err(bad("it is 'ro', 'rw' or 'rwc'")),
                    };
                }
                // SQLite's own, of files.
                "vfs" | "cache" | "psow" | "nolock" | "immutable" | "modeof" => {}
                "tls" | "tls-ca" | "credential" | "credential-file" => return Err(bad("it is of servers")),
                _ => {
                    let known = "timeout, durability, ahead and database, and of servers tls, tls-ca, \
                        credential-file and credential";
                    return Err(bad(&format!("there is no such option; there are {known}")));
                }
            }
        }
        let name = name.unwrap_or_else(|| DEFAULT_NAME.to_owned());
        Ok(Address { place, name, timeout, mode, durability, ahead, secrets })
    }
}

/// A file that holds an address is smaller than this.
const FILE_BYTES_MAX: u64 = 4096;

/// The address that a name is. For programs that insist on a path a small file
/// stands for its database: its first line is the address. Folders in it are
/// counted from the file's own.
pub(crate) fn of_name(name: &str) -> Option<String> {
    if name.starts_with(SCHEME) {
        return Some(name.to_owned());
    }
    let path = Path::new(name);
    let known = fs::metadata(path).ok()?;
    // A database is never so small and has something in it.
    if !known.is_file() || known.len() <= SCHEME.len() as u64 || known.len() >= FILE_BYTES_MAX {
        return None;
    }
    let mut text = String::new();
    File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    let address = text.lines().next()?.trim_end();
    let folder = fs::canonicalize(path).ok()?.parent()?.to_str()?.to_owned();
    let address = anchored(address, &folder);
    let rest = address.strip_prefix(SCHEME)?;
    if rest.is_empty() || rest.starts_with(['/', '?']) {
        return Some(address);
    }
    Some(format!("{SCHEME}{folder}/{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_file_stands_for_an_address() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let name = |file: &str| folder.join(file).to_str().unwrap().to_owned();
        fs::write(name("served"), "yesquel://db:7000/shop  \n# of the shop\n").unwrap();
        fs::write(name("beside"), "yesquel:data?durability=none").unwrap();
        fs::write(name("other"), "# yesquel:data\n").unwrap();
        fs::write(name("large"), format!("yesquel:data\n{}", " ".repeat(4096))).unwrap();
        assert_eq!(of_name("yesquel:data").as_deref(), Some("yesquel:data"));
        assert_eq!(of_name(&name("served")).as_deref(), Some("yesquel://db:7000/shop"));
        assert_eq!(of_name(&name("beside")), Some(format!("yesquel:{}?durability=none", name("data"))));
        for none in ["other", "large", "absent", "."] {
            assert_eq!(of_name(&name(none)), None, "{none}");
        }
    }

    #[test]
    fn addresses_are_understood() {
        let parse = |text| Address::parse(text, []).map(|address| (address.place, address.name));
        let named = |name: &str| name.to_owned();
        assert_eq!(parse("yesquel:"), Ok((Place::Memory, named("main"))));
        assert_eq!(parse("yesquel:?cache=private&database=b"), Ok((Place::Memory, named("b"))));
        let shared = Address::parse("yesquel:", [("database", "b"), ("cache", "shared")]).unwrap();
        assert_eq!((&shared.place, &*shared.name), (&Place::SharedMemory, "b"));
        assert_eq!(Address::parse(&shared.to_string(), []), Ok(shared));
        assert_eq!(parse("yesquel:shop?cache=shared"), Ok((Place::Folder("shop".into()), named("main"))));
        assert_eq!(parse("yesquel:/var/shop"), Ok((Place::Folder("/var/shop".into()), named("main"))));
        assert_eq!(parse("yesquel:shop?database=b"), Ok((Place::Folder("shop".into()), named("b"))));
        let tcp = yesquel::Address::Tcp { host: "db".to_owned(), port: 7000 };
        assert_eq!(parse("yesquel://db:7000/shop"), Ok((Place::Server(tcp), named("shop"))));
        let unix = yesquel::Address::Unix("/run/y.sock".into());
        assert_eq!(parse("yesquel:///run/y.sock/shop"), Ok((Place::Server(unix), named("shop"))));
        let secured = Address::parse("yesquel://db/shop?tls-ca=a%26b&credential-file=c", []).unwrap();
        assert_eq!(secured.secrets.encryption, Encryption::SignedBy("a&b".into()));
        assert_eq!(secured.secrets.credential, secrets::Credential::File("c".into()));
        let told = Address::parse("yesquel://db?credential=geheim", []).unwrap_err().to_string();
        assert!(!told.contains("geheim"), "{told}");
        for (given, mode) in [
            ("yesquel://db/shop?mode=ro", Mode::ReadOnly),
            ("yesquel:shop?mode=rw", Mode::Existing),
            ("yesquel:shop?mode=rwc", Mode::Any),
            ("yesquel:?mode=memory&cache=shared", Mode::Any),
        ] {
            assert_eq!(Address::parse(given, []).unwrap().mode, mode, "{given}");
        }
        for wrong in [
            "yesquel:a?mode=memory",
            "yesquel://db/shop?mode=read",
            "shop.db",
            "yesquel://",
            "yesquel://db",
            "yesquel://db/",
            "yesquel:a?speed=9",
            "yesquel:a?timeout=x",
            "yesquel:a?ahead=1k",
            "yesquel:a?tls=yes",
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
