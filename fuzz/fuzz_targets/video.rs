//! Arbitrary bytes as an MP4 file, of which the index is read.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| drop(robocache_data::fuzzing::video(bytes)));
