//! Lines of code, counted like `tokei`: lines with at least one token. Comments, documentation and
//! blank lines have none.

use std::ops::RangeInclusive;

use proc_macro2::{Span, TokenStream, TokenTree};

/// The lines of a file that contain code, each marked as part of a test or not.
#[derive(Default)]
pub(super) struct CodeLines {
    kinds: Vec<LineKind>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LineKind {
    Empty,
    Code,
    Test,
}

impl CodeLines {
    /// Finds the lines with code of a file of `count` lines.
    pub(super) fn of(tokens: &TokenStream, count: usize) -> CodeLines {
        let mut lines = CodeLines { kinds: vec![LineKind::Empty; count + 1] };
        lines.add(tokens);
        lines
    }

    fn add(&mut self, tokens: &TokenStream) {
        let mut tokens = tokens.clone().into_iter().peekable();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Group(group) => {
                    self.mark(group.span_open());
                    self.add(&group.stream());
                    self.mark(group.span_close());
                }
                TokenTree::Punct(punct) if is_documentation(punct.span()) => {
                    // `//! text` is read as `#`, `!`, `[doc = "text"]`.
                    tokens.next_if(|token| matches!(token, TokenTree::Punct(_)));
                    tokens.next();
                }
                token => self.mark(token.span()),
            }
        }
    }

    fn mark(&mut self, span: Span) {
        for line in span.start().line..=span.end().line {
            self.kinds[line] = LineKind::Code;
        }
    }

    /// Marks the code of these lines, numbered from 1, as a test's.
    pub(super) fn mark_test(&mut self, lines: RangeInclusive<usize>) {
        for kind in &mut self.kinds[lines] {
            if *kind == LineKind::Code {
                *kind = LineKind::Test;
            }
        }
    }

    /// CodeLines of code outside tests and inside tests.
    pub(super) fn counts(&self) -> (usize, usize) {
        let count = |wanted| self.kinds.iter().filter(|kind| **kind == wanted).count();
        (count(LineKind::Code), count(LineKind::Test))
    }
}

/// Returns whether a `#` begins a documentation comment: its span is then that of the whole
/// comment, not of one character.
fn is_documentation(span: Span) -> bool {
    let (start, end) = (span.start(), span.end());
    start.line != end.line || end.column - start.column > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        let tokens: TokenStream = text.parse().expect("tokens");
        CodeLines::of(&tokens, text.lines().count()).counts().0
    }

    #[test]
    fn comments_documentation_and_blank_lines_are_no_code() {
        let text = "//! Module.\n\n/// Documentation.\nfn f() {\n    // Comment.\n    /* One\n       two */\n    g(); // after code\n}\n";
        assert_eq!(count(text), 3);
    }

    #[test]
    fn each_line_of_a_string_and_of_an_attribute_is_code() {
        assert_eq!(count("#[allow(\n    dead_code\n)]\nconst T: &str = \"a\n// b\nc\";\n"), 6);
        assert_eq!(count("#[doc = \"text\"]\nstruct S;\n"), 2);
        assert_eq!(count("/** Block\n  of lines */\nstruct S;\n"), 1);
    }
}
