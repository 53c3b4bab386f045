//! Format of files and batches.

use crc32fast::Hasher;

pub(crate) const SEGMENT_MAGIC: &[u8; 8] = b"YQLSEG02";
const BATCH_MAGIC: &[u8; 4] = b"YQLC";

/// Bytes of a file before its batches.
pub(crate) const FILE_HEAD: usize = 64;
/// Bytes of a batch before its records.
pub(crate) const BATCH_HEAD: usize = 48;

/// Group that a log belongs to. Each of its files states it, so that a file of another group is
/// refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogIdentity {
    /// UUID of the cluster.
    pub cluster: [u8; 16],
    /// The group.
    pub group: u16,
    /// Era of the group. Files of earlier eras belong to the log as well.
    pub era: u32,
}

/// Numbers of a record. Zeros stand before the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogPoint {
    /// Position in the files of this replica, which only grows.
    pub position: u64,
    /// Index in the log of the group.
    pub index: u64,
    /// Term of the leader that made it.
    pub term: u64,
}

/// Name of a segment.
pub(crate) fn segment_name(first: u64) -> String {
    format!("log-{first:020}")
}

/// Position of the first record of the segment with this name.
pub(crate) fn first_of(name: &str) -> Option<u64> {
    name.strip_prefix("log-").and_then(number_of).filter(|first| *first > 0)
}

/// The number of twenty digits; it has a successor.
pub(crate) fn number_of(digits: &str) -> Option<u64> {
    let is_written_so = digits.len() == 20 && digits.bytes().all(|digit| digit.is_ascii_digit());
    if is_written_so { digits.parse().ok().filter(|number| *number < u64::MAX) } else { None }
}

pub(crate) fn crc(bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(bytes);
    hasher.finalize()
}

pub(crate) fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

/// The head of a file.
pub(crate) fn head_of(magic: &[u8; 8], identity: LogIdentity, point: LogPoint) -> [u8; FILE_HEAD] {
    let mut head = [0; FILE_HEAD];
    head[..8].copy_from_slice(magic);
    head[8..24].copy_from_slice(&identity.cluster);
    head[24..26].copy_from_slice(&identity.group.to_le_bytes());
    head[28..32].copy_from_slice(&identity.era.to_le_bytes());
    head[32..40].copy_from_slice(&point.position.to_le_bytes());
    head[40..48].copy_from_slice(&point.index.to_le_bytes());
    head[48..56].copy_from_slice(&point.term.to_le_bytes());
    let crc = crc(&head[..60]);
    head[60..].copy_from_slice(&crc.to_le_bytes());
    head
}

/// The head of a segment.
pub(crate) fn segment_head(identity: LogIdentity, first: u64) -> [u8; FILE_HEAD] {
    head_of(SEGMENT_MAGIC, identity, LogPoint { position: first, ..LogPoint::default() })
}

/// Fault in the head of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadFault {
    /// The bytes are damaged.
    Damaged,
    /// The file is complete and does not belong here.
    Foreign(&'static str),
}

/// Fault: the file is of another version.
const OTHER_VERSION: &str = "it is of another version of Yesquel";
/// Fault: the file is of another cluster or group.
const OTHER_GROUP: &str = "it belongs to another cluster or group: was it moved here from another folder?";
/// Fault: the file is of a later era of the group.
const LATER_ERA: &str = "it belongs to a later era of the group: was it moved here from another folder?";
/// Fault: the head is incomplete.
pub(crate) const NOT_WHOLE: &str = "its header is incomplete";

/// Checks the head of a file. Returns what it states.
pub(crate) fn check_head(
    bytes: &[u8],
    magic: &[u8; 8],
    identity: LogIdentity,
    position: u64,
) -> Result<LogPoint, HeadFault> {
    let head: &[u8; FILE_HEAD] = bytes.first_chunk().ok_or(HeadFault::Damaged)?;
    let (told, rest) = head.split_at(60);
    let number = |at: usize| number(head, at).map_or(0, u64::from_le_bytes);
    if crc(told).to_le_bytes() != *rest {
        let is_of_format_1 = crc(&head[..20]).to_le_bytes() == head[20..24];
        return Err(if is_of_format_1 { HeadFault::Foreign(OTHER_VERSION) } else { HeadFault::Damaged });
    }
    let point = LogPoint { position: number(32), index: number(40), term: number(48) };
    let era = u32::from_le_bytes([head[28], head[29], head[30], head[31]]);
    if head[..8] != *magic {
        Err(HeadFault::Foreign(OTHER_VERSION))
    } else if head[8..24] != identity.cluster || head[24..26] != identity.group.to_le_bytes() {
        Err(HeadFault::Foreign(OTHER_GROUP))
    } else if era > identity.era {
        Err(HeadFault::Foreign(LATER_ERA))
    } else if point.position != position {
        Err(HeadFault::Damaged)
    } else {
        Ok(point)
    }
}

