//! The rows of a statement in the form that is set.

use super::{
    format::{Fault, Rows},
    settings::Settings,
    table::Tabular,
};
use rusqlite::Row;
use std::io::{self, Write};

/// Shows the rows of one statement.
pub(super) enum Printer<'a> {
    Rows(Rows<'a>),
    Table(Tabular<'a>),
}

impl<'a> Printer<'a> {
    pub(super) fn new(settings: &'a Settings, columns: &'a [String], is_terminal: bool) -> Printer<'a> {
        if settings.mode.is_tabular() {
            Printer::Table(Tabular::new(settings, columns))
        } else {
            Printer::Rows(Rows::new(settings, columns, is_terminal))
        }
    }

    pub(super) fn row(&mut self, row: &Row<'_>, out: &mut dyn Write) -> Result<(), Fault> {
        match self {
            Printer::Rows(rows) => rows.row(row, out),
            Printer::Table(table) => table.row(row, out),
        }
    }

    pub(super) fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Printer::Rows(rows) => rows.end(out),
            Printer::Table(table) => table.end(out),
        }
    }
}
