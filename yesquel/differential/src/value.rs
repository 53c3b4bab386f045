//! Values and their comparison.

use std::fmt;

/// SQL value.
#[derive(Clone)]
pub enum SqlValue {
    /// NULL.
    Null,
    /// Integer.
    Integer(i64),
    /// Real.
    Real(f64),
    /// Text of arbitrary bytes.
    Text(Box<[u8]>),
    /// Blob.
    Blob(Box<[u8]>),
}

/// Equality of all bits, so that 0.0 differs from −0.0.
impl PartialEq for SqlValue {
    fn eq(&self, other: &SqlValue) -> bool {
        match (self, other) {
            (SqlValue::Null, SqlValue::Null) => true,
            (SqlValue::Integer(a), SqlValue::Integer(b)) => a == b,
            (SqlValue::Real(a), SqlValue::Real(b)) => a.to_bits() == b.to_bits(),
            (SqlValue::Text(a), SqlValue::Text(b)) | (SqlValue::Blob(a), SqlValue::Blob(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for SqlValue {}

/// Number of bytes of a long value that are printed.
const SHOWN: usize = 60;

/// Formats an SQL literal, shortened if it is long.
impl fmt::Debug for SqlValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SqlValue::Null => f.write_str("NULL"),
            SqlValue::Integer(number) => write!(f, "{number}"),
            SqlValue::Real(number) => write!(f, "{number:?}"),
            SqlValue::Text(bytes) => {
                let shown = &bytes[..bytes.len().min(SHOWN)];
                write!(f, "{:?}", String::from_utf8_lossy(shown))?;
                if bytes.len() > SHOWN { write!(f, "… of {}", bytes.len()) } else { Ok(()) }
            }
            SqlValue::Blob(bytes) => {
                f.write_str("x'")?;
                bytes.iter().take(SHOWN / 2).try_for_each(|byte| write!(f, "{byte:02x}"))?;
                f.write_str("'")?;
                if bytes.len() > SHOWN / 2 { write!(f, "… of {}", bytes.len()) } else { Ok(()) }
            }
        }
    }
}

impl SqlValue {
    /// Returns an equal key for all values that some collation or numeric comparison considers
    /// equal.
    pub fn folded(&self) -> Vec<u8> {
        match self {
            SqlValue::Null => vec![0],
            SqlValue::Integer(number) => number_key(*number as f64),
            SqlValue::Real(number) => number_key(*number),
            SqlValue::Text(bytes) => {
                let mut key = vec![2];
                key.extend(bytes.iter().map(u8::to_ascii_lowercase));
                while key.last() == Some(&b' ') {
                    key.pop();
                }
                key
            }
            SqlValue::Blob(bytes) => [&[3], &**bytes].concat(),
        }
    }
}

/// Rounds a number: sums depend on the order of their terms.
fn number_key(number: f64) -> Vec<u8> {
    format!("\u{1}{:.11e}", if number == 0.0 { 0.0 } else { number }).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_equal_under_a_collation_fold_to_the_same_value() {
        let text = |text: &str| SqlValue::Text(text.as_bytes().into());
        assert_eq!(text("Ab  ").folded(), text("aB").folded());
        assert_eq!(SqlValue::Integer(1).folded(), SqlValue::Real(1.0).folded());
        assert_eq!(SqlValue::Real(-0.0).folded(), SqlValue::Integer(0).folded());
        assert_ne!(text("1").folded(), SqlValue::Integer(1).folded());
        assert_ne!(text("a").folded(), SqlValue::Blob(b"a".as_slice().into()).folded());
        assert_ne!(SqlValue::Real(0.0), SqlValue::Real(-0.0));
    }
}
