//! The bytes of a field: random text, or text that follows from key and field
//! so that a reader can tell whether it is right.

use crate::random::Random;
use serval_model::java::string_hash_from;

/// Random printable characters: space to tilde, 95 of them.
const FIRST: u8 = b' ';
const CHARACTERS: u16 = 95;

/// What the compressible part of a value consists of.
const FILLER: u8 = b'x';

/// Appends `length` bytes of printable ASCII, of which the share
/// `compressibility` (0 to 1) is one repeated character and the rest is
/// random: 6.5 bits a byte, so that general-purpose compressors leave at
/// least 0.8 of it.
#[inline]
pub fn write_random<R: Random + ?Sized>(out: &mut Vec<u8>, length: usize, compressibility: f64, rng: &mut R) {
    let start = out.len();
    let random =
        if compressibility > 0.0 { length - (length as f64 * compressibility) as usize } else { length };
    out.resize(start + length, FILLER);
    let text = &mut out[start..start + random];
    let (blocks, rest) = text.as_chunks_mut::<32>();
    for block in blocks {
        for part in block.as_chunks_mut::<8>().0 {
            *part = rng.next_u64().to_le_bytes();
        }
        // A second pass over the block, so that the compiler can do all of
        // its bytes at once.
        for byte in block {
            *byte = printable(*byte);
        }
    }
    for part in rest.chunks_mut(8) {
        let random = rng.next_u64().to_le_bytes();
        for (byte, random) in part.iter_mut().zip(random) {
            *byte = printable(random);
        }
    }
}

#[inline]
fn printable(random: u8) -> u8 {
    FIRST + ((u16::from(random) * CHARACTERS) >> 8) as u8
}

/// Appends the value that YCSB writes with `dataintegrity`: key, colon, field;
/// then again and again a colon and the Java hash code of the text so far, cut
/// to `length` characters.
pub fn write_integrity(out: &mut Vec<u8>, key: &str, field: &str, length: usize) {
    let start = out.len();
    let mut text = Hashed { out, hash: 0, units: 0 };
    for part in [key, ":", field] {
        text.append(part);
    }
    let mut buffer = itoa::Buffer::new();
    while text.units < length {
        text.append(":");
        let hash = text.hash;
        text.append(buffer.format(hash));
    }
    cut(out, start, length);
}

/// A growing text with its Java hash code and its length in UTF-16 units.
struct Hashed<'a> {
    out: &'a mut Vec<u8>,
    hash: i32,
    units: usize,
}

impl Hashed<'_> {
    fn append(&mut self, text: &str) {
        self.hash = string_hash_from(self.hash, text);
        self.units += if text.is_ascii() { text.len() } else { text.encode_utf16().count() };
        self.out.extend_from_slice(text.as_bytes());
    }
}

/// Cuts the text from `start` on to so many UTF-16 units, as Java counts.
fn cut(out: &mut Vec<u8>, start: usize, length: usize) {
    let text = std::str::from_utf8(&out[start..]).unwrap_or_default();
    let mut units = 0;
    let end = text.char_indices().find_map(|(at, c)| {
        units += c.len_utf16();
        (units > length).then_some(at)
    });
    if let Some(end) = end {
        out.truncate(start + end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;

    #[test]
    fn random_values_are_printable_and_all_different() {
        let mut rng = Rng::new(7);
        let mut seen = std::collections::HashSet::new();
        for length in [1, 7, 8, 31, 32, 33, 100, 1000] {
            let mut out = b"before".to_vec();
            write_random(&mut out, length, 0.0, &mut rng);
            assert_eq!(out.len(), 6 + length);
            assert!(out[6..].iter().all(|b| (b' '..=b'~').contains(b)), "{out:?}");
            assert!(length < 8 || seen.insert(out));
        }
    }

    #[test]
    fn every_character_comes_about_as_often() {
        let mut rng = Rng::new(7);
        let mut out = Vec::new();
        write_random(&mut out, 95_000, 0.0, &mut rng);
        let mut counts = [0u32; 256];
        out.iter().for_each(|&b| counts[b as usize] += 1);
        // 256 values fall on 95 characters: two or three each.
        for character in b' '..=b'~' {
            assert!(
                (600..1300).contains(&counts[character as usize]),
                "{character}: {}",
                counts[character as usize]
            );
        }
    }

    #[test]
    fn ten_thousand_values_hardly_compress() {
        use std::io::Write;
        let mut rng = Rng::new(7);
        for (compressibility, at_least, at_most) in [(0.0, 0.75, 1.0), (0.5, 0.38, 0.55)] {
            let mut values = Vec::new();
            for _ in 0..10_000 {
                write_random(&mut values, 100, compressibility, &mut rng);
            }
            let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
            encoder.write_all(&values).unwrap();
            let share = encoder.finish().unwrap().len() as f64 / values.len() as f64;
            assert!((at_least..at_most).contains(&share), "{compressibility}: {share}");
        }
    }

    #[test]
    fn compressibility_is_the_share_of_filler() {
        let mut rng = Rng::new(7);
        for (compressibility, filler) in [(0.25, 25), (0.5, 50), (1.0, 100)] {
            let mut out = Vec::new();
            write_random(&mut out, 100, compressibility, &mut rng);
            assert_eq!(out.len(), 100);
            assert!(out[100 - filler..].iter().all(|&b| b == FILLER));
        }
    }

    #[test]
    fn integrity_values_follow_from_key_and_field() {
        let value = |length| {
            let mut out = Vec::new();
            write_integrity(&mut out, "user1", "field0", length);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(value(3), "use");
        assert_eq!(value(12), "user1:field0");
        let long = value(60);
        assert!(long.starts_with("user1:field0:") && long.len() == 60);
        assert_eq!(&value(100)[..60], long);
    }
}
