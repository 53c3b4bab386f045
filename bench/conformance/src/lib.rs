//! What every store that keeps records must do, whatever it is: one suite,
//! run on each store by [`suite!`].
//!
//! A store's test file names an executor and a function that makes a
//! [`Subject`], an empty store with what it does differently:
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
//! Each case gets a subject of its own and expects it empty. Cases run side
//! by side, as tests do; a store that cannot be had twice (a server) hands
//! out a lock guard in [`Subject::keep`] and empties itself in `subject()`.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a failure is what a test is for")]

mod between;
pub mod cases;
mod executor;
mod sequences;
mod server;
mod subject;

pub use between::Between;
pub use executor::{Executor, Loop, Ready};
use serval_model::{Outcome, Status};
pub use server::{properties, silent, variable};
pub use subject::{Fields, Handle, Subject, fields, full, schema};

/// The table that all cases use.
pub const TABLE: &str = "usertable";
/// The fields that records may have; not in order of names, and not in
/// capitals, so that a store that changes either is found out.
pub const FIELDS: [&str; 4] = ["field2", "field0", "field1", "field3"];

/// What insert does with a key that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InsertExisting {
    /// Fails with ERROR and leaves the record.
    Refused,
    /// Puts the new record in the old one's place.
    Replaced,
    /// Writes the new fields and leaves the others, as an update does.
    Merged,
}

impl InsertExisting {
    /// The status of an insert, and the record that it leaves under its key.
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

/// What bytes a value may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// Any.
    Bytes,
    /// UTF-8; others are refused with BAD_REQUEST.
    Text,
    /// UTF-8 without NUL; others are refused with BAD_REQUEST.
    TextWithoutNul,
}

impl Values {
    fn takes(self, value: &[u8]) -> bool {
        let text = self == Values::Bytes || std::str::from_utf8(value).is_ok();
        text && (self != Values::TextWithoutNul || !value.contains(&0))
    }
}

/// What stores may do differently, each a fact of the store's own that its
/// details tell people. The default is what SQL and YCSB's paper expect.
#[derive(Debug, Clone, Copy)]
pub struct Differences {
    /// A scan begins with the first key that is not before the start key and
    /// goes on in the byte order of keys. Without it (redis, as YCSB lays it
    /// out: by hash) a scan is only held to bring back at most as many
    /// records as asked for, each one that was written, none twice.
    pub ordered_scan: bool,
    /// An update of a key that is not there is NOT_FOUND and writes nothing.
    /// Without it the update makes the record.
    pub update_missing_is_not_found: bool,
    /// A delete of a key that is not there is NOT_FOUND. Without it the delete
    /// may be OK, for the store does not look.
    pub delete_missing_is_not_found: bool,
    /// What insert does with a key that is there.
    pub insert_existing: InsertExisting,
    /// A record without any field can be inserted and is then there. Without
    /// it such an insert may do anything but break the client.
    pub empty_records: bool,
    /// A batch of inserts that fails has written nothing. Without it the
    /// records before the failure may be there, those after it are not. Tried
    /// only where an insert can be made to fail: [`InsertExisting::Refused`].
    pub atomic_batch: bool,
    /// What bytes a value may be.
    pub values: Values,
    /// Bytes of a record's values that fit in any case, and those of which
    /// there are twice as many surely do not: inserts of these are BAD_REQUEST.
    /// `None` for stores that take records of 2 MiB.
    pub record_bytes_max: Option<usize>,
    /// The keys that it takes; writes under others are BAD_REQUEST.
    pub keys: fn(&str) -> bool,
}

impl Differences {
    /// Whether the store takes a record with these values.
    fn takes(&self, fields: &Fields) -> bool {
        let size: usize = fields.values().map(Vec::len).sum();
        fields.values().all(|value| self.values.takes(value))
            && self.record_bytes_max.is_none_or(|max| size <= max)
    }

    /// Whether this is what a delete of a key that is not there answers.
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
            values: Values::Bytes,
            record_bytes_max: None,
            keys: |_| true,
        }
    }
}

/// Makes a test of each case, on the subjects that the function makes.
///
/// `suite!(subject, "needs VARIABLE")` is for subjects that a server provides whose
/// address is in an environment variable: plain `cargo test` reports the tests as
/// ignored, `cargo xtask test` starts the server and runs them.
#[macro_export]
macro_rules! suite {
    ($subject:path $(, $needs:literal)?) => {
        $crate::suite! { $subject $(, $needs)?:
            values_come_back_byte_for_byte,
            keys_may_be_any_text,
            a_read_brings_back_the_fields_asked_for,
            a_record_may_have_some_fields_only,
            an_update_leaves_the_other_fields,
            what_is_missing_is_not_found,
            an_update_of_a_missing_record,
            an_insert_of_a_key_that_is_there,
            a_deleted_record_is_gone,
            a_record_without_fields,
            a_scan_begins_at_its_key_and_stops_at_its_limit,
            a_scan_brings_back_the_fields_asked_for,
            a_batch_is_written,
            a_batch_that_fails_stops_there,
            what_one_client_wrote_the_next_reads,
            clients_do_not_lose_each_other_s_writes,
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
            // A subject that cannot be had here is `None` and says why.
            let subject: Option<$crate::Subject<_, _>> = $subject().into();
            if let Some(subject) = subject {
                $crate::cases::$case(&subject);
            }
        }
    };
}
