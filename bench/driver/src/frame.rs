//! Encoding of the driver protocol (`docs/driver-protocol.md`): little-endian
//! frames of a length, a type and a body.

use serval_model::{FieldSelection, Flush, OperationKind, OperationKinds, Outcome, Record, Reply, Status};
use std::collections::VecDeque;

/// "SRVL".
pub(crate) const MAGIC: u32 = 0x4c56_5253;
/// Version of the protocol.
pub(crate) const VERSION: u16 = 1;
/// Maximum bytes of a frame's type and body: a few records of the largest
/// values that stores accept.
pub(crate) const FRAME_MAX: usize = 256 << 20;

/// Types of Serval's frames.
pub(crate) mod request {
    pub(crate) const HELLO: u8 = 1;
    pub(crate) const PREPARE: u8 = 2;
    pub(crate) const OPEN: u8 = 3;
    pub(crate) const CLOSE: u8 = 4;
    pub(crate) const READ: u8 = 5;
    pub(crate) const UPDATE: u8 = 6;
    pub(crate) const INSERT: u8 = 7;
    pub(crate) const SCAN: u8 = 8;
    pub(crate) const DELETE: u8 = 9;
    pub(crate) const INSERT_BATCH: u8 = 10;
    pub(crate) const OPEN_APART: u8 = 11;
}

/// Types of a driver's frames.
pub(crate) mod response {
    pub(crate) const WELCOME: u8 = 1;
    pub(crate) const REFUSED: u8 = 2;
    pub(crate) const RESULT: u8 = 3;
}

/// Capability bit: accepts batches of inserts.
pub(crate) const CAN_BATCH: u32 = 1 << 5;
/// Capability bit: clients can have connections of their own.
pub(crate) const CAN_SERVE_APART: u32 = 1 << 6;

/// A violation of the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtocolError {
    #[error("a frame of {0} bytes; 1 to {FRAME_MAX} are allowed")]
    Length(u32),
    #[error("text instead of a frame: {0}")]
    Prose(String),
    #[error("a frame of the unexpected type {0}")]
    Type(u8),
    #[error("a truncated frame of type {0}")]
    Short(u8),
    #[error("a frame of type {0} with excess bytes")]
    Long(u8),
    #[error("text that is not UTF-8 in a frame of type {0}")]
    Text(u8),
    #[error("the unknown status {0}")]
    Status(u8),
    #[error("an answer to request {0}, which is not in flight")]
    Id(u32),
    #[error("{0} records; {1} are allowed")]
    Records(u32, u64),
    #[error("{0} flushes in one answer; {FLUSHES_MAX} are allowed")]
    Flushes(u32),
    #[error("protocol version {0}; this Serval speaks version {VERSION}")]
    Version(u16),
    #[error("a greeting without the protocol's magic number")]
    Magic,
}

/// Maximum bytes of text instead of a frame that a message shows.
const PROSE_BYTES_MAX: usize = 300;

/// Returns the bytes if they are text: the driver's program prints to its
/// standard output. Four ASCII letters exceed every frame's length.
fn prose(bytes: &[u8]) -> Option<String> {
    let shown = &bytes[..bytes.len().min(PROSE_BYTES_MAX)];
    let is_text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    let is_prose = bytes.len() >= 4 && shown.iter().all(is_text);
    is_prose.then(|| String::from_utf8_lossy(shown).split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Appends a frame. Appends nothing and returns false if it would be too long.
#[inline]
pub(crate) fn put_frame(out: &mut Vec<u8>, kind: u8, body: impl FnOnce(&mut Vec<u8>)) -> bool {
    let at = out.len();
    out.extend_from_slice(&[0, 0, 0, 0, kind]);
    body(out);
    let length = out.len() - at - 4;
    if length > FRAME_MAX {
        out.truncate(at);
        return false;
    }
    out[at..at + 4].copy_from_slice(&(length as u32).to_le_bytes());
    true
}

#[inline]
pub(crate) fn put_u16(out: &mut Vec<u8>, number: u16) {
    out.extend_from_slice(&number.to_le_bytes());
}

#[inline]
pub(crate) fn put_u32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

#[inline]
pub(crate) fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

/// Appends bytes or a text.
#[inline]
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    // Longer bytes exceed the frame's length anyway.
    put_u32(out, bytes.len().min(u32::MAX as usize) as u32);
    out.extend_from_slice(bytes);
}

pub(crate) fn put_pairs<'a>(out: &mut Vec<u8>, pairs: impl ExactSizeIterator<Item = (&'a str, &'a str)>) {
    put_u32(out, pairs.len() as u32);
    for (name, value) in pairs {
        put_bytes(out, name.as_bytes());
        put_bytes(out, value.as_bytes());
    }
}

