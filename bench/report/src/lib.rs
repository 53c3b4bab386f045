//! Reports of results: YCSB's text, tables, JSON, CSV and HTML. Also merges several results into one.
//!
//! Reports put response times first: they are what a user waits.

pub mod csv;
pub mod experiment;
mod group;
pub mod html;
pub mod json;
pub mod lag;
pub mod merge;
pub mod notes;
mod plot;
#[cfg(test)]
mod sample;
mod stationary;
pub mod stored;
pub mod summary;
mod sums;
pub mod terminal;
pub mod text;
mod times;
pub mod units;
pub mod ycsb;
