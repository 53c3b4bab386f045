//! The border to C: what `c/border.c` calls.
//!
//! SQLite holds the connection's mutex whenever it calls, so that what belongs
//! to a connection is never used by two threads at a time.

#![allow(unsafe_code)]

mod cursors;

use crate::{
    address::{self, Address, Mode},
    code::Code,
    side::Side,
    told,
    trees::Trees,
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
};
use yesquel::Patience;

const OK: c_int = 0;

unsafe extern "C" {
    fn yq_gives_up(connection: *mut sqlite3) -> c_int;
    fn yq_side_of(connection: *mut sqlite3, name: *const c_char) -> *const c_void;
}

impl Trees {
    /// Those of a connection's database of a name (`main`); none, if it is a
    /// plain file or in SQLite's memory.
    ///
    /// # Safety
    /// The connection is open.
    pub unsafe fn of(connection: *mut sqlite3, name: &str) -> Option<Trees> {
        let name = CString::new(name).ok()?;
        // SAFETY: as for this function.
        unsafe { trees_of(connection, &name) }
    }
}

/// What a connection has at trees as its database of a name.
///
/// # Safety
/// The connection is open.
unsafe fn trees_of(connection: *mut sqlite3, name: &CStr) -> Option<Trees> {
    // SAFETY: the connection is open, and nobody else uses what belongs to it
    // while its mutex is held; what is taken out of it is a copy.
    unsafe {
        let mutex = sqlite3_db_mutex(connection);
        sqlite3_mutex_enter(mutex);
        let trees = yq_side_of(connection, name.as_ptr()).cast::<Side>().as_ref().map(Side::trees);
        sqlite3_mutex_leave(mutex);
        trees
    }
}

/// What a connection's application says while a server is waited for.
fn patience_of(connection: *mut sqlite3) -> Patience {
    fn is_over(connection: usize) -> bool {
        // SAFETY: a session has it begin only while one of the connection's own
        // functions runs, on its thread.
        unsafe { yq_gives_up(connection as *mut sqlite3) != 0 }
    }
    Patience { is_over, of: connection as usize }
}

/// Whether a text has a statement's end, outside of strings and triggers.
pub(crate) fn is_complete(sql: &CStr) -> bool {
    // SAFETY: it is a string of C.
    unsafe { sqlite3_complete(sql.as_ptr()) != 0 }
}

/// Whether a word is one of SQL's own.
pub(crate) fn is_keyword(word: &str) -> bool {
    let Ok(length) = c_int::try_from(word.len()) else { return false };
    // SAFETY: there are so many bytes.
    unsafe { sqlite3_keyword_check(word.as_ptr().cast(), length) != 0 }
}

/// All of them.
pub(crate) fn keywords() -> Vec<String> {
    let mut all = Vec::new();
    // SAFETY: each is a constant of SQLite's with so many bytes.
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

/// A number as SQLite makes text of it.
pub(crate) fn text_of_real(number: f64) -> String {
    let mut text = [0u8; 64];
    // SAFETY: there is so much room, and it is ended by zero.
    unsafe {
        sqlite3_snprintf(text.len() as c_int, text.as_mut_ptr().cast(), c"%!.17g".as_ptr(), number);
    }
    CStr::from_bytes_until_nul(&text).unwrap_or_default().to_string_lossy().into_owned()
}

pub(crate) fn is_linked() -> bool {
    // SAFETY: it takes nothing and reads a constant.
    unsafe { sqlite3_libversion_number() == libsqlite3_sys::SQLITE_VERSION_NUMBER }
}

/// What C is told of an outcome. A panic of ours must not go through C.
fn answer(act: impl FnOnce() -> Result<c_int, Code>) -> c_int {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(Ok(code)) => code,
        Ok(Err(Code(code))) => code,
        Err(_) => Code::INTERNAL.0,
    }
}

/// # Safety
/// It is a string of C, or null.
unsafe fn text<'a>(bytes: *const c_char) -> Option<&'a str> {
    // SAFETY: as said.
    if bytes.is_null() { None } else { unsafe { CStr::from_ptr(bytes) }.to_str().ok() }
}

/// # Safety
/// They are so many bytes, or none.
unsafe fn bytes<'a>(bytes: *const u8, length: u32) -> &'a [u8] {
    // SAFETY: as said.
    if length == 0 { &[] } else { unsafe { slice::from_raw_parts(bytes, length as usize) } }
}

