//! Statistics of results: intervals, comparisons, steadiness.
//!
//! Pure mathematics without clock, files or test runs. Randomness is passed in as a
//! seeded generator. Each function documents its formula, its symbols and its
//! source.

pub mod bootstrap;
pub mod crossing;
pub mod difference;
pub mod isotonic;
pub mod moments;
pub mod multiple;
pub mod quantile;
pub mod series;
pub mod stationary;
pub mod steady;
