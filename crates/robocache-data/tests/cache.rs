//! Caches made of datasets and read back.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::path::{Path, PathBuf};

use robocache::{Context, Tensor};
use robocache_data::cache::{Cache, Encoding, Images, IngestOptions, ingest, verify};
use robocache_data::{Dataset, Ffmpeg, Limits, Progress, Values};

fn samples() -> Vec<PathBuf> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let all = [
        "../../testdata/lerobot_v30",
        "../../testdata/lerobot_v21",
        "../../../shared/data/lerobot_v30",
        "../../../shared/data/lerobot_v20",
    ];
    let found = all.iter().map(|name| here.join(name)).filter(|path| {
        let there = path.exists();
        if !there {
            println!("skipped: no sample data {}", path.display());
        }
        there
    });
    found.collect()
}

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("robocache-cache-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

fn bytes(tensor: &Tensor) -> Vec<u8> {
    let view = tensor.view();
    // SAFETY: a contiguous host tensor.
    unsafe { std::slice::from_raw_parts(view.data(), view.layout().count() * view.dtype().size()) }.to_vec()
}

fn make(source: &Path, out: &Path, options: &IngestOptions) -> Cache {
    let report = ingest(source, out, options, &Limits::default(), &Progress::default()).unwrap();
    assert!(report.skipped.is_empty(), "{:?}", report.skipped);
    Cache::open(out).unwrap()
}

#[test]
fn what_is_read_back_is_what_the_reader_gives() {
    let images = if Ffmpeg::find().is_ok() { Images::Raw } else { Images::Skip };
    if images == Images::Skip {
        println!("skipped: the videos, there is no ffmpeg");
    }
    for (number, source) in samples().iter().enumerate() {
        let out = folder(&format!("round-{number}"));
        // Small units, so that there are several.
        let options = IngestOptions { images, unit_frames: Some(64), ..IngestOptions::default() };
        let cache = make(source, &out, &options);
        let dataset = Dataset::open(source, &Limits::default()).unwrap();
        assert!(cache.is_complete());
        assert_eq!(cache.len(), dataset.len());
        assert!(cache.units().len() > 1);
        let mut compared = 0;
        for (place, stream) in cache.streams().iter().enumerate() {
            let from = dataset.stream(&stream.name).unwrap();
            for at in 0..cache.len() {
                let samples = dataset.read(at, &[from]).unwrap().remove(0);
                assert_eq!(cache.times(at, place).unwrap(), *samples.times, "{}", stream.name);
                match (&samples.values, stream.encoding) {
                    (Values::Text(texts), Encoding::Text) => {
                        for (sample, text) in texts.iter().enumerate() {
                            assert_eq!(cache.item(at, place, sample).unwrap(), text.as_bytes());
                        }
                    }
                    (_, Encoding::Raw) => {
                        let expected = samples.numbers(&Context::default()).unwrap();
                        let kept = cache.numbers(at, place).unwrap();
                        assert_eq!(kept.shape(), expected.shape(), "{}", stream.name);
                        assert!(bytes(&kept) == bytes(&expected), "{} of episode {at} differs", stream.name);
                    }
                    other => panic!("{other:?}"),
                }
                compared += 1;
            }
        }
        assert!(compared >= cache.len() * 2);
        let report = verify(&out, &Progress::default()).unwrap();
        assert!(report.damage.is_empty() && report.bytes > 0);
        std::fs::remove_dir_all(&out).unwrap();
    }
}

#[test]
fn running_again_does_nothing_twice() {
    let Some(source) = samples().into_iter().next() else { return };
    let out = folder("again");
    let options = IngestOptions { images: Images::Skip, unit_frames: Some(64), ..IngestOptions::default() };
    make(&source, &out, &options);
    let stamp = |path: &Path| path.metadata().unwrap().modified().unwrap();
    let unit = out.join("shards/unit-000000/unit.json");
    let before = stamp(&unit);
    let report = ingest(&source, &out, &options, &Limits::default(), &Progress::default()).unwrap();
    assert_eq!((report.units_done, report.units_before > 1, stamp(&unit)), (0, true, before));
    std::fs::remove_dir_all(&out).unwrap();
}
