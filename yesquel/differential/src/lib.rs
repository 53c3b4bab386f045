//! SQL over trees beside stock SQLite, in one process.
//!
//! Stock is the same version's amalgamation, compiled here as it is and with the
//! same settings; only its functions have other names. Scripts drawn by chance
//! ([`random`]) run on both, and must come to the same ([`script`]).

pub mod engine;
pub mod logic;
pub mod place;
pub mod random;
pub mod script;
pub mod value;
