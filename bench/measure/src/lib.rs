//! What is seen: histograms, series and the result document.

pub mod document;
pub mod experiment;
pub mod flags;
pub mod group;
pub mod hdr_log;
pub mod histogram;
pub mod lag;
pub mod layout;
pub mod legacy;
pub mod load;
pub mod raw;
pub mod recorder;
pub mod times;
