//! Directory: the machines and groups of the cluster, in the tree of the [catalog](crate::catalog).
//! `docs/yesquel/cluster/directory.md` has the rules.
//!
//! ```text
//! c                    -> cluster, version of the directory; changed by each change of M and G
//! M NUMBER             -> machine: its groups, address, state and last start
//! G NUMBER             -> group: its machine and state
//! L NUMBER             -> records of the group's log that were on disk some seconds ago, 8 bytes
//! j DIGEST             -> token with which a machine joins: when it expires, the machine that used it
//! ```
//!
//! Numbers of machines (4 bytes) and groups (2 bytes) are big-endian; values are JSON, of which later
//! releases may have more fields.

use crate::{
    Error,
    any_transport::AnyTransport,
    catalog::{Catalog, DATABASE},
    directory_entries::{
        CLUSTER, ClusterEntry, GROUP, GroupEntry, GroupState, MACHINE, MachineEntry, TOKEN, TokenEntry,
        TokenUse, decode, encode, group_key, has_proof, machine_key, nonce_text, token_key,
    },
};
use serde::{Serialize, de::DeserializeOwned};
use std::collections::BTreeSet;
use yesquel_model::{ClusterId, KeyRange, LocalId, NodeId, ServerId, TreeId};
use yesquel_secrets::Credentials;
use yesquel_server::MachineStart;
use yesquel_tree::{Tree, TreeTransaction, Trees};
use yesquel_wire::{
    machines::ManagementRefusal,
    status::{DirectoryStatus, MachineState, MachineStatus},
};

/// Counters that number machines and groups.
const MACHINE_NUMBERS: LocalId = LocalId(17);
const GROUP_NUMBERS: LocalId = LocalId(18);

/// How long a token is kept after its time, in milliseconds, so that its refusal can name the reason.
const TOKEN_KEPT_MS: u64 = 7 * 86_400_000;

/// Maximum number of attempts of a transaction that loses to others.
const ATTEMPTS_MAX: usize = 100;

/// Why a change of the directory has no effect.
#[derive(Debug)]
pub(crate) enum DirectoryError {
    Refused(ManagementRefusal),
    Failed(Error),
}

impl From<DirectoryError> for Error {
    fn from(error: DirectoryError) -> Error {
        match error {
            DirectoryError::Refused(refusal) => Error::Management(refusal),
            DirectoryError::Failed(error) => error,
        }
    }
}

impl From<Error> for DirectoryError {
    fn from(error: Error) -> DirectoryError {
        DirectoryError::Failed(error)
    }
}

impl From<yesquel_tree::TreeError> for DirectoryError {
    fn from(error: yesquel_tree::TreeError) -> DirectoryError {
        DirectoryError::Failed(error.into())
    }
}

impl From<ManagementRefusal> for DirectoryError {
    fn from(refusal: ManagementRefusal) -> DirectoryError {
        DirectoryError::Refused(refusal)
    }
}

/// A machine that asks to join.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Joiner<'a> {
    /// Digest of its token, and when that expires.
    pub(crate) digest: [u8; 32],
    pub(crate) expires_ms: u64,
    /// Number of its folder.
    pub(crate) folder: u128,
    pub(crate) address: &'a str,
    /// Groups of the cluster that may not be in the directory.
    pub(crate) known: &'a [ServerId],
    /// The present, in milliseconds since 1970.
    pub(crate) now_ms: u64,
}

/// Numbers that a machine has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MachineNumbers {
    pub(crate) machine: u32,
    pub(crate) group: ServerId,
}

/// Directory of a cluster, at its home group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Directory<'a> {
    pub(crate) catalog: Catalog<'a>,
    pub(crate) cluster: ClusterId,
    /// Credentials of servers, by which they prove that they have written an entry.
    pub(crate) credentials: Option<&'a Credentials>,
}

pub(crate) type Transaction<'a> = TreeTransaction<'a, AnyTransport>;

