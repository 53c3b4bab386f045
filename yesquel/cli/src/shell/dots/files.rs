//! Commands that read and write files, and run programs.

use super::{
    super::{
        output,
        state::{Done, Fault, Shell, TRANSIENT},
    },
    usage, wrong,
};
use crate::connection::{Access, quoted};
use csv::{ByteRecord, Reader, ReaderBuilder, Terminator};
use rusqlite::{Connection, types::ValueRef};
use std::{
    fs::File,
    io::{self, BufReader, Read, Write},
    path::Path,
    process::{Child, Stdio},
};

pub(super) fn cd(_: &mut Shell, words: &[&str]) -> Done {
    let [folder] = words else { return usage("cd") };
    std::env::set_current_dir(folder).or_else(|error| wrong(format!("{folder}: {error}")))
}

pub(super) fn system(shell: &mut Shell, words: &[&str]) -> Done {
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

fn direct(shell: &mut Shell, words: &[&str], is_once: bool) -> Done {
    let name = if is_once { "once" } else { "output" };
    let to = match words {
        [] if !is_once => None,
        ["stdout"] | ["-"] => None,
        [to] => Some(*to),
        // |program with arguments.
        [first, ..] if first.starts_with('|') => {
            let line = words.join(" ");
            return shell.out.set(Some(&line), is_once).or_else(|error| wrong(format!("{line}: {error}")));
        }
        _ => return usage(name),
    };
    shell.out.set(to, is_once).or_else(|error| wrong(format!("{}: {error}", to.unwrap_or_default())))
}

pub(super) fn output(shell: &mut Shell, words: &[&str]) -> Done {
    direct(shell, words, false)
}

pub(super) fn once(shell: &mut Shell, words: &[&str]) -> Done {
    direct(shell, words, true)
}

pub(super) fn open(shell: &mut Shell, words: &[&str]) -> Done {
    let mut access = Access::Make;
    let mut name = None;
    for word in words {
        match *word {
            "--readonly" | "-readonly" => access = Access::Read,
            word if word.starts_with('-') => return wrong(format!("there is no option {word}")),
            word if name.is_none() => name = Some(word),
            _ => return usage("open"),
        }
    }
    Ok(shell.reopen(name.unwrap_or(TRANSIENT), access)?)
}

pub(super) fn read(shell: &mut Shell, words: &[&str]) -> Done {
    let Some(first) = words.first() else { return usage("read") };
    if let Some(line) = first.strip_prefix('|') {
        let line = [&[line], &words[1..]].concat().join(" ");
        let printed = output::system(&line).stderr(Stdio::inherit()).output();
        let printed = printed.or_else(|error| wrong(format!("{line}: {error}")))?;
        shell.read_text(&String::from_utf8_lossy(&printed.stdout))?;
        return if printed.status.success() { Ok(()) } else { wrong(format!("{line}: {}", printed.status)) };
    }
    let [path] = words else { return usage("read") };
    Ok(shell.read_file(Path::new(path))?)
}

/// How a file of rows is to be read.
struct Import<'a> {
    file: &'a str,
    table: &'a str,
    schema: Option<&'a str>,
    skip: u64,
    separators: (String, String),
    is_quoted: bool,
}

fn understand<'a>(shell: &Shell, words: &[&'a str]) -> Result<Import<'a>, Fault> {
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
    Ok(Import { file, table, schema, skip, separators, is_quoted })
}

/// One byte, as files of rows have it.
fn byte(separator: &str, what: &str) -> Result<u8, Fault> {
    match separator.as_bytes() {
        [byte] => Ok(*byte),
        [b'\r', b'\n'] => Ok(b'\n'),
        _ => wrong(format!("to import, what is between {what} must be one byte, and is {separator:?}")),
    }
}

/// What rows are read from, and whoever prints them.
fn source(file: &str) -> Result<(Box<dyn Read>, Option<Child>), Fault> {
    if let Some(line) = file.strip_prefix('|') {
        let child = output::system(line).stdout(Stdio::piped()).spawn();
        let mut child = child.or_else(|error| wrong(format!("{line}: {error}")))?;
        let Some(printed) = child.stdout.take() else { return wrong(format!("{line}: it has no output")) };
        return Ok((Box::new(printed), Some(child)));
    }
    let opened = File::open(file).or_else(|error| wrong(format!("{file}: {error}")))?;
    Ok((Box::new(BufReader::new(opened)), None))
}

