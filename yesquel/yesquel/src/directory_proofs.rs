//! Proofs of the directory's entries by a credential of servers. The home group renews them when that
//! changes.
//! `docs/yesquel/cluster/directory.md` has the rules.

use crate::{
    Error,
    directory::Directory,
    directory_entries::{MACHINE, TOKEN, has_proof, split_proof, with_proof},
};
use yesquel_server::{entry_proof, is_entry_authentic};

/// Result of a renewal, in numbers of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RenewedProofs {
    /// Entries that the first credential proves now.
    pub(crate) entries: usize,
    /// Those among them that another accepted credential has proved before.
    pub(crate) renewed: usize,
    /// Entries without a proof by an accepted credential. They stay as they are, and count as absent.
    pub(crate) unproved: usize,
}

impl Directory<'_> {
    /// Returns the JSON of an entry; `None` if it has no proof by an accepted credential: clients may
    /// write the tree. Such an entry counts as absent, as after a change of the credential, and its
    /// machine enters itself again.
    pub(crate) fn proved<'v>(&self, key: &[u8], value: &'v [u8]) -> Option<&'v [u8]> {
        if !has_proof(key) {
            return Some(value);
        }
        let (json, proof) = split_proof(value)?;
        is_entry_authentic(self.cluster, (key, json, &proof), self.credentials).then_some(json)
    }

    /// Adds a proof to the JSON of an entry.
    pub(crate) fn prove(&self, key: &[u8], json: Vec<u8>) -> Vec<u8> {
        let proof = entry_proof(self.cluster, key, &json, self.credentials);
        with_proof(json, &proof)
    }

    /// Proves the entries with the first credential that another accepted one has proved, which may be
    /// removed next. Without that, the directory would forget which machines were removed.
    pub(crate) async fn renew_proofs(&self) -> Result<RenewedProofs, Error> {
        let renewed = self.repeat(async || {
            let (mut transaction, mut former) = (self.trees().begin(), Vec::new());
            let mut counts = RenewedProofs::default();
            for kind in [MACHINE, TOKEN] {
                let mut cursor = transaction.cursor(self.tree());
                let mut next = cursor.seek(&mut transaction, &[kind]).await?;
                while let Some((key, value)) = next.filter(|(key, _)| key.first() == Some(&kind)) {
                    match self.proved(&key, &value).map(|json| self.prove(&key, json.to_vec())) {
                        None => counts.unproved += 1,
                        Some(proved) => {
                            counts.entries += 1;
                            if proved[..] != value[..] {
                                former.push((key, proved));
                            }
                        }
                    }
                    next = cursor.next(&mut transaction).await?;
                }
            }
            counts.renewed = former.len();
            for (key, proved) in &former {
                transaction.put(self.tree(), key, proved)?;
            }
            transaction.commit().await?;
            Ok(counts)
        });
        Ok(renewed.await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        directory::{DirectoryError, Joiner, tests::with_directory},
        directory_entries::{MachineEntry, TokenEntry, encode, machine_key, token_key},
    };
    use yesquel_secrets::Credentials;
    use yesquel_transport::block_on;
    use yesquel_wire::{machines::ManagementRefusal, status::MachineState};

    /// Clients may write the tree: what they write admits no machine, names no address, and removes
    /// none.
    #[test]
    fn entries_that_no_server_has_written_do_not_count() {
        with_directory(|directory| {
            let machines = |directory: Directory<'_>| block_on(directory.read()).unwrap().0.machines.len();
            let guessed = Credentials::from(b"guessed");
            let client = Directory { credentials: Some(&guessed), ..directory };
            assert_eq!((machines(directory), machines(client)), (1, 0));
            let entry = MachineEntry { group: 9, state: MachineState::Serving, ..MachineEntry::default() };
            let mut transaction = directory.trees().begin();
            client.put(&mut transaction, &machine_key(3), &entry).unwrap();
            client.put(&mut transaction, &token_key(&[1; 32]), &TokenEntry::default()).unwrap();
            transaction.put(directory.tree(), &machine_key(4), &encode(&entry).unwrap()).unwrap();
            block_on(transaction.commit()).unwrap();
            assert_eq!(machines(directory), 1);
            let address = "a:7411";
            let joiner = Joiner { digest: [1; 32], expires_ms: 2, folder: 9, address, known: &[], now_ms: 1 };
            let joined = block_on(directory.join(joiner));
            assert!(matches!(joined, Err(DirectoryError::Refused(ManagementRefusal::UnknownToken))));
        });
    }

    /// A removed machine must stay removed when the credential that proved so is removed.
    #[test]
    fn entries_survive_a_rotation_of_the_credential() {
        with_directory(|directory| {
            block_on(directory.remove(2)).unwrap();
            let machines = |credentials: &[u8]| {
                let credentials = Credentials::parse(credentials).unwrap();
                let directory = Directory { credentials: Some(&credentials), ..directory };
                block_on(directory.renew_proofs()).unwrap();
                let machines = block_on(directory.read()).unwrap().0.machines;
                machines.iter().map(|machine| machine.state).collect::<Vec<_>>()
            };
            assert_eq!(machines(b"secret\nnew"), [MachineState::Removed]);
            assert_eq!(machines(b"new"), []);
            assert_eq!(machines(b"new\nsecret"), [MachineState::Removed]);
            assert_eq!(machines(b"new"), [MachineState::Removed]);
            assert_eq!(machines(b"secret"), []);
        });
    }
}
