use arrow_array::{Float64Array, Int64Array};
use serde_json::{Value, json};

use super::*;

#[test]
fn a_summary_fits_a_terminal() {
    for (name, parts) in [
        (
            "lerobot_v30",
            ["format    lerobot v3.0", "episodes  5\n", "frames    177 at 30 Hz", "From the stamps of all 5"],
        ),
        (
            "lerobot_v21",
            ["format    lerobot v2.1", "episodes  3\n", "frames    97 at 20 Hz", "From the stamps of all 3"],
        ),
    ] {
        let text = good(&["inspect", &sample(name)]);
        let both =
            ["tasks     2\n          Put the red cube into the tray\n", "slerp 3-6", "..., gripper", "float32  8 "];
        for part in parts.iter().chain(&both) {
            assert!(text.contains(part), "{part:?} is missing in\n{text}");
        }
        // The first line has the path, which is as long as it is.
        let lines: Vec<_> = text.lines().skip(1).collect();
        assert!(lines.iter().all(|line| line.chars().count() <= 80 && !line.ends_with(' ')), "{text}");
        assert!(!text.contains('\x1b') && !text.contains("gaps"), "{text}");
    }
}

#[test]
fn a_summary_has_json() {
    let report = json(&["inspect", &sample("lerobot_v30"), "--json"]);
    assert_eq!(
        (&report["format"], &report["episodes"], &report["frames"]),
        (&json!("lerobot v3.0"), &json!(5), &json!(177))
    );
    assert_eq!((&report["rate_hz"], &report["plot"]), (&json!(30.0), &Value::Null));
    assert!((report["duration_seconds"].as_f64().unwrap() - 5.9).abs() < 1e-9);
    assert_eq!(report["lengths"], json!({ "min": 20, "median": 33, "max": 60 }));
    assert_eq!(report["looked_at"], json!({ "episodes": 5, "unreadable": [] }));
    assert_eq!(report["tasks"].as_array().unwrap().len(), 2);
    assert!(report["bytes"].as_u64().unwrap() > 50_000);
    let streams = report["streams"].as_array().unwrap();
    let pose = streams.iter().find(|stream| stream["name"] == "observation.ee_pose").unwrap();
    assert_eq!((&pose["kind"], &pose["dtype"], &pose["shape"]), (&json!("vector"), &json!("float32"), &json!([7])));
    assert_eq!(pose["method"][1], json!({ "method": "slerp", "start": 3, "end": 7 }));
    assert_eq!(pose["unreadable"], json!([]));
    for stream in streams {
        let clock = &stream["clock"];
        assert!((clock["rate_hz"].as_f64().unwrap() - 30.0).abs() < 1e-3, "{stream}");
        // The file's own stamps have 32 bits.
        assert!(clock["jitter_seconds"].as_f64().unwrap() <= 1e-6, "{stream}");
        assert_eq!((&clock["samples"], &clock["gaps"], &clock["backward"]), (&json!(177), &json!(0), &json!(0)));
        assert!((clock["largest_gap"]["seconds"].as_f64().unwrap() - 1.0 / 30.0).abs() < 1e-6, "{stream}");
    }
}

