//! Commands that read and write files, and run programs.

use super::{
    super::{
        output,
        state::{Shell, ShellError, ShellResult, TRANSIENT},
    },
    rows::{FieldEnd, FieldReader, RowFormat},
    usage, wrong,
};
use crate::connection::{DatabaseAccess, quoted};
use rusqlite::{Connection, types::ValueRef};
use std::{
    fs::File,
    io::{self, BufReader, Read, Write},
    path::Path,
    process::{Child, Stdio},
};

pub(super) fn cd(_: &mut Shell, words: &[&str]) -> ShellResult {
    let [folder] = words else { return usage("cd") };
    std::env::set_current_dir(folder).or_else(|error| wrong(format!("{folder}: {error}")))
}

pub(super) fn system(shell: &mut Shell, words: &[&str]) -> ShellResult {
    if words.is_empty() {
        return usage("shell");
    }
    shell.out.flush()?;
    let line = words.join(" ");
    match output::system(&line).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => wrong(format!("{line}: {status}")),
        Err(error) => wrong(format!("{line}: {error}")),
    }
}

fn direct(shell: &mut Shell, words: &[&str], is_once: bool) -> ShellResult {
    let name = if is_once { "once" } else { "output" };
    let to = match words {
        [] if !is_once => None,
        ["stdout" | "off" | "-"] => None,
        [to] => Some(*to),
        // `|program` with arguments.
        [first, ..] if first.starts_with('|') => {
            let line = words.join(" ");
            return shell.out.set(Some(&line), is_once).or_else(|error| wrong(format!("{line}: {error}")));
        }
        _ => return usage(name),
    };
    shell.out.set(to, is_once).or_else(|error| wrong(format!("{}: {error}", to.unwrap_or_default())))
}

pub(super) fn output(shell: &mut Shell, words: &[&str]) -> ShellResult {
    direct(shell, words, false)
}

pub(super) fn once(shell: &mut Shell, words: &[&str]) -> ShellResult {
    direct(shell, words, true)
}

pub(super) fn open(shell: &mut Shell, words: &[&str]) -> ShellResult {
    let mut access = DatabaseAccess::Make;
    let mut name = None;
    for word in words {
        match *word {
            "--readonly" | "-readonly" => access = DatabaseAccess::Read,
            word if word.starts_with('-') => return wrong(format!("there is no option {word}")),
            word if name.is_none() => name = Some(word),
            _ => return usage("open"),
        }
    }
    Ok(shell.reopen(name.unwrap_or(TRANSIENT), access)?)
}

pub(super) fn read(shell: &mut Shell, words: &[&str]) -> ShellResult {
    let Some(first) = words.first() else { return usage("read") };
    if let Some(line) = first.strip_prefix('|') {
        let line = [&[line], &words[1..]].concat().join(" ");
        let printed = output::system(&line).stderr(Stdio::inherit()).output();
        let printed = printed.or_else(|error| wrong(format!("{line}: {error}")))?;
        shell.read_text(&printed.stdout)?;
        return if printed.status.success() { Ok(()) } else { wrong(format!("{line}: {}", printed.status)) };
    }
    let [path] = words else { return usage("read") };
    Ok(shell.read_file(Path::new(path))?)
}

/// Options of `.import`.
struct RowImport<'a> {
    file: &'a str,
    table: &'a str,
    schema: Option<&'a str>,
    skip: u64,
    separators: (String, String),
    is_quoted: bool,
}

fn understand<'a>(shell: &Shell, words: &[&'a str]) -> Result<RowImport<'a>, ShellError> {
    let settings = &shell.settings;
    let mut separators = (settings.column_separator.clone(), settings.row_separator.clone());
    let (mut schema, mut skip, mut is_quoted, mut rest) = (None, 0, true, Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.strip_prefix('-').map(|word| word.trim_start_matches('-')) {
            Some("csv") => separators = (",".to_owned(), "\n".to_owned()),
            Some("tabs") => separators = ("\t".to_owned(), "\n".to_owned()),
            Some("ascii") => (separators, is_quoted) = (("\x1f".to_owned(), "\x1e".to_owned()), false),
            Some("schema") => schema = words.next().copied(),
            Some("skip") => match words.next().and_then(|count| count.parse().ok()) {
                Some(count) => skip = count,
                None => return usage("import"),
            },
            Some("v") => {}
            Some(_) => return wrong(format!("there is no option {word}")),
            None => rest.push(*word),
        }
    }
    let [file, table] = rest[..] else { return usage("import") };
    Ok(RowImport { file, table, schema, skip, separators, is_quoted })
}

