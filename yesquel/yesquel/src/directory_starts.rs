//! Starts of machines in the [directory](crate::directory): which one it knows, and the groups that the
//! machine hosts since then.

use crate::{
    Error,
    directory::{Directory, DirectoryError, Transaction},
    directory_entries::{GroupEntry, GroupState, MachineEntry, group_key, log_end_key, machine_key},
};
use std::path::Path;
use yesquel_model::ServerId;
use yesquel_server::{LogEnds, MachineIdentity, MachineStart};
use yesquel_wire::{machines::ManagementRefusal, status::MachineState};

/// What the directory says about the start of a machine.
#[derive(Debug)]
pub(crate) enum EnteredStart {
    /// It knows this start of the folder, this address, and so many records of the groups' logs.
    Known { start: MachineStart, address: String, log_ends: Vec<(ServerId, u64)> },
    /// Another process has started since, with a copy of the folder.
    Other { incarnation: u64 },
    /// The machine was removed.
    Removed,
    /// It has no entry.
    Absent,
}

/// Group of a machine that has grown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GrownGroup {
    pub(crate) group: ServerId,
    /// Whether it has served, so that there must be a folder with its data.
    pub(crate) has_served: bool,
}

/// Returns the groups that a folder with the groups `own` lacks.
pub(crate) fn lacking(folder: &Path, own: &[ServerId], grown: &[GrownGroup]) -> Result<Vec<ServerId>, Error> {
    let lacking = grown.iter().filter(|grown| !own.contains(&grown.group));
    let lacking = lacking.map(|GrownGroup { group, has_served }| match has_served {
        true => Err(Error::LostGroup { folder: folder.to_owned(), group: group.0 }),
        false => Ok(*group),
    });
    lacking.collect()
}

impl<'a> Directory<'a> {
    /// Compares the starts that a folder knows with the entry of its machine.
    pub(crate) async fn entered(&self, machine: u32, known: &[MachineStart]) -> Result<EnteredStart, Error> {
        let mut transaction = self.trees().begin();
        let entry: Option<MachineEntry> = self.entry(&mut transaction, &machine_key(machine)).await?;
        Ok(match entry {
            None => EnteredStart::Absent,
            Some(entry) if entry.state == MachineState::Removed => EnteredStart::Removed,
            Some(entry) => match entry.start().filter(|start| known.contains(start)) {
                Some(start) => {
                    let log_ends = self.log_ends(&mut transaction, &entry).await?;
                    EnteredStart::Known { start, address: entry.address, log_ends }
                }
                None => {
                    // The one that the directory has acknowledged; another one may follow it.
                    let last = known.first().map_or(0, |start| start.incarnation);
                    match entry.start().filter(|start| start.incarnation < last) {
                        // No copy is ahead of the directory: the home group has lost its last writes,
                        // as it may if it does not wait for its disk.
                        Some(start) => {
                            let log_ends = self.log_ends(&mut transaction, &entry).await?;
                            EnteredStart::Known { start, address: entry.address, log_ends }
                        }
                        None => EnteredStart::Other { incarnation: entry.incarnation },
                    }
                }
            },
        })
    }

    /// Returns how many records of the logs of a machine's groups were on disk.
    async fn log_ends(
        &self,
        transaction: &mut Transaction<'a>,
        entry: &MachineEntry,
    ) -> Result<Vec<(ServerId, u64)>, Error> {
        let damaged =
            || Error::Internal("the directory is damaged: the end of a log is no number".to_owned());
        let mut ends = Vec::new();
        for group in entry.all_groups() {
            let value = transaction.get(self.tree(), &log_end_key(group)).await?;
            let end = value.map(|value| (*value).try_into().map(u64::from_be_bytes).map_err(|_| damaged()));
            ends.push((group, end.transpose()?.unwrap_or_default()));
        }
        Ok(ends)
    }

