//! Opens databases by SQLite: plain files, and addresses of trees.

use crate::failure::{CliError, words};
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::path::Path;
use yesquel_sqlite::{AccessMode, DatabaseAddress, DatabaseLocation, DatabaseTrees};

/// Intended use of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DatabaseAccess {
    Read,
    Write,
    /// Creates it if it does not exist.
    Make,
}

/// Opens a database: an address, a file that contains one, or a plain file.
pub(crate) fn open(name: &str, access: DatabaseAccess) -> Result<Connection, CliError> {
    // Otherwise the linker drops the SQLite with trees.
    if !yesquel_sqlite::is_linked() {
        return Err(CliError::Sql("SQLite's library is not the one of this program".to_owned()));
    }
    let address = yesquel_sqlite::address_of(name);
    if let Some(address) = &address {
        let parsed =
            DatabaseAddress::parse(address, []).map_err(|error| CliError::Usage(error.to_string()))?;
        // Opening a folder would create it.
        if let (DatabaseLocation::Folder(folder), true) =
            (&parsed.location, access != DatabaseAccess::Make || parsed.mode != AccessMode::Any)
            && !folder.is_dir()
        {
            return Err(CliError::Absent(format!("{address}: there is no such folder")));
        }
    } else if access != DatabaseAccess::Make && !is_elsewhere(name) && !Path::new(name).exists() {
        return Err(CliError::Absent(format!("{name}: there is no such file{}", scheme_hint(name))));
    }
    let flags = match access {
        DatabaseAccess::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
        DatabaseAccess::Write => OpenFlags::SQLITE_OPEN_READ_WRITE,
        DatabaseAccess::Make => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
    };
    let flags = flags | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    // Clear an earlier failure.
    let _ = yesquel_sqlite::last_error_kind();
    Connection::open_with_flags(name, flags).map_err(|error| {
        let is_open_error = error.sqlite_error_code() == Some(ErrorCode::CannotOpen);
        let said = words(&error);
        // SQLite appends the name once more.
        let said = said.strip_suffix(&format!(": {name}")).unwrap_or(&said).to_owned();
        let said = match address {
            None => format!("{}: {said}{}", yesquel_sqlite::shown_address(name), scheme_hint(name)),
            Some(_) => said,
        };
        match CliError::sql(&error) {
            CliError::Unreachable(_) => CliError::Unreachable(said),
            CliError::Absent(_) => CliError::Absent(said),
            CliError::Usage(_) => CliError::Usage(said),
            other if !is_open_error => other,
            _ => CliError::Sql(said),
        }
    })
}

/// Advice for a name that may be `host/database` without the scheme: a relative path into a folder that does not
/// exist.
fn scheme_hint(name: &str) -> String {
    let is_host = |host: &str| {
        !host.is_empty() && !host.starts_with(['.', '~']) && !host.contains('/') && !Path::new(host).exists()
    };
    match name.rsplit_once('/') {
        Some((host, database)) if is_host(host) && !database.is_empty() && !is_elsewhere(name) => {
            format!(". A database at a server is yesquel://{name}")
        }
        _ => String::new(),
    }
}

/// Returns whether SQLite does not take the name for a path.
fn is_elsewhere(name: &str) -> bool {
    name.is_empty() || name.starts_with("file:") || name.starts_with(':')
}

/// Returns the trees of a database, unless it is a plain file.
pub(crate) fn trees(connection: &Connection, database: &str) -> Option<DatabaseTrees> {
    // SAFETY: the connection is open as long as it is borrowed.
    #[expect(unsafe_code, reason = "rusqlite gives out SQLite's own handle in no other way")]
    unsafe {
        DatabaseTrees::of(connection.handle(), database)
    }
}

/// Quotes a name for SQL.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
