//! Transactions of SQL whose effects can be checked, for tests on simulated and on real clusters.
//!
//! Clients append to lists in several tables and read them: the reads and appends are a history of
//! `yesquel-histories`. They change schemas, and note each change in a row of the same transaction:
//! every statement must see a schema that fits the row. They write rows that two indexes contain: a
//! statement must find the same rows by each.
//!
//! A statement that sees something impossible panics, because then the test has failed.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod act;
mod error;
mod notes;
mod schema;

pub use act::{BeginMode, SqlAct, elements, list_key, row_of, run, run_all, table_of};
pub use error::{SqlErrorClass, class_of, outcome_of};
pub use notes::{OperationNotes, take_back};
pub use schema::{change_index, compare_columns, compare_indexes, first_schema};

/// Maximum number of tables with lists.
pub const LIST_TABLES_MAX: usize = 8;
