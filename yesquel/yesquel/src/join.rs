//! First start of a machine that joins a cluster by a token.

use crate::{Error, client_number::client_number, peers::PeerAccess, stop_flag::StopFlag};
use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use yesquel_client::Client;
use yesquel_model::{ClusterId, ClusterMembership, ServerId};
use yesquel_server::{DataFolder, MachineIdentity, MachineStart, StoredCredential};
use yesquel_transport::{Address, ConnectError, SocketOptions, SocketTransport, block_on};
use yesquel_wire::{
    JoinToken,
    greeting::{CREDENTIAL_BYTES_MAX, Denial, Role},
    machines::{JoinRequest, JoinedMachine, ManagementRefusal, ManagementReply},
};

/// How a new machine joins a cluster.
#[derive(Debug, Clone)]
pub struct JoinOptions {
    /// Addresses of machines of the cluster, of which one must answer.
    pub addresses: Vec<Address>,
    /// File with the token. It is read if the data folder is new.
    pub token_file: PathBuf,
}

/// How long a machine waits for one that answers, and for the home group.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between attempts.
const PAUSE: Duration = Duration::from_millis(100);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit of the reply: the machine that is asked asks the home group.
const TIMEOUT: Duration = Duration::from_secs(15);

fn read_token(path: &Path) -> Result<JoinToken, Error> {
    let invalid = |what: String| Error::Location { location: path.display().to_string(), what };
    let text = fs::read_to_string(path).map_err(|error| invalid(error.to_string()))?;
    let line = text.lines().next().unwrap_or_default().trim();
    line.parse().map_err(|error: yesquel_wire::JoinTokenError| invalid(error.to_string()))
}

/// Whether nothing that is sent to an address leaves this machine.
fn is_local(address: &Address) -> bool {
    match address {
        Address::Unix(_) => true,
        Address::Tcp { host, .. } => {
            host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
        }
    }
}

/// Checks that the token is not sent to a machine that cannot be verified, nor the credential of
/// servers, which the reply has, to the other machines of a cluster that encrypts.
fn check_encryption(token: &JoinToken, options: &JoinOptions, peers: &PeerAccess) -> Result<(), Error> {
    if peers.secrets.get().peer_tls.is_some() {
        return Ok(());
    }
    let is_exposed = |address: &&Address| token.is_encrypted || !is_local(address);
    match options.addresses.iter().find(is_exposed) {
        Some(address) => Err(Error::ExposedToken(address.clone())),
        None => Ok(()),
    }
}

/// Why one attempt has failed.
enum Failed {
    /// Another attempt may succeed.
    Passing(Error),
    Final(Error),
}

/// Asks one machine.
fn ask(
    address: &Address,
    token: &JoinToken,
    request: &JoinRequest,
    peers: &PeerAccess,
) -> Result<JoinedMachine, Failed> {
    let (client, credential) = (client_number(), token.encode().into_boxed_slice());
    debug_assert!(credential.len() <= CREDENTIAL_BYTES_MAX);
    let options = SocketOptions {
        secrets: None,
        credential,
        role: Role::Joiner,
        cluster: Some(token.cluster),
        tls: peers.secrets.get().peer_tls.clone(),
        connect_timeout: CONNECT_TIMEOUT,
        timeout: TIMEOUT,
        close_timeout: Duration::ZERO,
        lanes: 0,
    };
    let transport = SocketTransport::connect(std::slice::from_ref(address), client, options);
    let transport = transport.map_err(|error| match error {
        ConnectError::Denied { denial: Denial::Credential, address } => {
            Failed::Final(Error::RejectedToken(address))
        }
        error if error.is_final() => Failed::Final(error.into()),
        error => Failed::Passing(error.into()),
    })?;
    let server = transport.servers().next().unwrap_or_default();
    // Strings always convert to JSON.
    let json = serde_json::to_vec(request).unwrap_or_default();
    let reply = block_on(Client::new(transport, client).join(server, &json));
    let reply = reply.map_err(|error| Failed::Passing(error.into()))?;
    match serde_json::from_slice(&reply) {
        Ok(ManagementReply::Joined(joined)) => Ok(*joined),
        Ok(ManagementReply::Refused(
            refusal @ (ManagementRefusal::Unavailable { .. } | ManagementRefusal::Busy),
        )) => Err(Failed::Passing(Error::Management(refusal))),
        Ok(ManagementReply::Refused(refusal)) => Err(Failed::Final(Error::Management(refusal))),
        _ => Err(Failed::Final(not_understood())),
    }
}

