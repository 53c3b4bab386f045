//! Encoding of a record as one value, as in YCSB's RocksDB binding: for each field, the
//! length of its name (4 bytes, big-endian), the name, the length of its value (4
//! bytes, big-endian), the value. Field `a` with value `xy` is
//! `00 00 00 01 61 00 00 00 02 78 79`.

use serval_model::{FieldSelection, Outcome, Record, Status};

/// Bytes of a length.
const LENGTH_BYTES: usize = size_of::<u32>();

/// Encodes a record into a buffer, replacing its contents.
pub(crate) fn encode(frame: &mut Vec<u8>, record: &Record) {
    frame.clear();
    for (name, value) in record.iter() {
        push(frame, name, value);
    }
}

/// Returns the encoded length of a record.
pub(crate) fn size(record: &Record) -> usize {
    record.size() + 2 * LENGTH_BYTES * record.len()
}

/// Encodes an updated record into a buffer: the old record with the new fields.
pub(crate) fn merge(frame: &mut Vec<u8>, key: &[u8], old: &[u8], new: &Record) -> Outcome {
    frame.clear();
    for field in FramedFields(old) {
        let Some((name, value)) = field else { return not_ours(key) };
        push(frame, name, new.get(name).unwrap_or(value));
    }
    for (name, value) in new.iter() {
        if !FramedFields(old).flatten().any(|(known, _)| known == name) {
            push(frame, name, value);
        }
    }
    Outcome::OK
}

/// Decodes the selected fields of a value into a record.
pub(crate) fn answer(key: &[u8], value: &[u8], fields: &FieldSelection, record: &mut Record) -> Outcome {
    for field in FramedFields(value) {
        match field {
            Some((name, value)) if fields.wants(name) => record.push(name, value),
            Some(_) => {}
            None => return not_ours(key),
        }
    }
    Outcome::OK
}

fn not_ours(key: &[u8]) -> Outcome {
    let key = String::from_utf8_lossy(key);
    Outcome::failed(Status::UnexpectedState, format!("the value under '{key}' is not framed as a record"))
}

/// Appends a field. A length beyond 32 bits exceeds every store's limit on values, so
/// it never reaches a store.
fn push(frame: &mut Vec<u8>, name: &str, value: &[u8]) {
    for part in [name.as_bytes(), value] {
        frame.extend_from_slice(&(part.len() as u32).to_be_bytes());
        frame.extend_from_slice(part);
    }
}

/// Iterator over the fields of an encoded value; yields `None` once if it is invalid.
struct FramedFields<'a>(&'a [u8]);

impl<'a> FramedFields<'a> {
    fn part(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.0.split_first_chunk()?;
        let (part, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        self.0 = rest;
        Some(part)
    }
}

impl<'a> Iterator for FramedFields<'a> {
    type Item = Option<(&'a str, &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let name = self.part().and_then(|name| std::str::from_utf8(name).ok());
        let field = name.zip(self.part());
        if field.is_none() {
            self.0 = &[];
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_the_documented_frame() {
        let mut frame = Vec::new();
        let record = Record::from_iter([("a", &b"xy"[..]), ("b", b"")]);
        encode(&mut frame, &record);
        assert_eq!(size(&record), frame.len());
        assert_eq!(frame, b"\0\0\0\x01a\0\0\0\x02xy\0\0\0\x01b\0\0\0\0");
        let fields: Vec<_> = FramedFields(&frame).collect();
        assert_eq!(fields, [Some(("a", &b"xy"[..])), Some(("b", &b""[..]))]);
    }

    #[test]
    fn invalid_frames_are_detected() {
        let whole = b"\0\0\0\x01a\0\0\0\x02xy";
        for length in 1..whole.len() {
            assert_eq!(FramedFields(&whole[..length]).collect::<Vec<_>>(), [None], "{length}");
        }
        assert_eq!(FramedFields(b"\0\0\0\x01\xff\0\0\0\0").collect::<Vec<_>>(), [None]);
        assert_eq!(FramedFields(b"\xff\xff\xff\xffa").collect::<Vec<_>>(), [None]);
    }
}
