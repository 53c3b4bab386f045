//! `yesquel dump` and `.dump`: writes a database as the SQL that creates it.

use crate::{
    connection::{DatabaseAccess, open, quoted},
    failure::CliError,
    interrupt::Interrupt,
    literal::{self, LineEnds},
    replace::OutputWriter,
};
use clap::Args;
use rusqlite::Connection;
use std::{
    io::{self, BufWriter, Write},
    path::PathBuf,
    time::Duration,
};

const ABOUT: &str = "The text is that of sqlite3's .dump, from one snapshot of the database: sqlite3 and yesquel shell \
    recreate the same database from it. Text that is not UTF-8, or has a zero byte, is written as CAST(X'..' AS TEXT).";

#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct Dump {
    /// Database: an address, a file that holds one, or a plain SQLite file
    #[arg(value_name = "ADDRESS")]
    address: String,
    /// Tables, as LIKE patterns (user%), with their indexes and triggers [default: all]
    #[arg(value_name = "TABLE")]
    tables: Vec<String>,
    /// File, replaced when the dump is complete; or a pipe, or a device
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print rows only
    #[arg(long, conflicts_with = "schema_only")]
    data_only: bool,
    /// Print the schema only
    #[arg(long)]
    schema_only: bool,
}

/// What to dump.
#[derive(Debug, Clone, Default)]
pub(crate) struct Choice {
    /// Patterns of table names; empty: all tables.
    pub(crate) tables: Vec<String>,
    pub(crate) no_schema: bool,
    pub(crate) no_data: bool,
    /// Leaves out SQLite's own tables.
    pub(crate) no_system: bool,
    /// Keeps line ends in text as they are.
    pub(crate) newlines: bool,
    /// Keeps row numbers, also where no column holds them.
    pub(crate) preserve_rowids: bool,
}

pub(crate) fn run(arguments: &Dump) -> Result<(), CliError> {
    let interrupt = Interrupt::listen();
    let mut connection = open(&arguments.address, DatabaseAccess::Read)?;
    connection.busy_timeout(Duration::from_secs(10))?;
    interrupt.attend(&mut connection)?;
    let choice = Choice {
        tables: arguments.tables.clone(),
        no_schema: arguments.data_only,
        no_data: arguments.schema_only,
        ..Choice::default()
    };
    let Some(path) = &arguments.output else {
        let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
        write(&connection, &choice, &mut out)?;
        return Ok(out.flush()?);
    };
    let of_file = |error: io::Error| CliError::File { path: path.clone(), error };
    let mut out = BufWriter::with_capacity(1 << 16, OutputWriter::new(path)?);
    let written = write(&connection, &choice, &mut out);
    written.map_err(|error| match error {
        CliError::Output(error) => of_file(error),
        other => other,
    })?;
    let sink = out.into_inner().map_err(|error| of_file(error.into_error()))?;
    sink.keep().map_err(of_file)
}

/// Returns the condition for the names to dump.
fn wanted(choice: &Choice) -> String {
    if choice.tables.is_empty() {
        return "true".to_owned();
    }
    let mut wanted = String::from("(");
    for (at, pattern) in choice.tables.iter().enumerate() {
        wanted.push_str(if at > 0 { " OR name LIKE " } else { "name LIKE " });
        literal::push_text(&mut wanted, pattern);
        wanted.push_str(" ESCAPE '\\'");
    }
    wanted.push(')');
    wanted
}

/// Writes a database as SQL, from one snapshot.
pub(crate) fn write(connection: &Connection, choice: &Choice, out: &mut impl Write) -> Result<(), CliError> {
    if !choice.no_schema {
        out.write_all(b"PRAGMA foreign_keys=OFF;\nBEGIN TRANSACTION;\n")?;
    }
    connection.execute_batch("SAVEPOINT yesquel_dump")?;
    let written = Dumper { connection, choice, out, is_schema_open: false }.all();
    // The transaction only reads: an error loses nothing.
    let released = connection.execute_batch("RELEASE yesquel_dump");
    if let Err(error) = written {
        if !choice.no_schema && !matches!(error, CliError::Output(_)) {
            out.write_all(b"ROLLBACK; -- due to errors\n")?;
            out.flush()?;
        }
        return Err(error);
    }
    released?;
    if !choice.no_schema {
        out.write_all(b"COMMIT;\n")?;
    }
    Ok(())
}

struct Dumper<'a, W> {
    connection: &'a Connection,
    choice: &'a Choice,
    out: &'a mut W,
    /// Set while the text writes rows of the schema table.
    is_schema_open: bool,
}

