//! Prints rows in the selected format.

use super::{
    format::{RowFault, RowFormatter},
    settings::ShellSettings,
    table::Tabular,
};
use rusqlite::Row;
use std::io::{self, Write};

/// Printer of the rows of one statement.
pub(super) enum Printer<'a> {
    RowFormatter(RowFormatter<'a>),
    Table(Tabular<'a>),
}

impl<'a> Printer<'a> {
    pub(super) fn new(settings: &'a ShellSettings, columns: &'a [String], is_terminal: bool) -> Printer<'a> {
        if settings.mode.is_tabular() {
            Printer::Table(Tabular::new(settings, columns))
        } else {
            Printer::RowFormatter(RowFormatter::new(settings, columns, is_terminal))
        }
    }

    pub(super) fn row(&mut self, row: &Row<'_>, out: &mut dyn Write) -> Result<(), RowFault> {
        match self {
            Printer::RowFormatter(rows) => rows.row(row, out),
            Printer::Table(table) => table.row(row, out),
        }
    }

    pub(super) fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Printer::RowFormatter(rows) => rows.end(out),
            Printer::Table(table) => table.end(out),
        }
    }
}
