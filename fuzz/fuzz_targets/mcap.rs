//! Arbitrary bytes as an MCAP recording, which is checked and read.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| drop(robocache_data::fuzzing::mcap(bytes)));
