//! Encoding and decoding of numbers and byte strings.

use thiserror::Error;
use yesquel_model::{GroupEpoch, Key, KeyRange, NodeId, ServerId, Timestamp, TxnId, limits};

/// Bytes that violate the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("malformed message: {what} at byte {offset}")]
pub struct Malformed {
    /// What is wrong.
    pub what: &'static str,
    /// Offset from the start of the message.
    pub offset: usize,
}

/// Decodes a message from its start.
#[derive(Debug, Clone, Copy)]
pub struct ByteReader<'a> {
    rest: &'a [u8],
    length: usize,
}

impl<'a> ByteReader<'a> {
    /// Starts at the beginning of a message.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        ByteReader { rest: bytes, length: bytes.len() }
    }

    /// Bytes that are not read yet.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether everything has been read.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns an error at the current offset.
    #[inline]
    pub fn malformed(&self, what: &'static str) -> Malformed {
        Malformed { what, offset: self.length - self.rest.len() }
    }

    /// Checks that everything has been read.
    #[inline]
    pub fn finish(self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.malformed("trailing bytes")) }
    }

    /// Reads one byte.
    #[inline]
    pub fn byte(&mut self) -> Result<u8, Malformed> {
        let (first, rest) = self.rest.split_first().ok_or_else(|| self.malformed("an unexpected end"))?;
        self.rest = rest;
        Ok(*first)
    }

    /// Reads eight bytes, little-endian.
    #[inline]
    pub fn fixed(&mut self) -> Result<u64, Malformed> {
        let (number, rest) =
            self.rest.split_first_chunk().ok_or_else(|| self.malformed("an unexpected end"))?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*number))
    }

    /// Reads a varint in its shortest form.
    #[inline]
    pub fn number(&mut self) -> Result<u64, Malformed> {
        match self.rest {
            [byte, rest @ ..] if *byte < 0x80 => {
                self.rest = rest;
                Ok(u64::from(*byte))
            }
            _ => self.long_number(),
        }
    }

    /// Reads a varint of several bytes, or of none.
    fn long_number(&mut self) -> Result<u64, Malformed> {
        let before = *self;
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                return Err(before.malformed("a number beyond 64 bits"));
            }
            number |= part << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    return Err(before.malformed("an overlong number"));
                }
                return Ok(number);
            }
        }
        Err(before.malformed("a number beyond 64 bits"))
    }

    /// Reads a number of items. Each item takes at least one byte, so that the number cannot exceed
    /// the bytes that are left.
    #[inline]
    pub fn count(&mut self) -> Result<usize, Malformed> {
        let before = *self;
        let count = self.number()?;
        match usize::try_from(count) {
            Ok(count) if count <= self.rest.len() => Ok(count),
            _ => Err(before.malformed("a length beyond the message")),
        }
    }

    /// Reads a length and so many bytes.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.count()?;
        let (bytes, rest) = self.rest.split_at(length);
        self.rest = rest;
        Ok(bytes)
    }

    /// Reads a key.
    #[inline]
    pub fn key(&mut self) -> Result<&'a [u8], Malformed> {
        self.key_up_to(limits::KEY_BYTES_MAX)
    }

    /// Reads a bound of a key range.
    #[inline]
    pub fn bound(&mut self) -> Result<&'a [u8], Malformed> {
        self.key_up_to(limits::BOUND_BYTES_MAX)
    }

    #[inline]
    fn key_up_to(&mut self, bytes_max: usize) -> Result<&'a [u8], Malformed> {
        let before = *self;
        let key = self.bytes()?;
        if key.len() > bytes_max { Err(before.malformed("a key over the limit")) } else { Ok(key) }
    }

    /// Reads a node id.
    #[inline]
    pub fn node(&mut self) -> Result<NodeId, Malformed> {
        let (bits, rest) =
            self.rest.split_first_chunk().ok_or_else(|| self.malformed("an unexpected end"))?;
        self.rest = rest;
        Ok(NodeId::from_bits(u128::from_le_bytes(*bits)))
    }

    /// Reads a timestamp.
    #[inline]
    pub fn timestamp(&mut self) -> Result<Timestamp, Malformed> {
        Ok(Timestamp(self.fixed()?))
    }

    /// Reads the epoch of a group.
    #[inline]
    pub fn epoch(&mut self) -> Result<GroupEpoch, Malformed> {
        let before = *self;
        let era = u32::try_from(self.number()?).map_err(|_| before.malformed("an era beyond 32 bits"))?;
        Ok(GroupEpoch { era, index: self.number()? })
    }

    /// Reads a transaction id.
    pub fn txn(&mut self) -> Result<TxnId, Malformed> {
        Ok(TxnId { client: self.fixed()?, number: self.number()? })
    }

    /// Reads a server id.
    pub fn server(&mut self) -> Result<ServerId, Malformed> {
        let before = *self;
        let number = u16::try_from(self.number()?);
        number.map(ServerId).map_err(|_| before.malformed("a server beyond 16 bits"))
    }

    /// Reads a flag.
    #[inline]
    pub fn flag(&mut self) -> Result<bool, Malformed> {
        let before = *self;
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(before.malformed("a flag that is neither 0 nor 1")),
        }
    }

    /// Reads a key range.
    pub fn range(&mut self) -> Result<KeyRange, Malformed> {
        let low = Key::from(self.bound()?);
        let high = if self.flag()? { Some(Key::from(self.bound()?)) } else { None };
        Ok(KeyRange { low, high })
    }
}

