//! Arbitrary bytes as a JPEG or PNG image.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| drop(robocache_data::fuzzing::image(bytes)));
