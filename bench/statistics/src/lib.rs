//! What numbers allow to be said: intervals, comparisons, steadiness.

pub mod steady;
