//! Messages between replicas, and their bytes.
//!
//! The crate's own format (protobuf) is not used: messages are decoded by bounded code that never
//! allocates more than the message holds. A change of membership travels in the entry's context, in
//! our encoding, so that the crate parses only changes that this process proposed.

use crate::membership::{Membership, MembershipChange};
use raft::eraftpb::{Entry, EntryType, Message, MessageType, Snapshot, SnapshotMetadata};
use yesquel_wire::{ByteReader, ByteWriter, Malformed};

/// Largest index and term. Sums of them cannot overflow.
pub const NUMBER_MAX: u64 = 1 << 62;
/// Longest context of a heartbeat in bytes.
const CONTEXT_BYTES_MAX: usize = 16;
/// The crate's mark of an election that the leader asked for.
const TRANSFER: &[u8] = b"CampaignTransfer";

/// A message of the crate with what the crate does not know about its sender.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerMessage {
    /// Number of the sender's start. It is durable before the first message.
    pub incarnation: u64,
    /// Whether the sender may have lost entries that it acknowledged.
    pub is_lost: bool,
    /// The receiver's incarnation, if the sender readmits it; otherwise 0.
    pub readmitted: u64,
    /// The crate's message.
    pub message: Message,
}

/// Kinds of messages that travel. The crate's others are local, or forward requests that our clients
/// send to the leader themselves.
const KINDS: [(MessageType, u8); 10] = [
    (MessageType::MsgAppend, 1),
    (MessageType::MsgAppendResponse, 2),
    (MessageType::MsgRequestVote, 3),
    (MessageType::MsgRequestVoteResponse, 4),
    (MessageType::MsgRequestPreVote, 5),
    (MessageType::MsgRequestPreVoteResponse, 6),
    (MessageType::MsgSnapshot, 7),
    (MessageType::MsgHeartbeat, 8),
    (MessageType::MsgHeartbeatResponse, 9),
    (MessageType::MsgTimeoutNow, 10),
];

/// Whether messages of a kind travel between replicas.
pub fn travels(kind: MessageType) -> bool {
    KINDS.iter().any(|(known, _)| *known == kind)
}

/// Encodes a message. Returns `None` for kinds that do not [travel](travels).
pub fn encode(peer: &PeerMessage) -> Option<Vec<u8>> {
    let message = &peer.message;
    let (kind, code) = *KINDS.iter().find(|(kind, _)| *kind == message.get_msg_type())?;
    let mut bytes = Vec::new();
    let mut writer = ByteWriter(&mut bytes);
    writer.byte(code).number(message.from).number(message.to).number(message.term);
    writer.number(peer.incarnation).flag(peer.is_lost).number(peer.readmitted);
    match kind {
        MessageType::MsgAppend => {
            writer.number(message.index).number(message.log_term).number(message.commit);
            put_entries(&mut writer, &message.entries);
        }
        MessageType::MsgAppendResponse => {
            writer.number(message.index).number(message.commit).flag(message.reject);
            if message.reject {
                writer.number(message.reject_hint).number(message.log_term);
            }
        }
        MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => {
            writer.number(message.index).number(message.log_term);
            writer.number(message.commit).number(message.commit_term);
            writer.flag(&message.context[..] == TRANSFER);
        }
        MessageType::MsgRequestVoteResponse | MessageType::MsgRequestPreVoteResponse => {
            writer.flag(message.reject).number(message.commit).number(message.commit_term);
        }
        MessageType::MsgSnapshot => {
            let snapshot = message.get_snapshot();
            let head = snapshot.get_metadata();
            writer.number(head.index).number(head.term);
            Membership::from_crate(head.get_conf_state()).put(&mut writer);
            writer.bytes(&snapshot.data);
        }
        MessageType::MsgHeartbeat | MessageType::MsgHeartbeatResponse => {
            writer.number(message.commit).bytes(&message.context);
        }
        _ => {}
    }
    Some(bytes)
}

