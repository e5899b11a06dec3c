//! Arbitrary bytes as a parquet file.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| drop(robocache_data::fuzzing::parquet(bytes)));
