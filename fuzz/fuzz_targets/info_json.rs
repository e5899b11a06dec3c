//! Arbitrary bytes as a dataset's `info.json`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| robocache_data::fuzzing::info_json(bytes));
