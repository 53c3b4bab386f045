//! Stamps at the start of values, which tell a reader the writer and its version:
//! `WRITER.VERSION.`, in base 36 and of fixed width.

use serde::{Deserialize, Serialize};
use std::array;

/// The writer of a value and its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Stamp {
    /// Number of a process in one run. Later runs have greater numbers. Below [`WRITER_END`].
    pub writer: u64,
    /// Number of the write in the order of sending, from 1. Below [`VERSION_END`].
    pub version: u64,
}

const WRITER_DIGITS: usize = 10;
const VERSION_DIGITS: usize = 8;

/// Length of a stamp, bytes. Shorter values are not stamped.
pub const LENGTH: usize = WRITER_DIGITS + 1 + VERSION_DIGITS + 1;

/// One past the last number of a writer.
pub const WRITER_END: u64 = 36u64.pow(WRITER_DIGITS as u32);

/// One past the last version of a writer.
pub const VERSION_END: u64 = 36u64.pow(VERSION_DIGITS as u32);

/// Bits of a writer's number that distinguish processes that started in the same millisecond.
const APART_BITS: u32 = 10;

/// Returns the number of a writer that started `unix_ms` milliseconds after 1970; `apart`
/// distinguishes it from others of that millisecond. Valid until the year 2083.
pub fn writer(unix_ms: u64, apart: u64) -> u64 {
    (unix_ms << APART_BITS | apart & ((1 << APART_BITS) - 1)) % WRITER_END
}

fn digits<const N: usize>(mut number: u64) -> [u8; N] {
    let mut text = [b'0'; N];
    for place in text.iter_mut().rev() {
        *place = b"0123456789abcdefghijklmnopqrstuvwxyz"[(number % 36) as usize];
        number /= 36;
    }
    text
}

fn number(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |number, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'z' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number * 36 + u64::from(value))
    })
}

impl Stamp {
    /// Returns the stamp's bytes.
    pub fn bytes(self) -> [u8; LENGTH] {
        let (writer, version) =
            (digits::<WRITER_DIGITS>(self.writer), digits::<VERSION_DIGITS>(self.version));
        let version_at = WRITER_DIGITS + 1;
        array::from_fn(|at| match at {
            at if at < WRITER_DIGITS => writer[at],
            at if (version_at..LENGTH - 1).contains(&at) => version[at - version_at],
            _ => b'.',
        })
    }

    /// Returns the stamp at the start of a value.
    pub fn of(value: &[u8]) -> Option<Stamp> {
        let text = value.get(..LENGTH)?;
        let (writer, rest) = text.split_at(WRITER_DIGITS);
        let version = rest.strip_prefix(b".")?.strip_suffix(b".")?;
        Some(Stamp { writer: number(writer)?, version: number(version)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_stamp_has_the_documented_format() {
        let stamp = Stamp { writer: 36 + 1, version: 35 };
        assert_eq!(&stamp.bytes(), b"0000000011.0000000z.");
        assert_eq!(Stamp::of(b"0000000011.0000000z.and more"), Some(stamp));
        for no in [
            "",
            "0000000011.0000000z",
            "000000001!.0000000z.",
            "0000000011,0000000z.",
            "0000000011.0000000Z.",
        ] {
            assert_eq!(Stamp::of(no.as_bytes()), None, "{no}");
        }
    }

    #[test]
    fn later_writers_have_greater_numbers() {
        assert!(writer(1_760_000_000_000, 1023) < writer(1_760_000_000_001, 0));
        assert!(writer(3_500_000_000_000, u64::MAX) < WRITER_END);
        assert_ne!(writer(5, 1), writer(5, 2));
    }

    proptest! {
        #[test]
        fn written_stamps_are_parsed(writer in 0..WRITER_END, version in 0..VERSION_END, more: Vec<u8>) {
            let stamp = Stamp { writer, version };
            let mut value = stamp.bytes().to_vec();
            value.extend(more);
            prop_assert_eq!(Stamp::of(&value), Some(stamp));
        }
    }
}
