//! Format of segments and batches in folders of format 1.

use crate::format::{crc, number, records_in};

pub(super) const SEGMENT_MAGIC: &[u8; 8] = b"YQLSEG01";
pub(super) const CHECKPOINT_MAGIC: &[u8; 8] = b"YQLCKP01";
pub(super) const END_MAGIC: &[u8; 8] = b"YQLEND01";
const BATCH_MAGIC: &[u8; 4] = b"YQLB";

/// Bytes of a file before its batches.
pub(super) const FILE_HEAD: usize = 24;
/// Bytes of a batch before its records.
pub(super) const BATCH_HEAD: usize = 32;

/// The head of a file.
pub(super) fn head_of(magic: &[u8; 8], lsn: u64) -> [u8; FILE_HEAD] {
    let mut head = [0; FILE_HEAD];
    head[..8].copy_from_slice(magic);
    head[8..16].copy_from_slice(&lsn.to_le_bytes());
    let crc = crc(&head[..20]);
    head[20..].copy_from_slice(&crc.to_le_bytes());
    head
}

/// A batch of a file of format 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchOfFormat1<'a> {
    pub(super) first: u64,
    pub(super) count: u32,
    pub(super) synced: u64,
    records: &'a [u8],
}

impl<'a> BatchOfFormat1<'a> {
    /// Returns the complete batch at the start of some bytes.
    pub(super) fn read(bytes: &'a [u8]) -> Option<BatchOfFormat1<'a>> {
        if !bytes.starts_with(BATCH_MAGIC) {
            return None;
        }
        let crc_told = u32::from_le_bytes(number(bytes, 4)?);
        let whole = bytes.get(..BatchOfFormat1::stated_length(bytes)?)?;
        if crc(&whole[8..]) != crc_told {
            return None;
        }
        Some(BatchOfFormat1 {
            count: u32::from_le_bytes(number(whole, 12)?),
            first: u64::from_le_bytes(number(whole, 16)?),
            synced: u64::from_le_bytes(number(whole, 24)?),
            records: whole.get(BATCH_HEAD..)?,
        })
    }

    /// The length that a batch states, including its head.
    pub(super) fn stated_length(bytes: &[u8]) -> Option<usize> {
        let length = u32::from_le_bytes(number(bytes, 8)?) as usize;
        BATCH_HEAD.checked_add(length).filter(|_| bytes.len() >= BATCH_HEAD)
    }

    /// Its bytes in the file.
    pub(super) fn length(&self) -> usize {
        BATCH_HEAD + self.records.len()
    }

    /// Iterates over the records.
    pub(super) fn records(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        records_in(self.records, self.count)
    }

    /// Whether some bytes contain a complete batch that was written when this record was durable.
    pub(super) fn proves(bytes: &[u8], lsn: u64) -> bool {
        let mut at = 0;
        while let Some(found) = bytes[at..].windows(4).position(|window| window == BATCH_MAGIC) {
            at += found;
            match BatchOfFormat1::read(&bytes[at..]) {
                Some(batch) if batch.synced >= lsn => return true,
                Some(batch) => at += batch.length(),
                None => at += 4,
            }
        }
        false
    }
}
