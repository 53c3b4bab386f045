//! Runs statements and shows their results.

use super::{
    format::RowFault,
    printer::Printer,
    settings::{OutputMode, ShellSettings},
    state::{Shell, ShellError, ShellResult},
};
use crate::{
    connection::trees,
    failure::{CliError, words},
    show,
};
use rusqlite::{Batch, Connection, ErrorCode, Statement, fallible_iterator::FallibleIterator, types::Value};
use rustix::time::{ClockId, clock_gettime};
use std::{io::Write, time::Instant};
use yesquel_sqlite::{DatabaseTrees, SqlErrorKind, TreeCosts};

/// Costs of trees, for each database of the connection that has trees.
type Accounts = Vec<(String, DatabaseTrees, TreeCosts)>;

pub(super) fn accounts(connection: &Connection) -> Accounts {
    let names = connection.prepare("SELECT name FROM pragma_database_list").and_then(|mut names| {
        names.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()
    });
    // A database that cannot be listed has no trees.
    let found = names.unwrap_or_default().into_iter().filter_map(|name| {
        let trees = trees(connection, &name)?;
        let costs = trees.costs();
        Some((name, trees, costs))
    });
    found.collect()
}

/// Prints the costs since `before`.
pub(super) fn tell_costs(before: &Accounts, out: &mut dyn Write) -> std::io::Result<()> {
    if before.is_empty() {
        return writeln!(out, "No round trips: the database is on no trees.");
    }
    for (at, (name, trees, old)) in before.iter().enumerate() {
        let new = trees.costs();
        // Databases at one store share their costs.
        if before[..at].iter().any(|(_, other, _)| other.shares_store(trees)) {
            continue;
        }
        let at_name = if before.len() > 1 { format!("{name}: ") } else { String::new() };
        let searches = new.searches - old.searches;
        let hits = searches.saturating_sub(new.fetches - old.fetches);
        writeln!(out, "{at_name}Round trips:  {}", show::count(new.round_trips - old.round_trips))?;
        writeln!(
            out,
            "{at_name}Cache hits:   {} of {} searches in trees",
            show::count(hits),
            show::count(searches)
        )?;
        writeln!(
            out,
            "{at_name}Bytes:        {} sent, {} received",
            show::count(new.bytes_sent - old.bytes_sent),
            show::count(new.bytes_received - old.bytes_received)
        )?;
    }
    Ok(())
}

/// Returns the processor time of the process in seconds.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the text around an error's position, with a mark below.
fn context(sql: &str, offset: i32) -> Option<String> {
    const BEFORE: usize = 50;
    const ALL: usize = 78;
    let offset = usize::try_from(offset).ok().filter(|offset| *offset <= sql.len())?;
    let floor = |mut at: usize| {
        while !sql.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    let offset = floor(offset);
    let start = floor(offset.saturating_sub(BEFORE));
    let shown: String =
        sql[start..].chars().take(ALL).map(|sign| if sign.is_whitespace() { ' ' } else { sign }).collect();
    let column = sql[start..offset].chars().count();
    let mark = if column < 25 {
        format!("{:column$}^--- error here", "")
    } else {
        format!("{:width$}error here ---^", "", width = column - 14)
    };
    Some(format!("\n  {}\n  {mark}", shown.trim_end()))
}

impl Shell {
    /// Runs statements up to the first that fails.
    pub(super) fn run(&mut self, sql: &str, place: usize) -> ShellResult {
        let shared = std::rc::Rc::clone(self.shared());
        let connection = shared.borrow();
        let mut batch = Batch::new(&connection, sql);
        loop {
            // Clear an earlier failure.
            let _ = yesquel_sqlite::last_error_kind();
            match batch.next() {
                Ok(Some(mut statement)) => {
                    let done = self.statement(&connection, &mut statement);
                    drop(statement);
                    self.out.flush()?;
                    if let Err(fault) = done {
                        return self.failed(fault, place);
                    }
                }
                Ok(None) => return Ok(()),
                Err(error) => return self.not_understood(&error, place),
            }
        }
    }

    fn not_understood(&mut self, error: &rusqlite::Error, place: usize) -> ShellResult {
        match CliError::sql(error) {
            CliError::Unreachable(words) => return Err(ShellError::Unreachable(words)),
            CliError::Interrupted(_) => return Err(ShellError::Interrupted),
            _ => {}
        }
        let mut said = words(error);
        if let Some(code) = error.sqlite_error().filter(|code| code.extended_code & 0xff > 1) {
            said.push_str(&format!(" ({})", code.extended_code & 0xff));
        }
        if let rusqlite::Error::SqlInputError { sql, offset, .. } = error {
            said.push_str(&context(sql, *offset).unwrap_or_default());
        }
        self.say("Parse error", &said, Some(place));
        Err(ShellError::Reported)
    }

    fn failed(&mut self, fault: RowFault, place: usize) -> ShellResult {
        let error = match fault {
            RowFault::Output(error) => return Err(ShellError::Output(error)),
            RowFault::Sql(error) => error,
        };
        if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) {
            // Ctrl-C may have interrupted a commit before its outcome was known.
            if yesquel_sqlite::last_error_kind() == Some(SqlErrorKind::OutcomeUnknown) {
                self.say("Runtime error", &words(&error), Some(place));
            }
            return Err(ShellError::Interrupted);
        }
        let code = error.sqlite_error().map(|code| code.extended_code & 0xff).filter(|code| *code > 1);
        let code = code.map(|code| format!(" ({code})")).unwrap_or_default();
        match CliError::sql(&error) {
            CliError::Unreachable(words) => Err(ShellError::Unreachable(words)),
            _ => {
                let said = format!("{}{code}", words(&error));
                self.say("Runtime error", &said, Some(place));
                Err(ShellError::Reported)
            }
        }
    }

    fn statement(&mut self, connection: &Connection, statement: &mut Statement<'_>) -> Result<(), RowFault> {
        bind(connection, statement)?;
        if self.settings.eqp && statement.is_explain() == 0 {
            self.plan(connection, statement)?;
        }
        let before = self.settings.stats.then(|| accounts(connection));
        let (began, processor) = (Instant::now(), processor_seconds());
        let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
        let (is_plan, is_listing) = (statement.is_explain() == 2, statement.is_explain() == 1);
        let shown = if is_plan {
            plan_of(statement, &mut self.out)
        } else {
            let settings = if is_listing { &explained(&self.settings) } else { &self.settings };
            let mut printer = Printer::new(settings, &columns, self.out.is_terminal());
            show_rows(statement, &mut printer, &mut self.out)
        };
        shown?;
        if self.settings.changes {
            let (changes, total) = (connection.changes(), connection.total_changes());
            writeln!(self.out, "changes: {changes}   total_changes: {total}")?;
        }
        if let Some(before) = before {
            tell_costs(&before, &mut self.out)?;
        }
        if self.settings.timer {
            let (real, cpu) = (began.elapsed().as_secs_f64(), processor_seconds() - processor);
            writeln!(self.out, "Run Time: real {real:.3} cpu {cpu:.6}")?;
        }
        Ok(())
    }

    /// Shows the plan of a statement.
    fn plan(&mut self, connection: &Connection, statement: &Statement<'_>) -> Result<(), RowFault> {
        let Some(sql) = statement.expanded_sql() else { return Ok(()) };
        // Some statements have no plan.
        if let Ok(mut plan) = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")) {
            plan_of(&mut plan, &mut self.out)?;
        }
        Ok(())
    }
}

