//! How a connection is made: greetings, and what the server says of itself.

use super::{Receiving, ServerConnection};
use crate::{
    socket::{
        Address, ConnectError, SocketOptions,
        channel::Channel,
        connect_error::{ConnectStep, KnownCluster},
        lanes::Lanes,
        reply_slots::ReplySlots,
    },
    wait::CHECK_EVERY,
};
use std::{
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU32},
    },
    time::{Duration, Instant},
};
use yesquel_model::{GroupEpoch, ServerId};
use yesquel_wire::{
    frame::Inbox,
    greeting::{self, CREDENTIAL_BYTES_MAX, Denial, Hello, LANE, VERSIONS, Welcome},
};

/// Requests in flight on a lane.
const LANE_REQUESTS_MAX: u32 = 16;

impl ServerConnection {
    pub(in crate::socket) fn connect(
        address: &Address,
        client: u64,
        options: &SocketOptions,
        known: Option<&KnownCluster>,
    ) -> Result<ServerConnection, ConnectError> {
        ServerConnection::connect_as(address, options, known, false, |_| client)
    }

    /// Connects for notices, at a Unix socket.
    pub(in crate::socket) fn connect_watcher(
        address: &Address,
        client: u64,
        options: &SocketOptions,
        known: Option<&KnownCluster>,
    ) -> Result<ServerConnection, ConnectError> {
        let number = |channel: &Channel| greeting::watcher(client, channel.name().unwrap_or_default());
        ServerConnection::connect_as(address, options, known, true, number)
    }

    fn connect_as(
        address: &Address,
        options: &SocketOptions,
        known: Option<&KnownCluster>,
        is_named: bool,
        number: impl FnOnce(&Channel) -> u64,
    ) -> Result<ServerConnection, ConnectError> {
        let made_with = options.secrets.as_ref().map(|secrets| secrets.presented());
        let options = &options.presenting(made_with.as_ref());
        let bytes = options.credential.len();
        if bytes > CREDENTIAL_BYTES_MAX {
            return Err(ConnectError::LongCredential { address: address.clone(), bytes });
        }
        let failed = |error| ConnectError::at(address, options, ConnectStep::Greet, error);
        // More than a day counts as a day.
        let until = Instant::now() + options.connect_timeout.min(Duration::from_secs(86_400));
        let channel = Channel::connect(address, options, is_named, until)?;
        let client = number(&channel);
        let is_lane = client & LANE != 0;
        let hello = Hello {
            versions: VERSIONS,
            client,
            credential: &options.credential,
            role: options.role,
            cluster: known.map(|known| known.cluster),
        };
        // A server at its limit may have sent its reason and closed the connection.
        let mut sent = channel.send_until(&hello.encode(), until).err();
        let mut inbox = Inbox::default();
        let welcome = loop {
            let foreign = |error| ConnectError::foreign(address, options, inbox.unread(), error);
            if let Some((welcome, length)) = Welcome::decode(inbox.unread()).map_err(foreign)? {
                inbox.skip(length);
                break welcome;
            }
            let received = channel.receive_until(&mut inbox, Some(until));
            received.map_err(|error| failed(sent.take().unwrap_or(error)))?;
        };
        let (server, now, requests_max, membership, groups) = match welcome {
            Welcome::Served { server, now, requests_max, membership, epoch, others, .. } => {
                let groups = std::iter::once((server, epoch)).chain(others).collect();
                (server, now, requests_max, membership, groups)
            }
            Welcome::Refused(denial) => {
                return Err(match (denial, known.cloned()) {
                    (Denial::OtherCluster(cluster), Some(known)) => {
                        ConnectError::OtherCluster { address: address.clone(), cluster, known }
                    }
                    (denial, _) => ConnectError::Denied { address: address.clone(), denial },
                });
            }
        };
        if let Some(known) = known.filter(|known| known.cluster != membership.cluster) {
            let (address, known) = (address.clone(), known.clone());
            return Err(ConnectError::OtherCluster { address, cluster: membership.cluster, known });
        }
        channel.timeout(options.timeout.min(CHECK_EVERY)).map_err(failed)?;
        // The server's limit is respected up to a bound; a lane has few requests, and those that
        // were cancelled.
        let requests_max = requests_max.clamp(1, if is_lane { LANE_REQUESTS_MAX } else { 1 << 16 });
        let unanswered = channel.unanswered(options.close_timeout);
        let slots = ReplySlots::new(requests_max, unanswered);
        Ok(ServerConnection {
            channel,
            server,
            membership,
            groups,
            now,
            slots,
            lanes: Lanes::default(),
            unanswered,
            sending: Mutex::default(),
            has_receiver: AtomicBool::new(false),
            has_rested: AtomicBool::new(false),
            receiving: Mutex::new(Receiving { inbox, wakers: Vec::new(), quiet: None }),
            expected: AtomicU32::new(0),
            under_way: AtomicU32::new(0),
            is_cut: AtomicBool::new(false),
            lost: OnceLock::new(),
            timeout: options.timeout,
            made_with,
        })
    }

    /// Returns the groups that the machine hosts, and their epochs at the greeting.
    pub(in crate::socket) fn groups(&self) -> &[(ServerId, GroupEpoch)] {
        &self.groups
    }

    /// Returns the epoch that a group had at the greeting; `None`: the machine does not host it.
    pub(in crate::socket) fn epoch_of(&self, group: ServerId) -> Option<GroupEpoch> {
        self.groups.iter().find(|(hosted, _)| *hosted == group).map(|(_, epoch)| *epoch)
    }

    /// Whether the machine hosts a group.
    pub(in crate::socket) fn hosts(&self, group: ServerId) -> bool {
        self.epoch_of(group).is_some()
    }
}
