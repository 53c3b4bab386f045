//! Code that the tests of the distributions share.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod java;
pub(crate) mod statistics;
