//! Results for people and for programs: YCSB's text, tables, JSON, CSV and
//! HTML, and several results merged into one.
//!
//! Everywhere the response time leads: what a user waits.

pub mod ycsb;
