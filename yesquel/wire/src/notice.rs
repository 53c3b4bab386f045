//! What a server tells a client without a request.

use crate::{ByteReader, ByteWriter, Malformed};
use yesquel_model::{NodeId, Timestamp};

/// Notice that a node which the client [watches](crate::Question::Watch) changes: the message with
/// number [`NUMBER`](Self::NUMBER). It ends the watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notice {
    /// The node.
    pub node: NodeId,
    /// Lower bound of the change's timestamp: below it the node is as the client has read it.
    pub at: Timestamp,
}

impl Notice {
    /// Message number of notices, which no reply has.
    pub const NUMBER: u64 = 0;

    /// Encodes the notice.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(24);
        ByteWriter(&mut bytes).node(self.node).timestamp(self.at);
        bytes
    }

    /// Decodes a notice.
    pub fn decode(bytes: &[u8]) -> Result<Notice, Malformed> {
        let mut reader = ByteReader::new(bytes);
        let notice = Notice { node: reader.node()?, at: reader.timestamp()? };
        reader.finish()?;
        Ok(notice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use yesquel_model::{ServerId, TreeId};

    #[test]
    fn notices_round_trip() {
        let node = NodeId::root(TreeId::MAX, ServerId(3));
        let notice = Notice { node, at: Timestamp(u64::MAX - 1) };
        let bytes = notice.encode();
        assert_eq!(Notice::decode(&bytes), Ok(notice));
        for length in 0..bytes.len() {
            assert!(Notice::decode(&bytes[..length]).is_err());
        }
    }
}
