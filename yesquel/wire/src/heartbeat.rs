//! What a client regularly tells its servers about itself.

use crate::{ByteReader, ByteWriter, Malformed, SETTLED_EXCEPTIONS_MAX, SettledReport};
use yesquel_model::Timestamp;

/// A client's heartbeat: the message with number [`NUMBER`](Self::NUMBER), sent when it has
/// changed. It has no reply.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientHeartbeat {
    /// The oldest two snapshots that the client's transactions read, in order.
    pub oldest: [Option<Timestamp>; 2],
    /// Whether its transactions read further snapshots above these two.
    pub more: bool,
    /// The transactions that no server need remember.
    pub settled: SettledReport,
}

impl ClientHeartbeat {
    /// Message number of heartbeats, which no request has.
    pub const NUMBER: u64 = 0;

    /// Encodes the heartbeat.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(32);
        let [oldest, next] = self.oldest.map(Option::unwrap_or_default);
        let mut writer = ByteWriter(&mut bytes);
        writer.timestamp(oldest).timestamp(next).byte(self.more.into());
        self.settled.write(&mut writer);
        bytes
    }

    /// Decodes a heartbeat.
    pub fn decode(bytes: &[u8]) -> Result<ClientHeartbeat, Malformed> {
        let mut reader = ByteReader::new(bytes);
        let oldest = [reader.timestamp()?, reader.timestamp()?];
        let oldest = oldest.map(|oldest| Some(oldest).filter(|oldest| *oldest != Timestamp::ZERO));
        let (more, before) = (reader.flag()?, reader);
        let settled = SettledReport::read(&mut reader)?;
        if settled.exceptions.len() > SETTLED_EXCEPTIONS_MAX {
            return Err(before.malformed("more exceptions than a client may report"));
        }
        reader.finish()?;
        Ok(ClientHeartbeat { oldest, more, settled })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeats_round_trip() {
        for news in [
            ClientHeartbeat::default(),
            ClientHeartbeat {
                oldest: [Some(Timestamp(9)), Some(Timestamp(12))],
                more: true,
                settled: SettledReport {
                    number: u64::MAX,
                    birth: Timestamp(8),
                    exceptions: vec![3, 4, u64::MAX - 1],
                },
            },
        ] {
            assert_eq!(ClientHeartbeat::decode(&news.encode()), Ok(news));
        }
        let mut bytes = ClientHeartbeat::default().encode();
        assert_eq!(bytes.len(), 27);
        for length in 0..bytes.len() {
            assert!(ClientHeartbeat::decode(&bytes[..length]).is_err());
        }
        bytes[16] = 2;
        assert!(ClientHeartbeat::decode(&bytes).is_err());
        let exceptions = (1..=SETTLED_EXCEPTIONS_MAX as u64 + 1).collect();
        let settled = SettledReport { number: 100, birth: Timestamp(8), exceptions };
        let bytes = ClientHeartbeat { settled, ..ClientHeartbeat::default() }.encode();
        assert!(ClientHeartbeat::decode(&bytes).is_err());
    }
}