#[inline]
pub(crate) fn put_record(out: &mut Vec<u8>, record: &Record) {
    put_u32(out, record.len() as u32);
    for (name, value) in record.iter() {
        put_bytes(out, name.as_bytes());
        put_bytes(out, value);
    }
}

#[inline]
pub(crate) fn put_fields(out: &mut Vec<u8>, fields: &FieldSelection) {
    put_u32(out, fields.len() as u32);
    for field in fields.iter() {
        put_bytes(out, field.as_bytes());
    }
}

/// Appends the answer to a request, with flushes if there are any.
pub(crate) fn put_result(
    out: &mut Vec<u8>,
    id: u32,
    status: Status,
    service_ns: u64,
    message: &str,
    records: &[Record],
    flushes: &[Flush],
) -> bool {
    put_frame(out, response::RESULT, |out| {
        put_u32(out, id);
        out.push(status as u8);
        put_u64(out, service_ns);
        put_bytes(out, message.as_bytes());
        put_u32(out, records.len() as u32);
        records.iter().for_each(|record| put_record(out, record));
        if !flushes.is_empty() {
            put_flushes(out, flushes);
        }
    })
}

/// Reader of a frame's body.
#[derive(Debug, Clone)]
pub(crate) struct FrameBody<'a> {
    kind: u8,
    rest: &'a [u8],
}

impl<'a> FrameBody<'a> {
    /// Splits a frame into type and body.
    pub(crate) fn of(frame: &'a [u8]) -> Result<(u8, FrameBody<'a>), ProtocolError> {
        let (&kind, rest) = frame.split_first().ok_or(ProtocolError::Length(0))?;
        Ok((kind, FrameBody { kind, rest }))
    }

    /// Returns a reader of the rest of a RESULT.
    pub(crate) fn result(rest: &'a [u8]) -> FrameBody<'a> {
        FrameBody { kind: response::RESULT, rest }
    }

    /// Returns the unread bytes.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    fn take(&mut self, count: usize) -> Result<&'a [u8], ProtocolError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(ProtocolError::Short(self.kind))?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], ProtocolError> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(ProtocolError::Short(self.kind))?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, ProtocolError> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, ProtocolError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, ProtocolError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, ProtocolError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], ProtocolError> {
        let length = self.u32()? as usize;
        self.take(length)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, ProtocolError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| ProtocolError::Text(self.kind))
    }

    pub(crate) fn pairs(&mut self) -> Result<Vec<(String, String)>, ProtocolError> {
        let count = self.u32()?;
        (0..count).map(|_| Ok((self.text()?.to_owned(), self.text()?.to_owned()))).collect()
    }

    pub(crate) fn fields(&mut self, fields: &mut FieldSelection) -> Result<(), ProtocolError> {
        fields.all();
        for _ in 0..self.u32()? {
            fields.push(self.text()?);
        }
        Ok(())
    }

    pub(crate) fn record(&mut self, record: &mut Record) -> Result<(), ProtocolError> {
        for _ in 0..self.u32()? {
            let name = self.text()?;
            record.push(name, self.bytes()?);
        }
        Ok(())
    }

    /// Checks that all bytes were read.
    pub(crate) fn end(self) -> Result<(), ProtocolError> {
        if self.rest.is_empty() { Ok(()) } else { Err(ProtocolError::Long(self.kind)) }
    }
}

/// An answer without its records.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AnswerHead<'a> {
    pub(crate) status: Status,
    pub(crate) service_ns: u64,
    pub(crate) message: &'a str,
}

/// Reads a RESULT's body after its id, with at most `records_max` records, into
/// `reply`.
pub(crate) fn answer<'a>(
    body: &mut FrameBody<'a>,
    records_max: u64,
    reply: &mut Reply,
) -> Result<AnswerHead<'a>, ProtocolError> {
    let status = body.u8()?;
    let status = *Status::ALL.get(usize::from(status)).ok_or(ProtocolError::Status(status))?;
    let service_ns = body.u64()?;
    let message = body.text()?;
    let count = body.u32()?;
    if u64::from(count) > records_max {
        return Err(ProtocolError::Records(count, records_max));
    }
    for _ in 0..count {
        body.record(reply.begin_record())?;
    }
    Ok(AnswerHead { status, service_ns, message })
}

