//! Arbitrary bytes as the table of episodes of a cache.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| drop(robocache_data::fuzzing::index(bytes)));
