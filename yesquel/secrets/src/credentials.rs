//! Credentials of one role: several during a rotation.

use crate::{SecretsError, read_file::read_file};
use std::{fmt, path::Path, sync::Arc};
use subtle::ConstantTimeEq;
use yesquel_wire::greeting::CREDENTIAL_BYTES_MAX;

/// Maximum number of credentials of a role. A greeting is compared with each of them; a rotation needs
/// two.
pub const CREDENTIALS_MAX: usize = 16;

/// Credentials of one role. The first one is presented, all are accepted. There is at least one.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    first: Arc<[u8]>,
    others: Vec<Arc<[u8]>>,
}

// Logs and panics must not show them.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("count", &self.count()).finish_non_exhaustive()
    }
}

impl<T: AsRef<[u8]> + ?Sized> From<&T> for Credentials {
    fn from(credential: &T) -> Credentials {
        Credentials { first: credential.as_ref().into(), others: Vec::new() }
    }
}

impl<const N: usize> From<[u8; N]> for Credentials {
    fn from(credential: [u8; N]) -> Credentials {
        Credentials::from(&credential)
    }
}

impl From<Box<[u8]>> for Credentials {
    fn from(credential: Box<[u8]>) -> Credentials {
        Credentials { first: credential.into(), others: Vec::new() }
    }
}

/// Why a line is refused that looks like a comment: it would be an accepted credential.
const COMMENT: &str =
    "a line begins with '#': credential files have no comments, and a credential cannot begin with it";

/// Returns the first line of a credential file, which clients present.
pub(crate) fn first_line(bytes: &[u8]) -> Result<&[u8], String> {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    match line.len() {
        _ if line.starts_with(b"#") => Err(COMMENT.to_owned()),
        0 => Err("the credential, its first line, is empty".to_owned()),
        1..=CREDENTIAL_BYTES_MAX => Ok(line),
        bytes => Err(format!(
            "the credential, its first line, has {bytes} bytes; the limit is {CREDENTIAL_BYTES_MAX}"
        )),
    }
}

impl Credentials {
    /// Parses the content of a credential file: one credential a line. Empty lines after the first one
    /// are skipped.
    ///
    /// A line that begins with `#` is refused.
    pub fn parse(bytes: &[u8]) -> Result<Credentials, String> {
        let first = first_line(bytes)?.into();
        let lines = bytes.split(|byte| *byte == b'\n').skip(1);
        let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let others: Vec<Arc<[u8]>> = lines.filter(|line| !line.is_empty()).map(Arc::from).collect();
        if others.iter().any(|line| line.starts_with(b"#")) {
            return Err(COMMENT.to_owned());
        }
        if let Some(long) = others.iter().find(|line| line.len() > CREDENTIAL_BYTES_MAX) {
            let bytes = long.len();
            return Err(format!("a credential has {bytes} bytes; the limit is {CREDENTIAL_BYTES_MAX}"));
        }
        let credentials = Credentials { first, others };
        match credentials.count() {
            ..=CREDENTIALS_MAX => Ok(credentials),
            count => Err(format!("it has {count} credentials, one a line; the limit is {CREDENTIALS_MAX}")),
        }
    }

    /// Reads a credential file.
    pub fn read(path: &Path) -> Result<Credentials, SecretsError> {
        Credentials::parse(&read_file(path)?).map_err(|what| SecretsError::file(path, what))
    }

    /// Returns these credentials, and after them those of `others` that are not among them.
    #[must_use]
    pub fn and(&self, others: &Credentials) -> Credentials {
        let mut all = self.clone();
        all.others.extend(others.iter().filter(|other| self.line(other).is_none()).map(Arc::from));
        all
    }

    /// Returns the lines of a credential file.
    pub fn to_lines(&self) -> Vec<u8> {
        self.iter().collect::<Vec<_>>().join(&b'\n')
    }

    /// Returns the credential that is presented.
    pub fn first(&self) -> &[u8] {
        &self.first
    }

    /// Iterates over the credentials, the one that is presented first.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&*self.first).chain(self.others.iter().map(|other| &**other))
    }

    /// Returns the number of credentials.
    pub fn count(&self) -> usize {
        1 + self.others.len()
    }

    /// Returns the accepted credential that equals the presented one. In constant time, so that the
    /// timing of a refusal does not reveal a prefix.
    pub fn accepted(&self, presented: &[u8]) -> Option<Arc<[u8]>> {
        let mut accepted = None;
        for own in std::iter::once(&self.first).chain(&self.others) {
            if own.ct_eq(presented).into() {
                accepted = Some(Arc::clone(own));
            }
        }
        accepted
    }

    /// Returns the line of a credential, from 1 on; `None`: it is not, or no longer, accepted.
    pub fn line(&self, credential: &[u8]) -> Option<usize> {
        self.iter().position(|own| own == credential).map(|position| position + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_credential_a_line() {
        let parse = |text: &str| Credentials::parse(text.as_bytes());
        let lines = |text: &str| parse(text).unwrap().iter().map(<[u8]>::to_vec).collect::<Vec<_>>();
        assert_eq!(lines("new\r\nold\n\n"), [b"new", b"old"]);
        assert_eq!(lines("one"), [b"one"]);
        let two = parse("new\nold").unwrap();
        assert_eq!(two.first(), b"new");
        assert_eq!(Credentials::parse(&two.to_lines()), Ok(two.clone()));
        assert_eq!(two.accepted(b"old").as_deref(), Some(&b"old"[..]));
        for wrong in [&b""[..], b"ol", b"older", b"new\nold"] {
            assert_eq!(two.accepted(wrong), None);
        }
        assert_eq!((two.line(b"new"), two.line(b"old"), two.line(b"")), (Some(1), Some(2), None));
        let all = two.and(&Credentials::parse(b"old\nolder").unwrap());
        assert_eq!(all.to_lines(), b"new\nold\nolder");
        assert!(!format!("{two:?}").contains("old"));
    }

    #[test]
    fn unusable_files_are_refused() {
        let long = "x".repeat(CREDENTIAL_BYTES_MAX + 1);
        let many = "x\n".repeat(CREDENTIALS_MAX + 1);
        for (text, why) in [
            ("", "is empty"),
            ("\nsecond\n", "is empty"),
            (&long, "its first line, has 1025 bytes"),
            (&format!("short\n{long}"), "a credential has 1025 bytes"),
            (&many, "17 credentials"),
            ("# of clients\nshort\n", "begins with '#'"),
            ("short\r\n#old\r\n", "begins with '#'"),
        ] {
            let error = Credentials::parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(why) && !error.contains("second"), "{error}");
        }
    }
}
