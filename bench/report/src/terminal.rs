//! Styled lines for terminals, at most [`WIDTH`] columns wide.

use crate::{notes::Warning, text::printable};
use anstyle::{AnsiColor, Style};
use std::fmt::{Display, Write as _};

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
    /// Whether to cut cells that do not fit into [`WIDTH`] columns. Terminals would break the line; files
    /// and pipes get the whole text.
    pub cuts: bool,
}

impl Styles {
    /// No styles, for files and pipes.
    pub const fn plain() -> Self {
        let none = Style::new();
        Styles { headline: none, heading: none, warning: none, dim: none, cuts: false }
    }

    /// No styles, for terminals without colours.
    pub const fn colourless() -> Self {
        Styles { cuts: true, ..Styles::plain() }
    }

    /// Bold and colours, for terminals.
    pub const fn ansi() -> Self {
        Styles {
            headline: Style::new().bold(),
            heading: AnsiColor::Cyan.on_default().bold(),
            warning: AnsiColor::Yellow.on_default(),
            dim: Style::new().dimmed(),
            cuts: true,
        }
    }

    /// The text of a cell without control characters, cut to `max` characters if cells are cut.
    pub fn cell(&self, text: &str, max: usize) -> String {
        printable(text, if self.cuts { max } else { usize::MAX })
    }
}

/// Appends a line in a style.
pub fn line(text: &mut String, line: &str, style: Style) {
    let _ = writeln!(text, "{style}{}{style:#}", line.trim_end());
}

/// A table of text: the first column is aligned left, the others right.
pub(crate) struct TextTable {
    widths: Vec<usize>,
}

impl TextTable {
    /// A table whose first column is as wide as the longest of `first`; `others` are the widths of the
    /// other columns in characters.
    pub(crate) fn new(first: &[impl AsRef<str>], others: impl IntoIterator<Item = usize>) -> Self {
        let width = first.iter().map(|text| text.as_ref().chars().count()).max().unwrap_or(0);
        TextTable { widths: std::iter::once(width).chain(others).collect() }
    }

    /// Appends a row.
    pub(crate) fn row<C: Display>(
        &self,
        text: &mut String,
        style: Style,
        first: &str,
        others: impl IntoIterator<Item = C>,
    ) {
        let mut row = format!("{first:width$}", width = self.widths[0]);
        for (cell, width) in others.into_iter().zip(&self.widths[1..]) {
            let _ = write!(row, " {cell:>width$}");
        }
        line(text, &row, style);
    }
}

/// Appends warnings, each with its details below it.
pub(crate) fn warnings(text: &mut String, warnings: &[Warning], styles: &Styles) {
    if !warnings.is_empty() {
        text.push('\n');
    }
    for warning in warnings {
        wrapped(text, "! ", &warning.text, styles.warning);
        warning.details.iter().for_each(|detail| wrapped(text, "    ", detail, styles.dim));
    }
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
