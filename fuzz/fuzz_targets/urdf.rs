//! Arbitrary bytes as a URDF.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = robocache_data::fuzzing::urdf(bytes);
});
