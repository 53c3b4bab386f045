//! Rows as a table, whose columns are as wide as what is in them.
//!
//! How wide they are is known when all is read; so much is kept as people look
//! at. What is beyond is printed as it comes, in the widths that were right for
//! what was before, and wrapped where it needs more.

use super::{
    format::{Fault, bytes_of, visible},
    settings::{Mode, Settings},
};
use crate::literal::{self, Lines};
use rusqlite::Row;
use std::io::{self, Write};
use unicode_width::UnicodeWidthStr;

/// Rows and bytes of text that are kept before the first one is printed.
const ROWS_KEPT: usize = 10_000;
const BYTES_KEPT: usize = 8 << 20;

/// A row of the result: each value in pieces, one a line.
type Cells = Vec<Vec<String>>;

pub(super) struct Tabular<'a> {
    settings: &'a Settings,
    columns: &'a [String],
    kept: Vec<Cells>,
    bytes: usize,
    widths: Vec<usize>,
    /// The head was printed, and the widths do not change any more.
    has_begun: bool,
    has_lines: bool,
    is_first: bool,
}

/// Cuts text into lines, none wider than `width` (0: as wide as it is).
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
    // A line's end at the end begins no other line.
    if all.len() > 1 && all.last().is_some_and(String::is_empty) {
        all.pop();
    }
    all
}

/// The signs of a frame: lines across, and where they meet others.
struct Frame {
    dash: &'static str,
    between: &'static str,
    left: &'static str,
    right: &'static str,
}

impl Frame {
    fn of(mode: Mode) -> Frame {
        match mode {
            Mode::Box => Frame { dash: "─", between: " │ ", left: "│ ", right: " │" },
            Mode::Column => Frame { dash: "-", between: "  ", left: "", right: "" },
            _ => Frame { dash: "-", between: " | ", left: "| ", right: " |" },
        }
    }
}

fn pad(out: &mut dyn Write, count: usize) -> io::Result<()> {
    write!(out, "{:count$}", "")
}

impl<'a> Tabular<'a> {
    pub(super) fn new(settings: &'a Settings, columns: &'a [String]) -> Tabular<'a> {
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

    /// After how many columns text is wrapped.
    fn wrap(&self, column: usize) -> usize {
        if self.has_begun {
            return self.widths.get(column).copied().unwrap_or(0).max(1);
        }
        let own = self.settings.widths.get(column).copied().unwrap_or(0);
        if own == 0 { self.settings.wrap } else { own.unsigned_abs() as usize }
    }

    pub(super) fn row(&mut self, row: &Row<'_>, out: &mut dyn Write) -> Result<(), Fault> {
        let mut cells = Vec::with_capacity(self.columns.len());
        for at in 0..self.columns.len() {
            let value = row.get_ref(at)?;
            let text = if self.settings.quotes {
                let mut text = String::new();
                literal::push(&mut text, value, Lines::Kept);
                text
            } else {
                String::from_utf8_lossy(&bytes_of(value, &self.settings.null)).into_owned()
            };
            // A bar would end the cell.
            let text = if self.settings.mode == Mode::Markdown { text.replace('|', "\\|") } else { text };
            cells.push(pieces(&text, self.wrap(at), self.settings.wraps_words));
            self.bytes += text.len();
        }
        // Rows look alike, to the end.
        self.has_lines |= !self.has_begun && cells.iter().any(|cell| cell.len() > 1);
        self.kept.push(cells);
        if self.kept.len() >= ROWS_KEPT || self.bytes >= BYTES_KEPT {
            self.print(out)?;
        }
        Ok(())
    }

    /// Prints what is kept.
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
        let (kept, frame) = (std::mem::take(&mut self.kept), Frame::of(self.settings.mode));
        for cells in kept {
            if self.has_lines && !self.is_first {
                match self.settings.mode {
                    Mode::Column => writeln!(out)?,
                    Mode::Markdown => {}
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

    /// A column's name: its first line.
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
        let (mode, frame) = (self.settings.mode, Frame::of(self.settings.mode));
        if mode == Mode::Column {
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
        if mode != Mode::Markdown {
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

    /// A line across, from the left by way of where columns meet to the right.
    fn rule(&self, signs: [&str; 3], out: &mut dyn Write) -> io::Result<()> {
        let dash = Frame::of(self.settings.mode).dash;
        let [left, meeting, right] = match self.settings.mode {
            Mode::Box => signs,
            Mode::Markdown => ["|"; 3],
            _ => ["+"; 3],
        };
        let dashes: Vec<String> = self.widths.iter().map(|width| dash.repeat(width + 2)).collect();
        writeln!(out, "{left}{}{right}", dashes.join(meeting))
    }

    pub(super) fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if !self.kept.is_empty() {
            self.print(out)?;
        }
        if self.has_begun && matches!(self.settings.mode, Mode::Box | Mode::Table) {
            self.rule(["└", "┴", "┘"], out)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_where_it_is_too_wide() {
        assert_eq!(pieces("", 5, false), [""]);
        assert_eq!(pieces("one two three", 5, false), ["one t", "wo th", "ree"]);
        assert_eq!(pieces("one two three", 5, true), ["one ", "two ", "three"]);
        assert_eq!(pieces("a\nb\r\n", 0, false), ["a", "b"]);
        assert_eq!(pieces("a\tb", 0, false), ["a       b"]);
        assert_eq!(pieces("\u{1b}[31m", 0, false), ["^[[31m"]);
        // Wide signs take two columns.
        let cut = pieces("日本語", 4, false);
        assert_eq!(cut, ["日本", "語"]);
        assert_eq!(cut[0].width(), 4);
    }
}
