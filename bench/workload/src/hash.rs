//! The two hashes that YCSB's data depend on. Both are part of the format of
//! a data set that YCSB loaded, so neither may ever change.

const OFFSET: u64 = 0xCBF2_9CE4_8422_2325;
const PRIME: u64 = 1_099_511_628_211;

/// YCSB's hash of a key number: the FNV-1a hash (Fowler, Noll, Vo; see
/// RFC 9923) of the eight octets of `value`, the lowest first, and of that
/// the absolute value as a Java `long`.
///
/// The result is below 2^63 but for one hash in 2^64: the absolute value of
/// Java's smallest `long` is that number itself, which is 2^63 here. Java
/// prints it with a minus sign.
///
/// Example: `fnv64(0)` is 6284781860667377211, so that key number 0 is
/// stored as `user6284781860667377211`.
#[inline]
pub fn fnv64(value: u64) -> u64 {
    let mut hash = OFFSET;
    for octet in value.to_le_bytes() {
        hash = (hash ^ u64::from(octet)).wrapping_mul(PRIME);
    }
    (hash as i64).unsigned_abs()
}

/// Java's `String.hashCode` of a text of ASCII characters:
/// `s[0] 31^(n-1) + s[1] 31^(n-2) + ... + s[n-1]` modulo 2^32. O(n).
#[inline]
pub fn java_string_hash(text: &[u8]) -> i32 {
    java_string_hash_from(0, text)
}

/// The hash of a longer text, from the `hash` of its beginning and the `text`
/// that follows, so that a growing text is hashed in linear time. The hash of
/// the empty text is 0.
#[inline]
pub fn java_string_hash_from(hash: i32, text: &[u8]) -> i32 {
    // Eight characters at a time, as sums of products that do not wait for
    // each other: the plain loop waits for a multiplication a character.
    const POWERS: [u32; 9] = {
        let mut powers = [1u32; 9];
        let mut i = 1;
        while i < powers.len() {
            powers[i] = powers[i - 1].wrapping_mul(31);
            i += 1;
        }
        powers
    };
    let mut hash = hash as u32;
    let (blocks, rest) = text.as_chunks::<8>();
    for block in blocks {
        let mut sum = hash.wrapping_mul(POWERS[8]);
        for (octet, power) in block.iter().zip(POWERS[..8].iter().rev()) {
            sum = sum.wrapping_add(u32::from(*octet).wrapping_mul(*power));
        }
        hash = sum;
    }
    for octet in rest {
        hash = hash.wrapping_mul(31).wrapping_add(u32::from(*octet));
    }
    hash as i32
}

#[cfg(test)]
mod tests {
    use super::{fnv64, java_string_hash, java_string_hash_from};
    use proptest::{prop_assert_eq, proptest};

    #[test]
    fn known_hashes() {
        assert_eq!(fnv64(0), 6_284_781_860_667_377_211);
        assert_eq!(java_string_hash(b""), 0);
        assert_eq!(java_string_hash(b"a"), 97);
        // Two texts that are known to collide on Java's smallest int.
        assert_eq!(java_string_hash(b"polygenelubricants"), i32::MIN);
        assert_eq!(java_string_hash(b"GydZG_"), i32::MIN);
    }

    proptest! {
        #[test]
        fn text_hash_is_that_of_the_definition(text in "[ -~]{0,100}", cut in 0usize..100) {
            let bytes = text.as_bytes();
            let slow = bytes.iter().fold(0i32, |hash, &octet| {
                hash.wrapping_mul(31).wrapping_add(i32::from(octet))
            });
            prop_assert_eq!(java_string_hash(bytes), slow);
            let (head, tail) = bytes.split_at(cut.min(bytes.len()));
            prop_assert_eq!(java_string_hash_from(java_string_hash(head), tail), slow);
        }
    }
}
