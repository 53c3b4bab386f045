//! Requests that are for another group, or that name another epoch, and where groups are.

use super::{GroupCore, Settled};
use crate::ReplySink;
use yesquel_engine::{AddressedReply, Caller, ReplyDurability};
use yesquel_model::{GroupEpoch, ServerId};
use yesquel_wire::{
    Destination, GroupLocation, Malformed, Reply, Request,
    status::{DirectoryStatus, GroupStatus, MachineState},
};

impl GroupCore {
    /// Returns this group, as requests must name it.
    #[inline]
    pub fn destination(&self) -> Destination {
        Destination { group: self.engine.server(), epoch: self.engine.epoch() }
    }

    /// Corrects the sender of a request that is not for this group, or names another epoch of it.
    /// Nothing of the request is examined.
    pub fn correct(&mut self, caller: Caller, given: Destination, sink: &dyn ReplySink) -> Settled {
        self.locations.corrected += 1;
        let start = self.effects.bytes.len();
        let correction = self.locations.correction(self.destination(), given);
        Reply::Corrected(correction).write(&mut self.effects.bytes);
        let bytes = start..self.effects.bytes.len();
        // Answers name durable epochs only.
        let (needs_lsn, durability) = (self.engine.epoch_lsn(), ReplyDurability::SyncedNow);
        self.effects.replies.push(AddressedReply { caller, needs_lsn, durability, bytes });
        self.settle(None, sink)
    }

    /// Begins a new configuration of the group.
    pub fn raise_epoch(&mut self, epoch: GroupEpoch, sink: &dyn ReplySink) -> Settled {
        self.engine.raise_epoch(epoch, &mut self.effects);
        self.settle(None, sink)
    }

    /// Sets the address at which others reach this group.
    pub fn set_address(&mut self, address: &str) {
        self.locations.set_own(address);
    }

    /// Sets the address of another group, until that group reports another one.
    pub fn set_location(&mut self, group: ServerId, address: &str) {
        self.locations.learn(GroupLocation { group, epoch: GroupEpoch::UNKNOWN, address });
    }

    /// Returns the groups of the cluster, as this machine knows them.
    pub fn directory(&self) -> DirectoryStatus {
        let own = GroupStatus { group: self.engine.server().0, address: self.locations.own().to_owned() };
        let mut groups: Vec<_> = self.locations.others().chain([own]).collect();
        groups.sort_by_key(|known| known.group);
        let (version, machines) = (self.locations.version(), self.locations.machines().to_vec());
        DirectoryStatus { groups, version, machines }
    }

    /// Returns the report that answers a question about trees or the directory; `None`: the question is
    /// about the server as a whole.
    pub fn inspect(&self, request: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
        let report = match Request::decode(request)? {
            Request::Inspect { tree: Some(tree) } => serde_json::to_vec(&self.engine.nodes_of(tree, None)),
            Request::InspectAfter { node } => {
                serde_json::to_vec(&self.engine.nodes_of(node.tree, Some(node)))
            }
            Request::Directory => serde_json::to_vec(&self.directory()),
            _ => return Ok(None),
        };
        // Numbers and strings always convert to JSON.
        Ok(Some(report.unwrap_or_default()))
    }

    /// Takes a copy of the directory, which was read from the home group.
    pub fn install_directory(&mut self, directory: DirectoryStatus) {
        let own = self.engine.server();
        for machine in directory.machines.iter().filter(|machine| machine.state == MachineState::Removed) {
            self.watch.forget(ServerId(machine.group));
            machine.all_groups().for_each(|group| self.engine.retire_group(ServerId(group)));
        }
        self.locations.install(own, directory);
    }

    /// Whether another server has seen a later version of the directory.
    pub fn is_directory_outdated(&self) -> bool {
        self.locations.is_outdated()
    }

    /// Sets the number of the other servers, of which some have joined or left. Unlike after
    /// [`compare_with`](Self::compare_with), a group that serves goes on.
    pub fn set_peers(&mut self, peers: usize) {
        self.watch.set_peers(peers);
    }

    /// Returns the address of another group; empty: none is known.
    pub fn address_of(&self, group: ServerId) -> &str {
        self.locations.address_of(group)
    }
}
