//! Differential tests of SQL over trees against stock SQLite, in one process.
//!
//! Stock is the unmodified amalgamation of the same version with the same settings; only its
//! functions have other names. [Random scripts](random) run on both, and must have [equal
//! results](script).

pub mod engine;
pub mod logic;
pub mod place;
pub mod random;
pub mod script;
pub mod value;
