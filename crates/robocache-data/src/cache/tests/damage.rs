//! Bytes that changed on the disk: noticed, named, never served.

use std::os::unix::fs::FileExt;
use std::path::Path;

use super::super::CachedStream;
use super::super::blocks::BLOCK;
use super::super::fs::Os;
use super::super::layout::{UnitManifest, read_json};
use super::super::shard::{Shard, ShardWriter};
use super::*;

/// A cache and the values that belong in it.
struct Whole {
    scratch: Scratch,
    ledger: Ledger,
    /// What reading all of it gives.
    seen: Seen,
}

impl Whole {
    fn new() -> Self {
        let (ledger, scratch) = (Ledger::of(&sample()), Scratch::new());
        ingest_with(&Os, &sample(), &scratch.out()).unwrap();
        let seen = ledger.compare(&Cache::open(&scratch.out()).unwrap());
        Self { scratch, ledger, seen }
    }

    fn out(&self) -> PathBuf {
        self.scratch.out()
    }

    /// What a damaged cache serves is right; `verify` or the opening must notice. Whether the damage was
    /// met by readers, too.
    fn notice(&self, what: &str) -> bool {
        let report = verify(&self.out(), &Progress::default());
        let noticed = report.as_ref().map_or(true, |report| !report.damage.is_empty());
        assert!(noticed, "{what}: verify says nothing");
        for damage in report.iter().flat_map(|report| &report.damage) {
            assert!(damage.path.starts_with(self.out()) && !damage.message.is_empty());
        }
        if let Err(error) = report {
            assert!(error.file().is_some_and(|path| path.starts_with(self.out())), "{what}: {error}");
        }
        match Cache::open(&self.out()) {
            Ok(cache) => self.ledger.compare(&cache) != self.seen,
            Err(error) => {
                assert!(error.file().is_some_and(|path| path.starts_with(self.out())), "{what}: {error}");
                true
            }
        }
    }

    /// Runs a change of a file and puts the file back.
    fn with_changed(&self, file: &Path, change: impl Fn(&mut Vec<u8>), what: &str) -> bool {
        let whole = std::fs::read(file).unwrap();
        let mut changed = whole.clone();
        change(&mut changed);
        assert!(changed != whole);
        // Shards are mapped, and by the time of the next change no map is left.
        std::fs::write(file, changed).unwrap();
        let met = self.notice(&format!("{what} of {}", file.display()));
        std::fs::write(file, whole).unwrap();
        met
    }

    /// One file of every kind: the manifest, the index, the plan, a unit, a shard of numbers.
    fn kinds(&self) -> Vec<PathBuf> {
        let all = files(&self.out());
        let index = all.iter().find(|path| path.file_name().unwrap().to_string_lossy().starts_with("index-"));
        let unit = self.out().join("shards/unit-000001");
        let shard = files(&unit).into_iter().find(|path| path.extension().is_some_and(|end| end == "arrow"));
        vec![
            self.out().join(MANIFEST),
            index.unwrap().clone(),
            self.out().join(PLAN),
            unit.join("unit.json"),
            shard.unwrap(),
        ]
    }
}

/// The plan is met by writers only.
fn is_met(path: &Path) -> bool {
    !path.ends_with(PLAN)
}

#[test]
fn every_bit_of_a_shard_counts_76() {
    let whole = Whole::new();
    let folder = whole.out().join("shards/unit-000000");
    let unit: UnitManifest = read_json(&folder.join("unit.json")).unwrap();
    let plan: super::super::Plan = read_json(&whole.out().join(PLAN)).unwrap();
    let facts = unit.files.iter().min_by_key(|facts| facts.bytes).unwrap();
    let stream = &plan.streams[facts.stream];
    let file = std::fs::OpenOptions::new().read(true).write(true).open(folder.join(&facts.file)).unwrap();
    let bytes = std::fs::read(folder.join(&facts.file)).unwrap();
    let is_good = || Shard::open(&folder, facts, stream).is_ok_and(|shard| shard.verify().is_empty());
    assert!(is_good());
    for (at, &byte) in bytes.iter().enumerate() {
        for bit in 0..8 {
            file.write_all_at(&[byte ^ (1 << bit)], at as u64).unwrap();
            assert!(!is_good(), "bit {bit} of byte {at}");
        }
        file.write_all_at(&[byte], at as u64).unwrap();
    }
    assert!(is_good());
}

