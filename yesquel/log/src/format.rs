//! Format of segments and batches.

use crc32fast::Hasher;

pub(crate) const SEGMENT_MAGIC: &[u8; 8] = b"YQLSEG01";
const BATCH_MAGIC: &[u8; 4] = b"YQLB";

/// Bytes of a segment before its batches.
pub(crate) const SEGMENT_HEAD: usize = 24;
/// Bytes of a batch before its records.
pub(crate) const BATCH_HEAD: usize = 32;

/// Name of a segment.
pub(crate) fn segment_name(first: u64) -> String {
    format!("log-{first:020}")
}

/// First record of the segment with this name.
pub(crate) fn first_of(name: &str) -> Option<u64> {
    name.strip_prefix("log-").and_then(number_of).filter(|first| *first > 0)
}

/// The number of twenty digits; it has a successor.
pub(crate) fn number_of(digits: &str) -> Option<u64> {
    let is_written_so = digits.len() == 20 && digits.bytes().all(|digit| digit.is_ascii_digit());
    if is_written_so { digits.parse().ok().filter(|number| *number < u64::MAX) } else { None }
}

fn crc(parts: &[&[u8]]) -> u32 {
    let mut hasher = Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

/// The head of a file.
pub(crate) fn head_of(magic: &[u8; 8], number: u64) -> [u8; SEGMENT_HEAD] {
    let mut head = [0; SEGMENT_HEAD];
    head[..8].copy_from_slice(magic);
    head[8..16].copy_from_slice(&number.to_le_bytes());
    let crc = crc(&[&head[..20]]);
    head[20..].copy_from_slice(&crc.to_le_bytes());
    head
}

/// The head of a segment.
pub(crate) fn segment_head(first: u64) -> [u8; SEGMENT_HEAD] {
    head_of(SEGMENT_MAGIC, first)
}

/// Checks the head of a segment. Returns what is wrong.
pub(crate) fn check_head(bytes: &[u8], first: u64) -> Result<(), &'static str> {
    let head = bytes.get(..SEGMENT_HEAD).ok_or(NOT_WHOLE)?;
    if head == segment_head(first) {
        return Ok(());
    }
    // The head is complete but of another version.
    let other = crc(&[&head[..20]]).to_le_bytes() == head[20..] && head[..8] != *SEGMENT_MAGIC;
    Err(if other { OTHER_VERSION } else { NOT_WHOLE })
}

/// Fault: the segment is of another version.
pub(crate) const OTHER_VERSION: &str = "it is a log of another version of Yesquel";
/// Fault: the segment begins before the previous one ends.
pub(crate) const OVERLAPS: &str = "it overlaps the previous segment";
/// Fault: the head is incomplete.
pub(crate) const NOT_WHOLE: &str = "its header is incomplete";

/// Appends a batch of records; `ends` has the end of each in `bytes`.
pub(crate) fn put_batch(out: &mut Vec<u8>, first: u64, synced: u64, bytes: &[u8], ends: &[usize]) {
    let start = out.len();
    out.extend_from_slice(BATCH_MAGIC);
    out.extend_from_slice(&[0; 4]);
    let length = bytes.len() + 4 * ends.len();
    out.extend_from_slice(&(length as u32).to_le_bytes());
    out.extend_from_slice(&(ends.len() as u32).to_le_bytes());
    out.extend_from_slice(&first.to_le_bytes());
    out.extend_from_slice(&synced.to_le_bytes());
    let mut from = 0;
    for end in ends {
        out.extend_from_slice(&((end - from) as u32).to_le_bytes());
        out.extend_from_slice(&bytes[from..*end]);
        from = *end;
    }
    let crc = crc(&[&out[start + 8..]]);
    out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
}

/// A batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Batch<'a> {
    pub(crate) first: u64,
    pub(crate) count: u32,
    pub(crate) synced: u64,
    records: &'a [u8],
}

impl<'a> Batch<'a> {
    /// Returns the complete batch at the start of some bytes.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Batch<'a>> {
        if !bytes.starts_with(BATCH_MAGIC) {
            return None;
        }
        let crc_told = u32::from_le_bytes(number(bytes, 4)?);
        let whole = bytes.get(..Batch::stated_length(bytes)?)?;
        if crc(&[&whole[8..]]) != crc_told {
            return None;
        }
        Batch::from_verified(whole)
    }

    /// The length that a batch states, including its head.
    pub(crate) fn stated_length(bytes: &[u8]) -> Option<usize> {
        let length = u32::from_le_bytes(number(bytes, 8)?) as usize;
        BATCH_HEAD.checked_add(length).filter(|_| bytes.len() >= BATCH_HEAD)
    }

    /// The batch that some bytes are, which were verified before.
    pub(crate) fn from_verified(bytes: &'a [u8]) -> Option<Batch<'a>> {
        Some(Batch {
            count: u32::from_le_bytes(number(bytes, 12)?),
            first: u64::from_le_bytes(number(bytes, 16)?),
            synced: u64::from_le_bytes(number(bytes, 24)?),
            records: bytes.get(BATCH_HEAD..)?,
        })
    }

    /// Its bytes in the file.
    pub(crate) fn length(&self) -> usize {
        BATCH_HEAD + self.records.len()
    }

    /// Iterates over the records.
    pub(crate) fn records(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.records;
        (0..self.count).map_while(move |_| {
            let (length, behind) = rest.split_first_chunk()?;
            let (record, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            rest = behind;
            Some(record)
        })
    }

    /// Whether some bytes contain a complete batch that was written when this record was durable.
    pub(crate) fn proves(bytes: &[u8], lsn: u64) -> bool {
        let mut at = 0;
        while let Some(found) = bytes[at..].windows(4).position(|window| window == BATCH_MAGIC) {
            at += found;
            match Batch::read(&bytes[at..]) {
                Some(batch) if batch.synced >= lsn => return true,
                Some(batch) => at += batch.length(),
                None => at += 4,
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_has_one_valid_name() {
        assert_eq!(first_of(&segment_name(7)), Some(7));
        assert_eq!(first_of(&segment_name(u64::MAX - 1)), Some(u64::MAX - 1));
        // There is no record zero, and none after the last number.
        for name in [segment_name(0), segment_name(u64::MAX), segment_name(7).replacen('0', "+", 1)] {
            assert_eq!(first_of(&name), None, "{name}");
        }
    }
}
