//! Where the groups of the cluster are, as this machine knows it.

use std::collections::BTreeMap;
use yesquel_model::{GroupEpoch, ServerId};
use yesquel_wire::{Correction, Destination, GroupLocation, status::GroupStatus};

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

    /// Takes what a group says of itself, or a configured address.
    pub(crate) fn learn(&mut self, GroupLocation { group, epoch, address }: GroupLocation<'_>) {
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
