//! SQL functions that SQLite's own shell adds to those of the library.

use regex::bytes::Regex;
use rusqlite::{
    Connection, Error,
    functions::{Context, FunctionFlags},
    limits::Limit,
    types::{Null, ToSqlOutput, Value, ValueRef},
    vtab::series,
};
use std::{
    fs::{self, File},
    io::{self, Read},
};

type SqlResult = rusqlite::Result<ToSqlOutput<'static>>;

/// Adds them to a connection.
pub(super) fn add(connection: &Connection) -> rusqlite::Result<()> {
    series::load_module(connection)?;
    let bytes_max = connection.limit(Limit::SQLITE_LIMIT_LENGTH)?.unsigned_abs().into();
    // Schemas must not access files.
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DIRECTONLY;
    connection.create_scalar_function("readfile", 1, flags, move |context| read_file(context, bytes_max))?;
    connection.create_scalar_function("writefile", 2, flags, write_file)?;
    let flags =
        FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC | FunctionFlags::SQLITE_INNOCUOUS;
    connection.create_scalar_function("regexp", 2, flags, |context| matches(context, false))?;
    connection.create_scalar_function("regexpi", 2, flags, |context| matches(context, true))
}

fn said(words: String) -> Error {
    Error::UserFunctionError(words.into())
}

/// Returns a value's text or bytes; `None` for NULL.
fn bytes_of(value: ValueRef<'_>) -> Option<Vec<u8>> {
    match value {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string().into_bytes()),
        ValueRef::Real(number) => Some(yesquel_sqlite::text_of_real(number).into_bytes()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(bytes.to_vec()),
    }
}

fn name_of(context: &Context<'_>) -> Option<String> {
    Some(String::from_utf8_lossy(&bytes_of(context.get_raw(0))?).into_owned())
}

/// Returns the bytes of a file; NULL if it cannot be read.
fn read_file(context: &Context<'_>, bytes_max: u64) -> SqlResult {
    let Some(name) = name_of(context) else { return Ok(Null.into()) };
    let mut bytes = Vec::new();
    let read = File::open(&name).and_then(|file| file.take(bytes_max + 1).read_to_end(&mut bytes));
    match read {
        Ok(_) if bytes.len() as u64 > bytes_max => {
            Err(said(format!("{name} has more than {bytes_max} bytes, which is what a value may have")))
        }
        Ok(_) => Ok(ToSqlOutput::Owned(Value::Blob(bytes))),
        Err(_) => Ok(Null.into()),
    }
}

/// Writes a value to a file. Returns the number of bytes.
fn write_file(context: &Context<'_>) -> SqlResult {
    let Some(name) = name_of(context) else { return Ok(Null.into()) };
    let bytes = bytes_of(context.get_raw(1)).unwrap_or_default();
    fs::write(&name, &bytes).map_err(|error: io::Error| said(format!("{name}: {error}")))?;
    Ok(ToSqlOutput::Owned(Value::Integer(i64::try_from(bytes.len()).unwrap_or(i64::MAX))))
}

/// `X REGEXP Y`: whether `Y` contains a match of `X`, which is the first argument.
fn matches(context: &Context<'_>, ignores_case: bool) -> SqlResult {
    let (ValueRef::Text(_) | ValueRef::Blob(_), Some(text)) =
        (context.get_raw(0), bytes_of(context.get_raw(1)))
    else {
        return Ok(Null.into());
    };
    let pattern = context.get_or_create_aux(
        0,
        |pattern| -> Result<Regex, Box<dyn std::error::Error + Send + Sync>> {
            let pattern = String::from_utf8_lossy(&bytes_of(pattern).unwrap_or_default()).into_owned();
            Ok(regex::bytes::RegexBuilder::new(&pattern).case_insensitive(ignores_case).build()?)
        },
    )?;
    Ok(ToSqlOutput::Owned(Value::Integer(pattern.is_match(&text).into())))
}
