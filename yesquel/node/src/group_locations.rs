//! Where the groups of the cluster are, as this machine knows it.

use std::collections::{BTreeMap, BTreeSet};
use yesquel_model::{GroupEpoch, ServerId};
use yesquel_wire::{
    Correction, Destination, GroupLocation,
    status::{DirectoryStatus, GroupStatus, MachineState, MachineStatus},
};

/// The last known location of another group.
#[derive(Debug, Clone)]
struct KnownLocation {
    epoch: GroupEpoch,
    address: Box<str>,
}

/// Where the groups of the cluster are: hints, which the groups themselves correct.
#[derive(Debug, Default)]
pub(crate) struct GroupLocations {
    own_address: Box<str>,
    others: BTreeMap<ServerId, KnownLocation>,
    /// The machines of the last copy of the directory, and its version.
    machines: Vec<MachineStatus>,
    version: u64,
    /// Highest version of which another server has reported.
    heard: u64,
    /// Groups whose machines were removed. Their numbers are never used again.
    removed: BTreeSet<ServerId>,
    /// Replies that corrected a sender.
    pub(crate) corrected: u64,
}

impl GroupLocations {
    /// Sets the address at which others reach this group.
    pub(crate) fn set_own(&mut self, address: &str) {
        self.own_address = address.into();
    }

    pub(crate) fn own(&self) -> &str {
        &self.own_address
    }

    /// Takes a copy of the directory, which was read from the home group.
    pub(crate) fn install(&mut self, own: ServerId, directory: DirectoryStatus) {
        for machine in &directory.machines {
            // A group's own report is newer than an entry that has not changed.
            let before = self.machines.iter().find(|before| before.machine == machine.machine).cloned();
            let has_changed = before.is_none_or(|before| {
                (&before.address, before.state, &before.groups)
                    != (&machine.address, machine.state, &machine.groups)
            });
            for group in machine.all_groups().map(ServerId) {
                if machine.state == MachineState::Removed {
                    self.removed.insert(group);
                    self.others.remove(&group);
                } else if machine.state == MachineState::Serving && group != own && has_changed {
                    let epoch = GroupEpoch::UNKNOWN;
                    self.learn(GroupLocation { group, epoch, address: &machine.address });
                }
            }
        }
        self.version = directory.version;
        // A report that names a version which the home group does not have is wrong.
        self.heard = directory.version;
        self.machines = directory.machines;
    }

    /// Version of the copy of the directory.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Takes the version of another server's copy.
    pub(crate) fn hear(&mut self, version: u64) {
        self.heard = self.heard.max(version);
    }

    /// Whether another server has seen a later version.
    pub(crate) fn is_outdated(&self) -> bool {
        self.heard > self.version
    }

    /// The machines of the copy.
    pub(crate) fn machines(&self) -> &[MachineStatus] {
        &self.machines
    }

    /// Whether a group's machine was removed.
    pub(crate) fn is_removed(&self, group: ServerId) -> bool {
        self.removed.contains(&group)
    }

    /// Takes what a group says of itself, or a configured address.
    pub(crate) fn learn(&mut self, GroupLocation { group, epoch, address }: GroupLocation<'_>) {
        if self.removed.contains(&group) {
            return;
        }
        let known = self.others.entry(group);
        let known = known.or_insert_with(|| KnownLocation { epoch, address: Box::default() });
        if epoch != GroupEpoch::UNKNOWN {
            known.epoch = epoch;
        }
        if !address.is_empty() && *known.address != *address {
            known.address = address.into();
        }
    }

    /// Returns the other groups.
    pub(crate) fn others(&self) -> impl Iterator<Item = GroupStatus> {
        self.others
            .iter()
            .map(|(group, known)| GroupStatus { group: group.0, address: known.address.to_string() })
    }

    /// Returns the address of another group; empty: none is known.
    pub(crate) fn address_of(&self, group: ServerId) -> &str {
        self.others.get(&group).map_or("", |known| &known.address)
    }

    /// Returns the correction of a request that came to the group `own`.
    pub(crate) fn correction(&self, own: Destination, given: Destination) -> Correction<'_> {
        let Destination { group, epoch } = given;
        Correction::WrongGroup(match self.others.get(&group) {
            _ if group == own.group && epoch < own.epoch => {
                Some(GroupLocation { group, epoch: own.epoch, address: &self.own_address })
            }
            // A sender may name any epoch: it changes nothing here.
            _ if group == own.group => None,
            Some(KnownLocation { epoch, address }) => Some(GroupLocation { group, epoch: *epoch, address }),
            None => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::slice;

    fn machine(machine: u32, group: u16, address: &str, state: MachineState) -> MachineStatus {
        let (address, groups) = (address.to_owned(), Vec::new());
        MachineStatus { machine, group, groups, address, state, incarnation: 1 }
    }

    fn known(locations: &GroupLocations) -> Vec<(u16, String)> {
        locations.others().map(|group| (group.group, group.address)).collect()
    }

    #[test]
    fn a_copy_of_the_directory_adds_and_removes_groups() {
        use MachineState::{Joining, Removed, Serving};
        let mut locations = GroupLocations::default();
        let install = |locations: &mut GroupLocations, version, machines| {
            locations.install(ServerId(0), DirectoryStatus { version, machines, ..Default::default() });
        };
        let home = machine(1, 0, "home", Serving);
        let others = [machine(2, 1, "a", Serving), machine(3, 2, "b", Joining)];
        install(&mut locations, 7, [slice::from_ref(&home), &others].concat());
        assert_eq!(known(&locations), [(1, "a".to_owned())]);
        // The group reports another address, which an entry that has not changed does not replace.
        let epoch = GroupEpoch::FIRST;
        locations.learn(GroupLocation { group: ServerId(1), epoch, address: "c" });
        install(&mut locations, 8, [slice::from_ref(&home), &others].concat());
        assert_eq!(known(&locations), [(1, "c".to_owned())]);
        locations.hear(9);
        assert!(locations.is_outdated());
        install(&mut locations, 9, vec![home, machine(2, 1, "a", Removed), machine(3, 2, "b", Serving)]);
        assert!(!locations.is_outdated());
        // It still reports.
        locations.learn(GroupLocation { group: ServerId(1), epoch, address: "c" });
        assert_eq!(known(&locations), [(2, "b".to_owned())]);
        assert!(locations.is_removed(ServerId(1)) && !locations.is_removed(ServerId(2)));
    }

    #[test]
    fn all_groups_of_a_machine_come_and_go() {
        use MachineState::{Removed, Serving};
        let mut locations = GroupLocations::default();
        let mut install = |version, state| {
            let several = MachineStatus { groups: vec![1, 4], ..machine(2, 1, "a", state) };
            let machines = vec![machine(1, 0, "home", Serving), several];
            locations.install(ServerId(4), DirectoryStatus { version, machines, ..Default::default() });
            known(&locations)
        };
        let home = (0, "home".to_owned());
        assert_eq!(install(1, Serving), [home.clone(), (1, "a".to_owned())]);
        assert_eq!(install(2, Removed), [home]);
        assert!([1, 4].map(ServerId).iter().all(|group| locations.is_removed(*group)));
    }

    /// A server that reports a version which does not exist costs one read.
    #[test]
    fn a_version_that_does_not_exist_is_forgotten() {
        let mut locations = GroupLocations::default();
        locations.hear(u64::MAX);
        assert!(locations.is_outdated());
        locations.install(ServerId(0), DirectoryStatus { version: 3, ..Default::default() });
        assert!(!locations.is_outdated());
        assert_eq!(locations.version(), 3);
    }
}
