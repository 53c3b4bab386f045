//! What numbers allow to be said: intervals, comparisons, steadiness.

pub mod crossing;
pub mod isotonic;
pub mod steady;
