//! Replays the saved corpora of the fuzz targets `info_json`, `jsonl` and `urdf`, and changes of them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::path::PathBuf;

use robocache_data::fuzzing;

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let files: Vec<Vec<u8>> =
        std::fs::read_dir(folder).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect();
    assert!(files.len() >= 8);
    files
}

/// Flips, cuts and doubles bytes, always the same ones.
fn changed(files: &[Vec<u8>], each: impl Fn(&[u8])) {
    let scale = std::env::var("ROBOCACHE_TEST_SCALE").ok().and_then(|text| text.parse::<f64>().ok()).unwrap_or(1.0);
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below.max(1) as u64) as usize
    };
    for round in 0..(2000.0 * scale) as usize {
        let mut bytes = files[round % files.len()].clone();
        for _ in 0..=random(4) {
            let at = random(bytes.len());
            match random(4) {
                0 => bytes.truncate(at),
                1 if !bytes.is_empty() => bytes[at] ^= 1 << random(8),
                2 => bytes.insert(at, b"{}[]\",:0-eN\\<>/&"[random(16)]),
                _ => {
                    let piece = bytes[at..].to_vec();
                    bytes.extend_from_slice(&piece[..piece.len().min(64)]);
                }
            }
        }
        each(&bytes);
    }
}

#[test]
fn info_is_an_error_or_a_dataset_61() {
    let files = corpus("info_json");
    files.iter().for_each(|bytes| fuzzing::info_json(bytes));
    changed(&files, fuzzing::info_json);
}

#[test]
fn lines_are_an_error_or_episodes_61() {
    let files = corpus("jsonl");
    files.iter().for_each(|bytes| fuzzing::jsonl(bytes));
    changed(&files, fuzzing::jsonl);
}

#[test]
fn urdfs_are_an_error_or_a_robot() {
    let files = corpus("urdf");
    changed(&files, |bytes| drop(fuzzing::urdf(bytes)));
}
