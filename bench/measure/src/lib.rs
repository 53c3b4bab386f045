//! Histograms, recorders and logs of measured times.

pub mod hdr_log;
pub mod histogram;
pub mod layout;
pub mod legacy;
pub mod raw;
pub mod recorder;
pub mod times;
