//! The token with which a machine joins a cluster.

use crate::{ByteReader, ByteWriter, Malformed};
use std::{fmt, str::FromStr};
use thiserror::Error;
use yesquel_model::ClusterId;

/// First byte of a token.
const FORMAT: u8 = 1;
/// Beginning of its text.
const PREFIX: &str = "yesquel-join-";

/// Admits one machine to a cluster, until it expires.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct JoinToken {
    /// The machine that issued it encrypts its connections: the token must not be sent in clear text.
    pub is_encrypted: bool,
    /// The cluster.
    pub cluster: ClusterId,
    /// Random bytes.
    pub secret: [u8; 16],
    /// When it expires, in milliseconds since 1970.
    pub expires_ms: u64,
    /// HMAC-SHA256 of all that with the credential of the cluster's servers.
    pub proof: [u8; 32],
}

/// The text is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("no token of a cluster: `yesquel cluster add` writes one, which begins with {PREFIX}")]
pub struct JoinTokenError;

/// Takes bytes of a fixed number.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

impl JoinToken {
    /// Bytes of a token.
    pub const BYTES: usize = JoinToken::SIGNED_BYTES + 32;
    /// Bytes before the proof.
    const SIGNED_BYTES: usize = 1 + 1 + 16 + 16 + 8;

    /// Encodes what the proof proves.
    pub fn signed(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(JoinToken::BYTES);
        ByteWriter(&mut bytes).byte(FORMAT).flag(self.is_encrypted);
        bytes.extend_from_slice(&self.cluster.0);
        bytes.extend_from_slice(&self.secret);
        ByteWriter(&mut bytes).fixed(self.expires_ms);
        bytes
    }

    /// Encodes the token.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.signed();
        bytes.extend_from_slice(&self.proof);
        bytes
    }

    /// Decodes a token. Its proof may be wrong.
    pub fn decode(bytes: &[u8]) -> Result<JoinToken, Malformed> {
        let mut reader = ByteReader::new(bytes);
        let before = reader;
        if reader.byte()? != FORMAT {
            return Err(before.malformed("no token of a cluster"));
        }
        let is_encrypted = reader.flag()?;
        let fixed = |mut rest: &[u8]| {
            let (cluster, secret) = (take(&mut rest)?, take(&mut rest)?);
            let (expires_ms, proof) = (u64::from_le_bytes(take(&mut rest)?), take(&mut rest)?);
            let token = JoinToken { is_encrypted, cluster: ClusterId(cluster), secret, expires_ms, proof };
            rest.is_empty().then_some(token)
        };
        fixed(reader.rest()).ok_or(before.malformed("a token of another length"))
    }
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without what admits a machine.
        f.debug_struct("JoinToken").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

/// The text of a token.
impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.encode().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for JoinToken {
    type Err = JoinTokenError;

    fn from_str(text: &str) -> Result<JoinToken, JoinTokenError> {
        let digits = text.strip_prefix(PREFIX).ok_or(JoinTokenError)?.as_bytes();
        let (pairs, []) = digits.as_chunks::<2>() else { return Err(JoinTokenError) };
        let digit = |sign: u8| char::from(sign).to_digit(16).filter(|_| !sign.is_ascii_uppercase());
        let byte = |[high, low]: &[u8; 2]| Some((digit(*high)? << 4 | digit(*low)?) as u8);
        let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        bytes.and_then(|bytes| JoinToken::decode(&bytes).ok()).ok_or(JoinTokenError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_one_encoding_and_one_text() {
        for is_encrypted in [false, true] {
            let (cluster, secret, proof) = (ClusterId([7; 16]), [0xab; 16], [9; 32]);
            let token = JoinToken { is_encrypted, cluster, secret, expires_ms: u64::MAX, proof };
            let bytes = token.encode();
            assert_eq!(bytes.len(), JoinToken::BYTES);
            assert_eq!(JoinToken::decode(&bytes), Ok(token));
            for length in 0..bytes.len() {
                assert!(JoinToken::decode(&bytes[..length]).is_err());
            }
            assert!(JoinToken::decode(&[&bytes[..], &[0]].concat()).is_err());
            for (at, wrong) in [(0, 2), (1, 2)] {
                let mut bytes = bytes.clone();
                bytes[at] = wrong;
                assert!(JoinToken::decode(&bytes).is_err());
            }
            let text = token.to_string();
            assert_eq!(text.parse(), Ok(token));
            for wrong in [&text[1..], &text[..text.len() - 1], &text.to_uppercase(), "", "secret"] {
                assert_eq!(wrong.parse::<JoinToken>(), Err(JoinTokenError), "{wrong}");
            }
            assert!(!format!("{token:?}").contains("171"));
        }
    }
}
