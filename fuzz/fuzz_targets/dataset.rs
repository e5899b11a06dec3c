//! Arbitrary bytes as one file of a LeRobot dataset, all of which is checked and read.

#![no_main]

use std::path::Path;
use std::sync::LazyLock;

use robocache_data::fuzzing::Samples;

static SAMPLES: LazyLock<Samples> = LazyLock::new(|| {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata");
    Samples::new(&testdata).unwrap_or_else(|error| panic!("{error}"))
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| drop(SAMPLES.dataset(bytes)));
