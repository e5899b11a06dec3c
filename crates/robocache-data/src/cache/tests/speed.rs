//! Large caches open at once.

use std::time::{Duration, Instant};

use super::super::index::Index;
use super::super::layout::{FORMAT, Plan, ShardFile, UnitEpisode, UnitManifest, VERSION, to_json};
use super::super::{Manifest, Unit};
use super::*;

/// What a machine that does nothing else must reach; tests run beside each other.
const TARGET: Duration = Duration::from_millis(200);
const BESIDE_OTHERS: u32 = 3;

#[test]
fn a_million_episodes_open_at_once() {
    let (scratch, episodes) = (Scratch::new(), scaled(1_000_000).min(1_000_000));
    ingest_with(&super::super::fs::Os, &sample(), &scratch.out()).unwrap();
    let mut manifest: Manifest = super::super::layout::read_json(&scratch.out().join(MANIFEST)).unwrap();
    let plan: Plan = super::super::layout::read_json(&scratch.out().join(PLAN)).unwrap();
    let files = plan.streams.len();
    let episode = |index: usize| UnitEpisode {
        index: index as u64,
        length: 400,
        duration: 8.0,
        tasks: vec!["put the cube into the box".to_owned()],
        rows: vec![(index as u64 * 400, 400); files],
        cameras: Vec::new(),
    };
    let unit = UnitManifest {
        format: FORMAT.to_owned(),
        version: VERSION,
        unit: Unit { unit: 0, source: 0, first: 0, end: episodes, frames: 0 },
        key: String::new(),
        files: (0..files)
            .map(|stream| ShardFile { stream, file: String::new(), bytes: 0, batches: Vec::new(), crc32c: Vec::new() })
            .collect(),
        episodes: (0..episodes).map(episode).collect(),
        skipped: Vec::new(),
        stats: vec![None; files],
    };
    let (bytes, sums) = Index::from_units(&plan, &[unit]).unwrap().to_file().unwrap();
    std::fs::write(scratch.out().join("index-large.arrow"), &bytes).unwrap();
    manifest.index = "index-large.arrow".to_owned();
    manifest.index_crc32c = sums;
    std::fs::write(scratch.out().join(MANIFEST), to_json(&manifest).unwrap()).unwrap();
    let open = |_| {
        let started = Instant::now();
        let cache = Cache::open(&scratch.out()).unwrap();
        let taken = started.elapsed();
        assert_eq!(cache.len(), episodes);
        assert_eq!(cache.episode(episodes - 1).unwrap().index, episodes as u64 - 1);
        taken
    };
    let best = (0..5).map(open).min().unwrap();
    println!(
        "{episodes} episodes with {files} streams, an index of {} MB: opened in {best:?}",
        bytes.len() / 1_000_000
    );
    assert!(best < TARGET * BESIDE_OTHERS, "{best:?}");
}
