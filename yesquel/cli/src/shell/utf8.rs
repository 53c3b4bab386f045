//! Statements with arbitrary bytes, as a script may contain them.

/// Returns whether a text consists of spaces and closed comments.
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

/// Returns the length of the quoted token at the start of a text, with its quotes.
fn quoted(text: &[u8], close: u8) -> usize {
    let mut at = 1;
    while at < text.len() {
        if text[at] == close {
            // A doubled quote does not end it.
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

/// Converts a statement to UTF-8: a literal that is not UTF-8 becomes a blob cast to text. SQLite's
/// own shell passes such bytes on.
pub(super) fn to_utf8(text: Vec<u8>) -> String {
    let text = match String::from_utf8(text) {
        Ok(text) => return text,
        Err(error) => error.into_bytes(),
    };
    let (mut out, mut rest) = (String::with_capacity(text.len() * 2), &text[..]);
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
            (Ok(token), _) => out.push_str(token),
            (Err(_), [b'\'', inner @ .., b'\'']) => push_text(&mut out, inner),
            (Err(_), _) => out.push_str(&String::from_utf8_lossy(token)),
        }
    }
    out
}

/// Appends a string literal.
fn push_text(out: &mut String, inner: &[u8]) {
    use std::fmt::Write as _;
    out.push_str("CAST(X'");
    let mut bytes = inner.iter();
    while let Some(byte) = bytes.next() {
        let _ = write!(out, "{byte:02X}");
        if *byte == b'\'' {
            bytes.next();
        }
    }
    out.push_str("' AS TEXT)");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_not_utf_8_keeps_its_bytes() {
        let to_utf8 = |text: &[u8]| to_utf8(text.to_vec());
        assert_eq!(to_utf8("SELECT 'ä''b'; -- é".as_bytes()), "SELECT 'ä''b'; -- é");
        assert_eq!(
            to_utf8(b"INSERT INTO \"a'\" VALUES('caf\xe9', 'it''s \xff', 'b', 1-2/3);"),
            "INSERT INTO \"a'\" VALUES(CAST(X'636166E9' AS TEXT), CAST(X'6974277320FF' AS TEXT), 'b', 1-2/3);"
        );
        assert_eq!(
            to_utf8(b"SELECT 1 -- it's \xe9\n, '\xe9'"),
            "SELECT 1 -- it's \u{fffd}\n, CAST(X'E9' AS TEXT)"
        );
        assert_eq!(to_utf8(b"/* ' \xe9 */ [a'\xe9] '\xe9"), "/* ' \u{fffd} */ [a'\u{fffd}] '\u{fffd}");
    }

    #[test]
    fn comments_become_blanks() {
        for blank in ["", " \n", "-- a", "/* a */ -- b\n  /**/", "/*/ */"] {
            assert!(is_blank(blank.as_bytes()), "{blank}");
        }
        for other in ["/* a", "/*/", "-- a\nb", ";", "- - a"] {
            assert!(!is_blank(other.as_bytes()), "{other}");
        }
    }
}
