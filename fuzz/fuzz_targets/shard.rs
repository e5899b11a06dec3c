//! Arbitrary bytes as a stream's file of a cache.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| drop(robocache_data::fuzzing::shard(bytes)));