/// Shows the rows, also those before an error.
fn show_rows(
    statement: &mut Statement<'_>,
    printer: &mut Printer<'_>,
    out: &mut dyn Write,
) -> Result<(), RowFault> {
    let mut rows = statement.raw_query();
    let outcome = loop {
        match rows.next() {
            Ok(Some(row)) => {
                if let Err(fault) = printer.row(row, out) {
                    break Err(fault);
                }
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(RowFault::Sql(error)),
        }
    };
    if !matches!(outcome, Err(RowFault::Output(_))) {
        printer.end(out)?;
    }
    outcome
}

/// Settings for EXPLAIN output, which is always a table.
fn explained(settings: &ShellSettings) -> ShellSettings {
    let mut settings = settings.clone();
    if !matches!(settings.mode, OutputMode::Json | OutputMode::Csv | OutputMode::Insert | OutputMode::Quote) {
        settings.set_mode(OutputMode::Column);
        settings.headers = Some(true);
    }
    settings
}

/// Draws a plan.
fn plan_of(statement: &mut Statement<'_>, out: &mut dyn Write) -> Result<(), RowFault> {
    let mut steps: Vec<(i64, i64, String)> = Vec::new();
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        steps.push((row.get(0)?, row.get(1)?, row.get(3)?));
    }
    if steps.is_empty() {
        return Ok(());
    }
    writeln!(out, "QUERY PLAN")?;
    // Steps with children, and the prefix of the children's lines.
    let mut open: Vec<(i64, String)> = vec![(0, String::new())];
    let last_of = |parent: i64| steps.iter().rposition(|(_, of, _)| *of == parent);
    for (at, (id, parent, detail)) in steps.iter().enumerate() {
        while open.len() > 1 && open.last().is_some_and(|(of, _)| of != parent) {
            open.pop();
        }
        let before = open.last().map(|(_, before)| before.clone()).unwrap_or_default();
        let is_last = last_of(*parent) == Some(at);
        writeln!(out, "{before}{}{detail}", if is_last { "`--" } else { "|--" })?;
        open.push((*id, format!("{before}{}", if is_last { "   " } else { "|  " })));
    }
    Ok(())
}

/// Binds parameters to the values of `.parameter set`.
fn bind(connection: &Connection, statement: &mut Statement<'_>) -> rusqlite::Result<()> {
    if statement.parameter_count() == 0 {
        return Ok(());
    }
    let is_there = "SELECT count(*) FROM sqlite_temp_schema WHERE name = 'sqlite_parameters'";
    if connection.query_row(is_there, [], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(());
    }
    let mut known = connection.prepare("SELECT value FROM temp.sqlite_parameters WHERE key = ?1")?;
    for number in 1..=statement.parameter_count() {
        let name = statement.parameter_name(number).map_or_else(|| format!("?{number}"), str::to_owned);
        let mut found = known.query([name])?;
        let value: Value = match found.next()? {
            Some(row) => row.get(0)?,
            None => Value::Null,
        };
        statement.raw_bind_parameter(number, value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::context;

    #[test]
    fn an_error_is_marked_in_the_statement() {
        assert_eq!(
            context("SELECT * FORM t;", 9).unwrap(),
            "\n  SELECT * FORM t;\n           ^--- error here"
        );
        let long = format!("SELECT {} x y;", "1 + ".repeat(30));
        let at = long.find('x').unwrap();
        let shown = context(&long, at as i32).unwrap();
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[1].find('x').unwrap(), lines[2].find('^').unwrap());
        assert_eq!(context("ä", 1).unwrap(), "\n  ä\n  ^--- error here");
        assert_eq!(context("a", 7), None);
    }
}
