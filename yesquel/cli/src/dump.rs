//! `yesquel dump` and `.dump`: a database as the SQL that makes it.

use crate::{
    connection::{Access, open, quoted},
    failure::Failure,
    interrupt::Interrupt,
    literal::{self, Lines},
    replace::Sink,
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

/// What is dumped.
#[derive(Debug, Clone, Default)]
pub(crate) struct Choice {
    /// Patterns of names; none: all.
    pub(crate) tables: Vec<String>,
    pub(crate) no_schema: bool,
    pub(crate) no_data: bool,
    /// Nothing of SQLite's own tables.
    pub(crate) no_system: bool,
    /// Line ends in text stay as they are.
    pub(crate) newlines: bool,
    /// Rows keep their numbers, also where no column has them.
    pub(crate) preserve_rowids: bool,
}

pub(crate) fn run(arguments: &Dump) -> Result<(), Failure> {
    let interrupt = Interrupt::listen();
    let mut connection = open(&arguments.address, Access::Read)?;
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
    let of_file = |error: io::Error| Failure::File { path: path.clone(), error };
    let mut out = BufWriter::with_capacity(1 << 16, Sink::new(path)?);
    let written = write(&connection, &choice, &mut out);
    written.map_err(|error| match error {
        Failure::Output(error) => of_file(error),
        other => other,
    })?;
    let sink = out.into_inner().map_err(|error| of_file(error.into_error()))?;
    sink.keep().map_err(of_file)
}

/// The condition for names that are wanted.
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

/// Writes a database as SQL, as of one moment.
pub(crate) fn write(connection: &Connection, choice: &Choice, out: &mut impl Write) -> Result<(), Failure> {
    if !choice.no_schema {
        out.write_all(b"PRAGMA foreign_keys=OFF;\nBEGIN TRANSACTION;\n")?;
    }
    connection.execute_batch("SAVEPOINT yesquel_dump")?;
    let written = Dumper { connection, choice, out, is_schema_open: false }.all();
    // It was read only: nothing is lost by either.
    let released = connection.execute_batch("RELEASE yesquel_dump");
    if let Err(error) = written {
        if !choice.no_schema && !matches!(error, Failure::Output(_)) {
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
    /// Rows of the schema table are written by the text.
    is_schema_open: bool,
}

impl<W: Write> Dumper<'_, W> {
    fn all(&mut self) -> Result<(), Failure> {
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

    /// A statement of the schema. One that ends in a comment is ended behind it.
    fn statement(&mut self, sql: &str) -> Result<(), Failure> {
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

    fn table(&mut self, name: &str, sql: &str) -> Result<(), Failure> {
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

    /// What a virtual table keeps is in tables of its own, which are dumped: to
    /// create it would make them.
    fn virtual_table(&mut self, name: &str, sql: &str) -> Result<(), Failure> {
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

    /// The name by which the number of a row can be had, if no column has it.
    fn row_id(&self, name: &str, columns: &[String]) -> Result<Option<&'static str>, Failure> {
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

    fn rows(&mut self, name: &str) -> Result<(), Failure> {
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
        let lines = if self.choice.newlines { Lines::Kept } else { Lines::Replaced };
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

/// Whether a name must be quoted: it is no plain word, or one of SQL's.
pub(crate) fn needs_quotes(name: &str) -> bool {
    let mut signs = name.chars();
    let is_plain = signs.next().is_some_and(|sign| sign.is_ascii_alphabetic() || sign == '_')
        && signs.all(|sign| sign.is_ascii_alphanumeric() || sign == '_');
    !is_plain || yesquel_sqlite::is_keyword(name)
}
