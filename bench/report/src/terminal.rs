//! Styled lines for terminals, at most [`WIDTH`] columns wide.

use anstyle::{AnsiColor, Style};
use std::fmt::Write as _;

/// Largest width of a line, in columns.
pub const WIDTH: usize = 100;

/// Styles of a table's parts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Styles {
    /// The headline.
    pub headline: Style,
    /// Table heads.
    pub heading: Style,
    /// Warnings.
    pub warning: Style,
    /// Less important parts.
    pub dim: Style,
}

impl Styles {
    /// No styles, for files and pipes.
    pub const fn plain() -> Self {
        let none = Style::new();
        Styles { headline: none, heading: none, warning: none, dim: none }
    }

    /// Bold and colours, for terminals.
    pub const fn ansi() -> Self {
        Styles {
            headline: Style::new().bold(),
            heading: AnsiColor::Cyan.on_default().bold(),
            warning: AnsiColor::Yellow.on_default(),
            dim: Style::new().dimmed(),
        }
    }
}

/// Appends a line in a style.
pub fn line(text: &mut String, line: &str, style: Style) {
    let _ = writeln!(text, "{style}{}{style:#}", line.trim_end());
}

/// Appends words wrapped at [`WIDTH`]: the first line after `lead`, the others indented below it.
pub fn wrapped(text: &mut String, lead: &str, words: &str, style: Style) {
    let mut current = lead.to_owned();
    let indent = " ".repeat(lead.chars().count());
    let mut empty = true;
    for word in words.split_whitespace() {
        if !empty && current.chars().count() + 1 + word.chars().count() > WIDTH {
            line(text, &current, style);
            current = indent.clone();
            empty = true;
        }
        if !empty {
            current.push(' ');
        }
        current.push_str(word);
        empty = false;
    }
    line(text, &current, style);
}
