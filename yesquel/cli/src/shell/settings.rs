//! Settings of the output.

use std::io::IsTerminal;

/// Output formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputMode {
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

impl OutputMode {
    /// All formats, with their names and descriptions.
    pub(crate) const ALL: [(OutputMode, &'static str, &'static str); 13] = [
        (OutputMode::Ascii, "ascii", "columns and rows end with 0x1F and 0x1E"),
        (OutputMode::Box, "box", "a table in lines, as on a terminal"),
        (OutputMode::Column, "column", "columns under each other"),
        (OutputMode::Csv, "csv", "comma-separated values"),
        (OutputMode::Html, "html", "rows of an HTML table"),
        (OutputMode::Insert, "insert", "INSERT statements (for the table that is named behind)"),
        (OutputMode::Json, "json", "an array of objects"),
        (OutputMode::Line, "line", "a value a line"),
        (OutputMode::List, "list", "values with a separator between, as in scripts"),
        (OutputMode::Markdown, "markdown", "a table of Markdown"),
        (OutputMode::Quote, "quote", "values as SQL has them"),
        (OutputMode::Table, "table", "a table in ASCII"),
        (OutputMode::Tabs, "tabs", "values with tabs between"),
    ];

    pub(crate) fn of_name(name: &str) -> Option<OutputMode> {
        let found = OutputMode::ALL.iter().find(|(_, own, _)| *own == name);
        // Accepts plurals, as other shells do.
        let found = found.or_else(|| OutputMode::ALL.iter().find(|(_, own, _)| format!("{own}s") == name));
        found.map(|(mode, _, _)| *mode)
    }

    pub(crate) fn name(self) -> &'static str {
        OutputMode::ALL.iter().find(|(mode, _, _)| *mode == self).map_or("", |(_, name, _)| name)
    }

    /// Returns whether the widths must be known before the first row is printed.
    pub(crate) fn is_tabular(self) -> bool {
        matches!(self, OutputMode::Box | OutputMode::Column | OutputMode::Markdown | OutputMode::Table)
    }

    /// Returns the separators of columns and rows.
    fn separators(self) -> (&'static str, &'static str) {
        match self {
            OutputMode::Ascii => ("\x1f", "\x1e"),
            OutputMode::Csv => (",", "\r\n"),
            OutputMode::Quote => (",", "\n"),
            OutputMode::Tabs => ("\t", "\n"),
            _ => ("|", "\n"),
        }
    }
}

/// Default width at which the text of a table is wrapped.
const WRAP: usize = 60;

/// Settings of the output.
#[derive(Debug, Clone)]
pub(crate) struct ShellSettings {
    pub(crate) mode: OutputMode,
    /// None: depends on the mode.
    pub(crate) headers: Option<bool>,
    pub(crate) column_separator: String,
    pub(crate) row_separator: String,
    pub(crate) null: String,
    /// Negative: right-aligned; 0: as wide as the content.
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

impl Default for ShellSettings {
    fn default() -> ShellSettings {
        let is_seen = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
        let mut settings = ShellSettings {
            mode: OutputMode::List,
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
            settings.set_mode(OutputMode::Box);
        }
        settings
    }
}

impl ShellSettings {
    pub(crate) fn set_mode(&mut self, mode: OutputMode) {
        let (column, row) = mode.separators();
        self.column_separator = column.to_owned();
        self.row_separator = row.to_owned();
        (self.wrap, self.wraps_words, self.quotes) = (WRAP, false, false);
        self.mode = mode;
    }

    /// Returns whether column names precede the rows.
    pub(crate) fn shows_headers(&self) -> bool {
        self.headers.unwrap_or(self.mode.is_tabular())
    }
}