#[test]
fn a_flipped_bit_in_any_file_is_noticed_and_not_served_76() {
    let whole = Whole::new();
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for file in whole.kinds() {
        let length = std::fs::metadata(&file).unwrap().len() as usize;
        for _ in 0..scaled(400) {
            let (at, bit) = (random.below(length), random.below(8));
            let met = whole.with_changed(&file, |bytes| bytes[at] ^= 1 << bit, &format!("bit {bit} of byte {at}"));
            assert!(met == is_met(&file), "byte {at}, bit {bit} of {}", file.display());
        }
    }
    assert_eq!(whole.ledger.judge(&whole.out()), whole.ledger.len());
}

#[test]
fn a_flipped_bit_is_noticed_also_before_there_is_a_manifest_76() {
    let whole = Whole::new();
    std::fs::remove_file(whole.out().join(MANIFEST)).unwrap();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for file in whole.kinds().split_off(2) {
        let length = std::fs::metadata(&file).unwrap().len() as usize;
        for _ in 0..scaled(200) {
            let (at, bit) = (random.below(length), random.below(8));
            let met = whole.with_changed(&file, |bytes| bytes[at] ^= 1 << bit, &format!("bit {bit} of byte {at}"));
            assert!(met, "byte {at}, bit {bit} of {}", file.display());
            if random.below(8) > 0 || file.extension().is_none_or(|end| end != "json") {
                continue;
            }
            // Work on such a cache stops, or makes the unit anew.
            let good = std::fs::read(&file).unwrap();
            let mut bytes = good.clone();
            bytes[at] ^= 1 << bit;
            std::fs::write(&file, &bytes).unwrap();
            if file.ends_with(PLAN) {
                ingest_with(&Os, &sample(), &whole.out()).unwrap_err();
                assert!(!whole.out().join(MANIFEST).exists());
                std::fs::write(&file, &good).unwrap();
            } else {
                assert_eq!(ingest_with(&Os, &sample(), &whole.out()).unwrap().units_done, 1);
                assert!(std::fs::read(&file).unwrap() == good, "the same work gives the same bytes");
                std::fs::remove_file(whole.out().join(MANIFEST)).unwrap();
            }
        }
    }
    assert_eq!(whole.ledger.judge(&whole.out()), whole.ledger.len());
}

#[test]
fn shorter_longer_and_zeroed_files_are_noticed_77() {
    let whole = Whole::new();
    for file in whole.kinds() {
        type Change = fn(&mut Vec<u8>);
        let changes: [(&str, Change); 7] = [
            ("the emptiness", Vec::clear),
            ("a byte less", |bytes| bytes.truncate(bytes.len() - 1)),
            ("half", |bytes| bytes.truncate(bytes.len() / 2)),
            ("a byte more", |bytes| bytes.push(b'\n')),
            ("zeros behind", |bytes| bytes.resize(bytes.len() + 4096, 0)),
            ("a tail of zeros", |bytes| {
                let length = bytes.len();
                bytes[length - 64..].fill(0);
            }),
            ("zeros", |bytes| bytes.fill(0)),
        ];
        for (what, change) in changes {
            assert_eq!(whole.with_changed(&file, change, what), is_met(&file), "{what}: {}", file.display());
        }
    }
}

