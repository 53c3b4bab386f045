//! Arbitrary greetings, frames and messages.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| yesquel_fuzz::wire::check(bytes));
