//! Caches whose checksums are right and whose content is not: other versions, and what someone made up.

use std::path::Path;

use serde_json::Value;

use super::super::fs::Os;
use super::super::layout::{Plan, UnitManifest, read_json, to_json};
use super::super::shard::Shard;
use super::*;

fn cache() -> Scratch {
    let scratch = Scratch::new();
    ingest_with(&Os, &sample(), &scratch.out()).unwrap();
    scratch
}

/// Changes a JSON file and gives it its checksum again.
fn change(path: &Path, edit: impl Fn(&mut Value)) {
    let mut value: Value = read_json(path).unwrap();
    value.as_object_mut().unwrap().remove("crc32c");
    edit(&mut value);
    std::fs::write(path, to_json(&value).unwrap()).unwrap();
}

/// Changes a unit's description, in a cache that has only its units and the plan.
fn change_unit(out: &Path, edit: impl Fn(&mut Value)) {
    let _ = std::fs::remove_file(out.join(MANIFEST));
    change(&out.join("shards/unit-000000/unit.json"), edit);
}

fn open_and_read(out: &Path) -> robocache::Error {
    let cache = match Cache::open(out) {
        Err(error) => return error,
        Ok(cache) => cache,
    };
    let all = (0..cache.len()).flat_map(|at| (0..cache.streams().len()).map(move |place| (at, place)));
    all.map(|(at, place)| read(&cache, at, place)).find_map(Result::err).unwrap()
}

#[test]
fn a_newer_version_is_refused_by_name_78_79() {
    let scratch = cache();
    let newer = |value: &mut Value| value["version"] = 2.into();
    for (name, remove) in [("manifest.json", false), ("plan.json", true), ("shards/unit-000001/unit.json", true)] {
        let path = scratch.out().join(name);
        let kept = std::fs::read(&path).unwrap();
        if remove {
            let _ = std::fs::remove_file(scratch.out().join(MANIFEST));
        }
        change(&path, newer);
        let error = Cache::open(&scratch.out()).unwrap_err();
        assert_eq!((error.kind(), error.file()), (ErrorKind::Unsupported, Some(&*path)), "{error}");
        assert!(error.to_string().contains("version 2"), "{error}");
        if remove {
            assert_eq!(ingest_with(&Os, &sample(), &scratch.out()).unwrap_err().kind(), ErrorKind::Unsupported);
        }
        // A newer version may also keep its checksum elsewhere.
        std::fs::write(&path, b"{\"format\": \"robocache\", \"version\": 2}").unwrap();
        assert_eq!(Cache::open(&scratch.out()).unwrap_err().kind(), ErrorKind::Unsupported);
        std::fs::write(&path, kept).unwrap();
    }
}

#[test]
fn another_type_or_shape_than_the_file_has_is_refused_78() {
    let scratch = cache();
    let manifest = scratch.out().join(MANIFEST);
    let kept = std::fs::read(&manifest).unwrap();
    let edits: [fn(&mut Value); 4] = [
        |stream| stream["dtype"] = "int32".into(),
        |stream| stream["shape"] = vec![1usize; 3].into(),
        |stream| stream["encoding"] = "jpeg".into(),
        |stream| stream["shape"] = vec![1usize << 40].into(),
    ];
    for edit in edits {
        change(&manifest, |value| value["streams"].as_array_mut().unwrap().iter_mut().for_each(edit));
        match Cache::open(&scratch.out()) {
            // It does not even fit the rest of the manifest.
            Err(error) => assert_eq!(error.kind(), ErrorKind::CorruptData, "{error}"),
            Ok(cache) => {
                for place in 0..cache.streams().len() {
                    let error = cache.times(0, place).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::CorruptData, "{error}");
                }
            }
        }
        std::fs::write(&manifest, &kept).unwrap();
    }
}

#[test]
fn names_that_lead_out_of_the_cache_are_refused_62() {
    let scratch = cache();
    let secret = scratch.0.join("secret.arrow");
    let shard = scratch.out().join("shards/unit-000000");
    let shard = files(&shard).into_iter().find(|path| path.extension().is_some_and(|end| end == "arrow")).unwrap();
    std::fs::copy(&shard, &secret).unwrap();
    let manifest = scratch.out().join(MANIFEST);
    let index = read_json::<Value>(&manifest).unwrap()["index"].as_str().unwrap().to_owned();
    std::fs::copy(scratch.out().join(&index), scratch.0.join(&index)).unwrap();
    for name in [format!("../{index}"), scratch.0.join(&index).to_str().unwrap().to_owned(), String::new()] {
        change(&manifest, |value| value["index"] = name.as_str().into());
        let error = Cache::open(&scratch.out()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CorruptData, "{error}");
    }
    let known = shard.file_name().unwrap().to_str().unwrap();
    change_unit(&scratch.out(), |value| {
        for file in value["files"].as_array_mut().unwrap() {
            if file["file"] == known {
                file["file"] = "../../../secret.arrow".into();
            }
        }
    });
    let error = open_and_read(&scratch.out());
    assert_eq!(error.kind(), ErrorKind::CorruptData, "{error}");
}