impl<'a> Directory<'a> {
    pub(crate) fn trees(&self) -> &'a Trees<AnyTransport> {
        self.catalog.trees
    }

    pub(crate) fn tree(&self) -> Tree {
        self.catalog.tree()
    }

    pub(crate) async fn entry<T: DeserializeOwned>(
        &self,
        transaction: &mut Transaction<'a>,
        key: &[u8],
    ) -> Result<Option<T>, Error> {
        let value = transaction.get(self.tree(), key).await?;
        value.as_deref().and_then(|value| self.proved(key, value)).map(decode).transpose()
    }

    pub(crate) fn put(
        &self,
        transaction: &mut Transaction<'a>,
        key: &[u8],
        entry: &impl Serialize,
    ) -> Result<(), Error> {
        let json = encode(entry)?;
        let value = match has_proof(key) {
            true => self.prove(key, json),
            false => json,
        };
        Ok(transaction.put(self.tree(), key, &value)?)
    }

    /// Returns the entries whose keys begin with a byte, with the rest of their keys, and the number of
    /// those that no accepted credential proves.
    async fn list<T: DeserializeOwned>(
        &self,
        transaction: &mut Transaction<'a>,
        kind: u8,
    ) -> Result<(Vec<(Box<[u8]>, T)>, usize), Error> {
        let (mut all, mut unproved, mut cursor) = (Vec::new(), 0, transaction.cursor(self.tree()));
        let mut next = cursor.seek(transaction, &[kind]).await?;
        while let Some((key, value)) = next {
            let Some(rest) = key.strip_prefix(&[kind]) else { break };
            match self.proved(&key, &value) {
                Some(json) => all.push((rest.into(), decode(json)?)),
                None => unproved += 1,
            }
            next = cursor.next(transaction).await?;
        }
        Ok((all, unproved))
    }

    /// Returns the machines, and the number of those that no accepted credential proves.
    async fn machines(
        &self,
        transaction: &mut Transaction<'a>,
    ) -> Result<(Vec<(u32, MachineEntry)>, usize), Error> {
        let damaged = || Error::Internal("the directory is damaged: a machine has no number".to_owned());
        let number = |key: &[u8]| key.try_into().map(u32::from_be_bytes).map_err(|_| damaged());
        let (all, unproved) = self.list(transaction, MACHINE).await?;
        let all: Result<_, Error> = all.into_iter().map(|(key, entry)| Ok((number(&key)?, entry))).collect();
        Ok((all?, unproved))
    }

    /// Raises the version of the directory. All changes conflict here, so that each sees the others.
    pub(crate) async fn raise_version(&self, transaction: &mut Transaction<'a>) -> Result<(), Error> {
        let before: ClusterEntry = self.entry(transaction, CLUSTER).await?.unwrap_or_default();
        let damaged = || Error::Internal("the directory is damaged: its version is the last one".to_owned());
        let version = before.version.checked_add(1).ok_or_else(damaged)?;
        let cluster = self.cluster.to_string();
        self.put(transaction, CLUSTER, &ClusterEntry { cluster, version })
    }

    /// Reads the directory. Also returns the number of machines' entries that count as absent, because no
    /// accepted credential proves them.
    pub(crate) async fn read(&self) -> Result<(DirectoryStatus, usize), Error> {
        let mut transaction = self.trees().begin();
        let cluster: Option<ClusterEntry> = self.entry(&mut transaction, CLUSTER).await?;
        let (machines, unproved) = self.machines(&mut transaction).await?;
        let machines = machines.into_iter().map(|(machine, entry)| {
            let MachineEntry { group, groups, address, state, incarnation, .. } = entry;
            MachineStatus { machine, group, groups, address, state, incarnation }
        });
        let version = cluster.map_or(0, |cluster| cluster.version);
        Ok((DirectoryStatus { groups: Vec::new(), version, machines: machines.collect() }, unproved))
    }

    /// Enters a token. Deletes those whose time was over long ago.
    pub(crate) async fn add_token(
        &self,
        digest: &[u8; 32],
        expires_ms: u64,
        now_ms: u64,
    ) -> Result<(), Error> {
        let entered = self.repeat(async || {
            let mut transaction = self.trees().begin();
            let (tokens, _): (Vec<(_, TokenEntry)>, _) = self.list(&mut transaction, TOKEN).await?;
            let is_old = |entry: &TokenEntry| entry.expires_ms.saturating_add(TOKEN_KEPT_MS) < now_ms;
            for (key, _) in tokens.iter().filter(|(_, entry)| is_old(entry)) {
                transaction.delete(self.tree(), &[&[TOKEN][..], key].concat())?;
            }
            let entry = TokenEntry { expires_ms, used_by: None };
            self.put(&mut transaction, &token_key(digest), &entry)?;
            // Machines that are not in the directory enter themselves once it has a version, and the home
            // group proves a token again that another machine has proved with a former credential.
            self.raise_version(&mut transaction).await?;
            transaction.commit().await?;
            Ok(())
        });
        Ok(entered.await?)
    }

    /// Repeats a transaction that loses to others.
    pub(crate) async fn repeat<T>(
        &self,
        mut attempt: impl AsyncFnMut() -> Result<T, DirectoryError>,
    ) -> Result<T, DirectoryError> {
        let mut attempts = 1;
        loop {
            match attempt().await {
                Err(DirectoryError::Failed(Error::Conflict(_) | Error::Exists))
                    if attempts < ATTEMPTS_MAX =>
                {
                    attempts += 1;
                }
                result => return result,
            }
        }
    }

    /// Gives a machine its numbers, and its token's use to its folder. The same folder gets the same
    /// numbers again.
    pub(crate) async fn join(&self, joiner: Joiner<'_>) -> Result<MachineNumbers, DirectoryError> {
        let mut fresh = None;
        let folder = nonce_text(joiner.folder);
        self.repeat(async || {
            let mut transaction = self.trees().begin();
            let key = token_key(&joiner.digest);
            let token: Option<TokenEntry> = self.entry(&mut transaction, &key).await?;
            let token = token.ok_or(ManagementRefusal::UnknownToken)?;
            if let Some(TokenUse { machine, folder: by }) = token.used_by {
                if by != folder {
                    return Err(ManagementRefusal::UsedToken { machine }.into());
                }
                let entry: Option<MachineEntry> = self.entry(&mut transaction, &machine_key(machine)).await?;
                return match entry {
                    Some(entry) if entry.state == MachineState::Joining => {
                        Ok(MachineNumbers { machine, group: ServerId(entry.group) })
                    }
                    // Its folder does not ask again after that.
                    Some(entry) if entry.state != MachineState::Removed => {
                        Err(ManagementRefusal::UsedToken { machine }.into())
                    }
                    _ => Err(ManagementRefusal::RemovedMachine { machine }.into()),
                };
            }
            if joiner.expires_ms <= joiner.now_ms {
                return Err(ManagementRefusal::ExpiredToken.into());
            }
            let numbers = match fresh {
                Some(numbers) => numbers,
                // Those of a failed attempt are unused.
                None => *fresh.insert(self.new_numbers(&mut transaction, joiner.known).await?),
            };
            let MachineNumbers { machine, group } = numbers;
            let used_by = Some(TokenUse { machine, folder: folder.clone() });
            self.put(&mut transaction, &key, &TokenEntry { used_by, ..token })?;
            let mut entry = MachineEntry {
                group: group.0,
                address: joiner.address.to_owned(),
                state: MachineState::Joining,
                ..MachineEntry::default()
            };
            entry.set_start(MachineStart { incarnation: 0, nonce: joiner.folder });
            self.put(&mut transaction, &machine_key(machine), &entry)?;
            self.put(&mut transaction, &group_key(group), &GroupEntry { machine, state: GroupState::New })?;
            self.raise_version(&mut transaction).await?;
            transaction.commit().await?;
            Ok(numbers)
        })
        .await
    }

    /// Takes a number of a machine and one of a group, above all that are known.
    async fn new_numbers(
        &self,
        transaction: &mut Transaction<'a>,
        known: &[ServerId],
    ) -> Result<MachineNumbers, DirectoryError> {
        let (machines, _) = self.machines(transaction).await?;
        let groups = self.known_groups(transaction, known).await?;
        let group = self.new_group(&groups).await?;
        // A machine of `--peer` that is not entered yet has the number of its group plus one.
        let hosted: BTreeSet<ServerId> = machines.iter().flat_map(|(_, entry)| entry.all_groups()).collect();
        let others = groups.iter().filter(|group| !hosted.contains(group));
        let numbers = machines.iter().map(|(machine, _)| *machine);
        let machine_max = numbers.chain(others.map(|group| u32::from(group.0) + 1)).max();
        let machine = self.take(MACHINE_NUMBERS, machine_max.unwrap_or_default().into()).await?;
        let machine = u32::try_from(machine).map_err(|_| ManagementRefusal::NoGroupNumbers)?;
        Ok(MachineNumbers { machine, group })
    }

    /// Returns these groups, that of the directory, and all that it has.
    pub(crate) async fn known_groups(
        &self,
        transaction: &mut Transaction<'a>,
        known: &[ServerId],
    ) -> Result<Vec<ServerId>, Error> {
        let (groups, _): (Vec<(_, GroupEntry)>, _) = self.list(transaction, GROUP).await?;
        let number = |key: &[u8]| key.try_into().map(u16::from_be_bytes).ok().map(ServerId);
        let groups = groups.iter().filter_map(|(key, _)| number(key));
        Ok(groups.chain(known.iter().copied()).chain([self.catalog.group]).collect())
    }

    /// Takes a number of a group, above all that are known.
    pub(crate) async fn new_group(&self, known: &[ServerId]) -> Result<ServerId, DirectoryError> {
        let most = known.iter().max().map_or(0, |group| group.0);
        let group = self.take(GROUP_NUMBERS, most.into()).await?;
        Ok(ServerId(u16::try_from(group).map_err(|_| ManagementRefusal::NoGroupNumbers)?))
    }

    /// Takes a number of a counter, above another one.
    async fn take(&self, counter: LocalId, above: u64) -> Result<u64, Error> {
        let node = NodeId { tree: TreeId::default(), server: self.catalog.group, local: counter };
        Ok(self.trees().client().take(node, 1, above).await?)
    }

    /// Writes the entries of a machine's groups.
    pub(crate) fn put_groups(
        &self,
        transaction: &mut Transaction<'a>,
        machine: u32,
        groups: impl IntoIterator<Item = ServerId>,
        state: GroupState,
    ) -> Result<(), Error> {
        let mut groups = groups.into_iter();
        groups.try_for_each(|group| self.put(transaction, &group_key(group), &GroupEntry { machine, state }))
    }

    /// Removes a machine whose groups have no database.
    pub(crate) async fn remove(&self, machine: u32) -> Result<(), DirectoryError> {
        self.repeat(async || {
            let mut transaction = self.trees().begin();
            self.remove_in(&mut transaction, machine).await?;
            transaction.commit().await?;
            Ok(())
        })
        .await
    }

    /// Removes a machine within a transaction.
    async fn remove_in(&self, transaction: &mut Transaction<'a>, machine: u32) -> Result<(), DirectoryError> {
        let key = machine_key(machine);
        let entry: Option<MachineEntry> = self.entry(transaction, &key).await?;
        let mut entry = entry.ok_or(ManagementRefusal::NoMachine { machine })?;
        let groups: Vec<ServerId> = entry.all_groups().collect();
        if groups.contains(&self.catalog.group) {
            return Err(ManagementRefusal::HomeGroup { machine }.into());
        }
        if entry.state == MachineState::Removed {
            return Ok(());
        }
        for group in &groups {
            let databases = self.catalog.databases_at(transaction, *group).await?;
            if !databases.is_empty() {
                return Err(ManagementRefusal::HoldsDatabases { machine, group: group.0, databases }.into());
            }
        }
        // A database that is created there meanwhile wins, or finds the group retired.
        transaction.guard(self.tree(), KeyRange::prefix(&[DATABASE]));
        entry.state = MachineState::Removed;
        self.put(transaction, &key, &entry)?;
        self.put_groups(transaction, machine, groups, GroupState::Retired)?;
        Ok(self.raise_version(transaction).await?)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Store, directory_starts::EnteredStart};
    use yesquel_transport::block_on;

    /// A store of which the second machine has group 1, and its directory.
    pub(crate) fn with_directory(test: impl FnOnce(Directory<'_>)) {
        let store = Store::in_memory().unwrap();
        let catalog = Catalog::new(&store.inner.trees, store.home_group());
        let credentials = Credentials::from(b"secret");
        let directory = Directory { catalog, cluster: store.cluster(), credentials: Some(&credentials) };
        let (digest, address) = ([7; 32], "a:7411");
        block_on(directory.add_token(&digest, 2, 1)).unwrap();
        let joiner = Joiner { digest, expires_ms: 2, folder: 9, address, known: &[], now_ms: 1 };
        let numbers = block_on(directory.join(joiner)).unwrap();
        assert_eq!(numbers, MachineNumbers { machine: 2, group: ServerId(1) });
        test(directory);
    }

    fn is_conflict(committed: Result<yesquel_model::Timestamp, yesquel_tree::TreeError>) -> bool {
        matches!(committed, Err(error) if error.is_conflict())
    }

    #[test]
    fn a_database_is_not_created_at_a_group_that_is_removed_meanwhile() {
        with_directory(|directory| {
            let (catalog, group) = (directory.catalog, ServerId(1));
            let mut creation = directory.trees().begin();
            block_on(catalog.guard_groups(&mut creation, &[group])).unwrap();
            creation.insert(directory.tree(), b"dshop", &[0; 8]).unwrap();
            block_on(directory.remove(2)).unwrap();
            assert!(is_conflict(block_on(creation.commit())));
            let created = block_on(catalog.create_database("shop", vec![group]));
            assert!(matches!(created, Err(Error::NoGroup(1))), "{created:?}");
        });
    }

    #[test]
    fn a_machine_is_not_removed_whose_group_gets_a_database_meanwhile() {
        with_directory(|directory| {
            let mut removal = directory.trees().begin();
            block_on(directory.remove_in(&mut removal, 2)).unwrap();
            block_on(directory.catalog.create_database("shop", vec![ServerId(1)])).unwrap();
            assert!(is_conflict(block_on(removal.commit())));
            let removed = block_on(directory.remove(2));
            let Err(DirectoryError::Refused(ManagementRefusal::HoldsDatabases { databases, .. })) = removed
            else {
                panic!("{removed:?}")
            };
            assert_eq!(databases, ["shop"]);
        });
    }

    /// Two machines that join at the same time do not miss each other.
    #[test]
    fn changes_of_the_directory_conflict() {
        with_directory(|directory| {
            let mut changes = [(); 2].map(|()| directory.trees().begin());
            for change in &mut changes {
                block_on(directory.raise_version(change)).unwrap();
            }
            let [first, second] = changes.map(|change| block_on(change.commit()));
            assert!(first.is_ok() && is_conflict(second));
        });
    }

    /// The answer to a machine that joins is repeated until it serves, and not after that.
    #[test]
    fn a_token_is_of_no_use_once_its_machine_serves() {
        with_directory(|directory| {
            let (digest, address) = ([7; 32], "a:7411");
            let joiner = Joiner { digest, expires_ms: 2, folder: 9, address, known: &[], now_ms: 5 };
            let again = MachineNumbers { machine: 2, group: ServerId(1) };
            assert_eq!(block_on(directory.join(joiner)).unwrap(), again);
            let (before, start) =
                (MachineStart { incarnation: 0, nonce: 9 }, MachineStart { incarnation: 1, nonce: 8 });
            assert!(block_on(directory.enter_start(2, before, start, (None, &[(ServerId(1), 0)]))).unwrap());
            let joined = block_on(directory.join(joiner));
            let refused = Err(DirectoryError::Refused(ManagementRefusal::UsedToken { machine: 2 }));
            assert_eq!(format!("{joined:?}"), format!("{:?}", refused as Result<MachineNumbers, _>));
            // A folder that is ahead of the directory is no copy.
            let ahead = [MachineStart { incarnation: 2, nonce: 7 }];
            assert!(matches!(block_on(directory.entered(2, &ahead)).unwrap(), EnteredStart::Known { .. }));
            let copy = [MachineStart { incarnation: 1, nonce: 7 }];
            assert!(matches!(block_on(directory.entered(2, &copy)).unwrap(), EnteredStart::Other { .. }));
        });
    }

    #[test]
    fn tokens_are_deleted_a_week_after_their_time() {
        with_directory(|directory| {
            let tokens = || {
                let mut transaction = directory.trees().begin();
                block_on(directory.list::<TokenEntry>(&mut transaction, TOKEN)).unwrap().0.len()
            };
            block_on(directory.add_token(&[8; 32], 3, TOKEN_KEPT_MS + 2)).unwrap();
            assert_eq!(tokens(), 2);
            block_on(directory.add_token(&[9; 32], 3, TOKEN_KEPT_MS + 3)).unwrap();
            assert_eq!(tokens(), 2);
        });
    }
}