/// Decodes a message.
pub fn decode(bytes: &[u8]) -> Result<PeerMessage, Malformed> {
    let mut reader = ByteReader::new(bytes);
    let before = reader;
    let code = reader.byte()?;
    let kind = KINDS.iter().find(|(_, known)| *known == code).map(|(kind, _)| *kind);
    let kind = kind.ok_or_else(|| before.malformed("an unknown kind of message"))?;
    let mut message = Message::default();
    message.set_msg_type(kind);
    (message.from, message.to, message.term) =
        (number(&mut reader)?, number(&mut reader)?, number(&mut reader)?);
    let (incarnation, is_lost, readmitted) = (number(&mut reader)?, reader.flag()?, number(&mut reader)?);
    match kind {
        MessageType::MsgAppend => {
            (message.index, message.log_term) = (number(&mut reader)?, number(&mut reader)?);
            message.commit = number(&mut reader)?;
            message.set_entries(read_entries(&mut reader)?.into());
        }
        MessageType::MsgAppendResponse => {
            (message.index, message.commit) = (number(&mut reader)?, number(&mut reader)?);
            message.reject = reader.flag()?;
            if message.reject {
                (message.reject_hint, message.log_term) = (number(&mut reader)?, number(&mut reader)?);
            }
        }
        MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => {
            (message.index, message.log_term) = (number(&mut reader)?, number(&mut reader)?);
            (message.commit, message.commit_term) = (number(&mut reader)?, number(&mut reader)?);
            if reader.flag()? {
                message.context = TRANSFER.to_vec().into();
            }
        }
        MessageType::MsgRequestVoteResponse | MessageType::MsgRequestPreVoteResponse => {
            message.reject = reader.flag()?;
            (message.commit, message.commit_term) = (number(&mut reader)?, number(&mut reader)?);
        }
        MessageType::MsgSnapshot => message.set_snapshot(read_snapshot(&mut reader)?),
        MessageType::MsgHeartbeat | MessageType::MsgHeartbeatResponse => {
            message.commit = number(&mut reader)?;
            let before = reader;
            let context = reader.bytes()?;
            if context.len() > CONTEXT_BYTES_MAX {
                return Err(before.malformed("a context over the limit"));
            }
            message.context = context.to_vec().into();
        }
        _ => {}
    }
    reader.finish()?;
    Ok(PeerMessage { incarnation, is_lost, readmitted, message })
}

/// Reads an index, a term, or a replica.
pub(crate) fn number(reader: &mut ByteReader<'_>) -> Result<u64, Malformed> {
    let before = *reader;
    let number = reader.number()?;
    if number > NUMBER_MAX { Err(before.malformed("a number over the limit")) } else { Ok(number) }
}

fn read_snapshot(reader: &mut ByteReader<'_>) -> Result<Snapshot, Malformed> {
    let mut head = SnapshotMetadata::default();
    (head.index, head.term) = (number(reader)?, number(reader)?);
    head.set_conf_state(Membership::read(reader)?.to_crate());
    let mut snapshot = Snapshot { data: reader.bytes()?.to_vec().into(), ..Snapshot::default() };
    snapshot.set_metadata(head);
    Ok(snapshot)
}

/// Encodes entries: their number, and each with index and term.
pub(crate) fn put_entries(writer: &mut ByteWriter<'_>, entries: &[Entry]) {
    writer.number(entries.len() as u64);
    for entry in entries {
        writer.number(entry.index).number(entry.term);
        match entry.get_entry_type() {
            EntryType::EntryNormal => writer.byte(0).bytes(&entry.data),
            EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => writer.byte(1).bytes(&entry.context),
        };
    }
}

pub(crate) fn read_entries(reader: &mut ByteReader<'_>) -> Result<Vec<Entry>, Malformed> {
    let count = reader.count()?;
    let mut entries = Vec::new();
    for _ in 0..count {
        let mut entry = Entry { index: number(reader)?, term: number(reader)?, ..Entry::default() };
        let before = *reader;
        match reader.byte()? {
            0 => entry.data = reader.bytes()?.to_vec().into(),
            1 => {
                let change = reader.bytes()?;
                MembershipChange::decode(change)?;
                entry.set_entry_type(EntryType::EntryConfChangeV2);
                entry.context = change.to_vec().into();
            }
            _ => return Err(before.malformed("an unknown kind of entry")),
        }
        entries.push(entry);
    }
    Ok(entries)
}
