//! Values, and how two are compared.

use std::fmt;

/// A value of SQL.
#[derive(Clone)]
pub enum Value {
    /// None.
    Null,
    /// A whole number.
    Integer(i64),
    /// Another number.
    Real(f64),
    /// Text, whatever its bytes are.
    Text(Box<[u8]>),
    /// Bytes.
    Blob(Box<[u8]>),
}

/// The same to the last bit, so that 0.0 is not −0.0.
impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::Integer(a), Value::Integer(b)) => a == b,
            (Value::Real(a), Value::Real(b)) => a.to_bits() == b.to_bits(),
            (Value::Text(a), Value::Text(b)) | (Value::Blob(a), Value::Blob(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Value {}

/// How much of a long value is printed.
const SHOWN: usize = 60;

/// As a literal of SQL, shortened if it is long.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("NULL"),
            Value::Integer(number) => write!(f, "{number}"),
            Value::Real(number) => write!(f, "{number:?}"),
            Value::Text(bytes) => {
                let shown = &bytes[..bytes.len().min(SHOWN)];
                write!(f, "{:?}", String::from_utf8_lossy(shown))?;
                if bytes.len() > SHOWN { write!(f, "… of {}", bytes.len()) } else { Ok(()) }
            }
            Value::Blob(bytes) => {
                f.write_str("x'")?;
                bytes.iter().take(SHOWN / 2).try_for_each(|byte| write!(f, "{byte:02x}"))?;
                f.write_str("'")?;
                if bytes.len() > SHOWN / 2 { write!(f, "… of {}", bytes.len()) } else { Ok(()) }
            }
        }
    }
}

impl Value {
    /// What all values have in common that some collation, or a comparison of
    /// numbers, takes to be equal.
    pub fn folded(&self) -> Vec<u8> {
        match self {
            Value::Null => vec![0],
            Value::Integer(number) => number_key(*number as f64),
            Value::Real(number) => number_key(*number),
            Value::Text(bytes) => {
                let mut key = vec![2];
                key.extend(bytes.iter().map(u8::to_ascii_lowercase));
                while key.last() == Some(&b' ') {
                    key.pop();
                }
                key
            }
            Value::Blob(bytes) => [&[3], &**bytes].concat(),
        }
    }
}

/// A number, but for its last digits: sums of several depend on their order.
fn number_key(number: f64) -> Vec<u8> {
    format!("\u{1}{:.11e}", if number == 0.0 { 0.0 } else { number }).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_equal_for_some_collation_folds_to_the_same() {
        let text = |text: &str| Value::Text(text.as_bytes().into());
        assert_eq!(text("Ab  ").folded(), text("aB").folded());
        assert_eq!(Value::Integer(1).folded(), Value::Real(1.0).folded());
        assert_eq!(Value::Real(-0.0).folded(), Value::Integer(0).folded());
        assert_ne!(text("1").folded(), Value::Integer(1).folded());
        assert_ne!(text("a").folded(), Value::Blob(b"a".as_slice().into()).folded());
        assert_ne!(Value::Real(0.0), Value::Real(-0.0));
    }
}
