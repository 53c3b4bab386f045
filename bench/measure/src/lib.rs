//! Measurements: histograms and the recorders that fill them.

pub mod hdr_log;
pub mod histogram;
pub mod layout;
pub mod legacy;
pub mod raw;
pub mod recorder;
pub mod times;
