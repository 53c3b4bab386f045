//! Comparison of records by SQLite's own functions.

#![allow(unsafe_code)]

use crate::code::ResultCode;
use std::{
    cmp::Ordering,
    ffi::{c_int, c_void},
};

/// Compares records by the columns of an index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Comparer(pub(crate) *mut c_void);

/// Unpacked record that is sought in an index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sought(pub(crate) *mut c_void);

unsafe extern "C" {
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

/// Zero bytes after a copied record: SQLite's C code reads up to two varints beyond the end of a
/// malformed one (`YQ_PADDING`).
const PADDING: usize = 18;

/// Copies a record with the bytes after its end that SQLite's C code may read.
pub(crate) fn padded(record: &[u8]) -> Vec<u8> {
    [record, &[0; PADDING]].concat()
}

impl Comparer {
    pub(crate) fn compare(self, left: &[u8], right: &[u8], fields: usize) -> Result<Ordering, ResultCode> {
        let (mut result, one, other) = (0, padded(left), padded(right));
        // SAFETY: the scan's cursor outlives this pointer to its key information; the records have
        // these lengths, and padding.
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
        if code == 0 { Ok(result.cmp(&0)) } else { Err(ResultCode(code)) }
    }
}

impl Sought {
    pub(crate) fn compare(self, record: &[u8], fields: usize) -> Ordering {
        let own = padded(record);
        // SAFETY: it lives during the call of yq_seek_fields that passed it.
        let result = unsafe { yq_compare_sought(own.as_ptr(), record.len() as u32, self.0, fields as c_int) };
        result.cmp(&0)
    }
}
