//! Proofs of tokens and of the directory's entries: which servers have issued or written one.
//!
//! The home group keeps a digest of each token, in a tree that clients may write. Without the proof a
//! client could enter a token of its own, or a machine with an address of its own, and get the
//! credential of servers with it.

use crate::machine_file::random_bytes;
use ring::{digest, hmac};
use std::io;
use yesquel_model::ClusterId;
use yesquel_wire::JoinToken;

/// Returns the key of the proofs. Servers without a credential have none to protect.
fn key(peer_credential: Option<&[u8]>) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, peer_credential.unwrap_or_default())
}

/// Creates a token of a cluster.
pub fn issue_token(
    cluster: ClusterId,
    is_encrypted: bool,
    expires_ms: u64,
    peer_credential: Option<&[u8]>,
) -> io::Result<JoinToken> {
    let mut token = JoinToken { is_encrypted, cluster, secret: random_bytes()?, expires_ms, proof: [0; 32] };
    let proof = hmac::sign(&key(peer_credential), &token.signed());
    token.proof.copy_from_slice(proof.as_ref());
    Ok(token)
}

/// Returns whether a server with this credential has issued a token.
pub fn is_authentic(token: &JoinToken, peer_credential: Option<&[u8]>) -> bool {
    // In constant time.
    hmac::verify(&key(peer_credential), &token.signed(), &token.proof).is_ok()
}

/// Returns the proof of an entry of a cluster's directory. It is for this key, so that entries cannot be
/// exchanged.
pub fn entry_proof(cluster: ClusterId, key: &[u8], value: &[u8], peer_credential: Option<&[u8]>) -> [u8; 32] {
    let mut proof = [0; 32];
    proof.copy_from_slice(hmac::sign(&self::key(peer_credential), &proved(cluster, key, value)).as_ref());
    proof
}

/// Returns whether a server with this credential has written an entry.
pub fn is_entry_authentic(
    cluster: ClusterId,
    (key, value, proof): (&[u8], &[u8], &[u8]),
    peer_credential: Option<&[u8]>,
) -> bool {
    hmac::verify(&self::key(peer_credential), &proved(cluster, key, value), proof).is_ok()
}

/// What the proof of an entry proves. No token begins like it.
fn proved(cluster: ClusterId, key: &[u8], value: &[u8]) -> Vec<u8> {
    let length = (key.len() as u64).to_le_bytes();
    [b"directory entry", &cluster.0[..], &length[..], key, value].concat()
}

/// Returns the digest of a token, under which the home group keeps it: the tree does not hold what
/// admits a machine.
pub fn token_digest(token: &JoinToken) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest::digest(&digest::SHA256, &token.encode()).as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_proves_who_has_issued_it() {
        let (cluster, credential) = (ClusterId([7; 16]), Some(&b"secret"[..]));
        let token = issue_token(cluster, true, 99, credential).unwrap();
        assert!(is_authentic(&token, credential));
        assert!(!is_authentic(&token, Some(b"other")) && !is_authentic(&token, None));
        for changed in [
            JoinToken { expires_ms: 100, ..token },
            JoinToken { cluster: ClusterId([8; 16]), ..token },
            JoinToken { is_encrypted: false, ..token },
            JoinToken { secret: [0; 16], ..token },
        ] {
            assert!(!is_authentic(&changed, credential), "{changed:?}");
            assert_ne!(token_digest(&changed), token_digest(&token));
        }
        assert_ne!(issue_token(cluster, true, 99, credential).unwrap().secret, token.secret);
    }

    #[test]
    fn an_entry_proves_who_has_written_it() {
        let (cluster, credential) = (ClusterId([7; 16]), Some(&b"secret"[..]));
        let proof = entry_proof(cluster, b"key", b"value", credential);
        let holds = |cluster, key: &[u8], value: &[u8], credential| {
            is_entry_authentic(cluster, (key, value, &proof), credential)
        };
        assert!(holds(cluster, b"key", b"value", credential));
        assert!(!holds(ClusterId([8; 16]), b"key", b"value", credential));
        assert!(!holds(cluster, b"keyv", b"alue", credential));
        assert!(!holds(cluster, b"key", b"other", credential));
        assert!(!holds(cluster, b"key", b"value", None));
        assert!(!is_entry_authentic(cluster, (b"key", b"value", b""), credential));
    }
}
