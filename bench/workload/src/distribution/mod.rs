//! Distributions of keys, lengths and operations.
//!
//! Each module documents its law, its symbols and its source;
//! `docs/distributions.md` compares the laws. All take their randomness from a
//! [`Random`](crate::random::Random) and compute powers and logarithms with
//! `libm`, so that a seed gives the same draws on every machine. Draws allocate
//! nothing, memory does not grow with the number of keys, and 10^12 keys are
//! ready in milliseconds.

pub mod bijection;
pub mod counter;
pub mod discrete;
pub mod error;
pub mod exact;
pub mod exponential;
pub mod histogram;
pub mod hotspot;
pub mod keys;
pub mod latest;
pub mod lengths;
pub mod scattered;
pub mod scrambled;
pub mod sequential;
pub mod uniform;
pub mod zeta;
pub mod zipfian;

pub use bijection::Bijection;
pub use counter::AcknowledgedCounter;
pub use discrete::Discrete;
pub use error::DistributionError;
pub use exact::ExactZipf;
pub use exponential::Exponential;
pub use histogram::{HistogramError, HistogramFault, LengthHistogram};
pub use hotspot::Hotspot;
pub use keys::KeyChooser;
pub use latest::SkewedLatest;
pub use lengths::LengthChooser;
pub use scattered::ScatteredZipf;
pub use scrambled::ScrambledZipfian;
pub use sequential::Sequential;
pub use uniform::Uniform;
pub use zeta::zeta;
pub use zipfian::Zipfian;
