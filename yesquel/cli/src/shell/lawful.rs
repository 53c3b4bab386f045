//! Statements of any bytes, as a script may have them.

/// Whether there is nothing but spaces and comments that are at an end.
pub(super) fn is_blank(text: &[u8]) -> bool {
    let mut rest = text;
    loop {
        rest = rest.trim_ascii_start();
        match rest {
            [] => return true,
            [b'-', b'-', ..] => rest = &rest[end_of_line(rest)..],
            [b'/', b'*', ..] => match end_of_comment(rest) {
                Some(end) => rest = &rest[end..],
                None => return false,
            },
            _ => return false,
        }
    }
}

fn end_of_line(text: &[u8]) -> usize {
    text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len())
}

fn end_of_comment(text: &[u8]) -> Option<usize> {
    text[2..].windows(2).position(|two| two == b"*/").map(|at| at + 4)
}

/// How long the quoted thing is that a text begins with, its quotes included.
fn quoted(text: &[u8], close: u8) -> usize {
    let mut at = 1;
    while at < text.len() {
        if text[at] == close {
            // Twice is once, and no end.
            if close != b']' && text.get(at + 1) == Some(&close) {
                at += 1;
            } else {
                return at + 1;
            }
        }
        at += 1;
    }
    text.len()
}

/// The statement as SQLite takes it here, in UTF-8: a literal that is not becomes
/// the value of its bytes. SQLite's own shell hands them on as they are.
pub(super) fn lawful(text: Vec<u8>) -> String {
    let text = match String::from_utf8(text) {
        Ok(text) => return text,
        Err(error) => error.into_bytes(),
    };
    let (mut lawful, mut rest) = (String::with_capacity(text.len() * 2), &text[..]);
    while let Some(first) = rest.first() {
        let length = match (first, rest.get(1)) {
            (b'\'' | b'"' | b'`', _) => quoted(rest, *first),
            (b'[', _) => quoted(rest, b']'),
            (b'-', Some(b'-')) => end_of_line(rest),
            (b'/', Some(b'*')) => end_of_comment(rest).unwrap_or(rest.len()),
            _ => rest[1..].iter().position(|byte| b"'\"`[-/".contains(byte)).map_or(rest.len(), |at| at + 1),
        };
        let (token, behind) = rest.split_at(length);
        rest = behind;
        match (std::str::from_utf8(token), token) {
            (Ok(token), _) => lawful.push_str(token),
            (Err(_), [b'\'', inner @ .., b'\'']) => push_text(&mut lawful, inner),
            (Err(_), _) => lawful.push_str(&String::from_utf8_lossy(token)),
        }
    }
    lawful
}

/// The text that stands between quotes.
fn push_text(lawful: &mut String, inner: &[u8]) {
    use std::fmt::Write as _;
    lawful.push_str("CAST(X'");
    let mut bytes = inner.iter();
    while let Some(byte) = bytes.next() {
        let _ = write!(lawful, "{byte:02X}");
        if *byte == b'\'' {
            bytes.next();
        }
    }
    lawful.push_str("' AS TEXT)");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_no_utf_8_keeps_its_bytes() {
        let lawful = |text: &[u8]| lawful(text.to_vec());
        assert_eq!(lawful("SELECT 'ä''b'; -- é".as_bytes()), "SELECT 'ä''b'; -- é");
        assert_eq!(
            lawful(b"INSERT INTO \"a'\" VALUES('caf\xe9', 'it''s \xff', 'b', 1-2/3);"),
            "INSERT INTO \"a'\" VALUES(CAST(X'636166E9' AS TEXT), CAST(X'6974277320FF' AS TEXT), 'b', 1-2/3);"
        );
        assert_eq!(
            lawful(b"SELECT 1 -- it's \xe9\n, '\xe9'"),
            "SELECT 1 -- it's \u{fffd}\n, CAST(X'E9' AS TEXT)"
        );
        assert_eq!(lawful(b"/* ' \xe9 */ [a'\xe9] '\xe9"), "/* ' \u{fffd} */ [a'\u{fffd}] '\u{fffd}");
    }

    #[test]
    fn comments_are_blank_when_they_end() {
        for blank in ["", " \n", "-- a", "/* a */ -- b\n  /**/", "/*/ */"] {
            assert!(is_blank(blank.as_bytes()), "{blank}");
        }
        for other in ["/* a", "/*/", "-- a\nb", ";", "- - a"] {
            assert!(!is_blank(other.as_bytes()), "{other}");
        }
    }
}