    /// Notes how many records of groups' logs are on disk.
    pub(crate) async fn note_log_ends(&self, log_ends: &LogEnds) -> Result<(), Error> {
        let noted = self.repeat(async || {
            let mut transaction = self.trees().begin();
            self.put_log_ends(&mut transaction, log_ends)?;
            transaction.commit().await?;
            Ok(())
        });
        Ok(noted.await?)
    }

    fn put_log_ends(&self, transaction: &mut Transaction<'a>, log_ends: &LogEnds) -> Result<(), Error> {
        for (group, log_end) in log_ends {
            transaction.put(self.tree(), &log_end_key(*group), &log_end.to_be_bytes())?;
        }
        Ok(())
    }

    /// Enters a start of a machine in place of the one `before`, with the groups of its folder. Returns
    /// `false` if the entry has another start.
    pub(crate) async fn enter_start(
        &self,
        machine: u32,
        before: MachineStart,
        start: MachineStart,
        (address, log_ends): (Option<&str>, &LogEnds),
    ) -> Result<bool, Error> {
        let groups: Vec<ServerId> = log_ends.iter().map(|(group, _)| *group).collect();
        let entered = self.repeat(async || {
            let mut transaction = self.trees().begin();
            let key = machine_key(machine);
            let entry: Option<MachineEntry> = self.entry(&mut transaction, &key).await?;
            let Some(mut entry) = entry.filter(|entry| entry.state != MachineState::Removed) else {
                return Ok(false);
            };
            match entry.start() {
                // The reply to a former attempt was lost.
                Some(entered) if entered == start => return Ok(true),
                Some(entered) if entered == before => {}
                _ => return Ok(false),
            }
            entry.set_start(start);
            entry.state = MachineState::Serving;
            if let Some(address) = address {
                entry.address = address.to_owned();
            }
            entry.set_groups(&groups);
            self.put(&mut transaction, &key, &entry)?;
            self.put_groups(&mut transaction, machine, entry.all_groups(), GroupState::Serving)?;
            self.put_log_ends(&mut transaction, log_ends)?;
            self.raise_version(&mut transaction).await?;
            transaction.commit().await?;
            Ok(true)
        });
        Ok(entered.await?)
    }

    /// Enters a machine that has not joined by a token, or whose address or start differs. Returns
    /// whether it has changed the directory.
    pub(crate) async fn register(
        &self,
        identity: &MachineIdentity,
        groups: &[ServerId],
        address: &str,
    ) -> Result<bool, Error> {
        let MachineIdentity { machine, start, .. } = *identity;
        let registered = self.repeat(async || {
            let mut transaction = self.trees().begin();
            let before: Option<MachineEntry> = self.entry(&mut transaction, &machine_key(machine)).await?;
            let (address, state) = (address.to_owned(), MachineState::Serving);
            let mut entry = MachineEntry { address, state, ..MachineEntry::default() };
            entry.set_start(start);
            entry.set_groups(groups);
            let is_removed = before.as_ref().is_some_and(|before| before.state == MachineState::Removed);
            if is_removed || before == Some(entry.clone()) {
                return Ok(false);
            }
            self.put(&mut transaction, &machine_key(machine), &entry)?;
            // It took their numbers, and was interrupted before they had folders.
            let unused = before.iter().flat_map(MachineEntry::all_groups);
            let unused: Vec<ServerId> = unused.filter(|group| !groups.contains(group)).collect();
            self.put_groups(&mut transaction, machine, unused, GroupState::Retired)?;
            self.put_groups(&mut transaction, machine, entry.all_groups(), GroupState::Serving)?;
            self.raise_version(&mut transaction).await?;
            transaction.commit().await?;
            Ok(true)
        });
        Ok(registered.await?)
    }