#[test]
fn numbers_that_are_too_large_reserve_nothing() {
    let edits: [fn(&mut Value); 6] = [
        |unit| unit["episodes"][0]["rows"][0] = vec![0u64, 1 << 40].into(),
        |unit| unit["episodes"][0]["rows"][0] = vec![u64::MAX, 2].into(),
        |unit| unit["episodes"][0]["rows"][0] = vec![1u64, u64::MAX].into(),
        |unit| unit["files"][0]["batches"] = vec![1u64 << 40].into(),
        |unit| unit["files"][0]["batches"] = vec![u64::MAX, 5].into(),
        |unit| unit["files"][0]["crc32c"] = Vec::<u32>::new().into(),
    ];
    for edit in edits {
        let scratch = cache();
        change_unit(&scratch.out(), edit);
        let error = open_and_read(&scratch.out());
        assert_eq!(error.kind(), ErrorKind::CorruptData, "{error}");
    }
    for number in [1u64 << 60, u64::MAX] {
        let scratch = cache();
        change(&scratch.out().join(MANIFEST), |value| value["units"][0]["unit"] = number.into());
        let error = open_and_read(&scratch.out());
        assert_eq!(error.kind(), ErrorKind::CorruptData, "{error}");
    }
}

#[test]
fn statistics_of_another_stream_are_the_fault_of_their_unit() {
    let scratch = cache();
    change_unit(&scratch.out(), |unit| {
        let stats = unit["stats"].as_array_mut().unwrap();
        let wide = stats.iter().find(|stats| stats["width"] == 8).unwrap().clone();
        *stats.iter_mut().find(|stats| stats["width"] == 1).unwrap() = wide;
    });
    let error = Cache::open(&scratch.out()).unwrap_err();
    let path = scratch.out().join("shards/unit-000000/unit.json");
    assert_eq!((error.kind(), error.file()), (ErrorKind::CorruptData, Some(&*path)), "{error}");
    assert!(error.to_string().contains("8 components, expected 1"), "{error}");
}

#[test]
fn pipes_and_folders_in_place_of_files_are_errors_63() {
    for name in ["manifest.json", "plan.json", "shards/unit-000000/unit.json", "index", "shard"] {
        for pipe in [true, false] {
            let scratch = cache();
            let all = files(&scratch.out());
            let starts = |path: &&PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("index-");
            let path = match name {
                "index" => all.iter().find(starts).unwrap().clone(),
                "shard" => all.into_iter().find(|path| path.starts_with(scratch.out().join("shards"))).unwrap(),
                name => scratch.out().join(name),
            };
            if ["plan.json"].contains(&name) {
                std::fs::remove_file(scratch.out().join(MANIFEST)).unwrap();
            }
            std::fs::remove_file(&path).unwrap();
            if pipe {
                let text = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
                // SAFETY: a path that ends in zero.
                assert_eq!(unsafe { libc::mkfifo(text.as_ptr(), 0o600) }, 0);
            } else {
                std::fs::create_dir(&path).unwrap();
            }
            let error = open_and_read(&scratch.out());
            assert_eq!((error.kind(), error.file()), (ErrorKind::FileError, Some(&*path)), "{name}: {error}");
        }
    }
}

#[test]
fn made_up_shards_with_right_checksums_are_survived() {
    let scratch = cache();
    let folder = scratch.out().join("shards/unit-000000");
    let unit: UnitManifest = read_json(&folder.join("unit.json")).unwrap();
    let plan: Plan = read_json(&scratch.out().join(PLAN)).unwrap();
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let (mut refused, mut read) = (0, 0);
    for facts in &unit.files {
        let stream = &plan.streams[facts.stream];
        let whole = std::fs::read(folder.join(&facts.file)).unwrap();
        let total: u64 = facts.batches.iter().sum();
        for round in 0..scaled(600) {
            let mut bytes = whole.clone();
            for _ in 0..=random.below(3) {
                // The footer and the descriptions of batches, more often than the numbers.
                let at = match random.below(3) {
                    0 => random.below(bytes.len()),
                    1 => bytes.len() - 1 - random.below(bytes.len().min(700)),
                    _ => random.below(bytes.len().min(900)),
                };
                match random.below(4) {
                    0 => bytes[at] = 0xff,
                    1 => bytes[at] = 0,
                    2 => bytes[at] ^= 1 << random.below(8),
                    _ => bytes.truncate(bytes.len().min(at + bytes.len() / 2)),
                }
            }
            let mut facts = facts.clone();
            facts.bytes = bytes.len() as u64;
            facts.crc32c = vec![crc32c::crc32c(&bytes)];
            facts.file = format!("{round}.arrow");
            std::fs::write(folder.join(&facts.file), &bytes).unwrap();
            let look = || -> Result<()> {
                let shard = Shard::open(&folder, &facts, stream)?;
                shard.times(0, total as usize)?;
                for row in 0..total {
                    match stream.encoding {
                        Encoding::Raw => drop(shard.rows(row, 1, stream.row_bytes())?),
                        _ => drop(shard.item(row)?),
                    }
                }
                Ok(())
            };
            match look() {
                Ok(()) => read += 1,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::CorruptData, "{error}");
                    refused += 1;
                }
            }
            std::fs::remove_file(folder.join(&facts.file)).unwrap();
        }
    }
    assert!(refused > 0 && read > 0, "{refused} refused, {read} read");
}

