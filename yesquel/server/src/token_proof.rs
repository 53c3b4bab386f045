//! Proofs of tokens and of the directory's entries: which servers have issued or written one.
//!
//! The home group keeps a digest of each token, in a tree that clients may write. Without the proof a
//! client could enter a token of its own, or a machine with an address of its own, and get the
//! credential of servers with it.

use crate::machine_file::random_bytes;
use ring::{digest, hmac};
use std::{io, sync::Arc};
use yesquel_model::ClusterId;
use yesquel_secrets::Credentials;
use yesquel_wire::JoinToken;

/// Returns the key of the proofs that a server makes. Servers without a credential have none to
/// protect.
fn key(peers: Option<&Credentials>) -> hmac::Key {
    key_of(peers.map(Credentials::first).unwrap_or_default())
}

fn key_of(credential: &[u8]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, credential)
}

/// Returns the accepted credential with which a proof was made. The credential is `None` for servers
/// without one.
fn signer(proved: &[u8], proof: &[u8], peers: Option<&Credentials>) -> Option<Option<Arc<[u8]>>> {
    // In constant time for each credential.
    let has_signed = |credential: &[u8]| hmac::verify(&key_of(credential), proved, proof).is_ok();
    match peers {
        None => has_signed(b"").then_some(None),
        Some(peers) => peers.iter().find(|peer| has_signed(peer)).map(|peer| Some(peer.into())),
    }
}

/// Creates a token of a cluster.
pub fn issue_token(
    cluster: ClusterId,
    is_encrypted: bool,
    expires_ms: u64,
    peers: Option<&Credentials>,
) -> io::Result<JoinToken> {
    let mut token = JoinToken { is_encrypted, cluster, secret: random_bytes()?, expires_ms, proof: [0; 32] };
    let proof = hmac::sign(&key(peers), &token.signed());
    token.proof.copy_from_slice(proof.as_ref());
    Ok(token)
}

/// Returns the credential of the server that has issued a token, or `None` if no server with one of
/// these credentials has.
pub(crate) fn authenticating(token: &JoinToken, peers: Option<&Credentials>) -> Option<Option<Arc<[u8]>>> {
    signer(&token.signed(), &token.proof, peers)
}

/// Returns whether a server with one of these credentials has issued a token.
pub fn is_authentic(token: &JoinToken, peers: Option<&Credentials>) -> bool {
    authenticating(token, peers).is_some()
}

/// Returns the proof of an entry of a cluster's directory. It is for this key, so that entries cannot be
/// exchanged.
pub fn entry_proof(cluster: ClusterId, key: &[u8], value: &[u8], peers: Option<&Credentials>) -> [u8; 32] {
    let mut proof = [0; 32];
    proof.copy_from_slice(hmac::sign(&self::key(peers), &proved(cluster, key, value)).as_ref());
    proof
}

/// Returns whether a server with one of these credentials has written an entry.
pub fn is_entry_authentic(
    cluster: ClusterId,
    (key, value, proof): (&[u8], &[u8], &[u8]),
    peers: Option<&Credentials>,
) -> bool {
    signer(&proved(cluster, key, value), proof, peers).is_some()
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
        let cluster = ClusterId([7; 16]);
        let (own, other) = (Credentials::from(b"secret"), Credentials::from(b"other"));
        let credential = Some(&own);
        let token = issue_token(cluster, true, 99, credential).unwrap();
        assert!(is_authentic(&token, credential));
        assert!(!is_authentic(&token, Some(&other)) && !is_authentic(&token, None));
        // During a rotation.
        let both = Credentials::parse(b"other\nsecret").unwrap();
        assert_eq!(authenticating(&token, Some(&both)).flatten().as_deref(), Some(&b"secret"[..]));
        let later = issue_token(cluster, true, 99, Some(&both)).unwrap();
        assert!(is_authentic(&later, Some(&other)) && !is_authentic(&later, credential));
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
        let (cluster, own) = (ClusterId([7; 16]), Credentials::from(b"secret"));
        let credential = Some(&own);
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
