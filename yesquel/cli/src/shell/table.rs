//! Table output, with columns as wide as their content.
//!
//! The widths are known when all rows are read, so a limited number of rows is buffered. Later rows
//! are printed at once with the same widths, and wrapped where they need more.

use super::{
    format::{RowFault, bytes_of, visible},
    settings::{OutputMode, ShellSettings},
};
use crate::literal::{self, LineEnds};
use rusqlite::Row;
use std::io::{self, Write};
use unicode_width::UnicodeWidthStr;

/// Rows, and bytes of text, that are buffered before the first one is printed.
const ROWS_KEPT: usize = 10_000;
const BYTES_KEPT: usize = 8 << 20;

/// Row of the result: the lines of each value.
type TableRow = Vec<Vec<String>>;

pub(super) struct Tabular<'a> {
    settings: &'a ShellSettings,
    columns: &'a [String],
    kept: Vec<TableRow>,
    bytes: usize,
    widths: Vec<usize>,
    /// Set once the head is printed and the widths are fixed.
    has_begun: bool,
    has_lines: bool,
    is_first: bool,
}

/// Splits text into lines of at most `width` columns (0: unlimited).
fn pieces(text: &str, width: usize, by_words: bool) -> Vec<String> {
    let mut all = Vec::new();
    for line in text.split('\n') {
        let line = line.strip_suffix('\r').unwrap_or(line);
        let (mut piece, mut filled) = (String::new(), 0);
        for sign in line.chars() {
            let shown = match sign {
                '\t' => " ".repeat(8 - filled % 8),
                sign if sign.is_control() => visible(sign),
                sign => sign.to_string(),
            };
            let more = shown.width();
            if width > 0 && filled > 0 && filled + more > width {
                let rest = match piece.rfind(' ') {
                    Some(space) if by_words && sign != ' ' => piece.split_off(space + 1),
                    _ => String::new(),
                };
                all.push(std::mem::replace(&mut piece, rest));
                filled = piece.width();
            }
            piece.push_str(&shown);
            filled += more;
        }
        all.push(piece);
    }
    // A final line break begins no further line.
    if all.len() > 1 && all.last().is_some_and(String::is_empty) {
        all.pop();
    }
    all
}

/// Characters of a frame: lines, and their intersections.
struct TableFrame {
    dash: &'static str,
    between: &'static str,
    left: &'static str,
    right: &'static str,
}

impl TableFrame {
    fn of(mode: OutputMode) -> TableFrame {
        match mode {
            OutputMode::Box => TableFrame { dash: "─", between: " │ ", left: "│ ", right: " │" },
            OutputMode::Column => TableFrame { dash: "-", between: "  ", left: "", right: "" },
            _ => TableFrame { dash: "-", between: " | ", left: "| ", right: " |" },
        }
    }
}

fn pad(out: &mut dyn Write, count: usize) -> io::Result<()> {
    write!(out, "{:count$}", "")
}

