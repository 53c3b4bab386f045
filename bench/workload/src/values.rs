//! Field values: random text, or text that is determined by key and field, so that a
//! reader can verify it.

use crate::random::Random;
use serval_model::java::string_hash_from;

/// Character of the compressible part of a value.
const FILLER: u8 = b'x';

/// Kind of random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RandomBytes {
    /// YCSB's: 31 random bits for six bytes, 0x20 to 0x7f.
    Ycsb,
    /// The 95 printable characters, about equally often: 6.5 random bits a byte.
    Incompressible,
}

/// Generator of random values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RandomText {
    /// Kind of bytes of the random part.
    pub bytes: RandomBytes,
    /// Share of a value, from 0 to 1, that is one repeated character.
    pub compressibility: f64,
}

impl RandomText {
    /// Appends a value of `length` bytes.
    #[inline]
    pub fn write<R: Random + ?Sized>(self, out: &mut Vec<u8>, length: usize, rng: &mut R) {
        let start = out.len();
        let filler =
            if self.compressibility > 0.0 { (length as f64 * self.compressibility) as usize } else { 0 };
        out.resize(start + length, FILLER);
        let text = &mut out[start..start + length - filler];
        match self.bytes {
            RandomBytes::Ycsb => ycsb::fill(text, rng),
            RandomBytes::Incompressible => incompressible::fill(text, rng),
        }
    }
}

/// Bytes of YCSB's `RandomByteIterator`: each draw of 32 bits gives six bytes. Byte k is
/// 0x20 plus the bits of the draw from 5k on that its mask selects. The masks overlap.
mod ycsb {
    use super::Random;

    /// Bytes of a block: those of four numbers of 64 bits, with two draws each.
    const BLOCK: usize = 48;

    /// Masks of the three even bytes of a draw, and of the three odd ones.
    const EVEN: [u16; 3] = [0x1f, 0x5f, 0x3f];
    const ODD: [u16; 3] = [0x3f, 0x1f, 0x5f];

    /// The masks of the pairs of bytes in a block: even bytes are the lower halves.
    const LOW: [u16; BLOCK / 2] = repeated(EVEN, 0);
    const HIGH: [u16; BLOCK / 2] = repeated(ODD, 8);

    const fn repeated(masks: [u16; 3], shift: u32) -> [u16; BLOCK / 2] {
        let mut all = [0; BLOCK / 2];
        let mut index = 0;
        while index < all.len() {
            all[index] = masks[index % masks.len()] << shift;
            index += 1;
        }
        all
    }

    /// Fills whole blocks of 12 bytes, at most [`BLOCK`] bytes.
    #[inline]
    fn fill_block<R: Random + ?Sized, const N: usize>(block: &mut [u8; N], rng: &mut R) {
        for part in block.as_chunks_mut::<12>().0 {
            let draws = rng.next_u64();
            // The bits of a pair: its even byte's begin at bit 0, its odd byte's at bit 5.
            for (pair, shift) in part.as_chunks_mut::<2>().0.iter_mut().zip([0, 10, 20, 32, 42, 52]) {
                *pair = ((draws >> shift) as u16).to_le_bytes();
            }
        }
        // A second pass over the block, so that the compiler can do many pairs at once.
        for ((pair, low), high) in block.as_chunks_mut::<2>().0.iter_mut().zip(&LOW).zip(&HIGH) {
            let bits = u16::from_le_bytes(*pair);
            *pair = (((bits & low) | ((bits << 3) & high)) + 0x2020).to_le_bytes();
        }
    }

    #[inline]
    pub(super) fn fill<R: Random + ?Sized>(text: &mut [u8], rng: &mut R) {
        let (blocks, rest) = text.as_chunks_mut::<BLOCK>();
        for block in blocks {
            fill_block(block, rng);
        }
        for part in rest.chunks_mut(12) {
            let mut block = [0; 12];
            fill_block(&mut block, rng);
            for (byte, random) in part.iter_mut().zip(block) {
                *byte = random;
            }
        }
    }
}

/// Printable characters, which general-purpose compressors reduce to no less than 0.8 of their size.
mod incompressible {
    use super::Random;