/// Maximum number of flushes in one answer.
pub(crate) const FLUSHES_MAX: u32 = 1 << 16;

/// Reads the flushes after an answer's records, if there are any.
pub(crate) fn flushes(body: &mut FrameBody<'_>, flushes: &mut VecDeque<Flush>) -> Result<(), ProtocolError> {
    if body.rest.is_empty() {
        return Ok(());
    }
    let count = body.u32()?;
    if count > FLUSHES_MAX {
        return Err(ProtocolError::Flushes(count));
    }
    for _ in 0..count {
        let status = body.u8()?;
        let status = *Status::ALL.get(usize::from(status)).ok_or(ProtocolError::Status(status))?;
        let (took_ns, ago_ns, writes, lost) = (body.u64()?, body.u64()?, body.u64()?, body.u64()?);
        let message = body.text()?;
        let message = if message.is_empty() || status.is_ok() { None } else { Some(message.into()) };
        let outcome = Outcome { status, message };
        flushes.push_back(Flush { outcome, took_ns, ago_ns, writes, lost });
    }
    Ok(())
}

/// Appends flushes to an answer, as [`flushes`] reads them.
fn put_flushes(out: &mut Vec<u8>, flushes: &[Flush]) {
    put_u32(out, flushes.len() as u32);
    for flush in flushes {
        out.push(flush.outcome.status as u8);
        for number in [flush.took_ns, flush.ago_ns, flush.writes, flush.lost] {
            put_u64(out, number);
        }
        put_bytes(out, flush.outcome.message.as_deref().unwrap_or_default().as_bytes());
    }
}

/// Returns the verbs of a driver's capabilities.
pub(crate) fn verbs(capabilities: u32) -> OperationKinds {
    OperationKind::ALL.into_iter().filter(|kind| capabilities & (1 << *kind as u32) != 0).collect()
}

/// Splits a stream of bytes into frames.
#[derive(Debug, Default)]
pub(crate) struct FrameBuffer {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

/// Minimum space for a read, bytes.
const READ_ROOM: usize = 64 << 10;

impl FrameBuffer {
    /// Returns the space for the next read. Report its length with [`Self::filled`].
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.buffer.len() - self.end < READ_ROOM {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            // Doubles, so that a long frame is copied only a few times. The announced
            // length alone allocates nothing.
            let wanted = (2 * self.end).max(self.end + READ_ROOM);
            self.buffer.resize(self.buffer.len().max(wanted), 0);
        }
        &mut self.buffer[self.end..]
    }

    /// Adds the bytes that a read has put into [`Self::room`].
    pub(crate) fn filled(&mut self, count: usize) {
        self.end += count;
    }

