//! What a check says of the real datasets beside the checkout; skipped where there are none.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::path::PathBuf;

use robocache_data::{Dataset, Finding, Level, Limits, Progress};

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

fn codes(found: &[Finding], level: Level) -> Vec<&str> {
    found.iter().filter(|finding| finding.level == level).map(|finding| finding.code).collect()
}

#[test]
fn version_3_has_nothing_wrong() {
    let Some(found) = check("lerobot_v30") else { return };
    assert_eq!(codes(&found, Level::Error), [""; 0]);
}

#[test]
fn the_gr1_sample_has_its_known_flaws() {
    let Some(found) = check("lerobot_v20") else { return };
    assert_eq!(codes(&found, Level::Error), [""; 0]);
}
