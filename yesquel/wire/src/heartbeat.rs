//! What a client regularly tells its servers about itself.

use crate::{ByteReader, ByteWriter, Malformed};
use yesquel_model::Timestamp;

/// A client's heartbeat: the message with number [`NUMBER`](Self::NUMBER), sent when it has
/// changed. It has no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientHeartbeat {
    /// The oldest two snapshots that the client's transactions read, in order.
    pub oldest: [Option<Timestamp>; 2],
    /// Whether its transactions read further snapshots above these two.
    pub more: bool,
    /// The client knows the outcomes of all its transactions up to this number.
    pub known: u64,
}

impl ClientHeartbeat {
    /// Message number of heartbeats, which no request has.
    pub const NUMBER: u64 = 0;

    /// Encodes the heartbeat.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(27);
        let [oldest, next] = self.oldest.map(Option::unwrap_or_default);
        ByteWriter(&mut bytes).timestamp(oldest).timestamp(next).number(self.known).byte(self.more.into());
        bytes
    }

    /// Decodes a heartbeat.
    pub fn decode(bytes: &[u8]) -> Result<ClientHeartbeat, Malformed> {
        let mut reader = ByteReader::new(bytes);
        let oldest = [reader.timestamp()?, reader.timestamp()?];
        let oldest = oldest.map(|oldest| Some(oldest).filter(|oldest| *oldest != Timestamp::ZERO));
        let (known, before) = (reader.number()?, reader);
        let more = match reader.byte()? {
            0 => false,
            1 => true,
            _ => return Err(before.malformed("a flag that is neither 0 nor 1")),
        };
        let news = ClientHeartbeat { oldest, more, known };
        reader.finish()?;
        Ok(news)
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
                known: u64::MAX,
            },
        ] {
            assert_eq!(ClientHeartbeat::decode(&news.encode()), Ok(news));
        }
        assert!(ClientHeartbeat::decode(&[0; 17]).is_err() && ClientHeartbeat::decode(&[0; 19]).is_err());
        let mut bytes = ClientHeartbeat::default().encode();
        assert_eq!(bytes.len(), 18);
        bytes[17] = 2;
        assert!(ClientHeartbeat::decode(&bytes).is_err());
    }
}