/// Parses a separator of one byte, as files of rows have it.
fn byte(separator: &str, what: &str) -> Result<u8, ShellError> {
    match separator.as_bytes() {
        [byte] => Ok(*byte),
        [b'\r', b'\n'] => Ok(b'\n'),
        _ => wrong(format!("to import, what is between {what} must be one byte, and is {separator:?}")),
    }
}

/// Source of rows.
struct RowInput {
    read: Box<dyn Read>,
    /// Process that prints them.
    child: Option<Child>,
}

/// Opens a file, or starts the program of `|program`.
fn open_input(file: &str) -> Result<RowInput, ShellError> {
    if let Some(line) = file.strip_prefix('|') {
        let child = output::system(line).stdout(Stdio::piped()).spawn();
        let mut child = child.or_else(|error| wrong(format!("{line}: {error}")))?;
        let Some(printed) = child.stdout.take() else { return wrong(format!("{line}: it has no output")) };
        return Ok(RowInput { read: Box::new(printed), child: Some(child) });
    }
    let opened = File::open(file).or_else(|error| wrong(format!("{file}: {error}")))?;
    Ok(RowInput { read: Box::new(opened), child: None })
}

pub(super) fn import(shell: &mut Shell, words: &[&str]) -> ShellResult {
    let import = understand(shell, words)?;
    let form = RowFormat {
        column: byte(&import.separators.0, "columns")?,
        row: byte(&import.separators.1, "rows")?,
        is_quoted: import.is_quoted,
    };
    let RowInput { read, child } = open_input(import.file)?;
    let mut source = RowReader { rows: FieldReader::new(BufReader::new(read), form), file: import.file };
    let done = {
        let connection = shell.connection();
        rows(&connection, &import, &mut source, shell)
    };
    let ended = child.map(|mut child| {
        // The rest of its output is not needed.
        drop(source);
        child.wait()
    });
    done?;
    match ended.transpose() {
        Ok(Some(status)) if !status.success() => wrong(format!("{}: {status}", import.file)),
        Err(error) => wrong(format!("{}: {error}", import.file)),
        Ok(_) => Ok(()),
    }
}

/// Reader of rows that reports oddities.
struct RowReader<'a> {
    rows: FieldReader<BufReader<Box<dyn Read>>>,
    file: &'a str,
}

impl RowReader<'_> {
    fn warn(file: &str, line: u64, what: &str) {
        // A failed write to standard error is ignored.
        let _ = writeln!(io::stderr(), "{file}:{line}: {what}");
    }

    /// Reads a field. Returns whether there was one.
    fn field(&mut self, field: &mut Vec<u8>) -> Result<bool, ShellError> {
        let file = self.file;
        let read = self.rows.field(field, &mut |line, what| RowReader::warn(file, line, what));
        read.or_else(|error| wrong(format!("{file}: {error}")))
    }

    /// Reads the remaining fields of a row. Returns their number.
    fn rest_of_row(&mut self) -> Result<usize, ShellError> {
        let (mut count, mut field) = (0, Vec::new());
        while self.rows.end == FieldEnd::Column {
            self.field(&mut field)?;
            count += 1;
        }
        Ok(count)
    }
}

fn rows(
    connection: &Connection,
    import: &RowImport<'_>,
    source: &mut RowReader<'_>,
    shell: &Shell,
) -> ShellResult {
    let mut field = Vec::new();
    for _ in 0..import.skip {
        source.field(&mut field)?;
        source.rest_of_row()?;
    }
    let is_own = connection.is_autocommit();
    if is_own {
        connection.execute_batch("BEGIN")?;
    }
    let done = write(connection, import, source, shell);
    if is_own {
        let ended = connection.execute_batch(if done.is_ok() { "COMMIT" } else { "ROLLBACK" });
        if ended.is_err() && done.is_ok() {
            // The transaction has failed, and needs a rollback.
            let _ = connection.execute_batch("ROLLBACK");
        }
        done?;
        return Ok(ended?);
    }
    done
}

