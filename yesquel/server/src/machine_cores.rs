//! The cores of a machine's groups, and a session of those that the requests of a round name.

use crate::{Core, core::CoreSession};
use std::sync::Arc;
use yesquel_engine::Caller;
use yesquel_model::{GroupEpoch, ServerId, Timestamp};
use yesquel_node::ClockState;
use yesquel_wire::{ClientHeartbeat, Destination, Malformed};

/// The cores of a machine's groups, of which there is at least one. Clones share them.
#[derive(Debug, Clone)]
pub struct MachineCores(Arc<CoreList>);

#[derive(Debug)]
struct CoreList {
    /// That of the lowest group, which speaks for the machine.
    first: Arc<Core>,
    others: Vec<Arc<Core>>,
}

impl From<Arc<Core>> for MachineCores {
    fn from(core: Arc<Core>) -> MachineCores {
        MachineCores::new(core, Vec::new())
    }
}

impl MachineCores {
    /// Joins the core of the lowest group and those of the others.
    pub fn new(first: Arc<Core>, others: Vec<Arc<Core>>) -> MachineCores {
        MachineCores(Arc::new(CoreList { first, others }))
    }

    /// Returns the core of the lowest group, which speaks for the machine.
    pub fn first(&self) -> &Arc<Core> {
        &self.0.first
    }

    /// Returns all cores, the first one first.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Core>> {
        std::iter::once(&self.0.first).chain(&self.0.others)
    }

    /// Locks the first core for several requests, and the others when a request names their group.
    pub(crate) fn session(&self) -> MachineSession<'_> {
        let CoreList { first, others } = &*self.0;
        MachineSession { group: first.group(), first: first.session(), cores: others, others: Vec::new() }
    }
}

/// Exclusive access to the cores of a machine, until this is dropped. Only one thread holds several of
/// their locks.
#[derive(Debug)]
pub(crate) struct MachineSession<'a> {
    /// The first group.
    group: ServerId,
    first: CoreSession<'a>,
    cores: &'a [Arc<Core>],
    /// Sessions that were needed, with the indices of their cores. Without other groups it allocates
    /// nothing.
    others: Vec<(usize, CoreSession<'a>)>,
}

impl<'a> MachineSession<'a> {
    /// Returns the session of another core.
    fn other(&mut self, index: usize) -> Option<&mut CoreSession<'a>> {
        let at = match self.others.iter().position(|(known, _)| *known == index) {
            Some(at) => at,
            None => {
                self.others.push((index, self.cores.get(index)?.session()));
                self.others.len() - 1
            }
        };
        self.others.get_mut(at).map(|(_, session)| session)
    }

    /// Acts on all cores.
    fn each(&mut self, mut act: impl FnMut(&mut CoreSession<'a>)) {
        act(&mut self.first);
        for index in 0..self.cores.len() {
            self.other(index).into_iter().for_each(&mut act);
        }
    }

    /// Handles a request. The reply is delivered now or later.
    #[inline]
    pub(crate) fn handle(
        &mut self,
        caller: Caller,
        destination: Destination,
        request: &[u8],
    ) -> Result<(), Malformed> {
        if destination.group != self.group
            && let Some(index) = self.cores.iter().position(|core| core.group() == destination.group)
            && let Some(other) = self.other(index)
        {
            return other.handle(caller, destination, request);
        }
        // The first one also corrects requests for groups that are elsewhere.
        self.first.handle(caller, destination, request)
    }

    /// Takes a client's heartbeat. Each group keeps the snapshots that the machine's clients hold.
    pub(crate) fn on_heartbeat(&mut self, connection: u64, client: u64, heartbeat: &ClientHeartbeat) {
        self.each(|session| session.on_heartbeat(connection, client, heartbeat));
    }

    /// Lets a connection watch nodes of all groups.
    pub(crate) fn admit_watcher(&mut self, connection: u64) {
        self.each(|session| session.admit_watcher(connection));
    }

    /// Releases what a connection held, which has ended.
    pub(crate) fn disconnected(&mut self, connection: u64) {
        self.each(|session| session.disconnected(connection));
    }

    /// Returns the latest of the groups' clocks, or why the machine gives out no time.
    pub(crate) fn clock(&mut self) -> Result<Timestamp, ClockState> {
        let mut latest = self.first.clock()?;
        self.each(|session| latest = latest.max(session.clock().unwrap_or_default()));
        Ok(latest)
    }

    /// Returns the epoch of the first group.
    pub(crate) fn epoch(&self) -> GroupEpoch {
        self.first.destination().epoch
    }

    /// Returns the other groups and their epochs.
    pub(crate) fn other_groups(&mut self) -> Vec<(ServerId, GroupEpoch)> {
        let mut all = Vec::with_capacity(self.cores.len());
        for index in 0..self.cores.len() {
            let other = self.other(index).map(|session| session.destination());
            all.extend(other.map(|Destination { group, epoch }| (group, epoch)));
        }
        all
    }
}