fn not_understood() -> Error {
    Error::Internal(
        "the reply to the request to join is not understood: is the machine of this release?".into(),
    )
}

/// Asks the machines in turn until one answers.
fn ask_all(
    token: &JoinToken,
    request: &JoinRequest,
    options: &JoinOptions,
    peers: &PeerAccess,
    ending: &StopFlag,
) -> Result<JoinedMachine, Error> {
    let _guard = ending.cancel_calls();
    let until = Instant::now() + JOIN_TIMEOUT;
    loop {
        let mut failed = None;
        for address in &options.addresses {
            match ask(address, token, request, peers) {
                Ok(joined) => return Ok(joined),
                Err(Failed::Final(error)) => return Err(error),
                Err(Failed::Passing(error)) => failed = Some(error),
            }
        }
        let failed = failed.unwrap_or_else(not_understood);
        if ending.is_set() || Instant::now() >= until {
            return Err(failed);
        }
        ending.pause(PAUSE);
    }
}

fn from_hex(digits: &str) -> Option<Box<[u8]>> {
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return None };
    let digit = |sign: u8| char::from(sign).to_digit(16);
    pairs.iter().map(|[high, low]| Some((digit(*high)? << 4 | digit(*low)?) as u8)).collect()
}

/// Makes a new folder that of a machine of the cluster: asks for its numbers, and writes its files.
/// `address` is where others reach the machine.
pub(crate) fn join(
    folder: &mut DataFolder,
    options: &JoinOptions,
    peers: &PeerAccess,
    address: &Address,
    ending: &StopFlag,
) -> Result<(), Error> {
    let token = read_token(&options.token_file)?;
    check_encryption(&token, options, peers)?;
    let files = folder.cluster_files();
    let nonce = files.begin_join()?;
    let request = JoinRequest {
        token: token.to_string(),
        nonce: format!("{nonce:032x}"),
        address: address.to_string(),
    };
    let joined = ask_all(&token, &request, options, peers, ending)?;
    let cluster: ClusterId = joined.cluster.parse().map_err(|_| not_understood())?;
    let credential =
        joined.peer_credential.as_deref().map(|digits| from_hex(digits).ok_or_else(not_understood));
    let stored = credential
        .transpose()?
        .map(|credential| StoredCredential { credential, is_encrypted: token.is_encrypted });
    if cluster != token.cluster {
        return Err(not_understood());
    }
    let directory = serde_json::to_vec(&joined.directory).unwrap_or_default();
    let (machine, group) = (joined.machine, ServerId(joined.group));
    let identity = MachineIdentity {
        membership: ClusterMembership { cluster, home_group: ServerId(joined.home_group) },
        machine,
        group,
        start: MachineStart { incarnation: 0, nonce },
    };
    folder.finish_join(identity, stored.as_ref(), &directory)?;
    tracing::info!(%cluster, machine, group = group.0, "the machine has joined the cluster");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use yesquel_secrets::{PresentSecrets, Secrets};

    #[test]
    fn a_token_is_sent_to_verified_machines_only() {
        let token = |is_encrypted| JoinToken {
            is_encrypted,
            cluster: ClusterId::default(),
            secret: [0; 16],
            expires_ms: 0,
            proof: [0; 32],
        };
        let options = |address: &str| JoinOptions {
            addresses: vec!["127.0.0.1:1".parse().unwrap(), address.parse().unwrap()],
            token_file: PathBuf::new(),
        };
        let sent = |is_encrypted, address: &str, peers: &PeerAccess| {
            check_encryption(&token(is_encrypted), &options(address), peers).is_ok()
        };
        let clear = PeerAccess::default();
        for local in ["127.0.0.1:2", "localhost:2", "[::1]:2", "./socket"] {
            assert!(sent(false, local, &clear), "{local}");
            assert!(!sent(true, local, &clear), "{local}");
        }
        for remote in ["10.0.0.1:2", "db.example.org"] {
            assert!(!sent(false, remote, &clear), "{remote}");
        }
        let unix = JoinOptions { addresses: vec!["./socket".parse().unwrap()], token_file: PathBuf::new() };
        assert!(check_encryption(&token(false), &unix, &clear).is_ok());
        // The other machines may be elsewhere.
        assert!(check_encryption(&token(true), &unix, &clear).is_err());
        let secrets = Secrets { peer_tls: Some(crate::tls::client(None).unwrap()), ..Secrets::default() };
        let secrets = Arc::new(PresentSecrets::new(secrets).unwrap());
        let tls = PeerAccess { secrets, ..PeerAccess::default() };
        assert!(sent(true, "db.example.org", &tls));
    }
}
