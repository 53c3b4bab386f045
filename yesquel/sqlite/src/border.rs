//! Interface to C: the functions that `c/border.c` calls.
//!
//! SQLite holds the connection's mutex during every call, so that no two threads use the state of a
//! connection at the same time.

#![allow(unsafe_code)]

mod cursors;

use crate::{
    address::{AccessMode, DatabaseAddress},
    address_file,
    attached_database::{AttachedDatabase, TreePlace},
    code::ResultCode,
    last_error,
    trees::DatabaseTrees,
};
use libsqlite3_sys::{
    SQLITE_NOMEM, SQLITE_NOTFOUND, SQLITE_OPEN_CREATE, SQLITE_OPEN_READONLY, sqlite3, sqlite3_complete,
    sqlite3_db_mutex, sqlite3_keyword_check, sqlite3_keyword_count, sqlite3_keyword_name,
    sqlite3_libversion_number, sqlite3_mprintf, sqlite3_mutex_enter, sqlite3_mutex_leave, sqlite3_snprintf,
    sqlite3_uri_key, sqlite3_uri_parameter,
};
use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
    slice,
    time::Duration,
};
use yesquel::CancelCheck;

const OK: c_int = 0;

unsafe extern "C" {
    fn yq_is_cancelled(connection: *mut sqlite3) -> c_int;
    fn yq_database_of(connection: *mut sqlite3, name: *const c_char) -> *const c_void;
}

impl DatabaseTrees {
    /// Returns the trees of the connection's database of a name (`main`); `None` for a file or a
    /// database in SQLite's memory.
    ///
    /// # Safety
    /// The connection is open.
    pub unsafe fn of(connection: *mut sqlite3, name: &str) -> Option<DatabaseTrees> {
        let name = CString::new(name).ok()?;
        // SAFETY: as for this function.
        unsafe { trees_of(connection, &name) }
    }
}

/// Returns the trees of the connection's database of a name.
///
/// # Safety
/// The connection is open.
unsafe fn trees_of(connection: *mut sqlite3, name: &CStr) -> Option<DatabaseTrees> {
    // SAFETY: the connection is open, and its mutex keeps other threads from its state; the result
    // is a copy.
    unsafe {
        let mutex = sqlite3_db_mutex(connection);
        sqlite3_mutex_enter(mutex);
        let trees = yq_database_of(connection, name.as_ptr())
            .cast::<AttachedDatabase>()
            .as_ref()
            .map(AttachedDatabase::trees);
        sqlite3_mutex_leave(mutex);
        trees
    }
}

/// Returns the check by which the connection's application cancels a wait for a server.
fn cancel_check_of(connection: *mut sqlite3) -> CancelCheck {
    fn is_cancelled(connection: usize) -> bool {
        // SAFETY: a session calls it only during one of the connection's own functions, on its
        // thread.
        unsafe { yq_is_cancelled(connection as *mut sqlite3) != 0 }
    }
    CancelCheck { is_cancelled, argument: connection as usize }
}

/// Returns whether a text ends with a complete statement, outside of strings and triggers.
pub(crate) fn is_complete(sql: &CStr) -> bool {
    // SAFETY: it is a C string.
    unsafe { sqlite3_complete(sql.as_ptr()) != 0 }
}

/// Returns whether a word is a keyword of SQL.
pub(crate) fn is_keyword(word: &str) -> bool {
    let Ok(length) = c_int::try_from(word.len()) else { return false };
    // SAFETY: the word has this length.
    unsafe { sqlite3_keyword_check(word.as_ptr().cast(), length) != 0 }
}

/// Returns all keywords of SQL.
pub(crate) fn keywords() -> Vec<String> {
    let mut all = Vec::new();
    // SAFETY: each is a constant of SQLite with this length.
    unsafe {
        for number in 0..sqlite3_keyword_count() {
            let (mut word, mut length) = (std::ptr::null(), 0);
            if sqlite3_keyword_name(number, &mut word, &mut length) == OK {
                let bytes = bytes(word.cast(), length.unsigned_abs());
                all.push(String::from_utf8_lossy(bytes).into_owned());
            }
        }
    }
    all
}

/// Formats a number as SQLite does.
pub(crate) fn text_of_real(number: f64) -> String {
    let mut text = [0u8; 64];
    // SAFETY: the buffer has this length, and the text ends with zero.
    unsafe {
        sqlite3_snprintf(text.len() as c_int, text.as_mut_ptr().cast(), c"%!.17g".as_ptr(), number);
    }
    CStr::from_bytes_until_nul(&text).unwrap_or_default().to_string_lossy().into_owned()
}

