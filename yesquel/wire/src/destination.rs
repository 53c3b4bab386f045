//! The group that a request is for, and the replies that correct its sender.
//! `docs/yesquel/cluster/directory.md` has the rules.

use crate::{ByteReader, ByteWriter, Malformed};
use yesquel_model::{GroupEpoch, ServerId};

/// Bytes of an address of a group.
const ADDRESS_BYTES_MAX: usize = 1024;
/// Bytes of a group's number and epoch.
const DESTINATION_BYTES_MAX: usize = 3 + 5 + 10;

/// The group that a request is for, and its epoch as the sender knows it. Each request begins with
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination {
    /// The group.
    pub group: ServerId,
    /// Its epoch.
    pub epoch: GroupEpoch,
}

impl Destination {
    /// Returns the destination of a request, and the request without it.
    #[inline]
    pub fn split(message: &[u8]) -> Result<(Destination, &[u8]), Malformed> {
        let mut reader = ByteReader::new(message);
        let destination = Destination { group: reader.server()?, epoch: reader.epoch()? };
        Ok((destination, reader.rest()))
    }

    /// Encodes it.
    pub fn encode(self) -> EncodedDestination {
        let mut encoded = Vec::with_capacity(DESTINATION_BYTES_MAX);
        ByteWriter(&mut encoded).number(u64::from(self.group.0)).epoch(self.epoch);
        let mut bytes = [0; DESTINATION_BYTES_MAX];
        bytes[..encoded.len()].copy_from_slice(&encoded);
        EncodedDestination { bytes, length: encoded.len() as u8 }
    }
}

/// A destination as bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodedDestination {
    bytes: [u8; DESTINATION_BYTES_MAX],
    length: u8,
}

impl EncodedDestination {
    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// Reads the address of a group; empty: none is known.
pub(crate) fn address<'a>(reader: &mut ByteReader<'a>) -> Result<&'a str, Malformed> {
    let before = *reader;
    match std::str::from_utf8(reader.bytes()?) {
        Ok(address) if address.len() <= ADDRESS_BYTES_MAX => Ok(address),
        _ => Err(before.malformed("an address that is no text, or too long")),
    }
}

/// Where a group is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupLocation<'a> {
    /// The group.
    pub group: ServerId,
    /// The epoch at which it is there.
    pub epoch: GroupEpoch,
    /// Its address; empty: none is known.
    pub address: &'a str,
}

/// Reply to any request that came to the wrong place. Nothing of it was examined, so that the sender
/// may send it to another place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Correction<'a> {
    /// The machine does not host the group, or the group has another epoch. Where the group is, if
    /// the machine knows more than the sender.
    WrongGroup(Option<GroupLocation<'a>>),
    /// The replica does not lead the group.
    NotLeader {
        /// The term that it knows.
        term: u64,
        /// Address of the leader; empty: none is known.
        leader: &'a str,
    },
}

pub(crate) const WRONG_GROUP: u8 = 20;
pub(crate) const LOCATED: u8 = 21;
pub(crate) const NOT_LEADER: u8 = 22;

impl<'a> Correction<'a> {
    /// Decodes a reply that is a correction; `None`: it is another one, or malformed.
    #[inline]
    pub fn of(reply: &'a [u8]) -> Option<Correction<'a>> {
        match reply.first() {
            Some(&(WRONG_GROUP | LOCATED | NOT_LEADER)) => {
                let mut reader = ByteReader::new(reply);
                let tag = reader.byte().ok()?;
                let correction = Correction::read(tag, &mut reader).ok()?;
                reader.finish().ok().map(|()| correction)
            }
            _ => None,
        }
    }

    pub(crate) fn read(tag: u8, reader: &mut ByteReader<'a>) -> Result<Correction<'a>, Malformed> {
        Ok(match tag {
            LOCATED => Correction::WrongGroup(Some(GroupLocation {
                group: reader.server()?,
                epoch: reader.epoch()?,
                address: address(reader)?,
            })),
            NOT_LEADER => Correction::NotLeader { term: reader.number()?, leader: address(reader)? },
            _ => Correction::WrongGroup(None),
        })
    }

    pub(crate) fn write(&self, writer: &mut ByteWriter<'_>) {
        match self {
            Correction::WrongGroup(None) => {
                writer.byte(WRONG_GROUP);
            }
            Correction::WrongGroup(Some(GroupLocation { group, epoch, address })) => {
                writer.byte(LOCATED).number(u64::from(group.0)).epoch(*epoch).bytes(address.as_bytes());
            }
            Correction::NotLeader { term, leader } => {
                writer.byte(NOT_LEADER).number(*term).bytes(leader.as_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_begins_with_its_destination() {
        let largest = GroupEpoch { era: u32::MAX, index: u64::MAX };
        for (group, epoch, length) in [
            (0, GroupEpoch::FIRST, 3),
            (u16::MAX, largest, DESTINATION_BYTES_MAX),
            (127, GroupEpoch::UNKNOWN, 3),
        ] {
            let destination = Destination { group: ServerId(group), epoch };
            let encoded = destination.encode();
            assert_eq!(encoded.bytes().len(), length);
            let message = [encoded.bytes(), b"request"].concat();
            assert_eq!(Destination::split(&message), Ok((destination, &b"request"[..])));
            for cut in 0..length {
                assert!(Destination::split(&message[..cut]).is_err());
            }
        }
        // Group and era have fewer bits than the encoding could hold.
        assert!(Destination::split(&[0x80, 0x80, 4, 0, 1]).is_err());
        assert!(Destination::split(&[0, 0x80, 0x80, 0x80, 0x80, 0x10, 1]).is_err());
    }
}
