//! Arbitrary bytes as a parquet file.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| robocache_data::fuzzing::parquet(bytes));
