//! Formats numbers and bytes for people.

use serde_json::Value;
use std::fmt::Write as _;

/// Formats bytes in units of 1,024.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut number = count as f64;
    let mut unit = 0;
    while number >= 1024.0 && unit + 1 < UNITS.len() {
        number /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{number:.1} {}", UNITS[unit]) }
}

/// Formats a number with separators between thousands.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// Formats a number of things: with `one` if it is one, and otherwise with `more`.
pub(crate) fn things(number: u64, one: &str, more: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { more })
}

/// Formats a time by the two largest of days, hours, minutes and seconds.
pub(crate) fn duration(ms: u64) -> String {
    let seconds = ms / 1_000;
    match seconds {
        0..60 => format!("{}.{} s", seconds, ms % 1_000 / 100),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// Formats a key or a value as text that [`from_text`] reads back: UTF-8 with doubled backslashes,
/// and `\t`, `\n`, `\r` and `\xHH` for control characters and for bytes that are not UTF-8.
pub(crate) fn text(bytes: &[u8]) -> String {
    let mut shown = String::new();
    let escape = |shown: &mut String, bytes: &[u8]| {
        for byte in bytes {
            // Writing to a string cannot fail.
            let _ = write!(shown, "\\x{byte:02x}");
        }
    };
    for chunk in bytes.utf8_chunks() {
        for sign in chunk.valid().chars() {
            match sign {
                '\\' => shown.push_str("\\\\"),
                '\t' => shown.push_str("\\t"),
                '\n' => shown.push_str("\\n"),
                '\r' => shown.push_str("\\r"),
                sign if sign.is_control() => escape(&mut shown, sign.encode_utf8(&mut [0; 4]).as_bytes()),
                sign => shown.push(sign),
            }
        }
        escape(&mut shown, chunk.invalid());
    }
    shown
}

/// Like [`text`], usable as an argument: something that begins with `-` and is no number would be
/// taken for an option, or for standard input.
pub(crate) fn argument(bytes: &[u8]) -> String {
    let shown = text(bytes);
    match shown.strip_prefix('-') {
        Some(rest) if rest.is_empty() || !rest.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("\\x2d{rest}")
        }
        _ => shown,
    }
}

/// Parses the format of [`text`].
pub(crate) fn from_text(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, escaped)) = rest.split_once('\\') {
        bytes.extend_from_slice(plain.as_bytes());
        let (byte, length) = match escaped.bytes().next() {
            Some(b'\\') => (b'\\', 1),
            Some(b't') => (b'\t', 1),
            Some(b'n') => (b'\n', 1),
            Some(b'r') => (b'\r', 1),
            Some(b'x') => match escaped.get(1..3).and_then(from_hex).as_deref() {
                Some([byte]) => (*byte, 3),
                _ => return Err(format!("'{text}': after \\x come two hexadecimal digits")),
            },
            _ => {
                return Err(format!(
                    "'{text}': after a backslash comes t, n, r, xHH, or another one: write \\\\ for one that is meant"
                ));
            }
        };
        bytes.push(byte);
        rest = &escaped[length..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    Ok(bytes)
}

/// Formats a key or a value as JSON: a string if it is UTF-8, else `{"hex":"80"}`.
pub(crate) fn json(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => serde_json::json!({ "hex": to_hex(bytes) }),
    }
}

/// Formats bytes in hexadecimal.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses hexadecimal digits.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    // The integer parser would accept a sign.
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_in_readable_units() {
        assert_eq!(
            [bytes(0), bytes(1023), bytes(1536), bytes(5 << 30)],
            ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]
        );
        assert_eq!(
            [count(0), count(999), count(1_000), count(1_234_567)],
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!(duration(1_250), "1.2 s");
        assert_eq!(duration(90_061_000), "1 d 1 h");
        assert_eq!(from_hex("00ff"), Some(vec![0, 255]));
        assert_eq!([from_hex("0"), from_hex("zz"), from_hex("€"), from_hex("+1")], [const { None }; 4]);
    }

    #[test]
    fn printed_bytes_are_valid_arguments() {
        for (bytes, shown) in [
            (&b"apples"[..], "apples"),
            ("süß".as_bytes(), "süß"),
            (b"a\tb\nc\r", r"a\tb\nc\r"),
            (b"a\\tb", r"a\\tb"),
            (b"0x80", "0x80"),
            (b"\x80", r"\x80"),
            (b"\\x80", r"\\x80"),
            (&[0, b'a', 0xc3, b'b', 127], r"\x00a\xc3b\x7f"),
            ("\u{85}".as_bytes(), r"\xc2\x85"),
            (b"-", r"\x2d"),
            (b"--hex", r"\x2d-hex"),
            (b"-5", "-5"),
            (b"", ""),
        ] {
            assert_eq!(argument(bytes), shown);
            assert_eq!(from_text(shown).as_deref(), Ok(bytes));
        }
        // Different bytes never look the same.
        for first in 0..=255u8 {
            for second in 0..=255u8 {
                assert_eq!(from_text(&argument(&[first, second])), Ok(vec![first, second]));
            }
        }
        assert_eq!([json(b"0x80"), json(b"a\tb")], [Value::from("0x80"), Value::from("a\tb")]);
        assert_eq!(json(&[0x80]).to_string(), r#"{"hex":"80"}"#);
        for wrong in ["\\", "\\q", "\\x8", "\\x+1", "\\x€"] {
            assert!(from_text(wrong).is_err(), "{wrong}");
        }
    }
}
