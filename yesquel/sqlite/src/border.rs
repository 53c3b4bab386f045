//! The border to C: what `c/border.c` calls.
//!
//! SQLite holds the connection's mutex whenever it calls, so that what belongs
//! to a connection is never used by two threads at a time.

#![allow(unsafe_code)]

use crate::{
    address::{self, Address},
    key::{Collation, Column, Encoding, Field},
    scan::{Form, Scan, Seek},
    session::Code,
    side::Side,
    told,
    trees::Trees,
};
use libsqlite3_sys::{
    SQLITE_BLOB, SQLITE_FLOAT, SQLITE_INTEGER, SQLITE_NOMEM, SQLITE_NOTFOUND, SQLITE_NULL,
    SQLITE_OPEN_CREATE, SQLITE_OPEN_READONLY, SQLITE_TEXT, sqlite3, sqlite3_complete, sqlite3_db_mutex,
    sqlite3_keyword_check, sqlite3_keyword_count, sqlite3_keyword_name, sqlite3_libversion_number,
    sqlite3_mprintf, sqlite3_mutex_enter, sqlite3_mutex_leave, sqlite3_snprintf, sqlite3_uri_key,
    sqlite3_uri_parameter,
};
use std::{
    cmp::Ordering,
    ffi::{CStr, CString, c_char, c_int, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
    slice,
};
use yesquel::Patience;

const OK: c_int = 0;

/// Where a cursor stands, for C. It lives in C's cursor, and points into the
/// scan's record.
#[repr(C)]
pub(crate) struct Place {
    record: *const u8,
    length: u32,
    row: i64,
}

#[repr(C)]
pub(crate) struct CField {
    kind: u8,
    integer: i64,
    real: f64,
    bytes: *const u8,
    length: u32,
    zeros: u32,
}

#[repr(C)]
pub(crate) struct CForm {
    columns: u16,
    all: u16,
    encoding: u8,
    sorts: *const u8,
    collations: *const u8,
}

const ORDER_DESC: u8 = 1;

/// Compares records as an index's columns are compared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Comparer(*mut c_void);

/// What is looked for in an index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sought(*mut c_void);

unsafe extern "C" {
    fn yq_gives_up(connection: *mut sqlite3) -> c_int;
    fn yq_side_of(connection: *mut sqlite3, name: *const c_char) -> *const c_void;
    fn yq_compare_sought(record: *const u8, length: u32, sought: *mut c_void, fields: c_int) -> c_int;
    fn yq_compare_records(
        key_info: *mut c_void,
        left: *const u8,
        left_length: u32,
        right: *const u8,
        right_length: u32,
        fields: c_int,
        result: *mut c_int,
    ) -> c_int;
}

/// As the C of SQLite reads a record: a few bytes beyond its end, whatever they
/// are.
fn padded(record: &[u8]) -> Vec<u8> {
    [record, &[0; 9]].concat()
}

impl Comparer {
    pub(crate) fn compare(self, left: &[u8], right: &[u8], fields: usize) -> Result<Ordering, Code> {
        let (mut result, one, other) = (0, padded(left), padded(right));
        // SAFETY: a scan has the key information of its cursor, which outlives
        // it; the records have so many bytes, and some more.
        let code = unsafe {
            yq_compare_records(
                self.0,
                one.as_ptr(),
                left.len() as u32,
                other.as_ptr(),
                right.len() as u32,
                fields as c_int,
                &mut result,
            )
        };
        if code == OK { Ok(result.cmp(&0)) } else { Err(Code(code)) }
    }
}

impl Sought {
    pub(crate) fn compare(self, record: &[u8], fields: usize) -> Ordering {
        let own = padded(record);
        // SAFETY: it lives as long as the call of yq_seek_fields that has it.
        let result = unsafe { yq_compare_sought(own.as_ptr(), record.len() as u32, self.0, fields as c_int) };
        result.cmp(&0)
    }
}

/// What a connection has at trees as its database of a name.
///
/// # Safety
/// The connection is open.
pub(crate) unsafe fn trees_of(connection: *mut sqlite3, name: &CStr) -> Option<Trees> {
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
        let modes = (flags & SQLITE_OPEN_READONLY != 0, flags & SQLITE_OPEN_CREATE != 0);
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
unsafe extern "C" fn yq_cursor(
    side: &mut Side,
    root: u32,
    form: &CForm,
    key_info: *mut c_void,
    opened: *mut *mut Scan,
) -> c_int {
    answer(|| {
        // SAFETY: there are as many of both as there are columns.
        let (sorts, collations) = unsafe {
            let columns = u32::from(form.columns);
            (bytes(form.sorts, columns), bytes(form.collations, columns))
        };
        let columns = sorts.iter().zip(collations).map(|(sort, collation)| Column {
            is_descending: sort & ORDER_DESC != 0,
            collation: match collation {
                0 => Collation::Binary,
                1 => Collation::Nocase,
                2 => Collation::Rtrim,
                _ => Collation::Other,
            },
        });
        let encoding = match form.encoding {
            2 => Encoding::Utf16Le,
            3 => Encoding::Utf16Be,
            _ => Encoding::Utf8,
        };
        let form = (form.columns > 0).then(|| Form {
            columns: columns.collect(),
            is_table: form.columns < form.all,
            encoding,
        });
        let scan = Box::new(Scan::new(side, root, form, Comparer(key_info))?);
        // SAFETY: C gives room for it.
        unsafe { *opened = Box::into_raw(scan) };
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_close_cursor(scan: *mut Scan) {
    answer(|| {
        // SAFETY: it is of yq_cursor, and is not used again.
        drop(unsafe { Box::from_raw(scan) });
        Ok(OK)
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_follow(scan: &mut Scan, side: &Side, root: u32) {
    answer(|| {
        scan.follow(side.map(root));
        Ok(OK)
    });
}

/// Says where the scan stands, if it does.
fn arrived(scan: &Scan, place: &mut Place, is_there: bool) -> c_int {
    if !is_there {
        return Code::DONE.0;
    }
    let record = scan.record();
    *place = Place { record: record.as_ptr(), length: record.len() as u32, row: scan.row() };
    OK
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_first(scan: &mut Scan, place: &mut Place) -> c_int {
    answer(|| scan.first().map(|is_there| arrived(scan, place, is_there)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_last(scan: &mut Scan, place: &mut Place) -> c_int {
    answer(|| scan.last().map(|is_there| arrived(scan, place, is_there)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_next(scan: &mut Scan, place: &mut Place) -> c_int {
    answer(|| scan.next().map(|is_there| arrived(scan, place, is_there)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_previous(scan: &mut Scan, place: &mut Place) -> c_int {
    answer(|| scan.previous().map(|is_there| arrived(scan, place, is_there)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_restore(scan: &mut Scan, place: &mut Place, result: &mut c_int) -> c_int {
    answer(|| {
        let restored = scan.restore()?;
        *result = restored.unwrap_or(0);
        Ok(arrived(scan, place, restored.is_some()))
    })
}

fn seek(kind: c_int) -> Seek {
    match kind {
        1 => Seek::Less,
        2 => Seek::LessOrEqual,
        3 => Seek::GreaterOrEqual,
        4 => Seek::Greater,
        _ => Seek::Exact,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_seek_row(
    scan: &mut Scan,
    row: i64,
    kind: c_int,
    place: &mut Place,
    result: &mut c_int,
) -> c_int {
    answer(|| {
        let arrival = scan.seek_row(row, seek(kind))?;
        *result = arrival.unwrap_or(-1);
        Ok(arrived(scan, place, arrival.is_some()))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_seek_fields(
    scan: &mut Scan,
    fields: *const CField,
    count: c_int,
    sought: *mut c_void,
    kind: c_int,
    place: &mut Place,
    result: &mut c_int,
    is_equal: &mut u8,
) -> c_int {
    answer(|| {
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: there are so many, and each has the bytes that it says.
        let fields = unsafe { if count == 0 { &[] } else { slice::from_raw_parts(fields, count) } };
        let field = |field: &CField| {
            // SAFETY: as above.
            let value = unsafe { bytes(field.bytes, field.length) };
            match c_int::from(field.kind) {
                SQLITE_INTEGER => Field::Integer(field.integer),
                SQLITE_FLOAT => Field::Real(field.real),
                SQLITE_TEXT => Field::Text(value),
                SQLITE_BLOB => Field::Blob(value, field.zeros),
                _ => Field::Null,
            }
        };
        let fields: Vec<Field<'_>> = fields.iter().map(field).collect();
        let arrival = scan.seek_fields(&fields, Sought(sought), seek(kind))?;
        *result = arrival.map_or(-1, |arrival| arrival.place);
        *is_equal |= u8::from(arrival.is_some_and(|arrival| arrival.is_equal));
        Ok(arrived(scan, place, arrival.is_some()))
    })
}

const _: () = assert!(SQLITE_NULL == 5);

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_put_row(
    scan: &mut Scan,
    row: i64,
    record: *const u8,
    length: u32,
    zeros: u32,
) -> c_int {
    answer(|| {
        // SAFETY: so many bytes are there.
        let record = unsafe { bytes(record, length) };
        if zeros == 0 {
            return scan.put_row(row, record).map(|()| OK);
        }
        let mut whole = Vec::with_capacity(record.len() + zeros as usize);
        whole.extend_from_slice(record);
        whole.resize(record.len() + zeros as usize, 0);
        scan.put_row(row, &whole).map(|()| OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_put_entry(scan: &mut Scan, record: *const u8, length: u32) -> c_int {
    answer(|| {
        // SAFETY: so many bytes are there.
        scan.put_entry(unsafe { bytes(record, length) }).map(|()| OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_delete(scan: &mut Scan) -> c_int {
    answer(|| scan.delete().map(|()| OK))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_count(scan: &mut Scan, count: &mut i64) -> c_int {
    answer(|| {
        *count = scan.count()?;
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_new_row(scan: &mut Scan, above: i64, row: &mut i64) -> c_int {
    answer(|| {
        let Some(number) = scan.new_row(above)? else { return Ok(Code::DONE.0) };
        *row = number;
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_new_sequence(
    scan: &mut Scan,
    side: &Side,
    sequences: u32,
    has_row: c_int,
    row: i64,
    above: i64,
    name: *const c_char,
    number: &mut i64,
) -> c_int {
    answer(|| {
        // SAFETY: null, or a string of C.
        let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_bytes());
        let sequences = side.map(sequences).ok_or(Code::CORRUPT)?;
        let row = (has_row != 0).then_some(row);
        *number = scan.new_sequence(sequences, row, above, name)?;
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_expect_sequence(scan: &mut Scan, table: u32) {
    answer(|| {
        scan.expect_sequence(u64::from(table));
        Ok(OK)
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_put_sequence(scan: &mut Scan, row: i64, record: *const u8, length: u32) -> c_int {
    answer(|| {
        // SAFETY: so many bytes are there.
        let record = unsafe { bytes(record, length) };
        scan.put_sequence(row, record).map(|()| OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_show_sequence(scan: &mut Scan) {
    answer(|| {
        scan.show_sequences();
        Ok(OK)
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_guard_sought(scan: &mut Scan) -> c_int {
    answer(|| scan.guard_sought().map(|()| OK))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_guard_row(scan: &mut Scan, row: i64) -> c_int {
    answer(|| scan.guard_row(row).map(|()| OK))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_guard_all(scan: &mut Scan) -> c_int {
    answer(|| scan.guard_all().map(|()| OK))
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
