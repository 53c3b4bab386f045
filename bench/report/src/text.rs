//! Makes untrusted texts safe to show.

use serval_result::document::ResultDocument;
use std::fmt::Display;

/// Returns the title of a result: `run of CoreWorkload on redis`, after the label if there is one.
/// Packages of workload classes and folders of scripts are left out.
pub fn title(document: &ResultDocument) -> String {
    let run = &document.run;
    let label = if run.label.is_empty() { String::new() } else { format!("{}: ", run.label) };
    let divider = if run.workload.ends_with(".lua") { ['/', '\\'] } else { ['.', '.'] };
    let workload = run.workload.rsplit(divider).next().unwrap_or(&run.workload);
    format!("{label}{} of {workload} on {}", run.phase, run.store)
}

/// Returns a text without control characters, cut to `max` characters.
pub fn printable(text: &str, max: usize) -> String {
    let mut clean = String::new();
    for (index, c) in text.chars().enumerate() {
        if index >= max {
            clean.push('…');
            break;
        }
        clean.push(if c.is_control() || turns(c) { ' ' } else { c });
    }
    clean
}

/// Whether a character changes the direction of text beyond its own: a name must not reorder the
/// numbers beside it.
fn turns(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{061c}')
}

/// Escapes a text for an element or a quoted attribute.
pub(crate) fn escape(text: impl Display) -> String {
    let mut out = String::new();
    for c in text.to_string().chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Not allowed in HTML.
            c if (c.is_control() && !matches!(c, '\n' | '\t')) || turns(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Quotes a word of a command line for a shell.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+.,:/@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_removed() {
        assert_eq!(printable("a\x1b[31m\nb", 99), "a [31m b");
        assert_eq!(printable("abcdef", 3), "abc…");
    }
}