impl<'a> Tabular<'a> {
    pub(super) fn new(settings: &'a ShellSettings, columns: &'a [String]) -> Tabular<'a> {
        let widths = (0..columns.len())
            .map(|at| settings.widths.get(at).copied().unwrap_or(0).unsigned_abs() as usize)
            .collect();
        Tabular {
            settings,
            columns,
            kept: Vec::new(),
            bytes: 0,
            widths,
            has_begun: false,
            has_lines: false,
            is_first: true,
        }
    }

    /// Returns the width at which text of a column is wrapped.
    fn wrap(&self, column: usize) -> usize {
        if self.has_begun {
            return self.widths.get(column).copied().unwrap_or(0).max(1);
        }
        let own = self.settings.widths.get(column).copied().unwrap_or(0);
        if own == 0 { self.settings.wrap } else { own.unsigned_abs() as usize }
    }

    pub(super) fn row(&mut self, row: &Row<'_>, out: &mut dyn Write) -> Result<(), RowFault> {
        let mut cells = Vec::with_capacity(self.columns.len());
        for at in 0..self.columns.len() {
            let value = row.get_ref(at)?;
            let text = if self.settings.quotes {
                let mut text = String::new();
                literal::push(&mut text, value, LineEnds::Kept);
                text
            } else {
                String::from_utf8_lossy(&bytes_of(value, &self.settings.null)).into_owned()
            };
            // A bar would end the cell.
            let text =
                if self.settings.mode == OutputMode::Markdown { text.replace('|', "\\|") } else { text };
            cells.push(pieces(&text, self.wrap(at), self.settings.wraps_words));
            self.bytes += text.len();
        }
        // All rows have the same style, to the end.
        self.has_lines |= !self.has_begun && cells.iter().any(|cell| cell.len() > 1);
        self.kept.push(cells);
        if self.kept.len() >= ROWS_KEPT || self.bytes >= BYTES_KEPT {
            self.print(out)?;
        }
        Ok(())
    }

    /// Prints the buffered rows.
    fn print(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if !self.has_begun {
            let names: Vec<String> = (0..self.columns.len()).map(|at| self.name(at)).collect();
            for (at, width) in self.widths.iter_mut().enumerate() {
                let lines = self.kept.iter().filter_map(|cells| cells.get(at)).flatten();
                let widest = lines.map(|line| line.width()).max().unwrap_or(0);
                *width = (*width).max(widest).max(names.get(at).map_or(0, |name| name.width()));
            }
            self.has_begun = true;
            self.head(&names, out)?;
        }
        let (kept, frame) = (std::mem::take(&mut self.kept), TableFrame::of(self.settings.mode));
        for cells in kept {
            if self.has_lines && !self.is_first {
                match self.settings.mode {
                    OutputMode::Column => writeln!(out)?,
                    OutputMode::Markdown => {}
                    _ => self.rule(["├", "┼", "┤"], out)?,
                }
            }
            self.is_first = false;
            let height = cells.iter().map(Vec::len).max().unwrap_or(0);
            for line in 0..height {
                write!(out, "{}", frame.left)?;
                for (at, cell) in cells.iter().enumerate() {
                    if at > 0 {
                        write!(out, "{}", frame.between)?;
                    }
                    self.cell(at, cell.get(line).map_or("", String::as_str), out)?;
                }
                writeln!(out, "{}", frame.right)?;
            }
        }
        self.bytes = 0;
        Ok(())
    }

    /// Returns a column's name: its first line.
    fn name(&self, column: usize) -> String {
        let name = self.columns.get(column).map_or("", String::as_str);
        let lines = pieces(name, self.wrap(column), self.settings.wraps_words);
        lines.into_iter().next().unwrap_or_default()
    }

    fn cell(&self, column: usize, text: &str, out: &mut dyn Write) -> io::Result<()> {
        let room = self.widths.get(column).copied().unwrap_or(0).saturating_sub(text.width());
        let is_right = self.settings.widths.get(column).is_some_and(|width| *width < 0);
        if is_right {
            pad(out, room)?;
        }
        write!(out, "{text}")?;
        if !is_right {
            pad(out, room)?;
        }
        Ok(())
    }

    fn head(&self, names: &[String], out: &mut dyn Write) -> io::Result<()> {
        let (mode, frame) = (self.settings.mode, TableFrame::of(self.settings.mode));
        if mode == OutputMode::Column {
            if !self.settings.shows_headers() {
                return Ok(());
            }
            for (at, name) in names.iter().enumerate() {
                if at > 0 {
                    write!(out, "{}", frame.between)?;
                }
                self.cell(at, name, out)?;
            }
            writeln!(out)?;
            let dashes: Vec<String> = self.widths.iter().map(|width| frame.dash.repeat(*width)).collect();
            return writeln!(out, "{}", dashes.join(frame.between));
        }
        if mode != OutputMode::Markdown {
            self.rule(["┌", "┬", "┐"], out)?;
        }
        write!(out, "{}", frame.left)?;
        for (at, name) in names.iter().enumerate() {
            if at > 0 {
                write!(out, "{}", frame.between)?;
            }
            let room = self.widths.get(at).copied().unwrap_or(0).saturating_sub(name.width());
            pad(out, room / 2)?;
            write!(out, "{name}")?;
            pad(out, room - room / 2)?;
        }
        writeln!(out, "{}", frame.right)?;
        self.rule(["├", "┼", "┤"], out)
    }

    /// Prints a horizontal line with its left end, crossings and right end.
    fn rule(&self, signs: [&str; 3], out: &mut dyn Write) -> io::Result<()> {
        let dash = TableFrame::of(self.settings.mode).dash;
        let [left, meeting, right] = match self.settings.mode {
            OutputMode::Box => signs,
            OutputMode::Markdown => ["|"; 3],
            _ => ["+"; 3],
        };
        let dashes: Vec<String> = self.widths.iter().map(|width| dash.repeat(width + 2)).collect();
        writeln!(out, "{left}{}{right}", dashes.join(meeting))
    }

    pub(super) fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if !self.kept.is_empty() {
            self.print(out)?;
        }
        if self.has_begun && matches!(self.settings.mode, OutputMode::Box | OutputMode::Table) {
            self.rule(["└", "┴", "┘"], out)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_text_is_cut() {
        assert_eq!(pieces("", 5, false), [""]);
        assert_eq!(pieces("one two three", 5, false), ["one t", "wo th", "ree"]);
        assert_eq!(pieces("one two three", 5, true), ["one ", "two ", "three"]);
        assert_eq!(pieces("a\nb\r\n", 0, false), ["a", "b"]);
        assert_eq!(pieces("a\tb", 0, false), ["a       b"]);
        assert_eq!(pieces("\u{1b}[31m", 0, false), ["^[[31m"]);
        // Wide characters take two columns.
        let cut = pieces("日本語", 4, false);
        assert_eq!(cut, ["日本", "語"]);
        assert_eq!(cut[0].width(), 4);
    }
}
