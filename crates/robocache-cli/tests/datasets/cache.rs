use serde_json::{Value, json};

use std::path::Path;

use super::*;

/// A cache of the numbers of a dataset, in several units.
fn cache(name: &str) -> Folder {
    let out = Folder::new(name);
    good(&["ingest", &sample("lerobot_v30"), out.text(), "--images", "skip", "--unit-frames", "64"]);
    out
}

#[test]
fn a_listing_is_that_of_inspect() {
    let out = cache("cache-ls");
    let text = good(&["cache", "ls", out.text()]);
    assert_eq!(text, good(&["inspect", out.text()]));
    for part in ["cache     ", "episodes  5\n", "frames    177\n", "duration  5.9 s\n", "lerobot_v30: lerobot v3.0, "] {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
    let row = text.lines().find(|line| line.starts_with("observation.ee_pose ")).unwrap();
    assert!(row.contains("float32  7      raw   linear 0-2, slerp 3-6") && row.ends_with("KiB"), "{text}");
    assert!(text.lines().skip(1).all(|line| line.chars().count() <= 80 && !line.ends_with(' ')), "{text}");
    let report = json(&["cache", "ls", out.text(), "--json"]);
    assert_eq!(report, json(&["inspect", out.text(), "--json"]));
    assert_eq!((&report["format"], &report["complete"]), (&json!("robocache cache"), &json!(true)));
    assert_eq!((&report["episodes"], &report["frames"], &report["skipped"]), (&5.into(), &177.into(), &json!([])));
    let streams = report["streams"].as_array().unwrap();
    assert!(streams.iter().all(|stream| stream["samples"] == 177 && stream["encoding"] == "raw"), "{report}");
    let sum: u64 = streams.iter().map(|stream| stream["bytes"].as_u64().unwrap()).sum();
    assert_eq!(report["bytes"], sum);
    for (flag, value) in [("--episode", "1"), ("--plot", "a.svg")] {
        let message = refused(&["inspect", out.text(), flag, value]);
        assert!(message.starts_with(&format!("robocache: inspect: {flag}: this is a cache")), "{message}");
    }
}

#[test]
fn a_dataset_with_such_a_file_stays_a_dataset() {
    let folder = Folder::copy_of("lerobot_v21", "cache-name");
    std::fs::write(folder.join("manifest.json"), "{}").unwrap();
    assert!(good(&["inspect", folder.text()]).contains("format    lerobot v2.1"));
    std::fs::remove_dir_all(folder.join("meta")).unwrap();
    let message = refused(&["inspect", folder.text()]);
    assert!(message.contains("expected JSON of a cache") && message.contains("manifest.json"), "{message}");
}

#[test]
fn a_flipped_bit_is_found_named_and_made_good() {
    let out = cache("cache-flip");
    let text = good(&["cache", "verify", out.text()]);
    assert!(text.starts_with("no damage: ") && text.contains(" files, "), "{text}");
    let report = json(&["cache", "ls", out.text(), "--json"]);
    let units = report["units"].as_u64().unwrap();
    let file = "shards/unit-000001/action.arrow";
    let mut bytes = std::fs::read(out.join(file)).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(out.join(file), bytes).unwrap();

    let output = run(&["cache", "verify", out.text()]);
    let text = stdout(&output);
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(1), ""), "{text}");
    assert!(text.starts_with(&format!("damaged {file}\n  the checksum of block 0 ")), "{text}");
    assert!(text.contains("; it held episode"), "{text}");
    assert!(text.contains("\n1 damaged part: "), "{text}");
    let output = run(&["cache", "verify", out.text(), "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &report["ok"], &report["files"]), (Some(1), &json!(false), &(6 * units).into()));
    let damage = &report["damage"][0];
    // A file of one block cannot be opened then, and is lost as a whole.
    assert_eq!((&damage["block"], &damage["offset"]), (&Value::Null, &Value::Null));
    assert_eq!(damage["path"], json!(out.join(file)));
    assert!(!damage["message"].as_str().unwrap().contains(out.text()), "{damage}");
    let plan: Value = serde_json::from_slice(&std::fs::read(out.join("plan.json")).unwrap()).unwrap();
    let unit = &plan["units"][1];
    let held: Vec<_> = damage["episodes"].as_array().unwrap().iter().map(|lost| &lost["episode"]).collect();
    let expected = unit["first"].as_u64().unwrap()..unit["end"].as_u64().unwrap();
    assert_eq!(held, expected.map(Value::from).collect::<Vec<_>>().iter().collect::<Vec<_>>());

    // As the report says.
    let output = run(&["cache", "verify", out.text(), "--quarantine"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("1 unit moved to quarantine/"), "{text}");
    assert!(Path::new(&out.join("quarantine/unit-000001-0/action.arrow")).exists());
    // What is left is whole, and none of the bad one is served.
    assert!(good(&["cache", "verify", out.text()]).starts_with("no damage: "));
    let listed = json(&["cache", "ls", out.text(), "--json"]);
    assert_eq!((&listed["complete"], &listed["units"]), (&json!(false), &(units - 1).into()));
    good(&["ingest", &sample("lerobot_v30"), out.text(), "--images", "skip", "--unit-frames", "64"]);
    assert!(good(&["cache", "verify", out.text()]).starts_with("no damage: "));
    assert_eq!(json(&["cache", "ls", out.text(), "--json"])["complete"], json!(true));
    good(&["cache", "gc", out.text()]);
    assert!(!Path::new(&out.join("quarantine")).exists());
}

#[test]
fn a_bad_block_of_many_takes_only_its_episodes() {
    let (source, out) = (made("cache-long", 6, 300_000), Folder::new("cache-blocks"));
    good(&["ingest", source.text(), out.text(), "--unit-frames", "2000000"]);
    let file = "shards/unit-000000/action.arrow";
    let mut bytes = std::fs::read(out.join(file)).unwrap();
    assert!(bytes.len() > 3 * (4 << 20), "{}", bytes.len());
    bytes[5 << 20] ^= 0x80;
    std::fs::write(out.join(file), bytes).unwrap();
    let output = run(&["cache", "verify", out.text(), "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let [damage] = &report["damage"].as_array().unwrap()[..] else { panic!("expected one damage: {report}") };
    assert_eq!((&damage["block"], &damage["offset"]), (&json!(1), &json!(4 << 20)));
    let held = damage["episodes"].as_array().unwrap();
    assert!((1..6).contains(&held.len()), "{damage}");
    let lost = &held[0];
    assert_eq!((&lost["at"], &lost["source"]), (&lost["episode"], &json!(0)), "{damage}");
    // Those are the ones that readers refuse.
    let cache = robocache_data::cache::Cache::open(&out.0).unwrap();
    let refused: Vec<_> = (0..6).filter(|&at| cache.numbers(at, 0).is_err()).collect();
    assert_eq!(held.iter().map(|lost| lost["at"].as_u64().unwrap() as usize).collect::<Vec<_>>(), refused);
    let text = stdout(&run(&["cache", "verify", out.text()]));
    assert!(text.starts_with(&format!("damaged {file}\n  the checksum of block 1 ")), "{text}");
}

#[test]
fn missing_and_cut_files_are_damage() {
    let out = cache("cache-cut");
    std::fs::remove_file(out.join("shards/unit-000000/action.arrow")).unwrap();
    let cut = out.join("shards/unit-000001/next.done.arrow");
    let bytes = std::fs::read(&cut).unwrap();
    std::fs::write(&cut, &bytes[..bytes.len() - 1]).unwrap();
    std::fs::write(out.join("shards/unit-000002/unit.json"), "{}").unwrap();
    let output = run(&["cache", "verify", out.text()]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for file in ["unit-000000/action.arrow", "unit-000001/next.done.arrow", "unit-000002/unit.json"] {
        assert_eq!(text.matches(&format!("damaged shards/{file}\n")).count(), 1, "{text}");
    }
    // Sizes are not known then, but the rest is.
    assert!(good(&["cache", "ls", out.text()]).contains("episodes  5\n"));
}

#[test]
fn what_is_left_behind_is_removed() {
    let out = cache("cache-gc");
    // No process has a number as high as the first; the second is ours.
    let (dead, alive) =
        ("shards/.tmp-2147483647-0-unit-000007".to_owned(), format!(".tmp-{}-1-plan.json", std::process::id()));
    std::fs::create_dir(out.join(&dead)).unwrap();
    std::fs::write(out.join(&format!("{dead}/action.arrow")), [0; 100]).unwrap();
    std::fs::write(out.join("index-00000000.arrow"), [0; 11]).unwrap();
    std::fs::write(out.join(&alive), "{}").unwrap();
    let report = json(&["cache", "gc", out.text(), "--json"]);
    assert_eq!(report["removed"], json!([out.join("index-00000000.arrow"), out.join(&dead)]));
    assert_eq!((&report["bytes"], &report["path"]), (&json!(111), &json!(out.text())));
    assert!(Path::new(&out.join(&alive)).exists());
    assert_eq!(good(&["cache", "gc", out.text()]), "nothing to remove\n");
    std::fs::create_dir(out.join(&dead)).unwrap();
    assert_eq!(good(&["cache", "gc", out.text()]), format!("removed {dead}\n1 thing, 0 B\n"));
    assert!(good(&["cache", "verify", out.text()]).starts_with("no damage: "));
}

#[test]
fn what_is_no_cache_is_refused_by_name() {
    let path = sample("lerobot_v30");
    for command in ["ls", "verify", "gc"] {
        let message = refused(&["cache", command, &path]);
        assert!(message.starts_with("robocache: cache: no cache: ") && message.contains(&path), "{message}");
        assert!(refused(&["cache", command]).contains("<PATH>"));
    }
    assert!(!Path::new(&format!("{path}/lock")).exists());
    assert!(refused(&["cache"]).contains("verify") && refused(&["cache", "purge"]).contains("purge"));
}
