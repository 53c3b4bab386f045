//! Frames: messages of many requests travel together, long ones in pieces. `docs/yesquel/wire.md`
//! has the format.

use crate::{ByteReader, ByteWriter, Malformed};
use std::{
    collections::{HashMap, VecDeque},
    io::{self, Read},
};
use thiserror::Error;

/// Bytes of a frame after its head.
pub const FRAME_BYTES_MAX: usize = 64 << 10;
/// Bytes of the length and the checksum.
pub const HEAD_BYTES: usize = 8;
/// Bytes of a message.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Bytes of a message in one frame, so that other messages find room too.
const PIECE_BYTES_MAX: usize = 16 << 10;
/// Messages that a connection may have in pieces at a time.
const UNFINISHED_MAX: usize = 64;
/// Bytes of all these together.
pub const UNFINISHED_BYTES_MAX: usize = 64 << 20;
/// Size from which a message counts as large. Few large messages go at a time, so that a sender
/// stays within the receiver's limits for messages in pieces.
const LARGE_BYTES: usize = 256 << 10;
const LARGE_AT_ONCE: usize = 3;
const LONG_AT_ONCE: usize = UNFINISHED_MAX - LARGE_AT_ONCE;
const _: () = assert!(LARGE_AT_ONCE * MESSAGE_BYTES_MAX + LONG_AT_ONCE * LARGE_BYTES <= UNFINISHED_BYTES_MAX);

/// Why a connection cannot be read any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The frame is too long.
    #[error("a frame of {0} bytes; the limit is {FRAME_BYTES_MAX}")]
    TooLong(u32),
    /// The checksum does not match.
    #[error("a frame with a wrong checksum")]
    Checksum,
    /// The content is not a message.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The message is too long.
    #[error("a message of more than {MESSAGE_BYTES_MAX} bytes")]
    MessageTooLong,
    /// Too many messages are incomplete.
    #[error("more than {UNFINISHED_MAX} messages are incomplete")]
    TooMany,
    /// The incomplete messages are too large together.
    #[error("incomplete messages of more than {UNFINISHED_BYTES_MAX} bytes together")]
    TooMuch,
}

/// A message: the request's number, and bytes.
pub type Message = (u64, Vec<u8>);

/// Messages to send, as frames. Long messages take turns with the others.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Encoded frames; the last one, from `open` on, still takes pieces.
    frames: Vec<u8>,
    open: usize,
    /// Messages in pieces. Large ones wait apart, since a few of them would delay all others.
    long: VecDeque<Long>,
    large: VecDeque<Long>,
    long_bytes: usize,
}

/// A message that is sent in pieces.
#[derive(Debug)]
struct Long {
    number: u64,
    bytes: Vec<u8>,
    sent: usize,
}

/// Upper bound for a number, a flag and a length.
const PIECE_HEAD: usize = 16;

impl Outbox {
    /// Adds a message of at most [`MESSAGE_BYTES_MAX`] bytes.
    pub fn push(&mut self, number: u64, bytes: &[u8]) {
        self.push_after(number, &[], bytes);
    }

    /// Adds a message that consists of a short head and the rest.
    pub fn push_after(&mut self, number: u64, head: &[u8], bytes: &[u8]) {
        let length = head.len() + bytes.len();
        if length > PIECE_BYTES_MAX {
            self.long_bytes += length;
            let waiting = if length > LARGE_BYTES { &mut self.large } else { &mut self.long };
            waiting.push_back(Long { number, bytes: [head, bytes].concat(), sent: 0 });
        } else {
            self.piece(number, true, head, bytes);
        }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.long_bytes == 0
    }

    /// Bytes that wait.
    pub fn held(&self) -> usize {
        self.frames.len() + self.long_bytes
    }

    /// Adds a piece to the open frame, or to a new one.
    fn piece(&mut self, number: u64, is_last: bool, head: &[u8], bytes: &[u8]) {
        let length = head.len() + bytes.len();
        if self.open < self.frames.len() {
            let body = self.frames.len() - self.open - HEAD_BYTES;
            if body + PIECE_HEAD + length > FRAME_BYTES_MAX {
                self.close();
            }
        }
        if self.open == self.frames.len() {
            self.frames.extend_from_slice(&[0; HEAD_BYTES]);
        }
        ByteWriter(&mut self.frames).number(number).flag(is_last).number(length as u64);
        self.frames.extend_from_slice(head);
        self.frames.extend_from_slice(bytes);
    }