fn write(
    connection: &Connection,
    import: &RowImport<'_>,
    source: &mut RowReader<'_>,
    shell: &Shell,
) -> ShellResult {
    let schema = import.schema.map(|schema| format!("{}.", quoted(schema))).unwrap_or_default();
    let table = format!("{schema}{}", quoted(import.table));
    let count = "SELECT count(*) FROM pragma_table_xinfo(?1, ?2) WHERE hidden = 0";
    let database = import.schema.unwrap_or("main");
    let columns =
        |database: &str| connection.query_row(count, [import.table, database], |row| row.get::<_, i64>(0));
    let mut known = columns(database)?;
    let temporary = "SELECT count(*) FROM pragma_database_list WHERE name = 'temp'";
    // Querying a missing table would create it.
    if known == 0 && import.schema.is_none() && connection.query_row(temporary, [], |row| row.get(0))? {
        known = columns("temp")?;
    }
    if known == 0 {
        let names = names_of(source)?;
        let names: Vec<String> = names.iter().map(|name| format!("{} TEXT", quoted(name))).collect();
        connection.execute_batch(&format!("CREATE TABLE {table}(\n{})", names.join(", ")))?;
        known = i64::try_from(names.len()).unwrap_or(i64::MAX);
    }
    let places = vec!["?"; usize::try_from(known).unwrap_or(0)].join(",");
    let mut insert = connection.prepare(&format!("INSERT INTO {table} VALUES({places})"))?;
    let (wanted, mut field) = (insert.parameter_count(), Vec::new());
    while source.rows.end != FieldEnd::File {
        if shell.interrupt.is_pressed() {
            return Err(ShellError::Interrupted);
        }
        let (line, mut found) = (source.rows.line, 0);
        while found < wanted && (found == 0 || source.rows.end == FieldEnd::Column) {
            let is_there = source.field(&mut field)?;
            // Without quoting, an empty line is no row.
            if found == 0 && (!is_there || (!import.is_quoted && field.is_empty())) {
                break;
            }
            found += 1;
            if is_there {
                insert.raw_bind_parameter(found, DisplayBytes(&field))?;
            } else {
                insert.raw_bind_parameter(found, rusqlite::types::Null)?;
            }
        }
        if found == 0 {
            source.rest_of_row()?;
            continue;
        }
        for column in found..wanted {
            insert.raw_bind_parameter(column + 1, rusqlite::types::Null)?;
        }
        let all = found + source.rest_of_row()?;
        if all != wanted {
            let what = if all < wanted { "filling the rest with NULL" } else { "extras ignored" };
            let said = format!("expected {wanted} columns but found {all} - {what}");
            RowReader::warn(import.file, line, &said);
        }
        if let Err(error) = insert.raw_execute() {
            return match ShellError::from(error) {
                ShellError::Said(words) => wrong(format!("{}:{line}: {words}", import.file)),
                other => Err(other),
            };
        }
    }
    Ok(())
}

/// Displays arbitrary bytes.
struct DisplayBytes<'a>(&'a [u8]);

impl rusqlite::ToSql for DisplayBytes<'_> {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        Ok(rusqlite::types::ToSqlOutput::Borrowed(ValueRef::Text(self.0)))
    }
}

/// Reads unique column names from the first row.
fn names_of(source: &mut RowReader<'_>) -> Result<Vec<String>, ShellError> {
    let (mut given, mut field) = (Vec::new(), Vec::new());
    loop {
        if !source.field(&mut field)? && given.is_empty() {
            return wrong(format!("{}: the file is empty: there are no names of columns", source.file));
        }
        given.push(String::from_utf8_lossy(&field).into_owned());
        if source.rows.end != FieldEnd::Column {
            break;
        }
    }
    let same =
        |name: &str, names: &[String]| names.iter().filter(|other| other.eq_ignore_ascii_case(name)).count();
    let mut names: Vec<String> = Vec::new();
    for (at, name) in given.iter().enumerate() {
        let name = if name.is_empty() { "?" } else { name };
        let mut free = if same(name, &given) > 1 { format!("{name}_{}", at + 1) } else { name.to_owned() };
        while same(&free, &names) > 0 {
            free.push('_');
        }
        names.push(free);
    }
    Ok(names)
}
