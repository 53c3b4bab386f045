//! Reports between groups: what clients hold, horizons, clocks, epochs, loads.

use super::GroupCore;
use crate::ComparedClock;
use yesquel_engine::{Caller, Now};
use yesquel_model::GroupEpoch;
use yesquel_tree::GroupLoad;
use yesquel_wire::{GroupLocation, HorizonReport, Malformed, PeerReport};

impl GroupCore {
    /// Returns the report to other servers.
    fn report(&mut self) -> PeerReport {
        let (oldest, more) = self.engine.held_by_clients();
        let (server, wall_ms, horizon) = (self.engine.server(), self.clocks.wall_ms, self.horizon());
        // The receiver is corrected when it uses an epoch that was not durable here.
        let is_durable = self.durability.is_none() || self.engine.epoch_lsn() <= self.synced;
        let epoch = if is_durable { self.engine.epoch() } else { GroupEpoch::UNKNOWN };
        let (address, directory) = (self.locations.own().into(), self.locations.version());
        let load = Some((self.engine.memory() as u64, self.loads.requests()));
        PeerReport { server, wall_ms, oldest, more, horizon, epoch, address, directory, load }
    }

    /// Returns the last report on the horizon of which all that it states is on disk.
    fn horizon(&mut self) -> HorizonReport {
        let is_synced = |lsn: u64| self.durability.is_none() || lsn <= self.synced;
        if let Some((report, _)) = self.next_horizon.take_if(|(_, lsn)| is_synced(*lsn)) {
            self.horizon = report;
        }
        if self.next_horizon.is_none() {
            self.next_horizon = Some(self.engine.report());
        }
        self.horizon.clone()
    }

    /// Takes another server's report, and answers with the own one.
    pub(super) fn exchange(&mut self, now: Now, caller: Caller, report: &[u8]) -> Result<(), Malformed> {
        let report = PeerReport::decode(report)?;
        self.take_report(now, report);
        let own = self.report().encode();
        self.effects.push_reply(caller, |bytes| bytes.extend_from_slice(&own));
        Ok(())
    }

    /// Returns the bytes of a report to another server, which is sent now.
    pub fn begin_report(&mut self) -> Vec<u8> {
        self.report().encode()
    }

    /// Takes another server's answer to a report that was sent at `sent` by the driver's clocks. Returns
    /// the comparison of the clock.
    pub fn end_report(&mut self, now: Now, sent: Now, reply: &[u8]) -> Option<ComparedClock> {
        let report = PeerReport::decode(reply).ok()?;
        let round_trip_ms = self.clocks.uptime_ms.saturating_sub(sent.uptime_ms);
        let (peer, wall_ms, received) = (report.server, report.wall_ms, self.clocks);
        let compared = ComparedClock { peer, wall_ms, round_trip_ms, received };
        self.compare_clock(compared);
        self.take_report(now, report);
        Some(compared)
    }

    /// Takes a comparison of the machine's clock, which another of its groups has made by the same
    /// driver's clocks.
    pub fn compare_clock(&mut self, compared: ComparedClock) {
        let ComparedClock { peer, wall_ms, round_trip_ms, received } = compared;
        self.watch.compare(peer, wall_ms, round_trip_ms, received);
    }

    /// Takes the report of another group, of this machine or one whose clock is compared otherwise.
    pub fn take_report_of(&mut self, now: Now, report: &[u8]) {
        if let Ok(report) = PeerReport::decode(report) {
            self.take_report(now, report);
        }
    }

    fn take_report(&mut self, now: Now, report: PeerReport) {
        let PeerReport { server: group, oldest, more, horizon, epoch, address, directory, load, .. } = report;
        self.locations.hear(directory);
        if self.locations.is_removed(group) {
            return;
        }
        self.locations.learn(GroupLocation { group, epoch, address: &address });
        if let Some((memory_bytes, requests)) = load {
            self.loads.hear(now, group, GroupLoad { memory_bytes, requests });
        }
        self.engine.hold_for_peer(now, group, oldest, more);
        self.engine.on_report(group, horizon);
    }
}
