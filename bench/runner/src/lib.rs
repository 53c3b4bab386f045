//! One run: clients, pacing, warm-up and stop.

pub mod clock;
pub mod pacing;
