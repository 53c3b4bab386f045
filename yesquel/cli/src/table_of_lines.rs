//! Table with a line for each row, as wide as its cells.

use anstyle::Style;

/// Table of text.
pub(crate) struct TableOfLines<const N: usize> {
    heads: [&'static str; N],
    rows: Vec<Vec<String>>,
}

impl<const N: usize> TableOfLines<N> {
    pub(crate) fn new(heads: [&'static str; N]) -> TableOfLines<N> {
        TableOfLines { heads, rows: Vec::new() }
    }

    /// Adds a row. It may have fewer cells than there are columns.
    pub(crate) fn push(&mut self, cells: impl Into<Vec<String>>) {
        self.rows.push(cells.into());
    }

    /// Returns the lines, with the heads first.
    pub(crate) fn text(&self) -> String {
        let mut widths = self.heads.map(str::len);
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let line = |cells: &[String]| {
            let cells = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        let bold = Style::new().bold();
        let mut text = format!("{bold}{}{bold:#}\n", line(&self.heads.map(str::to_owned)));
        for row in &self.rows {
            text.push_str(&line(row));
            text.push('\n');
        }
        text
    }
}
