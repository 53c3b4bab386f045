//! How results are shown.

use std::io::IsTerminal;

/// The forms of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Ascii,
    Box,
    Column,
    Csv,
    Html,
    Insert,
    Json,
    Line,
    List,
    Markdown,
    Quote,
    Table,
    Tabs,
}

impl Mode {
    /// All, with their names and what they are.
    pub(crate) const ALL: [(Mode, &'static str, &'static str); 13] = [
        (Mode::Ascii, "ascii", "columns and rows end with 0x1F and 0x1E"),
        (Mode::Box, "box", "a table in lines, as on a terminal"),
        (Mode::Column, "column", "columns under each other"),
        (Mode::Csv, "csv", "comma-separated values"),
        (Mode::Html, "html", "rows of an HTML table"),
        (Mode::Insert, "insert", "INSERT statements (for the table that is named behind)"),
        (Mode::Json, "json", "an array of objects"),
        (Mode::Line, "line", "a value a line"),
        (Mode::List, "list", "values with a separator between, as in scripts"),
        (Mode::Markdown, "markdown", "a table of Markdown"),
        (Mode::Quote, "quote", "values as SQL has them"),
        (Mode::Table, "table", "a table in ASCII"),
        (Mode::Tabs, "tabs", "values with tabs between"),
    ];

    pub(crate) fn of_name(name: &str) -> Option<Mode> {
        let found = Mode::ALL.iter().find(|(_, own, _)| *own == name);
        // As people write it in other shells.
        let found = found.or_else(|| Mode::ALL.iter().find(|(_, own, _)| format!("{own}s") == name));
        found.map(|(mode, _, _)| *mode)
    }

    pub(crate) fn name(self) -> &'static str {
        Mode::ALL.iter().find(|(mode, _, _)| *mode == self).map_or("", |(_, name, _)| name)
    }

    /// Widths must be known before the first row is printed.
    pub(crate) fn is_tabular(self) -> bool {
        matches!(self, Mode::Box | Mode::Column | Mode::Markdown | Mode::Table)
    }

    /// What is between columns, and between rows.
    fn separators(self) -> (&'static str, &'static str) {
        match self {
            Mode::Ascii => ("\x1f", "\x1e"),
            Mode::Csv => (",", "\r\n"),
            Mode::Quote => (",", "\n"),
            Mode::Tabs => ("\t", "\n"),
            _ => ("|", "\n"),
        }
    }
}

/// Columns that text of a table is wrapped after, unless it is said otherwise.
const WRAP: usize = 60;

/// What may be set.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) mode: Mode,
    /// None: as the mode wants it.
    pub(crate) headers: Option<bool>,
    pub(crate) column_separator: String,
    pub(crate) row_separator: String,
    pub(crate) null: String,
    /// Negative: to the right; 0: as wide as what is in it.
    pub(crate) widths: Vec<i32>,
    pub(crate) wrap: usize,
    pub(crate) wraps_words: bool,
    pub(crate) quotes: bool,
    pub(crate) insert_table: String,
    pub(crate) echo: bool,
    pub(crate) bail: bool,
    pub(crate) timer: bool,
    pub(crate) stats: bool,
    pub(crate) changes: bool,
    pub(crate) eqp: bool,
    pub(crate) prompt: String,
    pub(crate) continuation: String,
}

impl Default for Settings {
    fn default() -> Settings {
        let is_seen = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
        let mut settings = Settings {
            mode: Mode::List,
            headers: None,
            column_separator: "|".to_owned(),
            row_separator: "\n".to_owned(),
            null: String::new(),
            widths: Vec::new(),
            wrap: WRAP,
            wraps_words: false,
            quotes: false,
            insert_table: "table".to_owned(),
            echo: false,
            bail: false,
            timer: false,
            stats: false,
            changes: false,
            eqp: false,
            prompt: "yesquel> ".to_owned(),
            continuation: "   ...> ".to_owned(),
        };
        if is_seen {
            settings.set_mode(Mode::Box);
        }
        settings
    }
}

impl Settings {
    pub(crate) fn set_mode(&mut self, mode: Mode) {
        let (column, row) = mode.separators();
        self.column_separator = column.to_owned();
        self.row_separator = row.to_owned();
        (self.wrap, self.wraps_words, self.quotes) = (WRAP, false, false);
        self.mode = mode;
    }

    /// Whether names of columns stand before the rows.
    pub(crate) fn shows_headers(&self) -> bool {
        self.headers.unwrap_or(self.mode.is_tabular())
    }
}