pub(crate) fn is_linked() -> bool {
    // SAFETY: it takes no argument and reads a constant.
    unsafe { sqlite3_libversion_number() == libsqlite3_sys::SQLITE_VERSION_NUMBER }
}

/// Converts an outcome to SQLite's code. A panic must not unwind through C.
fn answer(act: impl FnOnce() -> Result<c_int, ResultCode>) -> c_int {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(Ok(code)) => code,
        Ok(Err(ResultCode(code))) => code,
        Err(_) => ResultCode::INTERNAL.0,
    }
}

/// # Safety
/// The argument is null or a C string.
unsafe fn text<'a>(bytes: *const c_char) -> Option<&'a str> {
    // SAFETY: as documented.
    if bytes.is_null() { None } else { unsafe { CStr::from_ptr(bytes) }.to_str().ok() }
}

/// # Safety
/// The pointer refers to `length` bytes, or the length is 0.
unsafe fn bytes<'a>(bytes: *const u8, length: u32) -> &'a [u8] {
    // SAFETY: as documented.
    if length == 0 { &[] } else { unsafe { slice::from_raw_parts(bytes, length as usize) } }
}

/// Returns the address that a name is or that the file of this name contains; `NOTFOUND` if there
/// is none.
#[unsafe(no_mangle)]
unsafe extern "C" fn yq_address(name: *const c_char, address: *mut *mut c_char) -> c_int {
    answer(|| {
        // SAFETY: SQLite's names end with zero.
        let found = unsafe { text(name) }.and_then(address_file::of_name);
        let Some(found) = found.and_then(|found| CString::new(found).ok()) else {
            return Ok(SQLITE_NOTFOUND);
        };
        // SAFETY: makes a copy in SQLite's memory, for C to free.
        let copy = unsafe { sqlite3_mprintf(c"%s".as_ptr(), found.as_ptr()) };
        if copy.is_null() {
            return Ok(SQLITE_NOMEM);
        }
        // SAFETY: C passes a valid pointer.
        unsafe { *address = copy };
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_open(
    name: *const c_char,
    address: *const c_char,
    flags: c_int,
    others: *const *mut AttachedDatabase,
    count: c_int,
    connection: *mut sqlite3,
    opened: *mut *mut AttachedDatabase,
) -> c_int {
    answer(|| {
        // SAFETY: the name is one of SQLite's own, followed by its parameters, and the others are
        // open databases of the same connection.
        let (address, others) = unsafe {
            let mut options = Vec::new();
            for index in 0.. {
                let key = sqlite3_uri_key(name, index);
                let Some(option) = text(key) else { break };
                options.push((option, text(sqlite3_uri_parameter(name, key)).unwrap_or_default()));
            }
            let address = DatabaseAddress::parse(text(address).ok_or(ResultCode::CANTOPEN)?, options);
            let others = (0..count as usize).filter_map(|index| (*others.add(index)).as_ref());
            (address, others.collect::<Vec<&AttachedDatabase>>())
        };
        let address = address.map_err(|error| {
            last_error::set(ResultCode::CANTOPEN, error);
            last_error::record_address_error();
            ResultCode::CANTOPEN
        })?;
        let modes = (
            flags & SQLITE_OPEN_READONLY != 0 || address.mode == AccessMode::ReadOnly,
            flags & SQLITE_OPEN_CREATE != 0 && address.mode == AccessMode::Any,
        );
        let cancel_check = cancel_check_of(connection);
        let _waits = cancel_check.begin();
        let attached = AttachedDatabase::open(&address, modes, &others, cancel_check).map_err(|error| {
            let code = ResultCode::from(&error);
            last_error::set(code, format!("{address}: {error}"));
            last_error::record_kind(&error);
            code
        })?;
        // SAFETY: C passes a valid pointer.
        unsafe { *opened = Box::into_raw(Box::new(attached)) };
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_close(attached: *mut AttachedDatabase) {
    answer(|| {
        // SAFETY: it comes from yq_open, and is not used again.
        drop(unsafe { Box::from_raw(attached) });
        Ok(OK)
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_is_readonly(attached: &AttachedDatabase) -> c_int {
    c_int::from(attached.is_readonly)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_begin(attached: &mut AttachedDatabase, only_reads: c_int, cookie: &mut u32) -> c_int {
    last_error::forget();
    answer(|| {
        *cookie = attached.begin(only_reads != 0)?;
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_commit(attached: &mut AttachedDatabase, wait_ms: c_int) -> c_int {
    answer(|| attached.commit(wait_of(wait_ms)).map(|()| OK))
}

fn wait_of(ms: c_int) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or_default())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_end(attached: &mut AttachedDatabase, keeps_transaction: c_int) {
    answer(|| {
        attached.end(keeps_transaction != 0);
        Ok(OK)
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_known_cookie(attached: &AttachedDatabase, cookie: &mut u32) -> c_int {
    answer(|| {
        let known = attached.known_cookie().ok_or(ResultCode::DONE)?;
        *cookie = known;
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_end_kept_transaction(attached: &mut AttachedDatabase) {
    answer(|| {
        attached.end_kept_transaction();
        Ok(OK)
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_rollback(attached: &mut AttachedDatabase) {
    answer(|| {
        attached.session.borrow_mut().rollback();
        Ok(OK)
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_open_savepoints(attached: &mut AttachedDatabase, count: c_int) -> c_int {
    answer(|| attached.session.borrow_mut().open_savepoints(usize::try_from(count).unwrap_or(0)).map(|()| OK))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_savepoint(
    attached: &mut AttachedDatabase,
    is_rollback: c_int,
    number: c_int,
) -> c_int {
    answer(|| {
        let number = usize::try_from(number).ok();
        attached.session.borrow_mut().savepoint(is_rollback != 0, number).map(|()| OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_create(attached: &mut AttachedDatabase, beside: c_int, root: &mut u32) -> c_int {
    answer(|| {
        let place = match u32::try_from(beside) {
            Ok(0) => TreePlace::Any,
            Ok(table) => TreePlace::Table(table),
            Err(_) => TreePlace::LastTable,
        };
        *root = attached.create(place)?;
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_clear(attached: &mut AttachedDatabase, root: u32, changes: *mut i64) -> c_int {
    answer(|| {
        let count = attached.clear(root, !changes.is_null())?;
        // SAFETY: null or a valid pointer.
        if let Some(changes) = unsafe { changes.as_mut() } {
            *changes = count;
        }
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_drop(attached: &mut AttachedDatabase, root: u32) -> c_int {
    answer(|| attached.drop_tree(root).map(|()| OK))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_meta(attached: &mut AttachedDatabase, index: c_int, value: &mut u32) -> c_int {
    answer(|| {
        *value = attached.meta(usize::try_from(index).unwrap_or(usize::MAX))?;
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_prove(attached: &mut AttachedDatabase) -> c_int {
    answer(|| attached.prove().map(|()| OK))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_set_meta(attached: &mut AttachedDatabase, index: c_int, value: u32) -> c_int {
    answer(|| attached.set_meta(usize::try_from(index).unwrap_or(usize::MAX), value).map(|()| OK))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_check(attached: &mut AttachedDatabase, root: u32, count: &mut i64) -> c_int {
    answer(|| {
        *count = attached.check(root)?;
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_pages(attached: &AttachedDatabase, page_bytes: u32, pages: &mut u32) -> c_int {
    answer(|| {
        let count = attached.pages(u64::from(page_bytes))?;
        // SQLite's largest number of a page.
        *pages = u32::try_from(count).unwrap_or(u32::MAX).min(u32::MAX - 1);
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_keep(attached: &mut AttachedDatabase, bytes: i64) {
    answer(|| {
        attached.keep(usize::try_from(bytes).unwrap_or_default());
        Ok(OK)
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_lease(
    attached: &AttachedDatabase,
    all: *const *mut AttachedDatabase,
    count: c_int,
    wait_ms: c_int,
) -> c_int {
    answer(|| {
        // SAFETY: they are open databases of the same connection.
        let all: Vec<_> =
            unsafe { (0..count as usize).filter_map(|index| (*all.add(index)).as_ref()).collect() };
        attached.lease(&all, wait_of(wait_ms)).map(|()| OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_stop_waiting(attached: &AttachedDatabase) {
    answer(|| {
        attached.stop_waiting();
        Ok(OK)
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_wants_turn(attached: &mut AttachedDatabase) {
    answer(|| {
        attached.wants_turn();
        Ok(OK)
    });
}

/// Returns this thread's last message if it belongs to a code.
#[unsafe(no_mangle)]
extern "C" fn yq_message(code: c_int) -> *const c_char {
    last_error::of(ResultCode(code))
}
