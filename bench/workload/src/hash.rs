//! The hash in YCSB's keys. It is part of the format of data sets that YCSB
//! loaded, so it must never change.

const OFFSET: u64 = 0xCBF2_9CE4_8422_2325;
const PRIME: u64 = 1_099_511_628_211;

/// Returns YCSB's hash of a key number: the absolute value, as a Java `long`, of the
/// FNV-1a hash (Fowler, Noll, Vo; see RFC 9923) of the eight bytes of `value`,
/// lowest first.
///
/// The result is below 2^63 except for one hash in 2^64: the absolute value of
/// Java's smallest `long` is that number itself, which is 2^63 here. Java
/// prints it with a minus sign.
///
/// Example: `fnv64(0)` is 6284781860667377211, so key number 0 is
/// `user6284781860667377211`.
#[inline]
pub fn fnv64(value: u64) -> u64 {
    let mut hash = OFFSET;
    for octet in value.to_le_bytes() {
        hash = (hash ^ u64::from(octet)).wrapping_mul(PRIME);
    }
    (hash as i64).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::fnv64;

    #[test]
    fn hashes_equal_known_values() {
        assert_eq!(fnv64(0), 6_284_781_860_667_377_211);
    }
}
