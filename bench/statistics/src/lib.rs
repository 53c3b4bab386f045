//! What numbers allow to be said: intervals, comparisons, steadiness.
//!
//! Pure mathematics: no clock, no file, no harness. Randomness is handed in as
//! a seeded generator. Each function opens with its formula, its symbols and
//! its source.

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
