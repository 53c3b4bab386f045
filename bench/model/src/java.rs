//! Functions of Java's library that stores and data sets depend on.

/// Returns Java's `String.hashCode()`: `s[0]*31^(n-1) + ... + s[n-1]` over
/// UTF-16 units, in wrapping 32-bit arithmetic.
pub fn string_hash(text: &str) -> i32 {
    string_hash_from(0, text)
}

/// Returns the hash of a text that consists of a prefix with this hash and of
/// `more`.
pub fn string_hash_from(hash: i32, more: &str) -> i32 {
    if more.is_ascii() {
        return ascii_hash_from(hash, more.as_bytes());
    }
    more.encode_utf16().fold(hash, |h, unit| h.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

/// Hashes eight characters at a time, as a sum of independent products: the
/// plain loop waits for one multiplication per character.
#[inline]
fn ascii_hash_from(hash: i32, text: &[u8]) -> i32 {
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
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_blockwise_hash_equals_the_definition(text in "[ -~]{0,100}", cut in 0usize..100) {
            let slow = text.bytes().fold(0i32, |h, b| h.wrapping_mul(31).wrapping_add(i32::from(b)));
            prop_assert_eq!(string_hash(&text), slow);
            let (head, tail) = text.split_at(cut.min(text.len()));
            prop_assert_eq!(string_hash_from(string_hash(head), tail), slow);
        }
    }

    #[test]
    fn hashes_equal_those_of_java() {
        // Values printed by a Java 17 program.
        for (text, hash) in [
            ("", 0),
            ("a", 97),
            ("user1", 111_578_566),
            ("hello world", 1_794_106_052),
            ("\u{e9}\u{1f600}", 1_996_812),
        ] {
            assert_eq!(string_hash(text), hash, "{text}");
        }
        assert_eq!(string_hash_from(string_hash("hello "), "world"), string_hash("hello world"));
    }
}
