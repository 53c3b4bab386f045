//! Addresses of servers.

use std::{fmt, ops::Deref, path::PathBuf, str::FromStr};
use thiserror::Error;

/// Default port.
pub const DEFAULT_PORT: u16 = 7411;

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// On the network.
    Tcp {
        /// A name or an IP address.
        host: String,
        /// The port; for a server, 0 means any free port.
        port: u16,
    },
    /// A Unix socket on this machine.
    Unix(PathBuf),
}

/// The text is not an address.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "'{text}' is no address ({what}): write host:port, host (port {DEFAULT_PORT}), or the path of a Unix socket"
)]
pub struct AddressError {
    text: String,
    what: &'static str,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let wrong = |what| Err(AddressError { text: text.to_owned(), what });
        if let Some(path) = text.strip_prefix("unix:").or(text.starts_with(['/', '.']).then_some(text)) {
            return if path.is_empty() {
                wrong("the path is missing")
            } else {
                Ok(Address::Unix(path.into()))
            };
        }
        // An IPv6 address is in brackets if a port follows.
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => match rest.split_once(']') {
                Some((host, "")) => (host, None),
                Some((host, port)) => match port.strip_prefix(':') {
                    Some(port) => (host, Some(port)),
                    None => return wrong("after ']' comes ':' and the port"),
                },
                None => return wrong("a ']' is missing"),
            },
            None if text.matches(':').count() > 1 => (text, None),
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        if host.is_empty() {
            return wrong("the host is missing");
        }
        if !host.chars().all(|sign| sign.is_alphanumeric() || "-._:%".contains(sign)) {
            return wrong("a host has letters, digits, '-' and '.'");
        }
        let port = match port.map(str::parse) {
            None => DEFAULT_PORT,
            Some(Ok(port)) => port,
            Some(Err(_)) => return wrong("a port is a number up to 65535"),
        };
        Ok(Address::Tcp { host: host.to_owned(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Addresses of one cluster: at least one, separated by commas. A client needs one of them. A path
/// of a Unix socket is alone, and may have commas.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Addresses(Vec<Address>);

impl Addresses {
    /// Whether it is a Unix socket, on this machine.
    pub fn is_unix_socket(&self) -> bool {
        self.0.iter().any(|address| matches!(address, Address::Unix(_)))
    }
}

impl Deref for Addresses {
    type Target = [Address];

    fn deref(&self) -> &[Address] {
        &self.0
    }
}

impl From<Address> for Addresses {
    fn from(address: Address) -> Addresses {
        Addresses(vec![address])
    }
}

impl FromStr for Addresses {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Addresses, AddressError> {
        let is_path = text.contains('/') || text.starts_with("unix:");
        if is_path || !text.contains(',') {
            return Ok(text.parse::<Address>()?.into());
        }
        text.split(',').map(str::parse).collect::<Result<_, _>>().map(Addresses)
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(at, address)| match at {
            0 => write!(f, "{address}"),
            _ => write!(f, ",{address}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_addresses_are_separated_by_commas() {
        for (text, count, shown) in [
            ("a", 1, "a:7411"),
            ("a:1,[::1]:2,c", 3, "a:1,[::1]:2,c:7411"),
            ("/run/y,z", 1, "unix:/run/y,z"),
            ("unix:y,z", 1, "unix:y,z"),
        ] {
            let addresses: Addresses = text.parse().unwrap();
            assert_eq!((addresses.len(), addresses.to_string().as_str()), (count, shown));
            assert_eq!(shown.parse(), Ok(addresses));
        }
        for wrong in ["", ",", "a,", ",a", "a:1,b:x"] {
            assert!(wrong.parse::<Addresses>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn addresses_are_hosts_ports_and_paths() {
        for (text, shown) in [
            ("localhost", "localhost:7411"),
            ("db1.example.org:99", "db1.example.org:99"),
            ("10.0.0.1:7411", "10.0.0.1:7411"),
            ("::1", "[::1]:7411"),
            ("[fe80::1%eth0]:80", "[fe80::1%eth0]:80"),
            ("[::1]", "[::1]:7411"),
            ("/run/yesquel", "unix:/run/yesquel"),
            ("./socket", "unix:./socket"),
            ("unix:socket", "unix:socket"),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), shown);
            assert_eq!(shown.parse::<Address>(), Ok(address));
        }
    }

    #[test]
    fn an_invalid_address_is_reported() {
        for (text, what) in [
            ("", "the host is missing"),
            (":80", "the host is missing"),
            ("host:", "a port is a number up to 65535"),
            ("host:70000", "a port is a number up to 65535"),
            ("[::1", "a ']' is missing"),
            ("[::1]80", "after ']' comes ':' and the port"),
            ("http//host", "a host has letters, digits, '-' and '.'"),
            ("unix:", "the path is missing"),
        ] {
            assert_eq!(text.parse::<Address>(), Err(AddressError { text: text.to_owned(), what }));
        }
    }
}
