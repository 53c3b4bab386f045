//! Arbitrary requests, and the log that they leave.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| yesquel_fuzz::engine::check(bytes));