pub(super) fn import(shell: &mut Shell, words: &[&str]) -> Done {
    let import = understand(shell, words)?;
    let (column, row) = (byte(&import.separators.0, "columns")?, byte(&import.separators.1, "rows")?);
    let (read, child) = source(import.file)?;
    let terminator = if row == b'\n' { Terminator::CRLF } else { Terminator::Any(row) };
    let mut reader = ReaderBuilder::new()
        .delimiter(column)
        .terminator(terminator)
        .quoting(import.is_quoted)
        .has_headers(false)
        .flexible(true)
        .from_reader(read);
    let done = {
        let connection = shell.connection();
        rows(&connection, &import, &mut reader, shell)
    };
    let ended = child.map(|mut child| {
        // What it prints beyond is not wanted.
        drop(reader);
        child.wait()
    });
    done?;
    match ended.transpose() {
        Ok(Some(status)) if !status.success() => wrong(format!("{}: {status}", import.file)),
        Err(error) => wrong(format!("{}: {error}", import.file)),
        Ok(_) => Ok(()),
    }
}

/// Reads a row; whether there was one.
fn next(reader: &mut Reader<Box<dyn Read>>, record: &mut ByteRecord, file: &str) -> Result<bool, Fault> {
    reader.read_byte_record(record).or_else(|error| wrong(format!("{file}: {error}")))
}

fn rows(
    connection: &Connection,
    import: &Import<'_>,
    reader: &mut Reader<Box<dyn Read>>,
    shell: &Shell,
) -> Done {
    let mut record = ByteRecord::new();
    for _ in 0..import.skip {
        next(reader, &mut record, import.file)?;
    }
    let is_own = connection.is_autocommit();
    if is_own {
        connection.execute_batch("BEGIN")?;
    }
    let done = write(connection, import, reader, &mut record, shell);
    if is_own {
        let ended = connection.execute_batch(if done.is_ok() { "COMMIT" } else { "ROLLBACK" });
        if ended.is_err() && done.is_ok() {
            // It has lost, and is to be rolled back.
            let _ = connection.execute_batch("ROLLBACK");
        }
        done?;
        return Ok(ended?);
    }
    done
}

fn write(
    connection: &Connection,
    import: &Import<'_>,
    reader: &mut Reader<Box<dyn Read>>,
    record: &mut ByteRecord,
    shell: &Shell,
) -> Done {
    let schema = import.schema.map(|schema| format!("{}.", quoted(schema))).unwrap_or_default();
    let table = format!("{schema}{}", quoted(import.table));
    let count = "SELECT count(*) FROM pragma_table_xinfo(?1, ?2) WHERE hidden = 0";
    let database = import.schema.unwrap_or("main");
    let columns =
        |database: &str| connection.query_row(count, [import.table, database], |row| row.get::<_, i64>(0));
    let mut known = columns(database)?;
    let temporary = "SELECT count(*) FROM pragma_database_list WHERE name = 'temp'";
    // To ask for one that is not there would make it.
    if known == 0 && import.schema.is_none() && connection.query_row(temporary, [], |row| row.get(0))? {
        known = columns("temp")?;
    }
    if known == 0 {
        if !next(reader, record, import.file)? {
            return wrong(format!("{}: the file is empty: there are no names of columns", import.file));
        }
        let names = names_of(record);
        let names: Vec<String> = names.iter().map(|name| format!("{} TEXT", quoted(name))).collect();
        connection.execute_batch(&format!("CREATE TABLE {table}(\n{})", names.join(", ")))?;
        known = i64::try_from(names.len()).unwrap_or(i64::MAX);
    }
    let places = vec!["?"; usize::try_from(known).unwrap_or(0)].join(",");
    let mut insert = connection.prepare(&format!("INSERT INTO {table} VALUES({places})"))?;
    let wanted = insert.parameter_count();
    while next(reader, record, import.file)? {
        if shell.interrupt.is_pressed() {
            return Err(Fault::Interrupted);
        }
        let line = record.position().map_or(0, csv::Position::line);
        if record.len() != wanted {
            let what = if record.len() < wanted { "filling the rest with NULL" } else { "extras ignored" };
            let found = record.len();
            // Standard error may take nothing.
            let _ = writeln!(
                io::stderr(),
                "{}:{line}: expected {wanted} columns but found {found} - {what}",
                import.file
            );
        }
        for column in 0..wanted {
            match record.get(column) {
                Some(text) => insert.raw_bind_parameter(column + 1, Text(text))?,
                None => insert.raw_bind_parameter(column + 1, rusqlite::types::Null)?,
            }
        }
        if let Err(error) = insert.raw_execute() {
            return match Fault::from(error) {
                Fault::Said(words) => wrong(format!("{}:{line}: {words}", import.file)),
                other => Err(other),
            };
        }
    }
    Ok(())
}

/// Text of any bytes.
struct Text<'a>(&'a [u8]);

impl rusqlite::ToSql for Text<'_> {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        Ok(rusqlite::types::ToSqlOutput::Borrowed(ValueRef::Text(self.0)))
    }
}

/// Names of columns from the first row; no two are the same, and none is empty.
fn names_of(record: &ByteRecord) -> Vec<String> {
    let given: Vec<String> = record.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
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
    names
}
