//! Numbers and bytes as people read them.

/// Bytes in units of 1,024.
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

/// A number with its thousands apart.
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

/// A time as days, hours, minutes and seconds, the two largest of them.
pub(crate) fn duration(ms: u64) -> String {
    let seconds = ms / 1_000;
    match seconds {
        0..60 => format!("{}.{} s", seconds, ms % 1_000 / 100),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// A key or a value: text as it is, numbers and the like in hexadecimal, text
/// with other bytes in it escaped.
pub(crate) fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(|sign| sign.is_control() || sign == '\\') => text.to_owned(),
        _ if bytes.iter().filter(|byte| byte.is_ascii_graphic()).count() * 2 < bytes.len() => {
            format!("0x{}", to_hex(bytes))
        }
        _ => bytes.escape_ascii().to_string(),
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes from hexadecimal digits.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_as_people_read_them() {
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
        assert_eq!(text("süß".as_bytes()), "süß");
        assert_eq!(text(&[b'a', b'b', 255]), "ab\\xff");
        assert_eq!(text(&[0, 0, 1, b'a']), "0x00000161");
        assert_eq!(from_hex("00ff"), Some(vec![0, 255]));
        assert_eq!([from_hex("0"), from_hex("zz"), from_hex("€")], [None, None, None]);
    }
}
