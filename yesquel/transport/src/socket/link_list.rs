//! The links of a client: one to each group that it knows. Links to groups of one machine share a
//! connection, because a server ends the former connection of a client.

use super::{
    Address, ConnectError,
    connection::ServerConnection,
    link::{ClientIdentity, NO_ADDRESS, ServerLink},
    lost_connection::LostConnection,
};
use crate::{
    LossCause,
    wait::{CHECK_EVERY, check_cancelled},
};
use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};
use yesquel_model::ServerId;
use yesquel_wire::EncodedDestination;

/// The links of a client. More are added when groups become known, and none is removed, so that
/// calls need no lock to find one.
#[derive(Default)]
pub(super) struct LinkList {
    first: OnceLock<Box<ServerLink>>,
    /// Addresses that threads are connecting to, one for all.
    connecting: Mutex<Vec<Address>>,
    /// Signals that a connection attempt has ended.
    tried: Condvar,
}

/// The right to connect to an address.
struct ConnectTurn<'a> {
    links: &'a LinkList,
    address: Address,
}

impl Drop for ConnectTurn<'_> {
    fn drop(&mut self) {
        self.links.connecting().retain(|address| *address != self.address);
        self.links.tried.notify_all();
    }
}

impl LinkList {
    pub(super) fn iter(&self) -> impl Iterator<Item = &ServerLink> {
        std::iter::successors(self.first.get(), |link| link.next.get()).map(|link| &**link)
    }

    /// Returns the link to a group.
    pub(super) fn find(&self, group: ServerId) -> Option<&ServerLink> {
        self.iter().find(|link| link.server == group)
    }

    /// Adds a link, unless there is one to the same group. Returns the one to the group.
    pub(super) fn add(&self, link: ServerLink) -> &ServerLink {
        let (group, mut new, mut place) = (link.server, Some(Box::new(link)), &self.first);
        loop {
            // Another thread may be first.
            if place.get().is_none()
                && let Some(link) = new.take()
                && let Err(link) = place.set(link)
            {
                new = Some(link);
            }
            match place.get() {
                Some(there) if there.server == group => return there,
                Some(there) => place = &there.next,
                None => {}
            }
        }
    }

    /// Gives a new connection to the links of all groups of its machine.
    pub(super) fn add_connection(&self, address: &Address, connection: ServerConnection) {
        let connection = Arc::new(connection);
        for (group, _) in connection.groups() {
            self.add(ServerLink::to_group(*group, Some(address.clone()))).take(&connection, address);
        }
    }

    /// Iterates over the connections; one that links share comes several times.
    pub(super) fn connections(&self) -> impl Iterator<Item = Arc<ServerConnection>> {
        self.iter().filter_map(ServerLink::connection)
    }

    /// Returns the connections, each once with one of the links that share it.
    pub(super) fn machines(&self) -> Vec<(&ServerLink, Arc<ServerConnection>)> {
        let mut machines: Vec<(&ServerLink, Arc<ServerConnection>)> = Vec::new();
        for link in self.iter() {
            if let Some(connection) = link.connection()
                && !machines.iter().any(|(_, known)| Arc::ptr_eq(known, &connection))
            {
                machines.push((link, connection));
            }
        }
        machines
    }

    /// Iterates over the open connections to machines that do not host a group.
    pub(super) fn connections_but(&self, group: ServerId) -> impl Iterator<Item = Arc<ServerConnection>> {
        self.iter()
            .filter(move |link| link.server != group)
            .filter_map(ServerLink::open)
            .map(|(connection, _)| connection)
            .filter(move |connection| !connection.hosts(group))
    }

    fn connecting(&self) -> MutexGuard<'_, Vec<Address>> {
        self.connecting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the open connection of a link, or one of another link to the same machine.
    fn open(&self, link: &ServerLink) -> Option<(Arc<ServerConnection>, EncodedDestination)> {
        link.open().or_else(|| {
            let mut others = self.iter().filter_map(ServerLink::open);
            others.any(|(connection, _)| link.adopt(&connection)).then(|| link.open())?
        })
    }

    /// Returns an open connection to a group, connecting if necessary. Other waiting threads do not
    /// make a thread wait longer: the mutex is not held while connecting, since it would go to a thread
    /// that has just given up and tries again. With `has_others` it makes one attempt, since other
    /// machines may know a better address.
    pub(super) fn alive(
        &self,
        link: &ServerLink,
        identity: &ClientIdentity,
        has_others: bool,
    ) -> Result<(Arc<ServerConnection>, EncodedDestination), String> {
        if let Some(open) = self.open(link) {
            return Ok(open);
        }
        let until = Instant::now() + identity.options.connect_timeout;
        let mut connecting = self.connecting();
        let turn = loop {
            if let Some(open) = self.open(link) {
                return Ok(open);
            }
            let Some(address) = link.address() else { return Err(NO_ADDRESS.to_owned()) };
            if !connecting.contains(&address) {
                connecting.push(address.clone());
                break ConnectTurn { links: self, address };
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(link.failure().unwrap_or_else(|| format!("{address}: it does not answer")));
            }
            let waited = self.tried.wait_timeout(connecting, left.min(CHECK_EVERY));
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            // Without the lock, which others need.
            let is_cancelled = check_cancelled();
            connecting = self.connecting();
            if is_cancelled && connecting.contains(&address) {
                return Err("it is being connected to".to_owned());
            }
        };
        drop(connecting);
        let connected = link.connect(identity, if has_others { Instant::now() } else { until });
        let connected = connected.map(|(address, connection)| self.add_connection(&address, connection));
        // Only now, so that the next thread finds the connection.
        drop(turn);
        connected?;
        link.open().ok_or_else(|| "the connection has ended at once".to_owned())
    }

    /// Closes the connections whose secrets were replaced and that no request uses. The next requests
    /// connect again.
    pub(super) fn renew(&self, identity: &ClientIdentity) {
        for (_, connection) in self.machines() {
            let secrets = identity.options.secrets.as_ref().zip(connection.made_with.as_ref());
            if secrets.is_some_and(|(secrets, made_with)| secrets.is_outdated(made_with)) {
                self.give_up(connection);
            }
        }
    }

    /// Closes a connection that no request uses.
    fn give_up(&self, connection: Arc<ServerConnection>) {
        // Requests that wait for a reply, also those that begin now, have a handle from a link.
        let mut states: Vec<_> = self.iter().filter_map(|link| link.sharing(&connection)).collect();
        if Arc::strong_count(&connection) != states.len() + 1 || connection.slots.has_handlers() {
            return;
        }
        for state in &mut states {
            state.connection = None;
        }
        drop(states);
        let why = "its credential or authority was replaced".to_owned();
        connection.close_with(LostConnection { cause: LossCause::Disconnected, why });
        connection.lanes.forget_free();
    }

    /// Connects lanes that were missed, within a time for each machine.
    pub(super) fn provide_lanes(&self, identity: &ClientIdentity, timeout: Duration) {
        for (link, connection) in self.machines() {
            link.provide_lane(&connection, identity, timeout);
        }
    }

    /// Connects to a server at an address.
    pub(super) fn connect(&self, address: &Address, identity: &ClientIdentity) -> Result<(), ConnectError> {
        let connection = identity.connect(address, identity.client, &identity.options)?;
        self.add_connection(address, connection);
        Ok(())
    }
}
