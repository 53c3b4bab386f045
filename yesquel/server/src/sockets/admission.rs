//! Admission of connections by their greeting.

use crate::token_proof::authenticating;
use std::sync::Arc;
use yesquel_model::{ClusterMembership, ServerId};
use yesquel_secrets::{Credentials, PresentSecrets, Secrets};
use yesquel_wire::{
    JoinToken,
    greeting::{Denial, Hello, LANE, Role, common_version},
    status::ConnectionRole,
};

/// The role of an admitted connection, and the credential that has admitted it.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) role: Role,
    /// `None`: the server has none for the role.
    credential: Option<Arc<[u8]>>,
}

/// Returns the credentials of a role; a joiner's token is signed with one of them.
fn credentials(secrets: &Secrets, role: Role) -> Option<&Credentials> {
    match role {
        Role::Client => secrets.clients.as_ref(),
        Role::Peer | Role::Operator | Role::Joiner => secrets.peers.as_ref(),
    }
}

/// Whether a server with these secrets admits no connection of a role: with credentials of clients only.
fn excludes(secrets: &Secrets, role: Role) -> bool {
    role != Role::Client && secrets.peers.is_none() && secrets.clients.is_some()
}

fn shown(role: Role) -> ConnectionRole {
    match role {
        Role::Client => ConnectionRole::Client,
        Role::Peer => ConnectionRole::Server,
        Role::Operator => ConnectionRole::Operator,
        Role::Joiner => ConnectionRole::Joiner,
    }
}

/// Returns the roles with the lines of their credentials, from 1 on.
pub(super) fn shown_lines(secrets: &Secrets) -> impl Iterator<Item = (ConnectionRole, Option<u64>)> {
    let roles = [Role::Client, Role::Peer, Role::Operator, Role::Joiner].into_iter();
    roles.flat_map(|role| {
        let count = credentials(secrets, role).map_or(0, Credentials::count) as u64;
        (1..=count).map(move |line| (shown(role), Some(line)))
    })
}

impl Admitted {
    /// Whether its credential was removed, or its role needs one now.
    pub(super) fn is_revoked(&self, secrets: &Secrets) -> bool {
        match self.credential {
            Some(_) => self.line(secrets).is_none(),
            None => credentials(secrets, self.role).is_some() || excludes(secrets, self.role),
        }
    }

    /// Returns the line of its credential in the file of the role, from 1 on.
    pub(super) fn line(&self, secrets: &Secrets) -> Option<usize> {
        credentials(secrets, self.role)?.line(self.credential.as_deref()?)
    }

    /// Returns its role for the status.
    pub(super) fn shown_role(&self) -> ConnectionRole {
        shown(self.role)
    }
}

/// Rules for admitting clients.
#[derive(Debug)]
pub(super) struct AdmissionPolicy {
    pub(super) server: ServerId,
    /// Without credentials of servers, but with those of clients, no server is admitted.
    pub(super) secrets: Arc<PresentSecrets>,
    pub(super) clients_max: usize,
    pub(super) membership: ClusterMembership,
}

impl AdmissionPolicy {
    /// Admits a client or returns the reason of its refusal; `clients` is the present number.
    pub(super) fn judge(&self, hello: &Hello<'_>, clients: usize) -> Result<(u16, Admitted), Denial> {
        let version = common_version(hello.versions)?;
        // Lanes are optional, and get half of the places at most.
        let is_lane = hello.client & LANE != 0;
        let clients_max = if is_lane { self.clients_max / 2 } else { self.clients_max };
        if clients >= clients_max {
            return Err(Denial::TooManyConnections(self.clients_max as u32));
        }
        let (secrets, role) = (self.secrets.get(), hello.role);
        if excludes(&secrets, role) {
            return Err(Denial::Credential);
        }
        let (cluster, credential) = match role {
            Role::Joiner => {
                // The home group knows whether the token is still valid.
                let token = JoinToken::decode(hello.credential).map_err(|_| Denial::Credential)?;
                let signer = authenticating(&token, secrets.peers.as_ref()).ok_or(Denial::Credential)?;
                (Some(token.cluster), signer)
            }
            _ => {
                let accepted = match credentials(&secrets, role) {
                    Some(own) => Some(own.accepted(hello.credential).ok_or(Denial::Credential)?),
                    None => None,
                };
                (hello.cluster, accepted)
            }
        };
        match cluster {
            Some(cluster) if cluster != self.membership.cluster => {
                Err(Denial::OtherCluster(self.membership.cluster))
            }
            _ => Ok((version, Admitted { role, credential })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_without_a_credential_is_revoked_when_its_role_needs_one() {
        let of = |text: &str| Credentials::parse(text.as_bytes()).ok();
        let secrets =
            |clients, peers| Secrets { clients: of(clients), peers: of(peers), ..Secrets::default() };
        let (open, both) = (secrets("", ""), secrets("c", "s\nt"));
        for role in [Role::Client, Role::Peer, Role::Operator] {
            let without = Admitted { role, credential: None };
            assert!(!without.is_revoked(&open) && without.is_revoked(&both), "{role:?}");
        }
        // Servers are not admitted without a credential where clients need one.
        assert!(Admitted { role: Role::Peer, credential: None }.is_revoked(&secrets("c", "")));
        assert!(!Admitted { role: Role::Client, credential: None }.is_revoked(&secrets("", "s")));
        let with = Admitted { role: Role::Peer, credential: Some(b"t"[..].into()) };
        assert!(!with.is_revoked(&both) && with.is_revoked(&secrets("c", "s")) && with.is_revoked(&open));
        assert_eq!(shown_lines(&both).count(), 1 + 3 * 2);
    }
}
