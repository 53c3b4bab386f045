//! The format of a timestamp or value in a record: the 8 bytes of YCSB's
//! `NumericByteIterator`, highest first. An integer is a two's complement
//! `long`; a real number is the bits of an IEEE 754 `double`.
//!
//! The bytes do not show which of the two they are (YCSB keeps a separate
//! flag). Timestamps are integers, and `valuetype` determines the type of
//! values; with `valuetype=mixednumbers` only the writer knows it.
//!
//! Example: the timestamp 1483228800 is `00 00 00 00 58 68 46 80`.

/// Encodes an integer.
#[inline]
pub fn encode_long(value: i64) -> [u8; 8] {
    value.to_be_bytes()
}

/// Encodes a real number.
#[inline]
pub fn encode_double(value: f64) -> [u8; 8] {
    value.to_bits().to_be_bytes()
}

/// Decodes the integer in a field; `None` if the field is not 8 bytes long.
#[inline]
pub fn decode_long(field: &[u8]) -> Option<i64> {
    field.try_into().ok().map(i64::from_be_bytes)
}

/// Decodes the real number in a field; `None` if the field is not 8 bytes long.
#[inline]
pub fn decode_double(field: &[u8]) -> Option<f64> {
    field.try_into().ok().map(|bytes| f64::from_bits(u64::from_be_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_a_round_trip() {
        assert_eq!(encode_long(1_483_228_800), [0, 0, 0, 0, 0x58, 0x68, 0x46, 0x80]);
        for value in [0, 1, -1, i64::MAX, i64::MIN] {
            assert_eq!(decode_long(&encode_long(value)), Some(value));
        }
        for value in [0.0, -0.0, 42.5, f64::MAX] {
            assert_eq!(decode_double(&encode_double(value)).map(f64::to_bits), Some(value.to_bits()));
        }
        assert_eq!((decode_long(b"1483228800"), decode_double(b"")), (None, None));
    }
}
