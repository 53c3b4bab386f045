//! Splits input lines into statements and dot commands.

use super::{
    state::{Shell, ShellError},
    utf8::{is_blank, to_utf8},
};
use crate::failure::CliError;
use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::Path,
};

/// Maximum nesting of `.read`; beyond it is a cycle.
const DEPTH_MAX: u32 = 25;

/// Input that does not form a complete statement yet.
#[derive(Debug, Default)]
pub(super) struct PendingInput {
    /// Arbitrary bytes, for databases may hold text that is not UTF-8.
    text: Vec<u8>,
    /// Number of its first line.
    began: usize,
    line: usize,
}

/// Item to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InputItem {
    DotCommand(String),
    Sql(String),
}

/// Returns whether a line stands for a semicolon, as in shells of other databases.
fn is_end(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    line == b"/" || line.eq_ignore_ascii_case(b"go")
}

/// Returns whether a text ends a statement. Bytes that are not UTF-8 occur in names and strings
/// only.
fn is_complete(text: &[u8]) -> bool {
    yesquel_sqlite::is_complete(&String::from_utf8_lossy(text))
}

impl PendingInput {
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.text.clear();
    }

    /// Returns the first line of the last item.
    pub(super) fn began(&self) -> usize {
        self.began
    }

    /// Adds a line. Returns a completed item.
    pub(super) fn take(&mut self, line: &[u8]) -> Option<InputItem> {
        self.line += 1;
        if self.text.is_empty() {
            self.began = self.line;
            if line.trim_ascii().is_empty() || line.starts_with(b"#") {
                return None;
            }
            if line.starts_with(b".") {
                return Some(InputItem::DotCommand(String::from_utf8_lossy(line).trim_end().to_owned()));
            }
        }
        let is_end = is_end(line) && is_complete(&[&self.text, b";".as_slice()].concat());
        if is_end {
            self.text.push(b';');
        } else {
            if !self.text.is_empty() {
                self.text.push(b'\n');
            }
            self.text.extend_from_slice(line);
        }
        // Without a semicolon nothing can end; the check is expensive.
        let may_end = is_end || line.contains(&b';');
        if may_end && is_complete(&self.text) {
            return Some(InputItem::Sql(to_utf8(std::mem::take(&mut self.text))));
        }
        // A comment alone is no statement: a dot command may follow.
        if is_blank(&self.text) {
            self.text.clear();
        }
        None
    }

    /// Returns the rest at the end of the input.
    pub(super) fn rest(&mut self) -> Option<InputItem> {
        (!self.text.trim_ascii().is_empty()).then(|| InputItem::Sql(to_utf8(std::mem::take(&mut self.text))))
    }
}

impl Shell {
    /// Runs an item; `place` is its first line.
    pub(super) fn run_item(&mut self, item: &InputItem, place: usize) -> Result<(), CliError> {
        // Ctrl-C ends a script at any point; at the prompt an earlier press does not concern this
        // item.
        if self.is_interactive {
            self.interrupt.forget();
        }
        let done = match item {
            _ if self.interrupt.is_pressed() => Err(ShellError::Interrupted),
            InputItem::DotCommand(line) => self.dot(line),
            InputItem::Sql(sql) => {
                let done = self.run(sql, place);
                self.out.settle()?;
                done
            }
        };
        self.note(done, Some(place))
    }

    /// Runs all input, until the shell ends.
    fn read(&mut self, input: &mut dyn BufRead) -> Result<(), CliError> {
        let (mut pending, mut bytes) = (PendingInput::default(), Vec::new());
        while !self.is_over() {
            bytes.clear();
            if input.read_until(b'\n', &mut bytes)? == 0 {
                if let Some(item) = pending.rest() {
                    self.run_item(&item, pending.began())?;
                }
                break;
            }
            let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            self.echo(line)?;
            if let Some(item) = pending.take(line) {
                self.run_item(&item, pending.began())?;
            }
        }
        Ok(())
    }