#[test]
fn a_manifest_that_contradicts_itself_is_refused() {
    let scratch = cache();
    let manifest = scratch.out().join(MANIFEST);
    let kept = std::fs::read(&manifest).unwrap();
    type Edit = fn(&mut Value);
    let edits: [(Edit, &str); 13] = [
        (|all| all["stats"]["ghost"] = all["stats"]["action"].clone(), "there is no stream \"ghost\""),
        (|all| drop(all["stats"]["action"]["mean"].as_array_mut().unwrap().pop()), "stats of \"action\": expected"),
        (|all| all["stats"]["action"]["count"] = (1u64 << 63).into(), "there are no 9223372036854775808 samples"),
        (|all| all["stats"]["action"]["nan"] = Vec::<u64>::new().into(), "got 0"),
        (|all| all["streams"][1]["name"] = all["streams"][0]["name"].clone(), "two are called"),
        (|all| all["streams"][0]["dtype"] = "float31".into(), "there is no dtype \"float31\""),
        (|all| all["streams"][0]["shape"] = vec![u64::MAX, 2].into(), "no sample has the shape"),
        (|all| all["streams"][0]["method"] = Vec::<u64>::new().into(), "are covered"),
        (|all| all["streams"][0]["rate"] = (-1).into(), "expected a rate above 0, got"),
        (|all| all["streams"][0]["kind"] = "image".into(), "pictures are height, width, channels"),
        (|all| all["sources"][0]["rate"] = 0.into(), "expected a rate above 0, got 0"),
        (|all| all["sources"][0]["streams"][0][1] = 99.into(), "is stream 99 of"),
        (|all| all["skipped"] = serde_json::json!([{"source": 7, "episode": 0, "reason": ""}]), "there is no source 7"),
    ];
    for (edit, words) in edits {
        change(&manifest, edit);
        let error = Cache::open(&scratch.out()).unwrap_err();
        assert_eq!((error.kind(), error.file()), (ErrorKind::CorruptData, Some(&*manifest)), "{error}");
        assert!(error.to_string().contains(words), "{words}: {error}");
        std::fs::write(&manifest, &kept).unwrap();
    }
    change(&manifest, |all| all["sources"] = Vec::<u64>::new().into());
    let error = Cache::open(&scratch.out()).unwrap_err();
    assert!(error.kind() == ErrorKind::CorruptData && error.to_string().contains("of source 0"), "{error}");
    std::fs::write(&manifest, &kept).unwrap();
    // The plan and the units of a cache without a manifest, too.
    std::fs::remove_file(&manifest).unwrap();
    change(&scratch.out().join(PLAN), |plan| plan["streams"][0]["shape"] = vec![u64::MAX, 2].into());
    assert_eq!(Cache::open(&scratch.out()).unwrap_err().kind(), ErrorKind::CorruptData);
    let scratch = cache();
    change_unit(&scratch.out(), |unit| {
        unit["files"][0]["bytes"] = u64::MAX.into();
    });
    assert_eq!(Cache::open(&scratch.out()).unwrap().units()[0].bytes, u64::MAX);
    let scratch = cache();
    change_unit(&scratch.out(), |unit| {
        let stats = unit["stats"].as_array_mut().unwrap();
        stats.iter_mut().find(|stats| !stats.is_null()).unwrap()["samples"] = (1u64 << 63).into();
    });
    let error = Cache::open(&scratch.out()).unwrap_err();
    assert!(error.kind() == ErrorKind::CorruptData && error.to_string().contains("there are no"), "{error}");
    let scratch = cache();
    change_unit(&scratch.out(), |unit| {
        unit["stats"][0] = serde_json::json!({"width": 1u64 << 40, "samples": 0, "values": "nothing"});
    });
    let error = Cache::open(&scratch.out()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CorruptData, "{error}");
}
