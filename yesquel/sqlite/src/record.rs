//! SQLite's record format: a header with the fields' types, then their values (file format, section
//! 2.1).

use crate::{
    form::KeyForm,
    key::{Encoding, Field, KeyColumn, of_row, push},
};

/// Reads a number of one to nine bytes; returns it and the rest.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (index, byte) in bytes.iter().take(9).enumerate() {
        if index == 8 {
            return Some((value << 8 | u64::from(*byte), &bytes[9..]));
        }
        value = value << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[index + 1..]));
        }
    }
    None
}

fn integer(bytes: &[u8]) -> i64 {
    let negative = bytes.first().is_some_and(|byte| byte & 0x80 != 0);
    bytes.iter().fold(if negative { -1 } else { 0 }, |value, byte| value << 8 | i64::from(*byte))
}

/// Field whose bytes do not match its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DamagedField;

/// Iterator over the fields of a record.
pub(crate) struct RecordFields<'a> {
    types: &'a [u8],
    values: &'a [u8],
}

impl<'a> RecordFields<'a> {
    pub(crate) fn of(record: &'a [u8]) -> Option<RecordFields<'a>> {
        let (header, rest) = varint(record)?;
        let header = usize::try_from(header).ok()?;
        let begin = record.len() - rest.len();
        Some(RecordFields { types: record.get(begin..header)?, values: record.get(header..)? })
    }

    fn take(&mut self, length: u64) -> Option<&'a [u8]> {
        let (value, rest) = self.values.split_at_checked(usize::try_from(length).ok()?)?;
        self.values = rest;
        Some(value)
    }
}

impl<'a> Iterator for RecordFields<'a> {
    type Item = Result<Field<'a>, DamagedField>;

    fn next(&mut self) -> Option<Result<Field<'a>, DamagedField>> {
        if self.types.is_empty() {
            return None;
        }
        let Some((kind, rest)) = varint(self.types) else {
            self.types = &[];
            return Some(Err(DamagedField));
        };
        self.types = rest;
        let field = match kind {
            0 => Some(Field::Null),
            1..=4 => self.take(kind).map(|value| Field::Integer(integer(value))),
            5 => self.take(6).map(|value| Field::Integer(integer(value))),
            6 => self.take(8).map(|value| Field::Integer(integer(value))),
            7 => self.take(8).and_then(|value| value.try_into().ok()).map(|value| {
                let real = f64::from_be_bytes(value);
                if real.is_nan() { Field::Null } else { Field::Real(real) }
            }),
            8 => Some(Field::Integer(0)),
            9 => Some(Field::Integer(1)),
            10 | 11 => None,
            even if even % 2 == 0 => self.take((even - 12) / 2).map(|value| Field::Blob(value, 0)),
            odd => self.take((odd - 13) / 2).map(Field::Text),
        };
        Some(field.ok_or(DamagedField))
    }
}

/// Appends the key of a record by these columns; `None` if the record is damaged.
pub(crate) fn key_of(
    record: &[u8],
    columns: &[KeyColumn],
    encoding: Encoding,
    out: &mut Vec<u8>,
) -> Option<()> {
    let mut fields = RecordFields::of(record)?;
    for column in columns {
        // Missing fields are NULL.
        let field = fields.next().unwrap_or(Ok(Field::Null)).ok()?;
        push(out, field, *column, encoding);
    }
    Some(())
}

/// Returns the key of the row that an index entry refers to, if rows have no numbers.
fn referred(record: &[u8], form: &KeyForm) -> Option<Vec<u8>> {
    let mut key = Vec::new();
    for (place, column) in &form.refers {
        let field = RecordFields::of(record)?.nth(*place).unwrap_or(Ok(Field::Null)).ok()?;
        push(&mut key, field, *column, form.encoding);
    }
    Some(key)
}

/// Returns the value of an index entry: the length and key of the row that it refers to, so that a
/// server can read that too, then the record. The key is left out if it is too long, or if the last
/// field is no row number, for then it is never looked up. `None` if the record is damaged.
pub(crate) fn entry_of(record: &[u8], form: &KeyForm) -> Option<Vec<u8>> {
    let mut value = Vec::with_capacity(record.len() + 9);
    let mut refer = |key: &[u8]| match u8::try_from(key.len()) {
        Ok(length) => {
            value.push(length);
            value.extend_from_slice(key);
        }
        Err(_) => value.push(0),
    };
    if form.is_table {
        refer(&[]);
    } else if !form.refers.is_empty() {
        refer(&referred(record, form)?);
    } else {
        match RecordFields::of(record)?.last().and_then(Result::ok) {
            Some(Field::Integer(row)) => refer(&of_row(row)),
            _ => refer(&[]),
        }
    }
    value.extend_from_slice(record);
    Some(value)
}

/// Returns the record in an entry's value.
pub(crate) fn record_of(value: &[u8]) -> &[u8] {
    let begin = value.first().map_or(0, |length| 1 + usize::from(*length));
    value.get(begin..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_decoded() {
        // (NULL, 1, -2, 'ab', x'00')
        let record = [6, 0, 9, 1, 17, 14, 0xfe, b'a', b'b', 0];
        let fields: Vec<_> = RecordFields::of(&record).unwrap().collect();
        let expected =
            [Field::Null, Field::Integer(1), Field::Integer(-2), Field::Text(b"ab"), Field::Blob(&[0], 0)];
        assert_eq!(fields, expected.map(Ok));
        for cut in 0..record.len() {
            // A truncated record gives an error and no panic.
            let fields = RecordFields::of(&record[..cut]);
            assert!(fields.is_none_or(|mut fields| fields.any(|field| field.is_err())), "{cut}");
        }
    }
}
