//! What Java computes, where stores and data sets depend on it.

/// `String.hashCode()`: s[0]*31^(n-1) + ... + s[n-1] over UTF-16 units, in
/// wrapping 32-bit arithmetic.
pub fn string_hash(text: &str) -> i32 {
    string_hash_from(0, text)
}

/// The hash of a text whose beginning hashes to `hash` and that goes on with
/// `more`.
pub fn string_hash_from(hash: i32, more: &str) -> i32 {
    if more.is_ascii() {
        return more.bytes().fold(hash, |h, b| h.wrapping_mul(31).wrapping_add(i32::from(b)));
    }
    more.encode_utf16().fold(hash, |h, unit| h.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_javas() {
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
