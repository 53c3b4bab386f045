//! The servers that take part in a transaction.

use crate::{ByteReader, ByteWriter, Malformed};
use yesquel_model::ServerId;

/// The servers that take part in a transaction, in order and without duplicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Participants<'a> {
    bytes: &'a [u8],
}

impl<'a> Participants<'a> {
    /// No servers.
    pub const NONE: Participants<'static> = Participants { bytes: &[] };

    /// Encodes servers, which must be in order.
    pub fn encode(servers: &[ServerId]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for server in servers {
            ByteWriter(&mut bytes).number(u64::from(server.0));
        }
        bytes
    }

    /// Decodes and checks servers.
    pub fn decode(bytes: &'a [u8]) -> Result<Participants<'a>, Malformed> {
        let (mut reader, mut last) = (ByteReader::new(bytes), None);
        while !reader.is_done() {
            let before = reader;
            let server = reader.server()?;
            if last >= Some(server) {
                return Err(before.malformed("participants out of order"));
            }
            last = Some(server);
        }
        Ok(Participants { bytes })
    }

    /// The encoded servers.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Iterates over the servers in order.
    pub fn iter(&self) -> impl Iterator<Item = ServerId> + use<'a> {
        let mut reader = ByteReader::new(self.bytes);
        std::iter::from_fn(move || reader.server().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn participants_are_ordered_and_unique() {
        for servers in [[ServerId(2), ServerId(1)], [ServerId(1), ServerId(1)]] {
            let bytes = Participants::encode(&servers);
            assert_eq!(Participants::decode(&bytes).unwrap_err().what, "participants out of order");
        }
    }
}