    /// Takes numbers of further groups until a machine with the groups `own` has so many, above those of
    /// `known` groups. Returns all of them, also those whose numbers an interrupted start has taken.
    /// Without an entry of the machine only its folder states them.
    pub(crate) async fn grow(
        &self,
        machine: u32,
        own: &[ServerId],
        (count, known): (usize, &[ServerId]),
    ) -> Result<Vec<GrownGroup>, DirectoryError> {
        let mut fresh = Vec::new();
        self.repeat(async || {
            let mut transaction = self.trees().begin();
            let key = machine_key(machine);
            let entry: Option<MachineEntry> = self.entry(&mut transaction, &key).await?;
            if entry.as_ref().is_some_and(|entry| entry.state == MachineState::Removed) {
                return Err(ManagementRefusal::RemovedMachine { machine }.into());
            }
            let entered = entry.iter().flat_map(MachineEntry::all_groups);
            let mut groups: Vec<ServerId> = own.iter().copied().chain(entered).collect();
            groups.sort_unstable();
            groups.dedup();
            let mut all = Vec::with_capacity(count);
            for group in &groups {
                let known: Option<GroupEntry> = self.entry(&mut transaction, &group_key(*group)).await?;
                let is_new = known.is_some_and(|known| known.state == GroupState::New);
                all.push(GrownGroup { group: *group, has_served: !is_new });
            }
            let missing = count.saturating_sub(groups.len());
            if missing == 0 {
                return Ok(all);
            }
            // Those of a failed attempt are unused.
            while fresh.len() < missing {
                let known = self.known_groups(&mut transaction, &[&groups, known].concat()).await?;
                fresh.push(self.new_group(&known).await?);
            }
            let new = fresh.get(..missing).unwrap_or_default();
            if let Some(mut entry) = entry {
                groups.extend(new);
                entry.set_groups(&groups);
                self.put(&mut transaction, &key, &entry)?;
                self.put_groups(&mut transaction, machine, new.iter().copied(), GroupState::New)?;
                self.raise_version(&mut transaction).await?;
                transaction.commit().await?;
            }
            all.extend(new.iter().map(|group| GrownGroup { group: *group, has_served: false }));
            Ok(all)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::tests::with_directory;
    use yesquel_transport::block_on;

    fn groups(grown: &[GrownGroup]) -> Vec<(u16, bool)> {
        grown.iter().map(|grown| (grown.group.0, grown.has_served)).collect()
    }

    /// A start that is interrupted after it took numbers finds them again.
    #[test]
    fn a_machine_takes_numbers_once() {
        with_directory(|directory| {
            let own = [ServerId(1)];
            let (before, start) =
                (MachineStart { incarnation: 0, nonce: 9 }, MachineStart { incarnation: 1, nonce: 8 });
            assert!(block_on(directory.enter_start(2, before, start, (None, &[(own[0], 4)]))).unwrap());
            for _ in 0..2 {
                let grown = block_on(directory.grow(2, &own, (3, &[]))).unwrap();
                assert_eq!(groups(&grown), [(1, true), (2, false), (3, false)]);
            }
            // A machine that joins meanwhile gets other numbers, and none is taken for fewer groups.
            assert_eq!(block_on(directory.grow(2, &own, (1, &[]))).unwrap().len(), 3);
            let ends: Vec<(ServerId, u64)> =
                (1..=3).map(|group| (ServerId(group), u64::from(group))).collect();
            let next = MachineStart { incarnation: 2, nonce: 7 };
            assert!(block_on(directory.enter_start(2, start, next, (None, &ends))).unwrap());
            assert!(
                block_on(directory.grow(2, &own, (3, &[]))).unwrap().iter().all(|grown| grown.has_served)
            );
            let known = block_on(directory.entered(2, &[next])).unwrap();
            assert!(matches!(known, EnteredStart::Known { log_ends, .. } if log_ends == ends));
        });
    }

    /// The home group's machine in a cluster without a directory.
    #[test]
    fn a_machine_without_an_entry_gets_numbers_above_its_own() {
        with_directory(|directory| {
            let grown = block_on(directory.grow(7, &[0, 5].map(ServerId), (4, &[ServerId(8)]))).unwrap();
            assert_eq!(groups(&grown), [(0, true), (5, true), (9, false), (10, false)]);
        });
    }
}
