//! Two SQLites in one process with the same functions: Yesquel's, and stock SQLite under other
//! names.

#![allow(unsafe_code)]

use crate::value::SqlValue;
use libsqlite3_sys::{
    SQLITE_BLOB, SQLITE_FLOAT, SQLITE_INTEGER, SQLITE_NULL, SQLITE_OPEN_CREATE, SQLITE_OPEN_READWRITE,
    SQLITE_OPEN_URI, SQLITE_TEXT, sqlite3, sqlite3_blob, sqlite3_stmt,
};
use std::{
    ffi::{CStr, CString, c_char, c_int, c_uchar, c_void},
    ptr, slice,
};
use yesquel::Database;
use yesquel_sqlite::DatabaseTrees;

/// Functions of SQLite, each with its field name and its names in both engines.
macro_rules! functions {
    ($($name:ident $ours:literal $stock:literal ($($parameter:ident: $kind:ty),*) $(-> $returns:ty)?;)*) => {
        mod ours {
            use super::*;
            unsafe extern "C" { $(#[link_name = $ours] pub(super) fn $name($($parameter: $kind),*) $(-> $returns)?;)* }
        }
        mod stock {
            use super::*;
            unsafe extern "C" { $(#[link_name = $stock] pub(super) fn $name($($parameter: $kind),*) $(-> $returns)?;)* }
        }
        /// Function table of one SQLite.
        struct Functions { $($name: unsafe extern "C" fn($($kind),*) $(-> $returns)?,)* }
        static OURS: Functions = Functions { $($name: ours::$name,)* };
        static STOCK: Functions = Functions { $($name: stock::$name,)* };
    };
}

type ProgressHandler = Option<unsafe extern "C" fn(*mut c_void) -> c_int>;

functions! {
    open "sqlite3_open_v2" "stock_sqlite3_open_v2"
        (name: *const c_char, db: *mut *mut sqlite3, flags: c_int, vfs: *const c_char) -> c_int;
    close "sqlite3_close" "stock_sqlite3_close" (db: *mut sqlite3) -> c_int;
    prepare "sqlite3_prepare_v2" "stock_sqlite3_prepare_v2"
        (db: *mut sqlite3, sql: *const c_char, bytes: c_int, stmt: *mut *mut sqlite3_stmt, tail: *mut *const c_char) -> c_int;
    step "sqlite3_step" "stock_sqlite3_step" (stmt: *mut sqlite3_stmt) -> c_int;
    finalize "sqlite3_finalize" "stock_sqlite3_finalize" (stmt: *mut sqlite3_stmt) -> c_int;
    column_count "sqlite3_column_count" "stock_sqlite3_column_count" (stmt: *mut sqlite3_stmt) -> c_int;
    column_name "sqlite3_column_name" "stock_sqlite3_column_name"
        (stmt: *mut sqlite3_stmt, column: c_int) -> *const c_char;
    column_type "sqlite3_column_type" "stock_sqlite3_column_type" (stmt: *mut sqlite3_stmt, column: c_int) -> c_int;
    column_int64 "sqlite3_column_int64" "stock_sqlite3_column_int64" (stmt: *mut sqlite3_stmt, column: c_int) -> i64;
    column_double "sqlite3_column_double" "stock_sqlite3_column_double"
        (stmt: *mut sqlite3_stmt, column: c_int) -> f64;
    column_text "sqlite3_column_text" "stock_sqlite3_column_text"
        (stmt: *mut sqlite3_stmt, column: c_int) -> *const c_uchar;
    column_blob "sqlite3_column_blob" "stock_sqlite3_column_blob"
        (stmt: *mut sqlite3_stmt, column: c_int) -> *const c_void;
    column_bytes "sqlite3_column_bytes" "stock_sqlite3_column_bytes" (stmt: *mut sqlite3_stmt, column: c_int) -> c_int;
    errcode "sqlite3_extended_errcode" "stock_sqlite3_extended_errcode" (db: *mut sqlite3) -> c_int;
    errmsg "sqlite3_errmsg" "stock_sqlite3_errmsg" (db: *mut sqlite3) -> *const c_char;
    changes "sqlite3_changes64" "stock_sqlite3_changes64" (db: *mut sqlite3) -> i64;
    total_changes "sqlite3_total_changes64" "stock_sqlite3_total_changes64" (db: *mut sqlite3) -> i64;
    last_row "sqlite3_last_insert_rowid" "stock_sqlite3_last_insert_rowid" (db: *mut sqlite3) -> i64;
    set_last_row "sqlite3_set_last_insert_rowid" "stock_sqlite3_set_last_insert_rowid" (db: *mut sqlite3, row: i64);
    autocommit "sqlite3_get_autocommit" "stock_sqlite3_get_autocommit" (db: *mut sqlite3) -> c_int;
    txn_state "sqlite3_txn_state" "stock_sqlite3_txn_state" (db: *mut sqlite3, schema: *const c_char) -> c_int;
    filename "sqlite3_db_filename" "stock_sqlite3_db_filename"
        (db: *mut sqlite3, schema: *const c_char) -> *const c_char;
    sourceid "sqlite3_sourceid" "stock_sqlite3_sourceid" () -> *const c_char;
    progress "sqlite3_progress_handler" "stock_sqlite3_progress_handler"
        (db: *mut sqlite3, every: c_int, handler: ProgressHandler, argument: *mut c_void);
    blob_open "sqlite3_blob_open" "stock_sqlite3_blob_open"
        (db: *mut sqlite3, schema: *const c_char, table: *const c_char, column: *const c_char, row: i64, flags: c_int,
         blob: *mut *mut sqlite3_blob) -> c_int;
    blob_reopen "sqlite3_blob_reopen" "stock_sqlite3_blob_reopen" (blob: *mut sqlite3_blob, row: i64) -> c_int;
    blob_bytes "sqlite3_blob_bytes" "stock_sqlite3_blob_bytes" (blob: *mut sqlite3_blob) -> c_int;
    blob_read "sqlite3_blob_read" "stock_sqlite3_blob_read"
        (blob: *mut sqlite3_blob, into: *mut c_void, count: c_int, offset: c_int) -> c_int;
    blob_write "sqlite3_blob_write" "stock_sqlite3_blob_write"
        (blob: *mut sqlite3_blob, from: *const c_void, count: c_int, offset: c_int) -> c_int;
    blob_close "sqlite3_blob_close" "stock_sqlite3_blob_close" (blob: *mut sqlite3_blob) -> c_int;
}

const ROW: c_int = 100;
const DONE: c_int = 101;

/// Virtual-machine steps after which a statement of Yesquel's engine is interrupted.
const STEPS_MAX: c_int = 20_000_000;

unsafe extern "C" fn interrupt(_: *mut c_void) -> c_int {
    1
}

/// Engine to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SqlEngine {
    /// SQLite with trees.
    Ours,
    /// Stock SQLite.
    Stock,
}

impl SqlEngine {
    fn functions(self) -> &'static Functions {
        match self {
            SqlEngine::Ours => &OURS,
            SqlEngine::Stock => &STOCK,
        }
    }

    /// Returns the id of its source.
    pub fn source_id(self) -> String {
        // SAFETY: it takes no argument and returns a constant.
        unsafe { text((self.functions().sourceid)()) }
    }
}

/// # Safety
/// The argument is null or a C string.
unsafe fn text(from: *const c_char) -> String {
    if from.is_null() {
        return String::new();
    }
    // SAFETY: as documented.
    unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned()
}

/// Error as an application sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlFailure {
    /// Extended code.
    pub code: i32,
    /// Message.
    pub message: String,
}

/// Row of a result.
pub type ResultRow = Vec<SqlValue>;

/// Connection of one engine, with numbered slots for statements and blobs.
pub struct EngineConnection {
    functions: &'static Functions,
    db: *mut sqlite3,
    statements: [*mut sqlite3_stmt; PLACES],
    blobs: [*mut sqlite3_blob; PLACES],
}

// SAFETY: SQLite allows use from any thread, one at a time.
unsafe impl Send for EngineConnection {}

/// Number of slots for statements and for blobs.
pub const PLACES: usize = 4;

fn zero_ended(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}

impl EngineConnection {
    /// Opens a database; creates it if it does not exist.
    pub fn open(engine: SqlEngine, name: &str) -> Result<EngineConnection, SqlFailure> {
        // Without a call the linker would use libsqlite3-sys instead.
        assert!(yesquel_sqlite::is_linked());
        let (functions, mut db, name) = (engine.functions(), ptr::null_mut(), zero_ended(name));
        let flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI;
        // SAFETY: the name ends with zero, and the pointer to the connection is valid.
        let code = unsafe { (functions.open)(name.as_ptr(), &mut db, flags, ptr::null()) };
        let none = [ptr::null_mut(); PLACES];
        let connection =
            EngineConnection { functions, db, statements: none, blobs: [ptr::null_mut(); PLACES] };
        if code != 0 {
            return Err(connection.failure());
        }
        // SAFETY: the connection is open and the handler uses no argument.
        unsafe { (functions.progress)(db, STEPS_MAX, Some(interrupt), ptr::null_mut()) };
        Ok(connection)
    }

    fn failure(&self) -> SqlFailure {
        // SAFETY: both accept a connection, also one whose opening has failed.
        unsafe {
            SqlFailure {
                code: (self.functions.errcode)(self.db),
                message: text((self.functions.errmsg)(self.db)),
            }
        }
    }

    /// Prepares the first statement of a text. Returns it (null if there is none) and its length.
    fn prepare(&self, sql: &CStr) -> Result<(*mut sqlite3_stmt, usize), SqlFailure> {
        let (mut statement, mut tail) = (ptr::null_mut(), ptr::null());
        // SAFETY: the text ends with zero, and both pointers are valid.
        let code = unsafe { (self.functions.prepare)(self.db, sql.as_ptr(), -1, &mut statement, &mut tail) };
        if code != 0 {
            return Err(self.failure());
        }
        Ok((statement, tail as usize - sql.as_ptr() as usize))
    }

    /// Steps a statement: a row, or `None` at the end.
    fn step(&self, statement: *mut sqlite3_stmt) -> Result<Option<ResultRow>, SqlFailure> {
        // SAFETY: it is a statement of this connection.
        match unsafe { (self.functions.step)(statement) } {
            ROW => Ok(Some(self.row(statement))),
            DONE => Ok(None),
            _ => Err(self.failure()),
        }
    }

    fn row(&self, statement: *mut sqlite3_stmt) -> ResultRow {
        let f = self.functions;
        // SAFETY: the statement is on a row; pointers stay valid until the next call, and have the
        // length that is read after them.
        unsafe {
            let bytes = |from: *const c_void, column| {
                let length = (f.column_bytes)(statement, column) as usize;
                if length == 0 {
                    Box::default()
                } else {
                    slice::from_raw_parts(from.cast::<u8>(), length).into()
                }
            };
            let value = |column| match (f.column_type)(statement, column) {
                SQLITE_INTEGER => SqlValue::Integer((f.column_int64)(statement, column)),
                SQLITE_FLOAT => SqlValue::Real((f.column_double)(statement, column)),
                SQLITE_TEXT => SqlValue::Text(bytes((f.column_text)(statement, column).cast(), column)),
                SQLITE_BLOB => SqlValue::Blob(bytes((f.column_blob)(statement, column), column)),
                SQLITE_NULL => SqlValue::Null,
                other => unreachable!("a value of the type {other}"),
            };
            (0..(f.column_count)(statement)).map(value).collect()
        }
    }

    /// Runs statements until one fails. Returns all rows.
    pub fn run(&self, sql: &str) -> (Vec<ResultRow>, Option<SqlFailure>) {
        let (sql, mut rows) = (zero_ended(sql), Vec::new());
        let mut rest = sql.as_c_str();
        while !rest.is_empty() {
            let (statement, length) = match self.prepare(rest) {
                Ok(prepared) => prepared,
                Err(failure) => return (rows, Some(failure)),
            };
            if !statement.is_null() {
                let ended = loop {
                    match self.step(statement) {
                        Ok(Some(row)) => rows.push(row),
                        Ok(None) => break None,
                        Err(failure) => break Some(failure),
                    }
                };
                // SAFETY: it is not used again.
                unsafe { (self.functions.finalize)(statement) };
                if ended.is_some() {
                    return (rows, ended);
                }
            }
            // SAFETY: the rest of a text that ends with zero does so, too.
            rest = unsafe { CStr::from_ptr(rest.as_ptr().add(length)) };
        }
        (rows, None)
    }

    /// Returns the column names of a statement.
    pub fn columns(&self, sql: &str) -> Result<Vec<String>, SqlFailure> {
        let (statement, _) = self.prepare(&zero_ended(sql))?;
        // SAFETY: a statement has names for all its columns; null has no column.
        unsafe {
            let count = (self.functions.column_count)(statement);
            let names =
                (0..count).map(|column| text((self.functions.column_name)(statement, column))).collect();
            (self.functions.finalize)(statement);
            Ok(names)
        }
    }

    /// Prepares a statement in a slot.
    pub fn open_statement(&mut self, place: usize, sql: &str) -> Result<(), SqlFailure> {
        self.close_statement(place);
        self.statements[place] = self.prepare(&zero_ended(sql))?.0;
        Ok(())
    }

    /// Steps the statement in a slot `count` times.
    pub fn step_statement(&self, place: usize, count: usize) -> (Vec<ResultRow>, Option<SqlFailure>) {
        let (statement, mut rows) = (self.statements[place], Vec::new());
        if !statement.is_null() {
            for _ in 0..count {
                match self.step(statement) {
                    Ok(Some(row)) => rows.push(row),
                    Ok(None) => break,
                    Err(failure) => return (rows, Some(failure)),
                }
            }
        }
        (rows, None)
    }

    /// Closes the statement in a slot.
    pub fn close_statement(&mut self, place: usize) {
        let statement = std::mem::replace(&mut self.statements[place], ptr::null_mut());
        // SAFETY: it is null, or open and not used again.
        unsafe { (self.functions.finalize)(statement) };
    }

    fn done(&self, code: c_int) -> Result<(), SqlFailure> {
        if code == 0 { Ok(()) } else { Err(self.failure()) }
    }

    /// Opens a blob in a slot. Returns its length.
    pub fn open_blob(
        &mut self,
        place: usize,
        (schema, table, column): (&str, &str, &str),
        row: i64,
        writes: bool,
    ) -> Result<usize, SqlFailure> {
        self.close_blob(place)?;
        let (schema, table, column) = (zero_ended(schema), zero_ended(table), zero_ended(column));
        let mut blob = ptr::null_mut();
        // SAFETY: the names end with zero, and the pointer to the blob is valid.
        let code = unsafe {
            let (schema, table, column) = (schema.as_ptr(), table.as_ptr(), column.as_ptr());
            (self.functions.blob_open)(self.db, schema, table, column, row, c_int::from(writes), &mut blob)
        };
        self.done(code)?;
        self.blobs[place] = blob;
        Ok(self.blob_length(place))
    }

    /// Returns the length of the blob in a slot; 0 if there is none.
    pub fn blob_length(&self, place: usize) -> usize {
        // SAFETY: null has length 0.
        unsafe { (self.functions.blob_bytes)(self.blobs[place]) as usize }
    }

    /// Moves the blob in a slot to another row.
    pub fn reopen_blob(&self, place: usize, row: i64) -> Result<usize, SqlFailure> {
        if !self.blobs[place].is_null() {
            // SAFETY: it is open.
            self.done(unsafe { (self.functions.blob_reopen)(self.blobs[place], row) })?;
        }
        Ok(self.blob_length(place))
    }

    /// Reads from the blob in a slot.
    pub fn read_blob(&self, place: usize, offset: i32, count: usize) -> Result<Vec<u8>, SqlFailure> {
        let mut bytes = vec![0; count];
        if !self.blobs[place].is_null() {
            // SAFETY: the buffer has this length.
            self.done(unsafe {
                (self.functions.blob_read)(
                    self.blobs[place],
                    bytes.as_mut_ptr().cast(),
                    count as c_int,
                    offset,
                )
            })?;
        }
        Ok(bytes)
    }

    /// Writes to the blob in a slot.
    pub fn write_blob(&self, place: usize, offset: i32, bytes: &[u8]) -> Result<(), SqlFailure> {
        if self.blobs[place].is_null() {
            return Ok(());
        }
        // SAFETY: the buffer has this length.
        self.done(unsafe {
            (self.functions.blob_write)(
                self.blobs[place],
                bytes.as_ptr().cast(),
                bytes.len() as c_int,
                offset,
            )
        })
    }

    /// Closes the blob in a slot.
    pub fn close_blob(&mut self, place: usize) -> Result<(), SqlFailure> {
        let blob = std::mem::replace(&mut self.blobs[place], ptr::null_mut());
        // SAFETY: it is null, or open and not used again.
        self.done(unsafe { (self.functions.blob_close)(blob) })
    }

    /// Returns the connection's counters: changes of the last statement, all changes, and the last
    /// inserted row.
    pub fn counters(&self) -> (i64, i64, i64) {
        let f = self.functions;
        // SAFETY: the connection is open.
        unsafe { ((f.changes)(self.db), (f.total_changes)(self.db), (f.last_row)(self.db)) }
    }

    /// Sets the last inserted row.
    pub fn set_last_row(&self, row: i64) {
        // SAFETY: the connection is open.
        unsafe { (self.functions.set_last_row)(self.db, row) }
    }

    /// Returns whether it is in autocommit mode, and its transaction state for a schema: none (0),
    /// reading or writing.
    pub fn transaction(&self, schema: &str) -> (bool, i32) {
        let schema = zero_ended(schema);
        // SAFETY: the connection is open.
        unsafe {
            ((self.functions.autocommit)(self.db) != 0, (self.functions.txn_state)(self.db, schema.as_ptr()))
        }
    }

    /// Returns whether it is in no transaction.
    pub fn is_idle(&self) -> bool {
        // SAFETY: the connection is open, and null means all schemas.
        unsafe { (self.functions.txn_state)(self.db, ptr::null()) == 0 }
    }

    /// Returns the database of trees of a schema; `None` for a plain one. Its client is that of the
    /// connection, and has seen all of its commits.
    pub fn database(&self, schema: &str) -> Option<Database> {
        // SAFETY: the connection is open, and only Yesquel's engine knows its structures.
        let is_ours = ptr::eq(self.functions, &OURS);
        let trees = is_ours.then(|| unsafe { DatabaseTrees::of(self.db, schema) }).flatten()?;
        Some(trees.database().clone())
    }

    /// Returns the file or address of a schema.
    pub fn filename(&self, schema: &str) -> String {
        let schema = zero_ended(schema);
        // SAFETY: the connection is open, and owns the name until it is closed.
        unsafe { text((self.functions.filename)(self.db, schema.as_ptr())) }
    }
}

impl Drop for EngineConnection {
    fn drop(&mut self) {
        for place in 0..PLACES {
            self.close_statement(place);
            // Its error was reported before.
            let _ = self.close_blob(place);
        }
        // SAFETY: no statement or blob of it is left.
        let code = unsafe { (self.functions.close)(self.db) };
        assert_eq!(code, 0, "a connection with nothing open is not closed");
    }
}
