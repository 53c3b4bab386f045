//! Frames: how messages of many requests travel together, in pieces if they
//! are long. `docs/yesquel/wire.md` has the format.

use crate::{Malformed, Reader, Writer};
use std::{
    collections::{HashMap, VecDeque},
    io::{self, Read},
};
use thiserror::Error;

/// Bytes of a frame after its head.
pub const FRAME_BYTES_MAX: usize = 64 << 10;
/// Length and checksum.
pub const HEAD_BYTES: usize = 8;
/// Bytes of a message.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Bytes of a message that go into one frame, so that others find room too.
const PIECE_BYTES_MAX: usize = 16 << 10;
/// Messages that a connection may have in pieces at a time.
const UNFINISHED_MAX: usize = 64;
/// Bytes that these may have together.
pub const UNFINISHED_BYTES_MAX: usize = 64 << 20;
/// Bytes above which a message is one of the largest, of which few go at a time:
/// so what is sent keeps within what may be in pieces.
const LARGE_BYTES: usize = 256 << 10;
const LARGE_AT_ONCE: usize = 3;
const LONG_AT_ONCE: usize = UNFINISHED_MAX - LARGE_AT_ONCE;
const _: () = assert!(LARGE_AT_ONCE * MESSAGE_BYTES_MAX + LONG_AT_ONCE * LARGE_BYTES <= UNFINISHED_BYTES_MAX);

/// Why nothing more can be read from a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FrameError {
    /// A frame is longer than frames are.
    #[error("a frame of {0} bytes, and the most is {FRAME_BYTES_MAX}")]
    TooLong(u32),
    /// Its checksum is another.
    #[error("a frame whose checksum is wrong")]
    Checksum,
    /// What is in it is no message.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A message is longer than messages are.
    #[error("a message of more than {MESSAGE_BYTES_MAX} bytes")]
    MessageTooLong,
    /// Too many messages are begun and not ended.
    #[error("more than {UNFINISHED_MAX} messages are under way in pieces")]
    TooMany,
    /// They have too many bytes.
    #[error("messages of more than {UNFINISHED_BYTES_MAX} bytes together are under way in pieces")]
    TooMuch,
}

/// A message: the request's number, and bytes.
pub type Message = (u64, Vec<u8>);

/// Messages that wait to be sent, as frames. Long ones take turns with the
/// others.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Frames; the last one is open from `open` on, if that is within.
    frames: Vec<u8>,
    open: usize,
    /// Those that go in pieces, the largest apart: else a few of them would
    /// have all the others wait.
    long: VecDeque<Long>,
    large: VecDeque<Long>,
    long_bytes: usize,
}

/// A message that goes in pieces.
#[derive(Debug)]
struct Long {
    number: u64,
    bytes: Vec<u8>,
    sent: usize,
}

/// A number, a flag and a length take no more than this.
const PIECE_HEAD: usize = 16;

