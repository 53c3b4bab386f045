//! Encryption and credential in addresses.

use std::{env, fmt, path::PathBuf, sync::Arc};
use yesquel::{ClientFiles, Error, ServerEncryption, SocketOptions};

/// Environment variable with the path of the credential file, as for the commands.
const VARIABLE: &str = "YESQUEL_CREDENTIAL_FILE";

/// Options whose values are paths.
const PATHS: [&str; 2] = ["tls-ca", "credential-file"];

/// Source of the credential.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub enum Credential {
    /// The file that the environment names, if any.
    #[default]
    Environment,
    /// The first line of a file.
    File(PathBuf),
    /// The address itself.
    Text(String),
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Credential::Environment => f.write_str("Environment"),
            Credential::File(path) => f.debug_tuple("File").field(path).finish(),
            Credential::Text(_) => f.write_str("Text(..)"),
        }
    }
}

impl Credential {
    /// Returns the file.
    fn file(&self) -> Option<PathBuf> {
        match self {
            Credential::Environment => env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(Into::into),
            Credential::File(path) => Some(path.clone()),
            Credential::Text(_) => None,
        }
    }
}

/// Encryption and credential for a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Secrets {
    /// Encryption.
    pub encryption: ServerEncryption,
    /// Credential.
    pub credential: Credential,
}

impl Secrets {
    /// Parses an option. Returns whether it is one of these.
    pub(crate) fn take(&mut self, option: &str, value: &str) -> Result<bool, &'static str> {
        match (option, value) {
            ("tls-ca" | "credential-file", "") => return Err("it is the path of a file"),
            ("tls", "yes" | "1" | "true" | "on") => {
                if self.encryption == ServerEncryption::None {
                    self.encryption = ServerEncryption::Browsers;
                }
            }
            ("tls", "no" | "0" | "false" | "off") => self.encryption = ServerEncryption::None,
            ("tls", _) => return Err("it is 'yes' or 'no'"),
            ("tls-ca", path) => self.encryption = ServerEncryption::SignedBy(path.into()),
            ("credential-file", path) => self.credential = Credential::File(path.into()),
            ("credential", text) => self.credential = Credential::Text(text.to_owned()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns the options to connect with. Each connection reads the files again.
    pub(crate) fn options(&self) -> Result<SocketOptions, Error> {
        let mut files = ClientFiles::open(&self.encryption, self.credential.file().as_deref())?;
        if let Credential::Text(text) = &self.credential {
            files = files.with_credential(text.as_bytes());
        }
        Ok(SocketOptions { secrets: Some(Arc::new(files)), ..SocketOptions::default() })
    }
}

/// Decodes the value of an option: `%26` is `&`.
pub(crate) fn decoded(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [first, behind @ ..] = rest {
        let digits = behind.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = behind.get(if byte.is_some() { 2 } else { 0 }..).unwrap_or_default();
    }
    String::from_utf8(bytes).unwrap_or_else(|_| value.to_owned())
}

/// Maps the options of an address.
fn with_options(address: &str, change: impl Fn(&str, &str) -> Option<String>) -> String {
    let Some((place, query)) = address.split_once('?') else { return address.to_owned() };
    let option = |option: &str| {
        let changed = option.split_once('=').and_then(|(name, value)| Some((name, change(name, value)?)));
        changed.map_or_else(|| option.to_owned(), |(name, value)| format!("{name}={value}"))
    };
    let all: Vec<String> = query.split('&').map(option).collect();
    format!("{place}?{}", all.join("&"))
}

/// Returns an address without its credential.
pub(crate) fn shown(address: &str) -> String {
    with_options(address, |name, _| (name == "credential").then(|| "...".to_owned()))
}

/// Makes the paths in an address relative to a folder.
pub(crate) fn anchored(address: &str, folder: &str) -> String {
    with_options(address, |name, value| {
        let is_relative = PATHS.contains(&name) && !value.is_empty() && !decoded(value).starts_with('/');
        // Escape what has a meaning in addresses.
        let folder = folder.replace('%', "%25").replace('&', "%26");
        is_relative.then(|| format!("{folder}/{value}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_not_shown() {
        for (address, seen) in [
            ("yesquel://db/shop?credential=geheim&tls=yes", "yesquel://db/shop?credential=...&tls=yes"),
            ("yesquel://db/shop?tls=no", "yesquel://db/shop?tls=no"),
            ("yesquel://db/shop", "yesquel://db/shop"),
        ] {
            assert_eq!(shown(address), seen);
        }
        assert!(!format!("{:?}", Credential::Text("geheim".to_owned())).contains("geheim"));
    }

    #[test]
    fn values_are_decoded_and_paths_anchored() {
        for (value, meant) in
            [("a%26b", "a&b"), ("100%", "100%"), ("%zz%2f", "%zz/"), ("%ff", "%ff"), ("", "")]
        {
            assert_eq!(decoded(value), meant);
        }
        let address = "yesquel://db/shop?tls-ca=ca.pem&timeout=9&credential-file=/etc/secret";
        let seen = "yesquel://db/shop?tls-ca=/a%26b/ca.pem&timeout=9&credential-file=/etc/secret";
        assert_eq!(anchored(address, "/a&b"), seen);
    }
}