    /// Returns the next complete frame, type first.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, ProtocolError> {
        let unread = &self.buffer[self.start..self.end];
        let Some((length, rest)) = unread.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length);
        if length == 0 || length as usize > FRAME_MAX {
            return Err(prose(unread).map_or(ProtocolError::Length(length), ProtocolError::Prose));
        }
        let length = length as usize;
        if rest.len() < length {
            return Ok(None);
        }
        let from = self.start + 4;
        self.start = from + length;
        Ok(Some(&self.buffer[from..from + length]))
    }

    /// Returns whether a part of a frame is buffered.
    pub(crate) fn is_partial(&self) -> bool {
        self.start < self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn feed(frames: &mut FrameBuffer, mut bytes: &[u8]) -> Result<Vec<Vec<u8>>, ProtocolError> {
        let mut all = Vec::new();
        while !bytes.is_empty() {
            let room = frames.room();
            let count = room.len().min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
            frames.filled(count);
            bytes = &bytes[count..];
            while let Some(frame) = frames.next()? {
                all.push(frame.to_vec());
            }
        }
        Ok(all)
    }

    #[test]
    fn text_instead_of_frames_is_quoted() {
        let text = b"Error occurred during initialization of VM\nToo small maximum heap\n";
        let mut frames = FrameBuffer::default();
        frames.room()[..text.len()].copy_from_slice(text);
        frames.filled(text.len());
        let words = frames.next().unwrap_err().to_string();
        let expected =
            "text instead of a frame: Error occurred during initialization of VM Too small maximum heap";
        assert_eq!(words, expected);
    }

    #[test]
    fn invalid_lengths_are_refused() {
        for length in [0u32, FRAME_MAX as u32 + 1, u32::MAX] {
            let fed = feed(&mut FrameBuffer::default(), &length.to_le_bytes());
            assert_eq!(fed, Err(ProtocolError::Length(length)));
        }
    }

    proptest! {
        /// Bodies are patterns, because drawing 1.5 MB per case takes a hundred times as long as the check.
        #[test]
        fn frames_survive_a_round_trip_in_pieces_of_any_size(
            bodies in prop::collection::vec((0usize..300_000, any::<u8>()), 0..6),
            cut in 1usize..100_000,
        ) {
            // A prime length, so that misplaced bytes differ.
            let body = |(length, seed): (usize, u8)| {
                let pattern: Vec<u8> = (0..251).map(|byte| byte ^ seed).collect();
                let mut body = pattern.repeat(length / pattern.len() + 1);
                body.truncate(length);
                body
            };
            let bodies: Vec<Vec<u8>> = bodies.into_iter().map(body).collect();
            let mut bytes = Vec::new();
            for body in &bodies {
                prop_assert!(put_frame(&mut bytes, 7, |out| out.extend_from_slice(body)));
            }
            let (mut frames, mut all) = (FrameBuffer::default(), Vec::new());
            for part in bytes.chunks(cut) {
                all.extend(feed(&mut frames, part).unwrap());
            }
            prop_assert!(!frames.is_partial());
            let expected: Vec<Vec<u8>> = bodies.iter().map(|body| [&[7u8][..], body].concat()).collect();
            // Not prop_assert_eq, which would print all bodies.
            prop_assert!(all == expected);
        }

        #[test]
        fn results_survive_a_round_trip(
            id: u32, service: u64, message in ".{0,20}",
            status in prop::sample::select(&Status::ALL[..]),
            records in prop::collection::vec(prop::collection::vec((".{0,5}", prop::collection::vec(any::<u8>(), 0..20)), 0..4), 0..4),
        ) {
            let records: Vec<Record> = records
                .iter()
                .map(|record| record.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect())
                .collect();
            let mut bytes = Vec::new();
            prop_assert!(put_result(&mut bytes, id, status, service, &message, &records, &[]));
            let (kind, mut body) = FrameBody::of(&bytes[4..]).unwrap();
            prop_assert_eq!((kind, body.u32().unwrap()), (response::RESULT, id));
            let mut reply = Reply::new();
            let read = answer(&mut body, 4, &mut reply).unwrap();
            prop_assert_eq!(read, AnswerHead { status, service_ns: service, message: &message });
            prop_assert_eq!(reply.records(), &records[..]);
            prop_assert_eq!(body.end(), Ok(()));
        }

        #[test]
        fn flushes_survive_a_round_trip(
            given in prop::collection::vec(
                (prop::sample::select(&Status::ALL[..]), any::<[u32; 4]>(), "[a-z]{1,9}"), 1..9,
            ),
        ) {
            let given: Vec<Flush> = given
                .into_iter()
                .map(|(status, [took, ago, writes, lost], words)| Flush {
                    outcome: Outcome { status, message: (!status.is_ok()).then(|| words.into()) },
                    took_ns: took.into(),
                    ago_ns: ago.into(),
                    writes: writes.into(),
                    lost: lost.into(),
                })
                .collect();
            let mut bytes = Vec::new();
            put_flushes(&mut bytes, &given);
            let (mut body, mut read) = (FrameBody::result(&bytes), VecDeque::new());
            prop_assert_eq!(flushes(&mut body, &mut read), Ok(()));
            prop_assert_eq!(body.clone().end(), Ok(()));
            prop_assert_eq!(Vec::from(read), given);
            // An empty rest of an answer means no flushes.
            prop_assert_eq!(flushes(&mut body, &mut VecDeque::new()), Ok(()));
        }

        #[test]
        fn arbitrary_bytes_do_not_break_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let (_, mut body) = match FrameBody::of(&bytes) { Ok(parts) => parts, Err(_) => return Ok(()) };
            let mut reply = Reply::new();
            let _ = body.clone().pairs();
            let _ = body.clone().fields(&mut FieldSelection::default());
            let _ = flushes(&mut body.clone(), &mut VecDeque::new());
            let _ = answer(&mut body, 4, &mut reply);
            let _ = feed(&mut FrameBuffer::default(), &bytes);
        }
    }
}