    /// Completes the head of the open frame.
    fn close(&mut self) {
        let body = self.open + HEAD_BYTES;
        if let Some(frame) = self.frames.get(body..) {
            let (length, crc) = (frame.len() as u32, crc32fast::hash(frame));
            self.frames[self.open..body - 4].copy_from_slice(&length.to_le_bytes());
            self.frames[body - 4..body].copy_from_slice(&crc.to_le_bytes());
        }
        self.open = self.frames.len();
    }

    /// Adds a piece of each of the first messages that wait.
    fn take_turns(&mut self, waiting: &mut VecDeque<Long>, at_once: usize) {
        let (mut at, mut turns) = (0, waiting.len().min(at_once));
        while at < turns
            && let Some(Long { number, bytes, sent }) = waiting.get_mut(at)
        {
            let end = bytes.len().min(*sent + PIECE_BYTES_MAX);
            let is_last = end == bytes.len();
            self.piece(*number, is_last, &[], &bytes[*sent..end]);
            *sent = end;
            if is_last {
                self.long_bytes -= end;
                waiting.remove(at);
                turns -= 1;
            } else {
                at += 1;
            }
        }
    }

    /// Appends the frames that wait, with one piece of each long message whose turn it is. Returns
    /// `false` if nothing waits. Appends at most what was pushed since the last call, and those
    /// pieces.
    pub fn fill(&mut self, out: &mut Vec<u8>) -> bool {
        if self.is_empty() {
            return false;
        }
        let (mut long, mut large) = (std::mem::take(&mut self.long), std::mem::take(&mut self.large));
        self.take_turns(&mut long, LONG_AT_ONCE);
        self.take_turns(&mut large, LARGE_AT_ONCE);
        (self.long, self.large) = (long, large);
        self.close();
        if out.is_empty() {
            std::mem::swap(out, &mut self.frames);
        } else {
            out.append(&mut self.frames);
        }
        self.open = 0;
        true
    }
}

/// Reassembles messages from the bytes of a connection.
#[derive(Debug, Default)]
pub struct Inbox {
    /// Received bytes lie from `taken` to `end`.
    bytes: Vec<u8>,
    taken: usize,
    end: usize,
    /// Bytes of the current frame's body whose messages were delivered; its checksum is verified.
    given: usize,
    unfinished: HashMap<u64, Vec<u8>>,
    unfinished_bytes: usize,
}

/// Bytes of one read: a frame and the head of the next one.
const READ_BYTES: usize = FRAME_BYTES_MAX + 2 * HEAD_BYTES;

impl Inbox {
    /// Makes room for `count` bytes after the received ones.
    fn reserve(&mut self, count: usize) {
        if self.taken > 0 {
            // At most part of a frame is left, usually nothing.
            self.bytes.copy_within(self.taken..self.end, 0);
            self.end -= self.taken;
            self.taken = 0;
        }
        if self.bytes.len() < self.end + count {
            self.bytes.resize(self.end + count, 0);
        }
    }

    /// Appends received bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        self.bytes[self.end..self.end + bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// Reads once. Returns how many bytes came, and whether they filled the room: then there may be
    /// more.
    pub fn read_from(&mut self, source: &mut impl Read) -> io::Result<(usize, bool)> {
        self.reserve(READ_BYTES);
        let room = &mut self.bytes[self.end..];
        let room = &mut room[..READ_BYTES];
        let count = source.read(room)?;
        self.end += count;
        Ok((count, count == READ_BYTES))
    }

    /// Received bytes that are not consumed, before frames begin.
    pub fn unread(&self) -> &[u8] {
        &self.bytes[self.taken..self.end]
    }

    /// Consumes `count` of them.
    pub fn skip(&mut self, count: usize) {
        self.taken = self.end.min(self.taken + count);
    }

    /// Bytes that it holds.
    pub fn held(&self) -> usize {
        self.end - self.taken + self.unfinished_bytes
    }

    /// Bytes of incomplete messages.
    pub fn unfinished(&self) -> usize {
        self.unfinished_bytes
    }

    /// Whether a frame or a message is incomplete, or not taken yet.
    pub fn is_amid(&self) -> bool {
        self.end > self.taken || !self.unfinished.is_empty()
    }

    /// Delivers the complete messages. After an error the connection cannot be read any further.
    pub fn take(&mut self, mut each: impl FnMut(u64, &[u8])) -> Result<(), FrameError> {
        self.take_while(|number, message| {
            each(number, message);
            true
        })
    }

