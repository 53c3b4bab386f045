//! Words of a dot command.

/// Splits a line into words, at spaces outside of quotes. Single quotes quote everything; in double
/// quotes, backslashes work as in C.
pub(super) fn words(line: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut signs = line.chars().peekable();
    loop {
        while signs.next_if(|sign| sign.is_whitespace()).is_some() {}
        let Some(first) = signs.peek().copied() else { return all };
        let mut word = String::new();
        if matches!(first, '\'' | '"') {
            signs.next();
            while let Some(sign) = signs.next() {
                match sign {
                    sign if sign == first => break,
                    '\\' if first == '"' => word.push(escaped(&mut signs)),
                    sign => word.push(sign),
                }
            }
        } else {
            while let Some(sign) = signs.next_if(|sign| !sign.is_whitespace()) {
                word.push(sign);
            }
        }
        all.push(word);
    }
}

fn escaped(signs: &mut std::iter::Peekable<std::str::Chars<'_>>) -> char {
    match signs.next() {
        Some('n') => '\n',
        Some('t') => '\t',
        Some('r') => '\r',
        Some('a') => '\u{7}',
        Some('b') => '\u{8}',
        Some('f') => '\u{c}',
        Some('v') => '\u{b}',
        Some('x') => number(signs, 16, 2),
        Some(digit @ '0'..='7') => {
            let first = digit.to_digit(8).unwrap_or_default();
            let rest: Vec<u32> = (0..2)
                .map_while(|_| signs.next_if(|sign| sign.is_digit(8)).and_then(|sign| sign.to_digit(8)))
                .collect();
            char::from_u32(rest.into_iter().fold(first, |number, digit| number * 8 + digit))
                .unwrap_or('\u{fffd}')
        }
        Some(other) => other,
        None => '\\',
    }
}

fn number(signs: &mut std::iter::Peekable<std::str::Chars<'_>>, base: u32, digits: usize) -> char {
    let mut number = 0;
    for _ in 0..digits {
        let Some(digit) = signs.next_if(|sign| sign.is_digit(base)).and_then(|sign| sign.to_digit(base))
        else {
            break;
        };
        number = number * base + digit;
    }
    char::from_u32(number).unwrap_or('\u{fffd}')
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn quoted_words_are_one_argument() {
        assert_eq!(words(" .open  'a b'  \"c\\td\" e'f "), [".open", "a b", "c\td", "e'f"]);
        assert_eq!(words(r#".separator "\x1f" "\036\n" '\n'"#), [".separator", "\u{1f}", "\u{1e}\n", "\\n"]);
        assert_eq!(words(".x 'open"), [".x", "open"]);
        assert_eq!(words(""), Vec::<String>::new());
    }
}
