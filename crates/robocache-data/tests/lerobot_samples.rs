//! The real datasets beside the checkout; skipped where there are none.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::path::PathBuf;

use robocache_data::{Dataset, Limits, Values};

fn sample(name: &str) -> Option<Dataset> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data").join(name);
    if !path.exists() {
        println!("skipped: no sample data {name}");
        return None;
    }
    Some(Dataset::open(&path, &Limits::default()).unwrap())
}

#[test]
fn version_3_is_read() {
    let Some(dataset) = sample("lerobot_v30") else { return };
    assert_eq!((dataset.format().as_str(), dataset.len()), ("lerobot v3.0", 4));
    let state = dataset.stream("observation.state").unwrap();
    let mut total = 0;
    for at in 0..dataset.len() {
        let samples = dataset.read(at, &[state]).unwrap().remove(0);
        let Values::Numbers(values) = &samples.values else { panic!("numbers") };
        assert_eq!(values.shape(), [samples.times.len(), 14]);
        assert_eq!(samples.times[..3], [0, 33_333_333, 66_666_667]);
        total += samples.times.len();
    }
    assert_eq!(total, 228);
}

#[test]
fn version_2_with_stamps_of_its_own_is_read() {
    let Some(dataset) = sample("lerobot_v20") else { return };
    assert_eq!((dataset.format().as_str(), dataset.len()), ("lerobot v2.0", 5));
    let state = dataset.stream("observation.state").unwrap();
    let camera = dataset.stream("observation.images.ego_view").unwrap();
    let samples = dataset.read(0, &[state, camera]).unwrap();
    assert_eq!(samples[0].times[..2], [49_999_952, 99_999_905]);
    let Values::Frames(frames) = &samples[1].values else { panic!("frames") };
    assert_eq!((frames.len(), frames.shape()), (416, [256, 256, 3]));
    let names = dataset.streams()[state].names.as_ref().unwrap();
    assert_eq!((&*names[0], &*names[43]), ("left_arm.motor_0", "waist.motor_43"));
    // Declared, but there are no files.
    let missing = dataset.stream("observation.images.egoview").unwrap();
    assert!(dataset.read(0, &[missing]).unwrap_err().to_string().contains("egoview"));
}
