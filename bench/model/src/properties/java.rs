//! Java's `.properties` syntax, as `java.util.Properties.load` reads it.
//!
//! A natural line is a comment when its first character other than white
//! space (space, tab, form feed) is `#` or `!`. Otherwise a natural line that
//! ends in an odd number of backslashes continues on the next one, without
//! that line's leading white space. The key ends at the first unescaped `=`,
//! `:` or white space. `\t \n \r \f \\uXXXX` are escapes; a backslash before
//! any other character is dropped.
//!
//! There is one difference: Java reads such files as ISO 8859-1. This parser
//! reads valid UTF-8 as UTF-8, and all other files as ISO 8859-1.

/// A `key = value`, with the number of its first line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JavaProperty {
    /// Line number, from 1.
    pub line: usize,
    /// The key, unescaped.
    pub key: String,
    /// The value, unescaped. Trailing white space is kept, as in Java.
    pub value: String,
}

/// A syntax error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct SyntaxError {
    /// Line number, from 1.
    pub line: usize,
    /// The error.
    pub problem: String,
}

/// Parses a whole file. Reports all syntax errors, not only the first.
pub fn parse(bytes: &[u8]) -> Result<Vec<JavaProperty>, Vec<SyntaxError>> {
    let text: String = match std::str::from_utf8(bytes) {
        Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text).to_owned(),
        Err(_) => bytes.iter().map(|&b| b as char).collect(),
    };
    let mut entries = Vec::new();
    let mut errors = Vec::new();
    for (line, logical) in logical_lines(&text) {
        match split(&logical) {
            Ok((key, value)) => entries.push(JavaProperty { line, key, value }),
            Err(problem) => errors.push(SyntaxError { line, problem }),
        }
    }
    if errors.is_empty() { Ok(entries) } else { Err(errors) }
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\u{c}')
}

/// Splits text into natural lines, which end in `\n`, `\r` or `\r\n`.
fn natural_lines(text: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(end) = rest.find(['\n', '\r']) {
        lines.push(&rest[..end]);
        rest = &rest[end..];
        rest = rest.strip_prefix("\r\n").unwrap_or_else(|| &rest[1..]);
    }
    lines.push(rest);
    lines
}

fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut logical = Vec::new();
    let mut lines = natural_lines(text).into_iter().enumerate().peekable();
    while let Some((index, line)) = lines.next() {
        let line = line.trim_start_matches(is_blank);
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        let mut joined = line.to_owned();
        while joined.bytes().rev().take_while(|&b| b == b'\\').count() % 2 == 1 {
            joined.pop();
            match lines.next() {
                Some((_, next)) => joined.push_str(next.trim_start_matches(is_blank)),
                None => break,
            }
        }
        logical.push((index + 1, joined));
    }
    logical
}

fn split(line: &str) -> Result<(String, String), String> {
    let mut escaped = false;
    let mut key_end = line.len();
    for (at, c) in line.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == '=' || c == ':' || is_blank(c) {
            key_end = at;
            break;
        }
    }
    let after_key = line[key_end..].trim_start_matches(is_blank);
    let value =
        after_key.strip_prefix(['=', ':']).map_or(after_key, |rest| rest.trim_start_matches(is_blank));
    Ok((unescape(&line[..key_end])?, unescape(value)?))
}

fn unescape(text: &str) -> Result<String, String> {
    if !text.contains('\\') {
        return Ok(text.to_owned());
    }
    // Java's characters are UTF-16 units, so two \u escapes may form one
    // character.
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut chars = text.chars();
    let mut buffer = [0; 2];
    while let Some(c) = chars.next() {
        if c != '\\' {
            units.extend_from_slice(c.encode_utf16(&mut buffer));
            continue;
        }
        match chars.next() {
            None => {}
            Some('t') => units.push(0x09),
            Some('n') => units.push(0x0a),
            Some('r') => units.push(0x0d),
            Some('f') => units.push(0x0c),
            Some('u') => {
                let digits: String = chars.by_ref().take(4).collect();
                let valid = digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_hexdigit());
                match u16::from_str_radix(&digits, 16) {
                    Ok(unit) if valid => units.push(unit),
                    _ => {
                        return Err(format!(
                            "malformed escape '\\u{digits}': \\u takes four hexadecimal digits"
                        ));
                    }
                }
            }
            Some(other) => units.extend_from_slice(other.encode_utf16(&mut buffer)),
        }
    }
    Ok(String::from_utf16_lossy(&units))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pairs(text: &str) -> Vec<(usize, String, String)> {
        parse(text.as_bytes()).expect("valid").into_iter().map(|e| (e.line, e.key, e.value)).collect()
    }

    fn one(text: &str) -> (String, String) {
        let mut all = pairs(text);
        assert_eq!(all.len(), 1, "{text:?} gave {all:?}");
        let (_, key, value) = all.remove(0);
        (key, value)
    }

    #[test]
    fn separators() {
        for text in ["a=b", "a:b", "a b", "a = b", "a\t:\tb", "  a=b", "a   b", "a =b", "\u{c}a=b"] {
            assert_eq!(one(text), ("a".into(), "b".into()), "{text:?}");
        }
        assert_eq!(one("a"), ("a".into(), String::new()));
        assert_eq!(one("a==b"), ("a".into(), "=b".into()));
        assert_eq!(one("a = b c "), ("a".into(), "b c ".into()));
        assert_eq!(one(r"a\=b\ c=d"), ("a=b c".into(), "d".into()));
        assert_eq!(one("=b"), (String::new(), "b".into()));
    }

    #[test]
    fn comments_and_continuation() {
        let text = "# c\\\n! d\n\n a = 1,\\\n    2,\\\n\t3\nb=x\\\\\nc=#no comment\r\nd=e\\\n#f\rz=1";
        assert_eq!(
            pairs(text),
            [
                (4, "a".into(), "1,2,3".into()),
                (7, "b".into(), "x\\".into()),
                (8, "c".into(), "#no comment".into()),
                (9, "d".into(), "e#f".into()),
                (11, "z".into(), "1".into()),
            ]
        );
        assert_eq!(one("a=b\\"), ("a".into(), "b".into()));
    }

    #[test]
    fn escapes() {
        assert_eq!(one(r"a=\t\n\r\f\\\q\u0041"), ("a".into(), "\t\n\r\u{c}\\qA".into()));
        assert_eq!(one(r"a=\uD83D\uDE00"), ("a".into(), "\u{1f600}".into()));
        let bad = parse(b"a=1\nb=\\u12\nc=\\u00zz\n").expect_err("bad escapes");
        assert_eq!(bad.iter().map(|e| e.line).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn encodings() {
        assert_eq!(one("a=\u{e9}"), ("a".into(), "\u{e9}".into()));
        let latin = parse(b"a=\xe9").expect("Latin-1");
        assert_eq!(latin[0].value, "\u{e9}");
        assert_eq!(one("\u{feff}a=b"), ("a".into(), "b".into()));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }

        #[test]
        fn escaped_text_survives_a_round_trip(key in "[ -~]{1,20}", value in "\\PC{0,20}") {
            let escape = |text: &str| -> String {
                text.chars().flat_map(|c| match c {
                    ' ' | '=' | ':' | '#' | '!' | '\\' => vec!['\\', c],
                    c => vec![c],
                }).collect()
            };
            let text = format!("{}={}", escape(&key), escape(&value));
            prop_assert_eq!(one(&text), (key, value));
        }
    }
}
