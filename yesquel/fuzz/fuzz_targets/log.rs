//! A log that was changed, or never was one.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| yesquel_fuzz::log::check(bytes));
