//! Damage to files, as from an unreliable disk.

use crate::{
    disk::{MemoryDisk, MemoryFiles},
    input::Input,
};

/// Length of a file's header.
const FILE_HEAD: usize = 64;
/// Length of a batch's header.
const BATCH_HEAD: usize = 48;

/// Returns the ranges of a file's batches, as far as their lengths are valid.
fn batches(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let (mut all, mut at) = (Vec::new(), FILE_HEAD);
    while let Some(length) = bytes.get(at + 8..at + 12).and_then(|length| length.first_chunk()) {
        let end = (at + BATCH_HEAD).saturating_add(u32::from_le_bytes(*length) as usize);
        if end > bytes.len() {
            break;
        }
        all.push(at..end);
        at = end;
    }
    all
}

/// Changes a folder as the input says. Returns whether it has forged checksums, which no accident
/// does.
pub(crate) fn damage(
    disk: &MemoryDisk,
    input: &mut Input<'_>,
    new_name: impl Fn(&mut Input<'_>) -> String,
) -> bool {
    let (mut files, mut is_forged) = (disk.files(), false);
    for _ in 0..input.below(6) {
        let names: Vec<String> = files.keys().cloned().collect();
        if names.is_empty() {
            break;
        }
        let name = names[input.below(names.len())].clone();
        is_forged |= change(&mut files, &name, input, &new_name);
    }
    is_forged
}

fn change(
    files: &mut MemoryFiles,
    name: &str,
    input: &mut Input<'_>,
    new_name: &impl Fn(&mut Input<'_>) -> String,
) -> bool {
    let Some(bytes) = files.get_mut(name) else { return false };
    let at = input.short() % (bytes.len() + 1);
    let all = batches(bytes);
    match input.below(13) {
        // The last write is incomplete.
        0 => bytes.truncate(at),
        1 => {
            let end = bytes.len().min(at + 64);
            bytes[at..end].fill(0);
        }
        // Flip bits.
        2 | 3 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << input.below(8);
            }
        }
        4 => {
            let length = input.below(64);
            let new = input.bytes(length);
            let end = bytes.len().min(at + new.len());
            bytes.splice(at..end, new.iter().copied());
        }
        5 if !all.is_empty() => {
            let batch = bytes[all[input.below(all.len())].clone()].to_vec();
            let place = all[input.below(all.len())].start;
            bytes.splice(place..place, batch);
        }
        6 if !all.is_empty() => drop(bytes.drain(all[input.below(all.len())].clone())),
        7 if !all.is_empty() => {
            let (a, b) = (input.below(all.len()), input.below(all.len()));
            let (a, b) = (all[a.min(b)].clone(), all[a.max(b)].clone());
            if a.end <= b.start {
                let (first, second) = (bytes[a.clone()].to_vec(), bytes[b.clone()].to_vec());
                bytes.splice(b, first);
                bytes.splice(a, second);
            }
        }
        // Lose or swap files.
        8 => drop(files.remove(name)),
        9 => {
            let copy = bytes.clone();
            files.insert(new_name(input), copy);
        }
        // Forge a batch.
        10 if !all.is_empty() => {
            let batch = all[input.below(all.len())].clone();
            let ((from, to), value) =
                (input.one_of(&[(12, 16), (16, 24), (24, 32), (32, 40), (40, 48), (48, 52)]), input.byte());
            let far = input.below(8) == 7;
            if let Some(place) = bytes[batch.clone()].get_mut(from..to) {
                place.fill(if far { 0xff } else { 0 });
                if !far {
                    place[0] = value;
                }
            }
            sign(&mut bytes[batch]);
            return true;
        }
        11 if bytes.len() >= FILE_HEAD => {
            let at = input.one_of(&[8, 24, 28, 32, 40, 48]);
            bytes[at..at + 8].copy_from_slice(&u64::from(input.byte()).to_le_bytes());
            let crc = crc32fast::hash(&bytes[..60]);
            bytes[60..FILE_HEAD].copy_from_slice(&crc.to_le_bytes());
            return true;
        }
        12 => {
            let (number, length) = (input.long(), input.short());
            let records = input.bytes(length);
            let mut batch = b"YQLC\0\0\0\0".to_vec();
            batch.extend_from_slice(&(records.len() as u32).to_le_bytes());
            batch.extend_from_slice(&u32::from(input.byte()).to_le_bytes());
            batch.extend_from_slice(&number.to_le_bytes());
            for _ in 0..3 {
                batch.extend_from_slice(&u64::from(input.byte()).to_le_bytes());
            }
            batch.extend_from_slice(records);
            sign(&mut batch);
            bytes.splice(at..at, batch);
            return true;
        }
        _ => {}
    }
    false
}

/// Writes the checksum of a batch.
fn sign(batch: &mut [u8]) {
    let crc = crc32fast::hash(&batch[8..]);
    batch[4..8].copy_from_slice(&crc.to_le_bytes());
}
