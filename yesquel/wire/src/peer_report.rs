//! What servers regularly tell each other.

use crate::{ByteReader, ByteWriter, HorizonReport, Malformed, destination::address};
use yesquel_model::{GroupEpoch, ServerId, Timestamp};

/// First byte of the message, which no request has.
const PEER_REPORT: u8 = 64;

/// A server's report to another one, which answers with its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerReport {
    /// The server that reports.
    pub server: ServerId,
    /// Its machine's wall clock, in milliseconds since 1970.
    pub wall_ms: u64,
    /// The oldest two snapshots that its clients hold, in order.
    pub oldest: [Option<Timestamp>; 2],
    /// Whether they hold further snapshots above these two.
    pub more: bool,
    /// The group's horizon, and what it has prepared below.
    pub horizon: HorizonReport,
    /// The group's epoch.
    pub epoch: GroupEpoch,
    /// An address at which others reach the group; empty: it knows none.
    pub address: Box<str>,
    /// Highest version of the directory that the server has seen; zero: there is none.
    pub directory: u64,
    /// Bytes that the group's nodes take, and requests in its last second; `None`: an earlier release
    /// does not tell.
    pub load: Option<(u64, u64)>,
}

impl PeerReport {
    /// Whether a message is a report.
    pub fn is_report(bytes: &[u8]) -> bool {
        bytes.first() == Some(&PEER_REPORT)
    }

    /// Encodes the report.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(32);
        let [oldest, next] = self.oldest.map(Option::unwrap_or_default);
        let mut writer = ByteWriter(&mut bytes);
        writer.byte(PEER_REPORT).number(u64::from(self.server.0)).number(self.wall_ms);
        writer.timestamp(oldest).timestamp(next).byte(self.more.into());
        writer.bytes(&self.horizon.encode());
        writer.epoch(self.epoch).bytes(self.address.as_bytes()).number(self.directory);
        if let Some((memory_bytes, requests)) = self.load {
            writer.number(memory_bytes).number(requests);
        }
        bytes
    }

    /// Decodes a report. Later versions may append fields.
    pub fn decode(bytes: &[u8]) -> Result<PeerReport, Malformed> {
        let mut reader = ByteReader::new(bytes);
        let before = reader;
        if reader.byte()? != PEER_REPORT {
            return Err(before.malformed("no report of a server"));
        }
        let (server, wall_ms) = (reader.server()?, reader.number()?);
        let oldest = [reader.timestamp()?, reader.timestamp()?];
        let oldest = oldest.map(|oldest| Some(oldest).filter(|oldest| *oldest != Timestamp::ZERO));
        let before = reader;
        let more = match reader.byte()? {
            0 => false,
            1 => true,
            _ => return Err(before.malformed("a flag that is neither 0 nor 1")),
        };
        let horizon = HorizonReport::decode(reader.bytes()?)?;
        let (epoch, address) = (reader.epoch()?, address(&mut reader)?.into());
        // Earlier releases have no directory.
        let directory = if reader.is_done() { 0 } else { reader.number()? };
        let load = if reader.is_done() { None } else { Some((reader.number()?, reader.number()?)) };
        Ok(PeerReport { server, wall_ms, oldest, more, horizon, epoch, address, directory, load })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use yesquel_model::TxnId;

    #[test]
    fn reports_round_trip() {
        for (oldest, more) in [([None; 2], false), ([Some(Timestamp(9)), Some(Timestamp(12))], true)] {
            let prepared = vec![TxnId { client: 3, number: 4 }];
            let horizon = HorizonReport { horizon: Timestamp(7), prepared };
            let wall_ms = 1_700_000_000_000;
            let (epoch, address) = (GroupEpoch { era: 0, index: 300 }, "a:7411".into());
            let (server, directory) = (ServerId(7), 300);
            let load = Some((5, 6));
            let report =
                PeerReport { server, wall_ms, oldest, more, horizon, epoch, address, directory, load };
            let bytes = report.encode();
            assert!(PeerReport::is_report(&bytes));
            assert_eq!(PeerReport::decode(&bytes), Ok(report.clone()));
            // Reports of earlier releases end before the version of the directory, or before the load.
            let earlier = [bytes.len() - 4, bytes.len() - 2];
            let without = PeerReport { load: None, ..report };
            assert_eq!(PeerReport::decode(&bytes[..earlier[1]]), Ok(without.clone()));
            let oldest = PeerReport { directory: 0, ..without };
            assert_eq!(PeerReport::decode(&bytes[..earlier[0]]), Ok(oldest));
            for length in (0..bytes.len()).filter(|length| !earlier.contains(length)) {
                assert!(PeerReport::decode(&bytes[..length]).is_err());
            }
        }
    }
}