/// The address that a name is, or that stands in the file of that name; not
/// found, if it is neither.
#[unsafe(no_mangle)]
unsafe extern "C" fn yq_address(name: *const c_char, address: *mut *mut c_char) -> c_int {
    answer(|| {
        // SAFETY: SQLite's names end with zero.
        let found = unsafe { text(name) }.and_then(address::of_name);
        let Some(found) = found.and_then(|found| CString::new(found).ok()) else {
            return Ok(SQLITE_NOTFOUND);
        };
        // SAFETY: it is a copy in SQLite's memory, for C to free.
        let copy = unsafe { sqlite3_mprintf(c"%s".as_ptr(), found.as_ptr()) };
        if copy.is_null() {
            return Ok(SQLITE_NOMEM);
        }
        // SAFETY: C gives room for it.
        unsafe { *address = copy };
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_open(
    name: *const c_char,
    address: *const c_char,
    flags: c_int,
    others: *const *mut Side,
    count: c_int,
    connection: *mut sqlite3,
    opened: *mut *mut Side,
) -> c_int {
    answer(|| {
        // SAFETY: the name is one of SQLite's own, with its parameters behind it,
        // and the others are of the same connection and open.
        let (address, others) = unsafe {
            let mut options = Vec::new();
            for index in 0.. {
                let key = sqlite3_uri_key(name, index);
                let Some(option) = text(key) else { break };
                options.push((option, text(sqlite3_uri_parameter(name, key)).unwrap_or_default()));
            }
            let address = Address::parse(text(address).ok_or(Code::CANTOPEN)?, options);
            let others = (0..count as usize).filter_map(|index| (*others.add(index)).as_ref());
            (address, others.collect::<Vec<&Side>>())
        };
        let address = address.map_err(|error| {
            told::say(Code::CANTOPEN, error);
            told::because_of_address();
            Code::CANTOPEN
        })?;
        let modes = (
            flags & SQLITE_OPEN_READONLY != 0 || address.mode == Mode::ReadOnly,
            flags & SQLITE_OPEN_CREATE != 0 && address.mode == Mode::Any,
        );
        let patience = patience_of(connection);
        let _waits = patience.begin();
        let side = Side::open(&address, modes, &others, patience).map_err(|error| {
            let code = Code::from(&error);
            told::say(code, format!("{address}: {error}"));
            told::because(&error);
            code
        })?;
        // SAFETY: C gives room for it.
        unsafe { *opened = Box::into_raw(Box::new(side)) };
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_close(side: *mut Side) {
    answer(|| {
        // SAFETY: it is of yq_open, and is not used again.
        drop(unsafe { Box::from_raw(side) });
        Ok(OK)
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_is_readonly(side: &Side) -> c_int {
    c_int::from(side.is_readonly)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_begin(side: &mut Side, cookie: &mut u32) -> c_int {
    told::forget();
    answer(|| {
        *cookie = side.begin()?;
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_commit(side: &mut Side) -> c_int {
    answer(|| side.commit().map(|()| OK))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_end(side: &mut Side, goes_on: c_int) {
    answer(|| {
        side.end(goes_on != 0);
        Ok(OK)
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_known_cookie(side: &Side, cookie: &mut u32) -> c_int {
    answer(|| {
        let known = side.known_cookie().ok_or(Code::DONE)?;
        *cookie = known;
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_let_go(side: &mut Side) {
    answer(|| {
        side.let_go();
        Ok(OK)
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_rollback(side: &mut Side) {
    answer(|| {
        side.session.borrow_mut().rollback();
        Ok(OK)
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_open_savepoints(side: &mut Side, count: c_int) -> c_int {
    answer(|| side.session.borrow_mut().open_savepoints(usize::try_from(count).unwrap_or(0)).map(|()| OK))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_savepoint(side: &mut Side, is_rollback: c_int, number: c_int) -> c_int {
    answer(|| {
        let number = usize::try_from(number).ok();
        side.session.borrow_mut().savepoint(is_rollback != 0, number).map(|()| OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_create(side: &mut Side, root: &mut u32) -> c_int {
    answer(|| {
        *root = side.create()?;
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_clear(side: &mut Side, root: u32, changes: *mut i64) -> c_int {
    answer(|| {
        let count = side.clear(root, !changes.is_null())?;
        // SAFETY: null, or room for a number.
        if let Some(changes) = unsafe { changes.as_mut() } {
            *changes = count;
        }
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_drop(side: &mut Side, root: u32) -> c_int {
    answer(|| side.drop_tree(root).map(|()| OK))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_meta(side: &mut Side, index: c_int, value: &mut u32) -> c_int {
    answer(|| {
        *value = side.meta(usize::try_from(index).unwrap_or(usize::MAX))?;
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_prove(side: &mut Side) -> c_int {
    answer(|| side.prove().map(|()| OK))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_set_meta(side: &mut Side, index: c_int, value: u32) -> c_int {
    answer(|| side.set_meta(usize::try_from(index).unwrap_or(usize::MAX), value).map(|()| OK))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_check(side: &mut Side, root: u32, count: &mut i64) -> c_int {
    answer(|| {
        *count = side.check(root)?;
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_size(side: &mut Side, size: &mut i64) -> c_int {
    answer(|| {
        *size = i64::try_from(side.size()).unwrap_or(i64::MAX);
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_keep(side: &mut Side, bytes: i64) {
    answer(|| {
        side.keep(usize::try_from(bytes).unwrap_or_default());
        Ok(OK)
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_lease(side: &mut Side) -> c_int {
    answer(|| side.lease().map(|()| OK))
}

/// What was told last with a code, by this thread.
#[unsafe(no_mangle)]
extern "C" fn yq_message(code: c_int) -> *const c_char {
    told::of(Code(code))
}