/// Numbers of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchNumbers {
    /// Position of the first record.
    pub(crate) position: u64,
    /// Every record up to this position was on disk before the batch was written.
    pub(crate) synced: u64,
    /// Index of the first record; zero: the records have none.
    pub(crate) index: u64,
    /// Term of the records.
    pub(crate) term: u64,
}

/// Appends a batch of records; `ends` has the end of each in `bytes`.
pub(crate) fn put_batch(out: &mut Vec<u8>, numbers: BatchNumbers, bytes: &[u8], ends: &[usize]) {
    let start = out.len();
    let length = bytes.len() + 4 * ends.len();
    let mut head = [0; BATCH_HEAD];
    head[..4].copy_from_slice(BATCH_MAGIC);
    head[8..12].copy_from_slice(&(length as u32).to_le_bytes());
    head[12..16].copy_from_slice(&(ends.len() as u32).to_le_bytes());
    head[16..24].copy_from_slice(&numbers.position.to_le_bytes());
    head[24..32].copy_from_slice(&numbers.synced.to_le_bytes());
    head[32..40].copy_from_slice(&numbers.index.to_le_bytes());
    head[40..48].copy_from_slice(&numbers.term.to_le_bytes());
    out.extend_from_slice(&head);
    let mut from = 0;
    for end in ends {
        out.extend_from_slice(&((end - from) as u32).to_le_bytes());
        out.extend_from_slice(&bytes[from..*end]);
        from = *end;
    }
    let crc = crc(&out[start + 8..]);
    out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
}

/// A batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Batch<'a> {
    pub(crate) numbers: BatchNumbers,
    pub(crate) count: u32,
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
        if crc(&whole[8..]) != crc_told {
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
        let number_at = |at: usize| number(bytes, at).map(u64::from_le_bytes);
        Some(Batch {
            numbers: BatchNumbers {
                position: number_at(16)?,
                synced: number_at(24)?,
                index: number_at(32)?,
                term: number_at(40)?,
            },
            count: u32::from_le_bytes(number(bytes, 12)?),
            records: bytes.get(BATCH_HEAD..)?,
        })
    }

    /// Its bytes in the file.
    pub(crate) fn length(&self) -> usize {
        BATCH_HEAD + self.records.len()
    }

    /// Iterates over the records.
    pub(crate) fn records(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        records_in(self.records, self.count)
    }

    /// Whether some bytes contain a complete batch that was written when the record at this
    /// position was durable.
    pub(crate) fn proves(bytes: &[u8], position: u64) -> bool {
        let mut at = 0;
        while let Some(found) = bytes[at..].windows(4).position(|window| window == BATCH_MAGIC) {
            at += found;
            match Batch::read(&bytes[at..]) {
                Some(batch) if batch.numbers.synced >= position => return true,
                Some(batch) => at += batch.length(),
                None => at += 4,
            }
        }
        false
    }
}

/// Iterates over records, each after its length.
pub(crate) fn records_in(mut rest: &[u8], count: u32) -> impl Iterator<Item = &[u8]> {
    (0..count).map_while(move |_| {
        let (length, behind) = rest.split_first_chunk()?;
        let (record, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        rest = behind;
        Some(record)
    })
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

    #[test]
    fn a_file_states_whose_it_is() {
        let identity = LogIdentity { cluster: [7; 16], group: 3, era: 2 };
        let point = LogPoint { position: 9, index: 5, term: 4 };
        let head = head_of(SEGMENT_MAGIC, identity, point);
        let checked = |identity| check_head(&head, SEGMENT_MAGIC, identity, 9);
        assert_eq!(checked(identity), Ok(point));
        assert_eq!(checked(LogIdentity { era: 3, ..identity }), Ok(point));
        assert_eq!(checked(LogIdentity { era: 1, ..identity }), Err(HeadFault::Foreign(LATER_ERA)));
        assert_eq!(checked(LogIdentity { group: 4, ..identity }), Err(HeadFault::Foreign(OTHER_GROUP)));
        let other = LogIdentity { cluster: [8; 16], ..identity };
        assert_eq!(checked(other), Err(HeadFault::Foreign(OTHER_GROUP)));
        let other = check_head(&head, b"YQLSEG03", identity, 9);
        assert_eq!(other, Err(HeadFault::Foreign(OTHER_VERSION)));
        assert_eq!(check_head(&head, SEGMENT_MAGIC, identity, 8), Err(HeadFault::Damaged));
    }
}