    /// Delivers the complete messages until `each` returns `false`; the next call continues after
    /// the last delivered one. After an error the connection cannot be read any further.
    pub fn take_while(&mut self, mut each: impl FnMut(u64, &[u8]) -> bool) -> Result<(), FrameError> {
        loop {
            let rest = &self.bytes[self.taken..self.end];
            let Some((head, body)) = rest.split_first_chunk::<HEAD_BYTES>() else { break };
            let [a, b, c, d, e, f, g, h] = *head;
            let (length, crc) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
            if length as usize > FRAME_BYTES_MAX {
                return Err(FrameError::TooLong(length));
            }
            let Some(body) = body.get(..length as usize) else { break };
            if self.given == 0 && crc32fast::hash(body) != crc {
                return Err(FrameError::Checksum);
            }
            let mut reader = ByteReader::new(body.get(self.given..).unwrap_or_default());
            let mut goes_on = true;
            while !reader.is_done() {
                if !goes_on {
                    self.given = body.len() - reader.rest().len();
                    return Ok(());
                }
                let (number, is_last, piece) = (reader.number()?, reader.flag()?, reader.bytes()?);
                if is_last && !self.unfinished.contains_key(&number) {
                    goes_on = each(number, piece);
                    continue;
                }
                let many = self.unfinished.len() >= UNFINISHED_MAX;
                if many && !self.unfinished.contains_key(&number) {
                    return Err(FrameError::TooMany);
                }
                if self.unfinished_bytes + piece.len() > UNFINISHED_BYTES_MAX {
                    return Err(FrameError::TooMuch);
                }
                let message = self.unfinished.entry(number).or_default();
                if message.len() + piece.len() > MESSAGE_BYTES_MAX {
                    return Err(FrameError::MessageTooLong);
                }
                message.extend_from_slice(piece);
                self.unfinished_bytes += piece.len();
                if is_last && let Some(message) = self.unfinished.remove(&number) {
                    self.unfinished_bytes -= message.len();
                    goes_on = each(number, &message);
                }
            }
            self.taken += HEAD_BYTES + length as usize;
            self.given = 0;
            if !goes_on {
                return Ok(());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Messages arrive as they were sent, whatever their length and however the bytes are cut.
        #[test]
        fn messages_round_trip(
            lengths in prop::collection::vec(0usize..200_000, 0..12),
            cuts in prop::collection::vec(1usize..70_000, 1..20),
        ) {
            let mut outbox = Outbox::default();
            let mut expected: Vec<Message> = Vec::new();
            for (number, length) in lengths.iter().enumerate() {
                let bytes: Vec<u8> = (0..*length).map(|at| (at * 7 + number) as u8).collect();
                outbox.push(number as u64, &bytes);
                expected.push((number as u64, bytes));
            }
            let mut wire = Vec::new();
            while outbox.fill(&mut wire) {}
            let (mut inbox, mut found, mut rest) = (Inbox::default(), Vec::new(), &wire[..]);
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                inbox.feed(now);
                inbox.take(|number, bytes| found.push((number, bytes.to_vec()))).unwrap();
                rest = later;
            }
            // Long messages are overtaken.
            found.sort_by_key(|(number, _)| *number);
            prop_assert_eq!(found, expected);
            prop_assert_eq!(inbox.held(), 0);
        }

        /// No bytes break the inbox, or make it hold more than it was given.
        #[test]
        fn arbitrary_bytes_do_not_break_the_inbox(bytes: Vec<u8>, at: prop::sample::Index, byte: u8) {
            let mut inbox = Inbox::default();
            inbox.feed(&bytes);
            let _ = inbox.take(|_, _| {});
            prop_assert!(inbox.held() <= bytes.len());
            let (mut outbox, mut wire) = (Outbox::default(), Vec::new());
            outbox.push(1, &bytes);
            outbox.fill(&mut wire);
            let at = at.index(wire.len());
            let changed = wire[at] != byte;
            wire[at] = byte;
            let (mut inbox, mut found) = (Inbox::default(), Vec::new());
            inbox.feed(&wire);
            let outcome = inbox.take(|number, bytes| found.push((number, bytes.to_vec())));
            if changed {
                // Refused, or waiting for more bytes than will come.
                prop_assert!(found.is_empty(), "{:?}", outcome);
            } else {
                prop_assert_eq!(found, vec![(1, bytes)]);
            }
        }
    }

    #[test]
    fn a_short_message_overtakes_a_long_one() {
        let (mut outbox, mut wire) = (Outbox::default(), Vec::new());
        outbox.push(1, &vec![1; 1 << 20]);
        outbox.push(2, &[2; 10]);
        outbox.fill(&mut wire);
        let (mut inbox, mut found) = (Inbox::default(), Vec::new());
        inbox.feed(&wire);
        inbox.take(|number, _| found.push(number)).unwrap();
        assert_eq!(found, [2]);
    }

    /// Delivery continues where it stopped.
    #[test]
    fn messages_are_taken_one_at_a_time() {
        let (mut outbox, mut wire, mut inbox) = (Outbox::default(), Vec::new(), Inbox::default());
        let lengths = [0, 10, 40_000, 0, 300, 16_000, 16_000, 16_000, 16_000, 7];
        for (number, length) in lengths.iter().enumerate() {
            outbox.push(number as u64, &vec![number as u8; *length]);
        }
        while outbox.fill(&mut wire) {}
        let mut found = Vec::new();
        for part in wire.chunks(50_000) {
            inbox.feed(part);
            for _ in 0..3 {
                let mut count = 0;
                let mut one = |number, message: &[u8]| {
                    assert_eq!(message.len(), lengths[number as usize]);
                    found.push(number);
                    count += 1;
                    false
                };
                inbox.take_while(&mut one).unwrap();
                assert!(count <= 1);
            }
        }
        inbox.take(|number, _| found.push(number)).unwrap();
        found.sort_unstable();
        assert_eq!(found, (0..lengths.len() as u64).collect::<Vec<_>>());
        assert_eq!(inbox.held(), 0);
    }

    #[test]
    fn oversized_input_is_refused() {
        let mut inbox = Inbox::default();
        inbox.feed(b"GET / HTTP/1.1\r\n\r\n");
        assert_eq!(inbox.take(|_, _| {}), Err(FrameError::TooLong(u32::from_le_bytes(*b"GET "))));
        let frame = |pieces: &[(u64, bool, usize)]| {
            let mut body = Vec::new();
            for (number, is_last, length) in pieces {
                ByteWriter(&mut body).number(*number).flag(*is_last).bytes(&vec![0; *length]);
            }
            let mut frame = (body.len() as u32).to_le_bytes().to_vec();
            frame.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
            frame.extend_from_slice(&body);
            frame
        };
        let many: Vec<_> = (0..=UNFINISHED_MAX as u64).map(|number| (number, false, 1)).collect();
        let mut inbox = Inbox::default();
        inbox.feed(&frame(&many));
        assert_eq!(inbox.take(|_, _| {}), Err(FrameError::TooMany));
        let (mut inbox, piece) = (Inbox::default(), frame(&[(1, false, 60_000)]));
        let outcome = (0..1_000).find_map(|_| {
            inbox.feed(&piece);
            inbox.take(|_, _| {}).err()
        });
        assert_eq!(outcome, Some(FrameError::MessageTooLong));
        assert!(inbox.held() <= MESSAGE_BYTES_MAX + 2 * FRAME_BYTES_MAX, "{}", inbox.held());
        // Each message has the maximum length, and together they are too long.
        let mut inbox = Inbox::default();
        let outcome = (0..10_000u64).find_map(|at| {
            inbox.feed(&frame(&[(at % 5, false, 60_000)]));
            inbox.take(|_, _| {}).err()
        });
        assert_eq!(outcome, Some(FrameError::TooMuch));
        assert!(inbox.unfinished() <= UNFINISHED_BYTES_MAX, "{}", inbox.unfinished());
    }

    /// However many long messages are sent at once, the receiver never has more of them in pieces
    /// than it accepts.
    #[test]
    fn senders_stay_within_the_receivers_limits() {
        let (mut outbox, mut inbox, mut wire) = (Outbox::default(), Inbox::default(), Vec::new());
        let large = vec![1; 15 << 20];
        for number in 0..64 {
            outbox.push(number, &large);
        }
        for number in 64..200 {
            outbox.push(number, &large[..LARGE_BYTES]);
        }
        let (mut found, mut most) = (Vec::new(), 0);
        while outbox.fill(&mut wire) {
            inbox.feed(&wire);
            inbox.take(|number, bytes| found.push((number, bytes.len()))).unwrap();
            most = most.max(inbox.unfinished());
            wire.clear();
        }
        assert!(most <= UNFINISHED_BYTES_MAX && !inbox.is_amid(), "{most}");
        // Other messages do not wait for the largest ones, and these arrive in order.
        assert!(found[..136].iter().all(|(_, length)| *length == LARGE_BYTES));
        let large = found[136..].iter().map(|(number, _)| *number);
        assert!(large.eq(0..64));
    }
}