    /// Space to tilde, 95 characters.
    const FIRST: u8 = b' ';
    const CHARACTERS: u16 = 95;

    #[inline]
    pub(super) fn fill<R: Random + ?Sized>(text: &mut [u8], rng: &mut R) {
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
}

/// Appends the value that YCSB writes with `dataintegrity`: key, colon, field, then
/// repeatedly a colon and the Java hash code of the text so far, truncated to
/// `length` characters.
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

/// Truncates the text from `start` to a number of UTF-16 units, as in Java.
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

    const YCSB: RandomText = RandomText { bytes: RandomBytes::Ycsb, compressibility: 0.0 };
    const INCOMPRESSIBLE: RandomText = RandomText { bytes: RandomBytes::Incompressible, ..YCSB };

    #[test]
    fn random_values_are_ascii_text_and_all_different() {
        let mut rng = Rng::new(7);
        let mut seen = std::collections::HashSet::new();
        for (text, last) in [(YCSB, 0x7f), (INCOMPRESSIBLE, b'~')] {
            for length in [1, 7, 8, 12, 31, 32, 33, 48, 59, 100, 1000] {
                let mut out = b"before".to_vec();
                text.write(&mut out, length, &mut rng);
                assert_eq!(out.len(), 6 + length);
                assert!(out.starts_with(b"before"));
                assert!(out[6..].iter().all(|b| (b' '..=last).contains(b)), "{out:?}");
                assert!(length < 8 || seen.insert(out));
            }
        }
    }

    #[test]
    fn every_character_is_about_equally_frequent() {
        let mut rng = Rng::new(7);
        let mut out = Vec::new();
        INCOMPRESSIBLE.write(&mut out, 95_000, &mut rng);
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

    /// Returns the share of 10,000 values that remains after deflate.
    fn deflated(mut write: impl FnMut(&mut Vec<u8>)) -> f64 {
        use std::io::Write;
        let mut values = Vec::new();
        for _ in 0..10_000 {
            write(&mut values);
        }
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(&values).unwrap();
        encoder.finish().unwrap().len() as f64 / values.len() as f64
    }

    #[test]
    fn values_compress_as_documented() {
        let mut rng = Rng::new(7);
        let cases = [
            (INCOMPRESSIBLE, 0.82, 0.84),
            (RandomText { compressibility: 0.5, ..INCOMPRESSIBLE }, 0.43, 0.45),
            (YCSB, 0.78, 0.80),
            (RandomText { compressibility: 0.5, ..YCSB }, 0.41, 0.43),
        ];
        for (text, at_least, at_most) in cases {
            let share = deflated(|values| text.write(values, 100, &mut rng));
            assert!((at_least..at_most).contains(&share), "{text:?}: {share}");
        }
    }

    /// YCSB's algorithm byte by byte, after `RandomByteIterator.fillBytesImpl`.
    fn as_ycsb_does(out: &mut Vec<u8>, length: usize, rng: &mut Rng) {
        let end = out.len() + length;
        while out.len() < end {
            let bits = rng.next_u64() as u32 as i32;
            let masks = [31, 63, 95, 31, 63, 95];
            out.extend((0..6).map(|k| ((bits >> (5 * k)) & masks[k as usize]) as u8 + b' '));
        }
        out.truncate(end);
    }

    #[test]
    fn values_compress_as_much_as_those_of_ycsb() {
        for (ours, theirs) in [(1, 2), (3, 4)] {
            let (mut ours, mut theirs) = (Rng::new(ours), Rng::new(theirs));
            let ours = deflated(|values| YCSB.write(values, 100, &mut ours));
            let theirs = deflated(|values| as_ycsb_does(values, 100, &mut theirs));
            assert!((ours / theirs - 1.0).abs() < 0.01, "{ours} {theirs}");
        }
    }

    #[test]
    fn compressibility_is_the_share_of_filler() {
        let mut rng = Rng::new(7);
        for (compressibility, filler) in [(0.25, 25), (0.5, 50), (1.0, 100)] {
            let mut out = Vec::new();
            RandomText { compressibility, ..INCOMPRESSIBLE }.write(&mut out, 100, &mut rng);
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
