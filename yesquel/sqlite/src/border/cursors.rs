//! Cursor functions of the interface to C.

use super::{OK, answer, bytes};
use crate::{
    attached_database::AttachedDatabase,
    code::ResultCode,
    compare::{Comparer, Sought},
    form::KeyForm,
    key::{Collation, Encoding, Field, KeyColumn},
    scan::TreeScan,
    seek::Seek,
};
use libsqlite3_sys::{SQLITE_BLOB, SQLITE_FLOAT, SQLITE_INTEGER, SQLITE_NULL, SQLITE_TEXT};
use std::{
    ffi::{CStr, c_char, c_int, c_void},
    slice,
};

/// Position of a cursor, for C. It is part of C's cursor, and points into the scan's record.
#[repr(C)]
pub(crate) struct RecordPosition {
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
    refers: u8,
    places: *const u8,
}

const ORDER_DESC: u8 = 1;
const PLACE_DESC: u8 = 0x80;

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_cursor(
    attached: &mut AttachedDatabase,
    root: u32,
    form: &CForm,
    key_info: *mut c_void,
    opened: *mut *mut TreeScan,
) -> c_int {
    answer(|| {
        // SAFETY: both arrays have as many elements as there are columns.
        let (sorts, collations) = unsafe {
            let columns = u32::from(form.columns);
            (bytes(form.sorts, columns), bytes(form.collations, columns))
        };
        let columns = sorts.iter().zip(collations).map(|(sort, collation)| KeyColumn {
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
        // SAFETY: the array has this length.
        let places = unsafe { bytes(form.places, u32::from(form.refers)) };
        let form = (form.columns > 0).then(|| {
            let columns: Vec<KeyColumn> = columns.collect();
            let refers = places.iter().filter_map(|place| {
                let at = usize::from(place & !PLACE_DESC);
                let column = columns.get(at)?;
                Some((at, KeyColumn { is_descending: place & PLACE_DESC != 0, ..*column }))
            });
            KeyForm { refers: refers.collect(), columns, is_table: form.columns < form.all, encoding }
        });
        let scan = Box::new(TreeScan::new(attached, root, form, Comparer(key_info))?);
        // SAFETY: C passes a valid pointer.
        unsafe { *opened = Box::into_raw(scan) };
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_close_cursor(scan: *mut TreeScan) {
    answer(|| {
        // SAFETY: it comes from yq_cursor, and is not used again.
        drop(unsafe { Box::from_raw(scan) });
        Ok(OK)
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_follow(scan: &mut TreeScan, attached: &AttachedDatabase, root: u32) {
    answer(|| {
        scan.follow(attached.map(root).ok());
        Ok(OK)
    });
}

/// Reports the position of the scan, if it is on an entry.
fn arrived(scan: &TreeScan, place: &mut RecordPosition, is_there: bool) -> c_int {
    if !is_there {
        return ResultCode::DONE.0;
    }
    let record = scan.record();
    *place = RecordPosition { record: record.as_ptr(), length: record.len() as u32, row: scan.row() };
    OK
}

/// Replaces the record at a cursor by a copy with bytes after its end. SQLite keeps pointers into
/// the copy, so that the second call for a row makes no other.
#[unsafe(no_mangle)]
unsafe extern "C" fn yq_pad(scan: &mut TreeScan, place: &mut RecordPosition) {
    answer(|| {
        if !scan.is_padded(place.record) {
            place.record = scan.padded_record().as_ptr();
        }
        Ok(OK)
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_first(scan: &mut TreeScan, place: &mut RecordPosition) -> c_int {
    answer(|| scan.first().map(|is_there| arrived(scan, place, is_there)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_last(scan: &mut TreeScan, place: &mut RecordPosition) -> c_int {
    answer(|| scan.last().map(|is_there| arrived(scan, place, is_there)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_next(scan: &mut TreeScan, place: &mut RecordPosition) -> c_int {
    answer(|| scan.next().map(|is_there| arrived(scan, place, is_there)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_previous(scan: &mut TreeScan, place: &mut RecordPosition) -> c_int {
    answer(|| scan.previous().map(|is_there| arrived(scan, place, is_there)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_restore(
    scan: &mut TreeScan,
    place: &mut RecordPosition,
    result: &mut c_int,
) -> c_int {
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
    scan: &mut TreeScan,
    row: i64,
    kind: c_int,
    place: &mut RecordPosition,
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
    scan: &mut TreeScan,
    fields: *const CField,
    count: c_int,
    sought: *mut c_void,
    kind: c_int,
    place: &mut RecordPosition,
    result: &mut c_int,
    is_equal: &mut u8,
) -> c_int {
    answer(|| {
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: the array has this length, and each element the bytes that it states.
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
    scan: &mut TreeScan,
    row: i64,
    record: *const u8,
    length: u32,
    zeros: u32,
) -> c_int {
    answer(|| {
        // SAFETY: the pointer refers to this many bytes.
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
unsafe extern "C" fn yq_put_entry(scan: &mut TreeScan, record: *const u8, length: u32) -> c_int {
    answer(|| {
        // SAFETY: the pointer refers to this many bytes.
        scan.put_entry(unsafe { bytes(record, length) }).map(|()| OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_delete(scan: &mut TreeScan) -> c_int {
    answer(|| scan.delete().map(|()| OK))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_count(scan: &mut TreeScan, count: &mut i64) -> c_int {
    answer(|| {
        *count = scan.count()?;
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_new_row(scan: &mut TreeScan, above: i64, row: &mut i64) -> c_int {
    answer(|| {
        let Some(number) = scan.new_row(above)? else { return Ok(ResultCode::DONE.0) };
        *row = number;
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_new_sequence(
    scan: &mut TreeScan,
    attached: &AttachedDatabase,
    sequences: u32,
    has_row: c_int,
    row: i64,
    above: i64,
    name: *const c_char,
    number: &mut i64,
) -> c_int {
    answer(|| {
        // SAFETY: null or a C string.
        let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_bytes());
        let sequences = attached.map(sequences)?;
        let row = (has_row != 0).then_some(row);
        *number = scan.new_sequence(sequences, row, above, name)?;
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_expect_sequence(scan: &mut TreeScan, table: u32) {
    answer(|| {
        scan.expect_sequence(u64::from(table));
        Ok(OK)
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_put_sequence(scan: &mut TreeScan, row: i64, record: *const u8, length: u32) -> c_int {
    answer(|| {
        // SAFETY: so many bytes are there.
        let record = unsafe { bytes(record, length) };
        scan.put_sequence(row, record).map(|()| OK)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_show_sequence(scan: &mut TreeScan) {
    answer(|| {
        scan.show_sequences();
        Ok(OK)
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_guard_sought(scan: &mut TreeScan) -> c_int {
    answer(|| scan.guard_sought().map(|()| OK))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_guard_row(scan: &mut TreeScan, row: i64) -> c_int {
    answer(|| scan.guard_row(row).map(|()| OK))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn yq_guard_all(scan: &mut TreeScan) -> c_int {
    answer(|| scan.guard_all().map(|()| OK))
}
