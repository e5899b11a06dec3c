//! Arbitrary bytes as lines of JSON.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| robocache_data::fuzzing::jsonl(bytes));