#[test]
fn swapped_files_and_folders_are_noticed_78() {
    let whole = Whole::new();
    let shards = whole.out().join("shards");
    let swap = |a: &Path, b: &Path| {
        let aside = whole.scratch.0.join("aside");
        std::fs::rename(a, &aside).unwrap();
        std::fs::rename(b, a).unwrap();
        std::fs::rename(&aside, b).unwrap();
    };
    let arrows = |unit: &str| -> Vec<PathBuf> {
        files(&shards.join(unit))
            .into_iter()
            .filter(|path| path.extension().is_some_and(|end| end == "arrow"))
            .collect()
    };
    let (first, second) = (arrows("unit-000000"), arrows("unit-000001"));
    let folders = (shards.join("unit-000000"), shards.join("unit-000001"));
    let mut pairs = vec![(first[0].clone(), first[1].clone()), folders];
    pairs.extend(first.into_iter().zip(second));
    for with_manifest in [true, false] {
        if !with_manifest {
            std::fs::remove_file(whole.out().join(MANIFEST)).unwrap();
        }
        for (a, b) in &pairs {
            let same = a.is_file() && std::fs::read(a).unwrap() == std::fs::read(b).unwrap();
            swap(a, b);
            assert!(same || whole.notice(&format!("{} for {}", a.display(), b.display())));
            swap(a, b);
        }
    }
    assert_eq!(whole.ledger.judge(&whole.out()), whole.ledger.len());
}

#[test]
fn a_bad_block_names_its_episodes_and_stays_bad_76() {
    let whole = Whole::new();
    let shard = whole.kinds().pop().unwrap();
    let cache = Cache::open(&whole.out()).unwrap();
    let mut bytes = std::fs::read(&shard).unwrap();
    bytes[200] ^= 1;
    std::fs::write(&shard, &bytes).unwrap();
    let report = verify(&whole.out(), &Progress::default()).unwrap();
    let damage = &report.damage[0];
    // The only block of the file, so that the file as a whole is of no use.
    assert_eq!((report.damage.len(), &damage.path, damage.offset), (1, &shard, None));
    assert_eq!(damage.episodes, [1], "the episode of unit 1");
    assert_eq!(whole.ledger.compare(&cache).refused, 1);
    std::fs::write(&shard, std::fs::read(&shard).unwrap()).unwrap();
    assert_eq!(whole.ledger.compare(&cache).refused, 1, "as bad the second time");
}

#[test]
fn a_bad_block_of_a_large_file_spoils_its_own_rows_only_76() {
    let scratch = Scratch::new();
    let stream = CachedStream {
        name: "camera".to_owned(),
        kind: crate::Kind::Image,
        dtype: "uint8".to_owned(),
        shape: vec![1 << 20],
        names: None,
        rate: None,
        method: Vec::new(),
        encoding: Encoding::Raw,
    };
    let mut writer = ShardWriter::create(&Os, &scratch.0, 0, &stream).unwrap();
    for row in 0..20u8 {
        writer.push(&scratch.0, row.into(), &vec![row; 1 << 20]).unwrap();
    }
    let (facts, _) = writer.finish(&scratch.0).unwrap();
    assert!(facts.crc32c.len() > 4 && facts.batches.len() > 4);
    let path = scratch.0.join(&facts.file);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[BLOCK + BLOCK / 2] ^= 0x10;
    std::fs::write(&path, &bytes).unwrap();
    let shard = Shard::open(&scratch.0, &facts, &stream).unwrap();
    assert_eq!(shard.verify(), [1]);
    let spoiled = shard.rows_of_block(1);
    assert!(!spoiled.is_empty());
    for row in 0..20 {
        match shard.rows(row, 1, 1 << 20) {
            Ok(found) => {
                assert!(found.times == [row as i64] && found.values.iter().all(|&value| u64::from(value) == row))
            }
            Err(error) => {
                assert_eq!((error.kind(), error.file()), (ErrorKind::CorruptData, Some(&*path)), "{error}");
                assert!(spoiled.iter().any(|rows| rows.contains(&row)), "row {row} is not in the block");
            }
        }
        let is_spoiled = spoiled.iter().any(|rows| rows.contains(&row));
        assert_eq!(shard.rows(row, 1, 1 << 20).is_err(), is_spoiled, "row {row}");
    }
}