/// Encodes a message at the end of a buffer.
#[derive(Debug)]
pub struct ByteWriter<'a>(pub &'a mut Vec<u8>);

impl ByteWriter<'_> {
    /// Writes one byte.
    #[inline]
    pub fn byte(&mut self, byte: u8) -> &mut Self {
        self.0.push(byte);
        self
    }

    /// Writes eight bytes, little-endian.
    #[inline]
    pub fn fixed(&mut self, number: u64) -> &mut Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    /// Writes a varint.
    #[inline]
    pub fn number(&mut self, mut number: u64) -> &mut Self {
        while number > 0x7f {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.byte(number as u8)
    }

    /// Writes the length of what `write` writes, then that.
    #[inline]
    pub fn within(&mut self, write: impl FnOnce(&mut ByteWriter<'_>)) -> &mut Self {
        let start = self.0.len();
        // The length usually fits into one byte.
        self.0.push(0);
        write(&mut ByteWriter(self.0));
        let length = self.0.len() - start - 1;
        match u8::try_from(length) {
            Ok(length @ 0..=0x7f) => self.0[start] = length,
            _ => self.put_length(start, length),
        }
        self
    }

    fn put_length(&mut self, at: usize, length: usize) {
        let mut number = Vec::new();
        ByteWriter(&mut number).number(length as u64);
        self.0.splice(at..=at, number);
    }

    /// Writes a length and the bytes.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// Writes a node id.
    #[inline]
    pub fn node(&mut self, node: NodeId) -> &mut Self {
        self.0.extend_from_slice(&node.to_bits().to_le_bytes());
        self
    }

    /// Writes a timestamp.
    #[inline]
    pub fn timestamp(&mut self, timestamp: Timestamp) -> &mut Self {
        self.fixed(timestamp.0)
    }

    /// Writes the epoch of a group.
    pub fn epoch(&mut self, epoch: GroupEpoch) -> &mut Self {
        self.number(u64::from(epoch.era)).number(epoch.index)
    }

    /// Writes a transaction id.
    pub fn txn(&mut self, txn: TxnId) -> &mut Self {
        self.fixed(txn.client).number(txn.number)
    }

    /// Writes a flag.
    #[inline]
    pub fn flag(&mut self, flag: bool) -> &mut Self {
        self.byte(flag.into())
    }

    /// Writes a key range.
    pub fn range(&mut self, range: &KeyRange) -> &mut Self {
        self.bytes(&range.low).flag(range.high.is_some());
        if let Some(high) = &range.high {
            self.bytes(high);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nested_writes_get_their_length() {
        for length in [0, 1, 127, 128, 300, 20_000] {
            let (bytes, mut plain, mut within) = (vec![7; length], vec![1], vec![1]);
            ByteWriter(&mut plain).bytes(&bytes).byte(2);
            ByteWriter(&mut within).within(|writer| writer.0.extend_from_slice(&bytes)).byte(2);
            assert_eq!(within, plain);
        }
    }

    proptest! {
        #[test]
        fn values_round_trip(number: u64, bytes: Vec<u8>, flag: bool) {
            let mut all = Vec::new();
            let range = KeyRange { low: bytes.clone().into(), high: flag.then(|| bytes.clone().into()) };
            ByteWriter(&mut all).number(number).bytes(&bytes).flag(flag).fixed(number).range(&range);
            let mut reader = ByteReader::new(&all);
            prop_assert_eq!(reader.number(), Ok(number));
            prop_assert_eq!(reader.bytes(), Ok(&bytes[..]));
            prop_assert_eq!(reader.flag(), Ok(flag));
            prop_assert_eq!(reader.fixed(), Ok(number));
            prop_assert_eq!(reader.range(), Ok(range));
            prop_assert_eq!(reader.finish(), Ok(()));
        }

        /// Each number has one encoding.
        #[test]
        fn numbers_have_one_encoding(bytes: Vec<u8>) {
            let mut reader = ByteReader::new(&bytes);
            if let Ok(number) = reader.number() {
                let mut again = Vec::new();
                ByteWriter(&mut again).number(number);
                prop_assert_eq!(&again[..], &bytes[..bytes.len() - reader.rest().len()]);
            }
        }
    }

    #[test]
    fn lengths_beyond_the_message_are_malformed() {
        let mut reader = ByteReader::new(&[1, 200, 1, 0]);
        assert_eq!(reader.number(), Ok(1));
        let error = reader.bytes().unwrap_err();
        assert_eq!(error.to_string(), "malformed message: a length beyond the message at byte 1");
    }
}