impl<W: Write> Dumper<'_, W> {
    fn all(&mut self) -> Result<(), CliError> {
        let wanted = wanted(self.choice);
        let mut tables = self.connection.prepare(&format!(
            "SELECT name, sql FROM sqlite_schema WHERE {wanted} AND type = 'table' AND sql NOT NULL \
             ORDER BY tbl_name = 'sqlite_sequence', rowid"
        ))?;
        let mut rows = tables.query([])?;
        while let Some(row) = rows.next()? {
            self.table(&row.get::<_, String>(0)?, &row.get::<_, String>(1)?)?;
        }
        if !self.choice.no_schema {
            let mut others = self.connection.prepare(&format!(
                "SELECT sql FROM sqlite_schema WHERE {} AND sql NOT NULL \
                 AND type IN ('index', 'trigger', 'view')",
                wanted.replace("name LIKE", "tbl_name LIKE")
            ))?;
            let mut rows = others.query([])?;
            while let Some(row) = rows.next()? {
                self.statement(&row.get::<_, String>(0)?)?;
            }
        }
        if self.is_schema_open {
            self.out.write_all(b"PRAGMA writable_schema=OFF;\n")?;
        }
        Ok(())
    }

    /// Writes a statement of the schema. If it ends in a comment, the comment is closed.
    fn statement(&mut self, sql: &str) -> Result<(), CliError> {
        let end =
            ["", "*/", "\n"].into_iter().find(|end| yesquel_sqlite::is_complete(&format!("{sql}{end};")));
        let is_quoted = sql.strip_prefix("CREATE TABLE ").filter(|rest| rest.starts_with(['"', '\'']));
        match is_quoted {
            Some(rest) => write!(self.out, "CREATE TABLE IF NOT EXISTS {rest}")?,
            None => write!(self.out, "{sql}")?,
        }
        writeln!(self.out, "{};", end.unwrap_or_default())?;
        Ok(())
    }

    fn table(&mut self, name: &str, sql: &str) -> Result<(), CliError> {
        let has_schema = !self.choice.no_schema;
        if name.starts_with("sqlite_") && self.choice.no_system {
            return Ok(());
        } else if name == "sqlite_sequence" {
            if has_schema {
                self.out.write_all(b"DELETE FROM sqlite_sequence;\n")?;
            }
        } else if name.len() == 12 && name.starts_with("sqlite_stat") {
            if has_schema {
                self.out.write_all(b"ANALYZE sqlite_schema;\n")?;
            }
        } else if name.starts_with("sqlite_") {
            return Ok(());
        } else if sql.get(..20).is_some_and(|start| start.eq_ignore_ascii_case("CREATE VIRTUAL TABLE")) {
            if has_schema {
                self.virtual_table(name, sql)?;
            }
            return Ok(());
        } else if has_schema {
            self.statement(sql)?;
        }
        if self.choice.no_data { Ok(()) } else { self.rows(name) }
    }

    /// Writes a virtual table as a row of the schema table. Its content is in tables of its own,
    /// which are dumped, too; CREATE VIRTUAL TABLE would create them again.
    fn virtual_table(&mut self, name: &str, sql: &str) -> Result<(), CliError> {
        if !self.is_schema_open {
            self.out.write_all(b"PRAGMA writable_schema=ON;\n")?;
            self.is_schema_open = true;
        }
        let quote = |text: &str| text.replace('\'', "''");
        writeln!(
            self.out,
            "INSERT INTO sqlite_schema(type,name,tbl_name,rootpage,sql)VALUES('table','{0}','{0}',0,'{1}');",
            quote(name),
            quote(sql)
        )?;
        Ok(())
    }

    /// Returns the name that refers to the row number, unless columns hide all such names.
    fn row_id(&self, name: &str, columns: &[String]) -> Result<Option<&'static str>, CliError> {
        if !self.choice.preserve_rowids {
            return Ok(None);
        }
        let keys = "SELECT count(*), max(upper(type) = 'INTEGER') FROM pragma_table_info(?1) WHERE pk > 0";
        let (keys, is_integer): (i64, Option<bool>) =
            self.connection.query_row(keys, [name], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let without = "SELECT wr FROM pragma_table_list(?1) WHERE schema = 'main'";
        let has_none: bool = self.connection.query_row(without, [name], |row| row.get(0))?;
        if has_none || (keys == 1 && is_integer == Some(true)) {
            return Ok(None);
        }
        let is_free = |name: &&&str| !columns.iter().any(|column| column.eq_ignore_ascii_case(name));
        Ok(["rowid", "_rowid_", "oid"].iter().find(is_free).copied())
    }

    fn rows(&mut self, name: &str) -> Result<(), CliError> {
        let mut known = self.connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
        let mut columns = known.query_map([name], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
        let table = if needs_quotes(name) { quoted(name) } else { name.to_owned() };
        let mut start = format!("INSERT INTO {table}");
        if let Some(row_id) = self.row_id(name, &columns)? {
            columns.insert(0, row_id.to_owned());
            let names: Vec<String> = columns
                .iter()
                .map(|column| if needs_quotes(column) { quoted(column) } else { column.clone() })
                .collect();
            start.push_str(&format!("({})", names.join(",")));
        }
        start.push_str(" VALUES(");
        let names: Vec<String> = columns.iter().map(|column| quoted(column)).collect();
        let mut select =
            self.connection.prepare(&format!("SELECT {} FROM {}", names.join(","), quoted(name)))?;
        let mut rows = select.query([])?;
        let lines = if self.choice.newlines { LineEnds::Kept } else { LineEnds::Replaced };
        let mut line = String::new();
        while let Some(row) = rows.next()? {
            line.clear();
            line.push_str(&start);
            for column in 0..columns.len() {
                if column > 0 {
                    line.push(',');
                }
                literal::push(&mut line, row.get_ref(column)?, lines);
            }
            line.push_str(");\n");
            self.out.write_all(line.as_bytes())?;
        }
        Ok(())
    }
}

/// Returns whether a name needs quotes: it is no plain word, or is a keyword.
pub(crate) fn needs_quotes(name: &str) -> bool {
    let mut signs = name.chars();
    let is_plain = signs.next().is_some_and(|sign| sign.is_ascii_alphabetic() || sign == '_')
        && signs.all(|sign| sign.is_ascii_alphanumeric() || sign == '_');
    !is_plain || yesquel_sqlite::is_keyword(name)
}
