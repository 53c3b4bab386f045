//! Addresses of groups, and what the ends of connections know of them.

use super::{Cluster, peer_of_server};
use crate::fault::SERVERS_MAX;
use yesquel_model::{GroupEpoch, ServerId};
use yesquel_transport::{Attempt, GroupRoute};
use yesquel_wire::{Correction, Destination};

impl Cluster {
    /// The group that has the counters of the cluster: not the one with the lowest number.
    pub(crate) fn home_group(&self) -> ServerId {
        ServerId((self.servers.len() / 2) as u16)
    }

    /// What a peer knows of a group. First it knows the addresses of the start.
    fn route_of(&mut self, peer: usize, server: usize) -> &mut GroupRoute<usize> {
        let routes = &mut self.processes[peer].routes;
        routes.entry(server).or_insert_with(|| GroupRoute::new(ServerId(server as u16), Some(server)))
    }

    /// Returns the machine that a request to a group goes to, and how the request names the group.
    /// If no server has the group's address any more, another machine is asked where the group is.
    pub(super) fn route(&mut self, peer: usize, server: usize) -> (usize, Destination) {
        let route = self.route_of(peer, server);
        let (address, destination) = (route.address().copied(), route.destination());
        match self.servers.iter().position(|server| Some(server.address) == address) {
            Some(target) => (target, destination),
            None => {
                self.route_of(peer, server).failed();
                let count = self.servers.len();
                let others = (1..count).map(|step| (server + step) % count);
                let other = others
                    .into_iter()
                    .find(|other| peer != peer_of_server(*other) && self.servers[*other].running.is_some());
                let group = ServerId(server as u16);
                (other.unwrap_or(server), Destination { group, epoch: GroupEpoch::UNKNOWN })
            }
        }
    }

    /// A peer has connected to a server, whose greeting tells the epoch of its group.
    pub(super) fn greeted(&mut self, peer: usize, server: usize) {
        let Some(running) = &self.servers[server].running else { return };
        let epoch = running.core.destination().epoch;
        self.route_of(peer, server).greeted(epoch);
    }

    /// A peer takes the correction of a request. Returns whether it knows more than before.
    pub(super) fn correct(
        &mut self,
        peer: usize,
        group: ServerId,
        correction: &Correction<'_>,
        attempt: Attempt,
    ) -> bool {
        let server = usize::from(group.0);
        let (is_open, address) = (self.open.contains_key(&(peer, server)), self.servers[server].address);
        self.counts.corrections += 1;
        let route = self.route_of(peer, server);
        // A link has left the connection to an address that its route does not name any more.
        let is_connected = is_open && route.address() == Some(&address);
        route.correct(correction, attempt, is_connected)
    }

    /// A server starts at another address the next time.
    pub(super) fn move_away(&mut self, server: usize) {
        self.servers[server].address += SERVERS_MAX;
    }
}
