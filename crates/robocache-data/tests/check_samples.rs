//! What a check says of the real datasets beside the checkout; skipped where there are none.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::path::PathBuf;

use robocache_data::{Dataset, Finding, Limits, Progress};

fn check(name: &str) -> Option<Vec<Finding>> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data").join(name);
    if !path.exists() {
        println!("skipped: no sample data {name}");
        return None;
    }
    let found = Dataset::check(&path, &Limits::default(), &Progress::default()).unwrap();
    found.iter().for_each(|finding| println!("{finding}"));
    Some(found)
}

#[test]
fn version_3_has_nothing_wrong() {
    let Some(found) = check("lerobot_v30") else { return };
    assert_eq!(found, []);
}

#[test]
fn the_gr1_sample_has_its_known_flaws() {
    let Some(found) = check("lerobot_v20") else { return };
    let seen: Vec<_> = found.iter().map(|f| (f.level.name(), f.code, f.stream.as_deref().unwrap_or(""))).collect();
    // Statistics fit, though the writer added up 32 bits; the state does not move its legs.
    assert_eq!(
        seen,
        [
            ("note", "counts_differ", ""),
            ("note", "stamps_start", ""),
            ("warning", "constant", "action"),
            ("warning", "video_shifted", "observation.images.ego_view"),
            ("warning", "missing_files", "observation.images.egoview"),
            ("warning", "constant", "observation.state"),
        ]
    );
}
