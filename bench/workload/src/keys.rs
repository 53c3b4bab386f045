//! The text of a key.

use crate::hash::fnv64;

/// How the number of a record becomes its key: `user` and the number, or
/// (hashed) the number's FNV hash, padded with zeros on the left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyFormat {
    /// Whether the hash stands in for the number, which scatters keys that
    /// are inserted in turn (`insertorder=hashed`).
    pub hashed: bool,
    /// Digits at least (`zeropadding`).
    pub digits: usize,
}

impl KeyFormat {
    /// Appends the key of a record.
    #[inline]
    pub fn write(&self, out: &mut String, number: u64) {
        self.write_with(out, "user", number);
    }

    /// As [`write`](Self::write), with another word before the number.
    #[inline]
    pub fn write_with(&self, out: &mut String, prefix: &str, number: u64) {
        let number = if self.hashed { fnv64(number) } else { number };
        let mut buffer = itoa::Buffer::new();
        let text = buffer.format(number);
        out.push_str(prefix);
        for _ in text.len()..self.digits {
            out.push('0');
        }
        out.push_str(text);
    }

    /// The key of a record.
    pub fn key(&self, number: u64) -> String {
        let mut key = String::new();
        self.write(&mut key, number);
        key
    }
}

#[cfg(test)]
mod tests {
    use super::KeyFormat;

    #[test]
    fn keys_are_ycsbs() {
        let ordered = KeyFormat { hashed: false, digits: 1 };
        assert_eq!((ordered.key(0), ordered.key(5)), ("user0".into(), "user5".into()));
        assert_eq!(KeyFormat { hashed: false, digits: 8 }.key(5), "user00000005");
        assert_eq!(KeyFormat { hashed: false, digits: 2 }.key(12345), "user12345");
        assert_eq!(KeyFormat { hashed: true, digits: 1 }.key(0), "user6284781860667377211");
        let mut account = String::new();
        KeyFormat { hashed: false, digits: 3 }.write_with(&mut account, "account", 7);
        assert_eq!(account, "account007");
    }
}