impl Outbox {
    /// Adds a message. Longer ones than [`MESSAGE_BYTES_MAX`] are not for here.
    pub fn push(&mut self, number: u64, bytes: &[u8]) {
        if bytes.len() > PIECE_BYTES_MAX {
            self.long_bytes += bytes.len();
            let waiting = if bytes.len() > LARGE_BYTES { &mut self.large } else { &mut self.long };
            waiting.push_back(Long { number, bytes: bytes.to_vec(), sent: 0 });
        } else {
            self.piece(number, true, bytes);
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

    /// Adds a piece to the open frame, or to the next one.
    fn piece(&mut self, number: u64, is_last: bool, bytes: &[u8]) {
        if self.open < self.frames.len() {
            let body = self.frames.len() - self.open - HEAD_BYTES;
            if body + PIECE_HEAD + bytes.len() > FRAME_BYTES_MAX {
                self.close();
            }
        }
        if self.open == self.frames.len() {
            self.frames.extend_from_slice(&[0; HEAD_BYTES]);
        }
        Writer(&mut self.frames).number(number).flag(is_last).bytes(bytes);
    }

    /// Gives the open frame its head.
    fn close(&mut self) {
        let body = self.open + HEAD_BYTES;
        if let Some(frame) = self.frames.get(body..) {
            let (length, crc) = (frame.len() as u32, crc32fast::hash(frame));
            self.frames[self.open..body - 4].copy_from_slice(&length.to_le_bytes());
            self.frames[body - 4..body].copy_from_slice(&crc.to_le_bytes());
        }
        self.open = self.frames.len();
    }

    /// Adds a piece of each of the first of those that wait.
    fn take_turns(&mut self, waiting: &mut VecDeque<Long>, at_once: usize) {
        let (mut at, mut turns) = (0, waiting.len().min(at_once));
        while at < turns
            && let Some(Long { number, bytes, sent }) = waiting.get_mut(at)
        {
            let end = bytes.len().min(*sent + PIECE_BYTES_MAX);
            let is_last = end == bytes.len();
            self.piece(*number, is_last, &bytes[*sent..end]);
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

    /// Appends frames of what waits, a piece of each long message whose turn it
    /// is; `false` if nothing waits. What is appended is at most what was pushed
    /// since, and those pieces.
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

/// Puts messages together again from the bytes of a connection.
#[derive(Debug, Default)]
pub struct Inbox {
    /// Bytes that came stand from `taken` to `end`.
    bytes: Vec<u8>,
    taken: usize,
    end: usize,
    /// Of the frame that begins at `taken`, bytes of the body whose messages were
    /// given already: its checksum was right.
    given: usize,
    unfinished: HashMap<u64, Vec<u8>>,
    unfinished_bytes: usize,
}

/// Bytes that are read at once: a frame and the next one's head.
const READ_BYTES: usize = FRAME_BYTES_MAX + 2 * HEAD_BYTES;

impl Inbox {
    /// Room for so many bytes behind those that are there.
    fn reserve(&mut self, count: usize) {
        if self.taken > 0 {
            // At most a part of a frame is left, mostly nothing.
            self.bytes.copy_within(self.taken..self.end, 0);
            self.end -= self.taken;
            self.taken = 0;
        }
        if self.bytes.len() < self.end + count {
            self.bytes.resize(self.end + count, 0);
        }
    }

    /// Takes bytes as they came.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        self.bytes[self.end..self.end + bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// Reads once. Returns how many bytes came, and whether as many as there
    /// was room for: then there may be more.
    pub fn read_from(&mut self, source: &mut impl Read) -> io::Result<(usize, bool)> {
        self.reserve(READ_BYTES);
        let room = &mut self.bytes[self.end..];
        let room = &mut room[..READ_BYTES];
        let count = source.read(room)?;
        self.end += count;
        Ok((count, count == READ_BYTES))
    }

    /// Bytes that came and are not taken yet, before there are frames.
    pub fn unread(&self) -> &[u8] {
        &self.bytes[self.taken..self.end]
    }

    /// So many of them are.
    pub fn skip(&mut self, count: usize) {
        self.taken = self.end.min(self.taken + count);
    }

    /// Bytes that it holds.
    pub fn held(&self) -> usize {
        self.end - self.taken + self.unfinished_bytes
    }

    /// Of these, bytes of messages that came in pieces and are not whole yet.
    pub fn unfinished(&self) -> usize {
        self.unfinished_bytes
    }

    /// Whether a frame or a message is begun and not ended, or not taken.
    pub fn is_amid(&self) -> bool {
        self.end > self.taken || !self.unfinished.is_empty()
    }

    /// Gives the messages that are whole now. After an error there is nothing
    /// more to be had from the connection.
    pub fn take(&mut self, mut each: impl FnMut(u64, &[u8])) -> Result<(), FrameError> {
        self.take_while(|number, message| {
            each(number, message);
            true
        })
    }

    /// Gives the messages that are whole now, until `each` returns `false`; the
    /// next call goes on behind the last that was given. After an error nothing
    /// more can be read from the connection.
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
            let mut reader = Reader::new(body.get(self.given..).unwrap_or_default());
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
        /// Messages come out as they went in, however long they are and however
        /// the bytes are cut on their way.
        #[test]
        fn messages_come_out_as_they_went_in(
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
            // Long ones are overtaken.
            found.sort_by_key(|(number, _)| *number);
            prop_assert_eq!(found, expected);
            prop_assert_eq!(inbox.held(), 0);
        }

        /// No bytes break it, or make it hold more than it was given.
        #[test]
        fn no_bytes_break_the_inbox(bytes: Vec<u8>, at: prop::sample::Index, byte: u8) {
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
                // Refused, or waiting for more than will come.
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

    /// Whoever stops anywhere goes on behind it.
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
    fn what_is_too_long_or_too_much_is_refused() {
        let mut inbox = Inbox::default();
        inbox.feed(b"GET / HTTP/1.1\r\n\r\n");
        assert_eq!(inbox.take(|_, _| {}), Err(FrameError::TooLong(u32::from_le_bytes(*b"GET "))));
        let frame = |pieces: &[(u64, bool, usize)]| {
            let mut body = Vec::new();
            for (number, is_last, length) in pieces {
                Writer(&mut body).number(*number).flag(*is_last).bytes(&vec![0; *length]);
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
        // Each of them is as long as it may be, and they are too long together.
        let mut inbox = Inbox::default();
        let outcome = (0..10_000u64).find_map(|at| {
            inbox.feed(&frame(&[(at % 5, false, 60_000)]));
            inbox.take(|_, _| {}).err()
        });
        assert_eq!(outcome, Some(FrameError::TooMuch));
        assert!(inbox.unfinished() <= UNFINISHED_BYTES_MAX, "{}", inbox.unfinished());
    }

    /// However many long ones are to be sent at once, whoever takes them has no
    /// more of them in pieces than he takes.
    #[test]
    fn what_is_sent_keeps_within_what_is_taken() {
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
        // The largest of all are not waited for by the others, and go in order.
        assert!(found[..136].iter().all(|(_, length)| *length == LARGE_BYTES));
        let large = found[136..].iter().map(|(number, _)| *number);
        assert!(large.eq(0..64));
    }
}
