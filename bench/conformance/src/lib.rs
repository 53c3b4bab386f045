//! Conformance tests for stores that keep records: one suite, which [`suite!`] runs
//! on a store.
//!
//! A store's test file provides a function that returns a [`Subject`]: an empty
//! store with an executor and the store's [`Differences`]:
//!
//! ```ignore
//! use serval_conformance::{Differences, Ready, Subject, properties};
//!
//! fn subject() -> Subject<Memory, Ready> {
//!     let store = Memory::open(&properties(&[])).unwrap();
//!     Subject::new(store, Ready, Differences { insert_existing: Replaced, ..Differences::default() })
//! }
//! serval_conformance::suite!(subject);
//! ```
//!
//! Each case calls the function for an empty subject. Cases run concurrently, as
//! tests do. For a store that exists once (a server), the function locks a mutex, puts
//! the guard into [`Subject::keep`], and empties the store.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a failed unwrap fails the test")]

pub mod cases;
mod executor;
mod faulty_proxy;
mod sequences;
mod server;
mod subject;

pub use executor::{EventLoop, Executor, Ready};
pub use faulty_proxy::FaultyProxy;
use serval_model::{Outcome, Status};
pub use server::{properties, silent, variable};
pub use subject::{Fields, Handle, Subject, fields, full, schema};

/// Table of all cases.
pub const TABLE: &str = "usertable";
/// Fields of records; neither sorted nor in capitals, to detect stores that
/// change either.
pub const FIELDS: [&str; 4] = ["field2", "field0", "field1", "field3"];

/// Effect of an insert on an existing record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InsertExisting {
    /// Fails with ERROR and leaves the record.
    Refused,
    /// Replaces the old record.
    Replaced,
    /// Writes the new fields and leaves the others, as an update does.
    Merged,
}

impl InsertExisting {
    /// Returns the status of an insert, and the resulting record.
    fn after(self, old: Option<&Fields>, new: &Fields) -> (Status, Fields) {
        match (old, self) {
            (None, _) | (_, InsertExisting::Replaced) => (Status::Ok, new.clone()),
            (Some(old), InsertExisting::Refused) => (Status::Error, old.clone()),
            (Some(old), InsertExisting::Merged) => {
                let mut both = old.clone();
                both.extend(new.clone());
                (Status::Ok, both)
            }
        }
    }
}

/// Field values that a store accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceptedValues {
    /// Any bytes.
    Bytes,
    /// UTF-8; others are refused with BAD_REQUEST.
    Text,
    /// UTF-8 without NUL; others are refused with BAD_REQUEST.
    TextWithoutNul,
}

impl AcceptedValues {
    fn takes(self, value: &[u8]) -> bool {
        let text = self == AcceptedValues::Bytes || std::str::from_utf8(value).is_ok();
        text && (self != AcceptedValues::TextWithoutNul || !value.contains(&0))
    }
}

/// Permitted differences between stores, each documented in the store's
/// details. The default is the behaviour of SQL and of YCSB's paper.
#[derive(Debug, Clone, Copy)]
pub struct Differences {
    /// A scan starts at the first key not below the start key and returns
    /// records in the byte order of keys. Otherwise (redis in YCSB's layout, by
    /// hash) it returns at most the requested number of records, each of them
    /// written before, none twice.
    pub ordered_scan: bool,
    /// An update of a missing record is NOT_FOUND. Otherwise it inserts the
    /// record.
    pub update_missing_is_not_found: bool,
    /// A delete of a missing record is NOT_FOUND. Otherwise it may also be
    /// OK.
    pub delete_missing_is_not_found: bool,
    /// Effect of an insert on an existing record.
    pub insert_existing: InsertExisting,
    /// A record without fields can be inserted and read. Otherwise such an
    /// insert must only leave the client usable.
    pub empty_records: bool,
    /// A failed batch of inserts has written nothing. Otherwise the records
    /// before the failure may exist, those after it do not. Tested only for
    /// stores with [`InsertExisting::Refused`].
    pub atomic_batch: bool,
    /// Field values that the store accepts.
    pub values: AcceptedValues,
    /// Bytes of values that a record may have. Inserts of at least twice as
    /// many are BAD_REQUEST. `None` for stores that accept records of 2 MiB.
    pub record_bytes_max: Option<usize>,
    /// Keys that it accepts; writes under others are BAD_REQUEST.
    pub keys: fn(&str) -> bool,
}

impl Differences {
    /// Returns whether the store accepts a record with these values.
    fn takes(&self, fields: &Fields) -> bool {
        let size: usize = fields.values().map(Vec::len).sum();
        fields.values().all(|value| self.values.takes(value))
            && self.record_bytes_max.is_none_or(|max| size <= max)
    }

    /// Returns whether this outcome of a delete of a missing record is permitted.
    fn deletes_nothing(self, outcome: &Outcome) -> bool {
        outcome.status == Status::NotFound || !self.delete_missing_is_not_found && *outcome == Outcome::OK
    }
}

impl Default for Differences {
    fn default() -> Self {
        Differences {
            ordered_scan: true,
            update_missing_is_not_found: true,
            delete_missing_is_not_found: true,
            insert_existing: InsertExisting::Refused,
            empty_records: true,
            atomic_batch: false,
            values: AcceptedValues::Bytes,
            record_bytes_max: None,
            keys: |_| true,
        }
    }
}

/// Defines a test of each case on the subjects that the function returns.
///
/// `suite!(subject, "needs VARIABLE")` is for stores behind a server whose address is
/// in an environment variable: plain `cargo test` ignores these tests, `cargo xtask
/// test` starts the server and runs them.
#[macro_export]
macro_rules! suite {
    ($subject:path $(, $needs:literal)?) => {
        $crate::suite! { $subject $(, $needs)?:
            values_are_returned_byte_for_byte,
            keys_may_be_any_text,
            a_read_returns_the_requested_fields,
            a_record_may_have_some_fields_only,
            an_update_leaves_the_other_fields,
            missing_records_are_not_found,
            an_update_of_a_missing_record,
            an_insert_of_an_existing_key,
            a_deleted_record_is_missing,
            a_record_without_fields,
            a_scan_starts_at_its_key_and_stops_at_its_limit,
            a_scan_returns_the_requested_fields,
            a_batch_is_written,
            a_failed_batch_stops_at_the_failure,
            the_next_client_reads_earlier_writes,
            concurrent_clients_lose_no_writes,
            any_sequence_of_operations_agrees_with_a_map,
        }
    };
    ($subject:path: $($case:ident),+ $(,)?) => {
        $($crate::suite! { @test $subject, $case })+
    };
    ($subject:path, $needs:literal: $($case:ident),+ $(,)?) => {
        $($crate::suite! { @test $subject, $case, #[ignore = $needs] })+
    };
    (@test $subject:path, $case:ident $(, #[$ignored:meta])?) => {
        $(#[$ignored])?
        #[test]
        fn $case() {
            // `None` if the subject is not available here.
            let subject: Option<$crate::Subject<_, _>> = $subject().into();
            if let Some(subject) = subject {
                $crate::cases::$case(&subject);
            }
        }
    };
}