#[test]
fn jitter_and_gaps_are_those_of_the_recording() {
    let folder = made("jitter", 1, 200);
    // Every other stamp is 20 ms late, and five seconds are missing after the 40th.
    let stamp = |n: i64| n as f64 / 10.0 + if n % 2 == 1 { 0.02 } else { 0.0 } + if n >= 40 { 5.0 } else { 0.0 };
    let columns: [(&str, ArrayRef); 3] = [
        ("action", Arc::new(Float32Array::from_iter_values((0..200).map(|n| n as f32)))),
        ("frame_index", Arc::new(Int64Array::from_iter_values(0..200))),
        ("timestamp", Arc::new(Float64Array::from_iter_values((0..200).map(stamp)))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let file = std::fs::File::create(folder.join("data/chunk-000/episode_000000.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let report = json(&["inspect", folder.text(), "--json"]);
    let clock = &report["streams"][0]["clock"];
    assert_eq!((&clock["samples"], &clock["gaps"]), (&json!(200), &json!(1)), "{clock}");
    assert!((clock["jitter_seconds"].as_f64().unwrap() - 0.04).abs() < 1e-6, "{clock}");
    let gap = &clock["largest_gap"];
    assert!((gap["seconds"].as_f64().unwrap() - 5.08).abs() < 1e-6, "{clock}");
    assert!((gap["at_seconds"].as_f64().unwrap() - 3.92).abs() < 1e-6, "{clock}");
}

#[test]
fn one_episode_can_be_chosen_by_its_number() {
    let path = sample("lerobot_v30");
    let report = json(&["inspect", &path, "--episode", "2", "--json"]);
    assert_eq!((&report["episodes"], &report["looked_at"]["episodes"]), (&json!(5), &json!(1)));
    assert_eq!(report["streams"][0]["clock"]["samples"], 60);
    assert!(good(&["inspect", &path, "--episode", "2"]).contains("From the stamps of one of 5 episodes."));
    let message = refused(&["inspect", &path, "--episode", "5"]);
    assert!(
        message.starts_with("robocache: inspect: --episode: there is no episode 5; the dataset has 5 ("),
        "{message}"
    );
    assert!(refused(&["inspect", &path, "--episode", "-1"]).contains("-1"));
}

#[test]
fn a_stream_without_files_is_a_row_not_an_error() {
    let folder = Folder::copy_of("lerobot_v21", "no-video");
    std::fs::remove_dir_all(folder.join("videos")).unwrap();
    let text = good(&["inspect", folder.text()]);
    let row = text.lines().find(|line| line.starts_with("observation.images.top")).unwrap();
    assert!(row.ends_with("unreadable"), "{text}");
    assert!(text.contains("observation.images.top: cannot be read in episode 0, nor in 2 others: "), "{text}");
    let report = json(&["inspect", folder.text(), "--json"]);
    let streams = report["streams"].as_array().unwrap();
    let bad: Vec<_> = streams.iter().filter(|stream| stream["clock"].is_null()).map(|stream| &stream["name"]).collect();
    assert_eq!(bad, [&json!("observation.images.top")]);
    assert_eq!(report["looked_at"]["unreadable"], json!([]));
}

#[test]
fn an_episode_that_cannot_be_read_is_named_once() {
    let folder = Folder::copy_of("lerobot_v21", "no-rows");
    std::fs::write(folder.join("data/chunk-000/episode_000001.parquet"), "PAR1").unwrap();
    let text = good(&["inspect", folder.text()]);
    assert_eq!(text.matches("episode 1 cannot be read: ").count(), 1, "{text}");
    assert!(!text.contains("unreadable"), "{text}");
    let report = json(&["inspect", folder.text(), "--json"]);
    assert_eq!(report["looked_at"]["unreadable"][0]["episode"], 1);
    assert_eq!(report["streams"][0]["unreadable"], json!([]));
    assert_eq!(report["streams"][0]["clock"]["samples"], 97 - 20);
}

#[test]
fn names_from_files_cannot_move_the_cursor() {
    let folder = Folder::copy_of("lerobot_v21", "escape");
    let path = folder.join("meta/tasks.jsonl");
    std::fs::write(&path, "{\"task_index\": 0, \"task\": \"\\u001b[2Jgone\"}\n").unwrap();
    let text = good(&["inspect", folder.text()]);
    assert!(text.contains("\\u{1b}[2Jgone") && !text.contains('\x1b'), "{text}");
}

#[test]
fn the_samples_of_others_can_be_read() {
    let path = format!("{}/../../../shared/data/lerobot_v20", env!("CARGO_MANIFEST_DIR"));
    if !Path::new(&path).exists() {
        println!("skipped: there is no {path}");
        return;
    }
    let report = json(&["inspect", &path, "--json"]);
    assert_eq!((&report["format"], &report["episodes"]), (&json!("lerobot v2.0"), &json!(5)));
    let streams = report["streams"].as_array().unwrap();
    let unreadable = streams.iter().filter(|stream| !stream["unreadable"].as_array().unwrap().is_empty());
    assert_eq!(unreadable.map(|stream| &stream["name"]).collect::<Vec<_>>(), [&json!("observation.images.egoview")]);
    let text = good(&["inspect", &path]);
    // Long names are shortened where there are columns behind them.
    let table = text.split("\n\n").nth(1).unwrap();
    assert!(
        table.contains("annota...k_description") && table.lines().all(|line| line.chars().count() <= 80),
        "{table}"
    );
}
