//! Thread that asks the groups of one other machine, by one connection.

use super::{AskedQuery, REPORT_EVERY};
use crate::stop_flag::StopFlag;
use std::{
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};
use yesquel_model::ServerId;
use yesquel_server::Core;
use yesquel_transport::{
    Address, ConnectError, LostCall, Patience, SocketOptions, SocketTransport, Transport, block_on,
    repeat_corrected,
};

/// Time for which a report is waited for. The reply needs no disk, so that without one the connection
/// has probably ended unnoticed, as in a partition: the system would try to send for as long again
/// as that has taken, while a new connection is made at once.
const REPORT_PATIENCE: Duration = Duration::from_secs(1);

/// Asks the groups of one machine.
pub(super) struct PeerAsker {
    /// The cores of this machine's groups.
    cores: Vec<Arc<Core>>,
    /// First group of the other machine.
    first: ServerId,
    address: Address,
    client: u64,
    options: SocketOptions,
    connection: Option<SocketTransport>,
    /// Whether the next attempt goes to the address that the machine has reported.
    tries_told: bool,
    /// Whether the last attempt failed, which is logged once.
    failed: Option<String>,
}

impl PeerAsker {
    pub(super) fn new(
        cores: Vec<Arc<Core>>,
        first: ServerId,
        address: &Address,
        (client, options): (u64, SocketOptions),
    ) -> PeerAsker {
        let (address, connection, tries_told, failed) = (address.clone(), None, false, None);
        PeerAsker { cores, first, address, client, options, connection, tries_told, failed }
    }

    pub(super) fn run(mut self, queries: &Receiver<AskedQuery>, ending: &StopFlag) {
        // A call ends early when the server stops.
        let _guard = ending.cancel_calls();
        let mut report_at = Instant::now();
        loop {
            let first = queries.recv_timeout(report_at.saturating_duration_since(Instant::now()));
            if ending.is_set() || matches!(first, Err(RecvTimeoutError::Disconnected)) {
                return;
            }
            let batch: Vec<AskedQuery> = first.into_iter().chain(queries.try_iter()).collect();
            let is_due = report_at <= Instant::now();
            if is_due {
                report_at = Instant::now() + REPORT_EVERY;
            }
            if let Err(error) = self.connect() {
                self.note_failure(error.to_string());
                continue;
            }
            let asked = self.ask(&batch).map_err(|lost| lost.to_string());
            let reported = if is_due { self.report_in_time() } else { Ok(()) };
            match asked.and(reported) {
                Ok(()) => self.failed = None,
                Err(why) => {
                    self.connection = None;
                    self.note_failure(why);
                }
            }
        }
    }

    /// Exchanges reports for [`REPORT_PATIENCE`] at most.
    fn report_in_time(&self) -> Result<(), String> {
        let patience = Patience::begin(REPORT_PATIENCE);
        self.report().map_err(|lost| match patience.is_lost() {
            true => format!("{}: no answer for {} s", self.address, REPORT_PATIENCE.as_secs()),
            false => lost.to_string(),
        })
    }

    /// Exchanges reports between each group of this machine and each one of the other. The first groups
    /// also compare the clocks of the machines.
    fn report(&self) -> Result<(), LostCall> {
        let (Some(connection), Some((own, others))) = (&self.connection, self.cores.split_first()) else {
            return Ok(());
        };
        let (report, sent) = own.begin_report();
        let reply = block_on(self.call(connection, self.first, report))?;
        if let Some(compared) = own.end_report(sent, &reply) {
            others.iter().for_each(|core| core.compare_clock(compared));
        }
        let pairs = self.cores.iter().flat_map(|core| connection.servers().map(move |group| (core, group)));
        // The clocks of this pair are compared already.
        let calls = pairs.skip(1).map(|(core, group)| {
            let (report, _) = core.begin_report();
            (core, self.call(connection, group, report))
        });
        // All are sent before the first reply is waited for.
        let calls: Vec<_> = calls.collect();
        for (core, call) in calls {
            core.take_report(&block_on(call)?);
        }
        Ok(())
    }

    fn connect(&mut self) -> Result<(), ConnectError> {
        if let Some(connection) = &self.connection {
            // No request is in flight now. The next one presents the credential that is in force.
            connection.renew();
            return Ok(());
        }
        // The machine may have reported another address than the configured one.
        let told = self.cores.first().map(|core| core.address_of(self.first));
        let told = told.and_then(|told| told.parse::<Address>().ok());
        let told = told.filter(|told| *told != self.address && self.tries_told);
        self.tries_told = !self.tries_told;
        let address = told.as_ref().unwrap_or(&self.address);
        let connection =
            SocketTransport::connect(std::slice::from_ref(address), self.client, self.options.clone())?;
        let now = connection.servers().next().unwrap_or_default();
        if now != self.first {
            return Err(ConnectError::Another { address: address.clone(), before: self.first, now });
        }
        self.connection = Some(connection);
        Ok(())
    }

    /// Sends all questions, then takes the replies.
    fn ask(&self, batch: &[AskedQuery]) -> Result<(), LostCall> {
        let Some(connection) = &self.connection else { return Ok(()) };
        let mut lost = Ok(());
        // The engine asks again for what the machine does not host yet.
        let hosted =
            batch.iter().filter(|(_, query)| connection.servers().any(|group| group == query.server()));
        let calls: Vec<_> = hosted
            .map(|(asker, query)| (*asker, query, self.call(connection, query.server(), query.bytes())))
            .collect();
        for (asker, query, call) in calls {
            match block_on(call) {
                Ok(reply) => {
                    if let Some(core) = self.cores.get(asker) {
                        core.on_peer_reply(query, &reply);
                    }
                }
                Err(error) => lost = Err(error),
            }
        }
        lost
    }

    /// Sends a request now, and repeats it if it came to the wrong place.
    fn call<'a>(
        &self,
        connection: &'a SocketTransport,
        group: ServerId,
        request: Vec<u8>,
    ) -> impl Future<Output = Result<Vec<u8>, LostCall>> + use<'a> {
        let reply = connection.call(group, &request);
        async move { repeat_corrected(connection, group, &request, reply.await?, || ()).await }
    }

    fn note_failure(&mut self, error: String) {
        if self.failed.is_none() {
            tracing::warn!(server = self.first.0, %error, "another server cannot be reached");
        }
        self.failed = Some(error);
    }
}
