//! Index keys: an encoding of fields whose byte order is SQLite's order.
//!
//! | field | bytes |
//! |---|---|
//! | NULL | 05 |
//! | number | 15, the nearest double, sign-adjusted, big-endian (8), then number − double, biased (2) |
//! | text | 25, bytes with 00 as 00 FF, then 00 01 |
//! | blob | 35, likewise |
//!
//! A field of a descending column has all bytes inverted. Each encoding is self-delimiting, so that
//! the first fields of a key are a prefix of its bytes.

use std::ffi::CStr;

/// Collation of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Collation {
    Binary,
    Nocase,
    Rtrim,
    /// Collation of the application, which has no byte encoding.
    Other,
}

/// Text encoding of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Utf8,
    Utf16Le,
    Utf16Be,
}

/// Column of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyColumn {
    pub(crate) collation: Collation,
    pub(crate) is_descending: bool,
}

/// Value. Blobs may be followed by zero bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Field<'a> {
    Null,
    Integer(i64),
    Real(f64),
    Text(&'a [u8]),
    Blob(&'a [u8], u32),
}

const NULL: u8 = 0x05;
const NUMBER: u8 = 0x15;
const TEXT: u8 = 0x25;
const BLOB: u8 = 0x35;
/// Largest difference between a 64-bit integer and its nearest double.
const BIAS: i128 = 512;

fn number(out: &mut Vec<u8>, double: f64, more: u16) {
    // -0.0 is 0.
    let bits = (double + 0.0).to_bits();
    let ordered = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
    out.push(NUMBER);
    out.extend_from_slice(&ordered.to_be_bytes());
    out.extend_from_slice(&more.to_be_bytes());
}

fn bytes(out: &mut Vec<u8>, mut rest: &[u8]) {
    // By the C library's search: keys may have megabytes.
    while let Ok(before) = CStr::from_bytes_until_nul(rest) {
        out.extend_from_slice(before.to_bytes_with_nul());
        out.push(0xff);
        rest = &rest[before.count_bytes() + 1..];
    }
    out.extend_from_slice(rest);
}

fn utf8(text: &[u8], encoding: Encoding) -> Vec<u8> {
    let units = text.chunks_exact(2).map(|pair| match encoding {
        Encoding::Utf16Be => u16::from_be_bytes([pair[0], pair[1]]),
        _ => u16::from_le_bytes([pair[0], pair[1]]),
    });
    char::decode_utf16(units)
        .map(|sign| sign.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect::<String>()
        .into_bytes()
}

/// Bytes before and after the bytes of a text or blob.
const ENDS_BYTES: usize = 3;

fn text(out: &mut Vec<u8>, value: &[u8], collation: Collation) {
    match collation {
        Collation::Binary | Collation::Other => bytes(out, value),
        // SQLite compares up to the first zero byte, and then lengths.
        Collation::Nocase => {
            let end = CStr::from_bytes_until_nul(value).map_or(value.len(), CStr::count_bytes);
            let start = out.len();
            out.extend_from_slice(&value[..end]);
            out[start..].make_ascii_lowercase();
            if end < value.len() {
                let rest = (value.len() - end) as u64;
                bytes(out, &[0]);
                bytes(out, &rest.to_be_bytes());
            }
        }
        Collation::Rtrim => {
            let end = value.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
            bytes(out, &value[..end]);
        }
    }
}

/// Appends the encoding of a field.
pub(crate) fn push(out: &mut Vec<u8>, field: Field<'_>, column: KeyColumn, encoding: Encoding) {
    let start = out.len();
    match field {
        Field::Null => out.push(NULL),
        Field::Integer(integer) => {
            let double = integer as f64;
            // Within the bias for any integer.
            let more = (i128::from(integer) - double as i128 + BIAS) as u16;
            number(out, double, more);
        }
        Field::Real(real) => number(out, real, BIAS as u16),
        Field::Text(value) => {
            out.reserve(value.len() + ENDS_BYTES);
            out.push(TEXT);
            if encoding == Encoding::Utf8 || column.collation == Collation::Binary {
                text(out, value, column.collation);
            } else {
                text(out, &utf8(value, encoding), column.collation);
            }
            out.extend_from_slice(&[0, 1]);
        }
        Field::Blob(value, zeros) => {
            out.reserve(value.len() + ENDS_BYTES);
            out.push(BLOB);
            bytes(out, value);
            (0..zeros).for_each(|_| out.extend_from_slice(&[0, 0xff]));
            out.extend_from_slice(&[0, 1]);
        }
    }
    if column.is_descending {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

/// Formats an index key for people: its complete fields. Keys that were shortened to separators end
/// in an incomplete one.
pub(crate) fn shown(key: &[u8]) -> String {
    let (mut fields, mut rest) = (Vec::new(), key);
    while let Some((tag, behind)) = rest.split_first() {
        let mask = if [NULL, NUMBER, TEXT, BLOB].contains(tag) { 0 } else { 0xff };
        let (field, behind) = match tag ^ mask {
            NULL => ("NULL".to_owned(), behind),
            NUMBER => match behind.split_first_chunk::<10>() {
                Some((bytes, behind)) => (shown_number(bytes.map(|byte| byte ^ mask)), behind),
                None => ("…".to_owned(), &[][..]),
            },
            TEXT | BLOB => {
                let (bytes, is_whole, behind) = unescaped(behind, mask);
                let text = String::from_utf8_lossy(&bytes);
                let end = if is_whole { "" } else { "…" };
                let is_seen = tag ^ mask == TEXT && !text.contains(char::is_control);
                let hex = || bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
                (if is_seen { format!("'{text}{end}'") } else { format!("x'{}{end}'", hex()) }, behind)
            }
            _ => ("…".to_owned(), &[][..]),
        };
        fields.push(field);
        rest = behind;
    }
    format!("({})", fields.join(", "))
}

fn shown_number(bytes: [u8; 10]) -> String {
    let (double, more) = bytes.split_at(8);
    let ordered = double.try_into().map_or(0, u64::from_be_bytes);
    let bits = if ordered >> 63 == 1 { ordered & !(1 << 63) } else { !ordered };
    let more = i128::from(more.try_into().map_or(0, u16::from_be_bytes)) - BIAS;
    let double = f64::from_bits(bits);
    // Below 2^63, integral numbers are shown as integers; the original type is unknown.
    if double.fract() == 0.0 && double.abs() <= 9.3e18 {
        (double as i128 + more).to_string()
    } else {
        double.to_string()
    }
}

/// Returns the unescaped bytes, whether they are complete, and the rest.
fn unescaped(mut rest: &[u8], mask: u8) -> (Vec<u8>, bool, &[u8]) {
    let mut bytes = Vec::new();
    loop {
        match *rest {
            [zero, end, ref behind @ ..] if zero ^ mask == 0 && end ^ mask == 1 => {
                return (bytes, true, behind);
            }
            [zero, _, ref behind @ ..] if zero ^ mask == 0 => {
                bytes.push(0);
                rest = behind;
            }
            [byte, ref behind @ ..] => {
                bytes.push(byte ^ mask);
                rest = behind;
            }
            [] => return (bytes, false, rest),
        }
    }
}

/// Returns the key of a row: numbers in order, negative ones first.
pub(crate) fn of_row(row: i64) -> [u8; 8] {
    (row as u64 ^ 1 << 63).to_be_bytes()
}

/// Returns the row number of a key.
pub(crate) fn row_of(key: &[u8]) -> Option<i64> {
    Some((u64::from_be_bytes(key.try_into().ok()?) ^ 1 << 63) as i64)
}

/// Returns a bound above all keys with a prefix. It exists, since no encoding consists of FF only.
pub(crate) fn above(prefix: &[u8]) -> Vec<u8> {
    let mut above = prefix.to_vec();
    while let Some(last) = above.pop() {
        if last < 0xff {
            above.push(last + 1);
            break;
        }
    }
    above
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Ordering;

    const ASCENDING: KeyColumn = KeyColumn { collation: Collation::Binary, is_descending: false };

    fn form(field: Field<'_>, column: KeyColumn) -> Vec<u8> {
        let mut out = Vec::new();
        push(&mut out, field, column, Encoding::Utf8);
        out
    }

    #[test]
    fn incomplete_keys_are_shown_up_to_their_end() {
        let column = |is_descending| KeyColumn { collation: Collation::Binary, is_descending };
        let mut key = Vec::new();
        push(&mut key, Field::Text(b"ann"), column(false), Encoding::Utf8);
        push(&mut key, Field::Integer(i64::MAX), column(true), Encoding::Utf8);
        push(&mut key, Field::Real(-0.5), column(false), Encoding::Utf8);
        push(&mut key, Field::Null, column(true), Encoding::Utf8);
        push(&mut key, Field::Blob(&[0, 1], 0), column(true), Encoding::Utf8);
        push(&mut key, Field::Integer(-7), column(false), Encoding::Utf8);
        assert_eq!(shown(&key), "('ann', 9223372036854775807, -0.5, NULL, x'0001', -7)");
        assert_eq!(shown(&key[..3]), "('an…')");
        assert_eq!(shown(&key[..9]), "('ann', …)");
        // Any prefix can be shown.
        for length in 0..=key.len() {
            shown(&key[..length]);
        }
        assert_eq!(shown(&[7, 7]), "(…)");
    }

    #[test]
    fn the_example_in_the_document_is_correct() {
        let three = [0x15, 0xc0, 0x08, 0, 0, 0, 0, 0, 0, 2, 0];
        assert_eq!(form(Field::Integer(3), ASCENDING), three);
        let bob = KeyColumn { collation: Collation::Nocase, is_descending: false };
        assert_eq!(form(Field::Text(b"Bob"), bob), b"\x25bob\x00\x01");
    }

    /// SQLite's comparison of two numbers.
    fn order(left: Field<'_>, right: Field<'_>) -> Ordering {
        let exact = |field| match field {
            Field::Integer(integer) => (integer as f64, i128::from(integer) - (integer as f64) as i128),
            Field::Real(real) => (real, 0),
            _ => unreachable!(),
        };
        let ((left, more), (right, other)) = (exact(left), exact(right));
        left.partial_cmp(&right).unwrap().then(more.cmp(&other))
    }

    fn numbers() -> impl Strategy<Value = Field<'static>> {
        let near = prop::sample::select(vec![0, 1 << 53, (1 << 53) + 1, i64::MAX, i64::MIN, 1 << 62]);
        prop_oneof![
            any::<i64>().prop_map(Field::Integer),
            (-9..9i64).prop_map(Field::Integer),
            (near, -3..3i64).prop_map(|(near, by)| Field::Integer(near.saturating_add(by))),
            any::<i64>().prop_map(|integer| Field::Real(integer as f64)),
            any::<f64>().prop_filter("NULL", |real| !real.is_nan()).prop_map(Field::Real),
            Just(Field::Real(-0.0)),
        ]
    }

    proptest! {
        #[test]
        fn encoded_numbers_keep_their_order(left in numbers(), right in numbers()) {
            prop_assert_eq!(form(left, ASCENDING).cmp(&form(right, ASCENDING)), order(left, right));
            let descending = KeyColumn { is_descending: true, ..ASCENDING };
            prop_assert_eq!(form(left, descending).cmp(&form(right, descending)), order(right, left));
        }

        #[test]
        fn encoded_texts_keep_their_order(left in "[a-cA-C \0]{0,5}", right in "[a-cA-C \0]{0,5}", next in numbers()) {
            let (left, right) = (left.as_bytes(), right.as_bytes());
            let both = |text, collation| {
                let mut out = form(Field::Text(text), KeyColumn { collation, is_descending: false });
                push(&mut out, next, ASCENDING, Encoding::Utf8);
                out
            };
            prop_assert_eq!(both(left, Collation::Binary).cmp(&both(right, Collation::Binary)), left.cmp(right));
            let trimmed = |text: &'static str| text.trim_end_matches(' ').as_bytes();
            let (l, r) = (String::from_utf8_lossy(left).into_owned().leak(), String::from_utf8_lossy(right).into_owned().leak());
            prop_assert_eq!(both(left, Collation::Rtrim).cmp(&both(right, Collation::Rtrim)), trimmed(l).cmp(trimmed(r)));
            prop_assert_eq!(both(left, Collation::Nocase).cmp(&both(right, Collation::Nocase)), nocase(left, right));
        }

        #[test]
        fn encoded_rows_keep_their_order(left: i64, right: i64) {
            prop_assert_eq!(of_row(left).cmp(&of_row(right)), left.cmp(&right));
            prop_assert_eq!(row_of(&of_row(left)), Some(left));
        }
    }

    /// SQLite's `nocaseCollatingFunc`.
    fn nocase(left: &[u8], right: &[u8]) -> Ordering {
        for (l, r) in left.iter().zip(right) {
            let (l, r) = (l.to_ascii_lowercase(), r.to_ascii_lowercase());
            if l == 0 || l != r {
                if l != r {
                    return l.cmp(&r);
                }
                break;
            }
        }
        left.len().cmp(&right.len())
    }
}