    fn echo(&mut self, line: &[u8]) -> io::Result<()> {
        use std::io::Write as _;
        if self.settings.echo { self.out.write_all(&[line, b"\n"].concat()) } else { Ok(()) }
    }

    pub(super) fn read_stdin(&mut self) -> Result<(), CliError> {
        self.read(&mut BufReader::with_capacity(1 << 16, io::stdin()))
    }

    /// Runs a text. Returns whether the shell continues.
    pub(super) fn read_text(&mut self, text: &[u8]) -> Result<bool, CliError> {
        let had_lines = std::mem::replace(&mut self.has_lines, self.depth > 0);
        self.read(&mut &*text)?;
        self.has_lines = had_lines;
        Ok(!self.is_over())
    }

    pub(super) fn read_file(&mut self, path: &Path) -> Result<(), CliError> {
        let file = File::open(path).map_err(|error| CliError::File { path: path.into(), error })?;
        if self.depth >= DEPTH_MAX {
            let words = format!("{}: files read files {DEPTH_MAX} deep", path.display());
            return self.note(Err(ShellError::Said(words)), None);
        }
        self.depth += 1;
        let was_interactive = std::mem::replace(&mut self.is_interactive, false);
        let had_lines = std::mem::replace(&mut self.has_lines, true);
        let read = self.read(&mut BufReader::with_capacity(1 << 16, file));
        (self.is_interactive, self.has_lines) = (was_interactive, had_lines);
        self.depth -= 1;
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(lines: &[&str]) -> (Vec<(InputItem, usize)>, Option<InputItem>) {
        let mut pending = PendingInput::default();
        let items = lines.iter().filter_map(|line| {
            let item = pending.take(line.as_bytes())?;
            Some((item, pending.began()))
        });
        let items = items.collect();
        (items, pending.rest())
    }

    #[test]
    fn lines_are_joined_until_a_statement_is_complete() {
        let sql = |text: &str| InputItem::Sql(text.to_owned());
        let (all, rest) =
            items(&[".mode csv", "", "# said", "SELECT 1", "  + 2;", "SELECT ';", "';", "SELECT"]);
        assert_eq!(
            all,
            [
                (InputItem::DotCommand(".mode csv".to_owned()), 1),
                (sql("SELECT 1\n  + 2;"), 4),
                (sql("SELECT ';\n';"), 6)
            ]
        );
        assert_eq!(rest, Some(sql("SELECT")));
        let trigger =
            ["CREATE TRIGGER a AFTER INSERT ON b BEGIN", "SELECT 1;", "END;", "SELECT 1 -- ;", "go"];
        let (all, rest) = items(&trigger);
        assert_eq!(all[0], (sql(&trigger[..3].join("\n")), 1));
        // A comment swallows what follows on its line.
        assert_eq!((all.len(), rest), (1, Some(sql("SELECT 1 -- ;\ngo"))));
        assert_eq!(items(&["SELECT 1", "GO"]).0, [(sql("SELECT 1;"), 1)]);
    }

    #[test]
    fn a_comment_belongs_to_the_statement_after_it() {
        let sql = |text: &str, line| (InputItem::Sql(text.to_owned()), line);
        let dot = |text: &str, line| (InputItem::DotCommand(text.to_owned()), line);
        let lines =
            ["-- set up", ".mode csv", "/* in", ".mode no", "two */", ".mode box", "/* a */ -- b", ".show"];
        let wanted = [dot(".mode csv", 2), dot(".mode box", 6), dot(".show", 8)];
        assert_eq!(items(&lines), (wanted.to_vec(), None));
        let lines = ["SELECT 6; -- six", ".show", "/* a */ SELECT", "-- b", ".5;", "-- the end"];
        let wanted = [sql("SELECT 6; -- six", 1), dot(".show", 2), sql("/* a */ SELECT\n-- b\n.5;", 3)];
        assert_eq!(items(&lines), (wanted.to_vec(), None));
        assert_eq!(items(&["/* open"]).1, Some(InputItem::Sql("/* open".to_owned())));
    }
}
