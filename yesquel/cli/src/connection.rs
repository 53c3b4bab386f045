//! Databases as SQLite opens them: plain files, and addresses on trees.

use crate::failure::{Failure, words};
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::path::Path;
use yesquel_sqlite::{Address, Mode, Place, Trees};

/// What is to be done with a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    /// It is made, if it is not there.
    Make,
}

/// Opens a database: an address, a file that holds one, or a plain file.
pub(crate) fn open(name: &str, access: Access) -> Result<Connection, Failure> {
    // Else the linker leaves out the SQLite that knows trees.
    if !yesquel_sqlite::is_linked() {
        return Err(Failure::Sql("SQLite's library is not the one of this program".to_owned()));
    }
    let address = yesquel_sqlite::address_of(name);
    if let Some(address) = &address {
        let parsed = Address::parse(address, []).map_err(|error| Failure::Usage(error.to_string()))?;
        // Opening a folder makes it.
        if let (Place::Folder(folder), true) =
            (&parsed.place, access != Access::Make || parsed.mode != Mode::Any)
            && !folder.is_dir()
        {
            return Err(Failure::Absent(format!("{address}: there is no such folder")));
        }
    } else if access != Access::Make && !is_elsewhere(name) && !Path::new(name).exists() {
        return Err(Failure::Absent(format!("{name}: there is no such file")));
    }
    let flags = match access {
        Access::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
        Access::Write => OpenFlags::SQLITE_OPEN_READ_WRITE,
        Access::Make => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
    };
    let flags = flags | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    // Words of before are not of this one.
    let _ = yesquel_sqlite::last_trouble();
    Connection::open_with_flags(name, flags).map_err(|error| {
        let is_open_error = error.sqlite_error_code() == Some(ErrorCode::CannotOpen);
        let said = words(&error);
        // What was opened stands behind, once more.
        let said = said.strip_suffix(&format!(": {name}")).unwrap_or(&said).to_owned();
        let said =
            if address.is_none() { format!("{}: {said}", yesquel_sqlite::shown_address(name)) } else { said };
        match Failure::sql(&error) {
            Failure::Unreachable(_) => Failure::Unreachable(said),
            Failure::Absent(_) => Failure::Absent(said),
            Failure::Usage(_) => Failure::Usage(said),
            other if !is_open_error => other,
            _ => Failure::Sql(said),
        }
    })
}

/// What is no path of a file, for SQLite.
fn is_elsewhere(name: &str) -> bool {
    name.is_empty() || name.starts_with("file:") || name.starts_with(':')
}

/// The trees of a database, if it is on some.
pub(crate) fn trees(connection: &Connection, database: &str) -> Option<Trees> {
    // SAFETY: the connection is open as long as it is borrowed.
    #[expect(unsafe_code, reason = "rusqlite gives out SQLite's own handle in no other way")]
    unsafe {
        Trees::of(connection.handle(), database)
    }
}

/// A name as SQL has it, in quotes where it needs them.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
