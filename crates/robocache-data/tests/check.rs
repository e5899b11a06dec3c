//! `check` on datasets that are broken in one way each. Every code has a row.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod check_forge;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use robocache::ErrorKind;
use robocache_data::cache::{Images, IngestOptions, ingest};
use robocache_data::{CODES, Dataset, Finding, Level, Limits, Progress};
use serde_json::{Value, json};

use check_forge::{CAMERA, Column, FPS, Folder, Forge, Movie, STATE};

const V3: &str = "v3.0";
const V21: &str = "v2.1";
const V20: &str = "v2.0";

/// What the system could not read this time.
const NOW: &str = "unreadable_now";

fn check(folder: &Folder) -> Vec<Finding> {
    Dataset::check(&folder.0, &Limits::default(), &Progress::default()).unwrap()
}

/// A way to break a dataset, and what must be found: code, level, episode, words.
struct Fault {
    version: &'static str,
    break_it: fn(&mut Forge),
    found: (&'static str, Level, Option<u64>, &'static str),
}

const fn fault(
    version: &'static str,
    break_it: fn(&mut Forge),
    code: &'static str,
    level: Level,
    episode: Option<u64>,
    words: &'static str,
) -> Fault {
    Fault { version, break_it, found: (code, level, episode, words) }
}

fn video(column: &str) -> String {
    format!("videos/{CAMERA}/{column}")
}

/// Some rows of a stream of vectors.
fn state(forge: &mut Forge, file: usize, change: impl Fn(usize, &mut [f32])) {
    let values = forge.data[file].1.floats(STATE);
    values.chunks_exact_mut(6).enumerate().for_each(|(row, values)| change(row, values));
}

/// Adds a stream of words, made row by row.
fn note(forge: &mut Forge, dtype: &str, cell: impl Fn(usize) -> Column) {
    forge.info["features"]["note"] = json!({"dtype": dtype, "shape": [1], "names": null});
    for (_, table) in &mut forge.data {
        let rows = table.integers("index").len();
        let mut all = cell(0);
        (1..rows).for_each(|row| all.append(cell(row)));
        *table = table.clone().with("note", all);
    }
}

use Level::{Error, Note, Warning};

#[rustfmt::skip]
const FAULTS: &[Fault] = &[
    // The metadata.
    fault(V3, |f| f.info["total_episodes"] = json!(4), "counts_differ", Error, None, "expected 4 episodes by \"total_episodes\", the metadata lists 3"),
    fault(V21, |f| f.info["total_frames"] = json!(7), "counts_differ", Error, None, "expected 7 frames by \"total_frames\", the metadata lists 120"),
    fault(V3, |f| f.info["total_tasks"] = json!(1), "counts_differ", Warning, None, "the metadata lists 2"),
    fault(V3, |f| f.info["splits"]["train"] = json!("0:100"), "counts_differ", Note, None, "by the split \"train\", there are 3"),
    fault(V3, |f| f.episodes.integers("episode_index")[2] = 5, "episode_gap", Warning, Some(5), "expected episode 2, got 5: 3 are left out"),
    fault(V3, |f| { f.episodes.integers("episode_index")[2] = 5; f.data[1].1.integers("episode_index").fill(5); }, "episode_gap", Warning, Some(5), "expected episode 2, got 5: 3 are left out"),
    fault(V21, |f| {
        f.lines[2]["episode_index"] = json!(3);
        f.data[2].1.integers("episode_index").fill(3);
        for name in [&mut f.data[2].0, &mut f.videos[2].0] { *name = name.replace("2.", "3."); }
    }, "episode_gap", Warning, Some(3), "expected episode 2, got 3"),
    fault(V21, |f| f.lines[2]["episode_index"] = json!(1), "episode_duplicate", Error, Some(1), "1 is listed again"),
    fault(V21, |f| f.lines[1]["length"] = json!(0), "episode_empty", Warning, Some(1), "the length is 0"),
    fault(V21, |f| f.lines[1]["length"] = json!(29), "length_differs", Error, Some(1), "expected 29 rows as the metadata says, the file has 30"),
    fault(V3, |f| f.episodes.integers("length")[1] = 29, "length_differs", Error, Some(1), "expected 29 rows as \"length\" says, the range 40 to 70 has 30"),
    fault(V3, |f| {
        f.episodes.integers("length")[2] = 51;
        f.episodes.integers("dataset_to_index")[2] = 121;
    }, "length_differs", Error, Some(2), "expected rows 0 to 51 for this episode, the file has 50"),
    fault(V3, |f| f.episodes.integers("dataset_to_index")[0] = 38, "ranges_do_not_tile", Error, Some(1), "starts at 40: 2 rows without an episode"),
    fault(V3, |f| f.episodes.integers("dataset_from_index")[2] = 67, "ranges_do_not_tile", Error, Some(2), "where episode 1 ends, it starts at 67: 3 rows of two episodes"),
    fault(V3, |f| f.episodes.integers("dataset_from_index")[0] = 1, "ranges_do_not_tile", Error, Some(0), "expected rows from 0 on"),
    fault(V3, |f| {
        f.episodes.integers("length")[2] = 48;
        f.episodes.integers("dataset_to_index")[2] = 118;
    }, "ranges_do_not_tile", Warning, None, "expected 48 rows for the episodes of the metadata, the file has 50"),
    fault(V3, |f| f.episodes.integers("data/file_index").swap(1, 2), "ranges_do_not_tile", Error, Some(2), "30 rows without an episode"),
    fault(V3, |f| f.raw.push(("meta/tasks.parquet".into(), b"PAR1".to_vec())), "tasks_unreadable", Warning, None, ""),
    fault(V21, |f| f.raw.push(("meta/modality.json".into(), b"{".to_vec())), "modality_unreadable", Warning, None, ""),
    fault(V3, |f| f.tasks.push((1, "dance".to_owned())), "task_duplicate", Warning, None, "1 is \"place\" and \"dance\"; the last counts"),
    fault(V3, |f| f.data[1].1.integers("task_index").fill(9), "task_unknown", Warning, Some(2), "expected a task of 0 to 1, got 9 in sample 0"),
    fault(V21, |f| f.lines[1]["tasks"] = json!(["dance"]), "task_unknown", Warning, Some(1), "got \"dance\""),

    // Files.
    fault(V3, |f| drop(f.data.remove(0)), "missing_file", Error, None, "expected a file with 2 episodes, 0 to 1"),
    fault(V21, |f| drop(f.data.remove(1)), "missing_file", Error, Some(1), "expected a file with episode 1"),
    fault(V21, |f| drop(f.videos.remove(2)), "missing_file", Error, Some(2), "expected a video of episode 2"),
    fault(V21, |f| f.videos.clear(), "missing_files", Warning, None, "expected video files, there are none of 3 episodes"),
    fault(V3, |f| f.videos.clear(), "missing_files", Warning, None, "file-000.mp4"),
    fault(V3, |f| (0..2).for_each(|_| f.episodes.drop(&video("chunk_index"))), "missing_files", Warning, None, "does not say where"),
    fault(V3, |f| f.info["video_path"] = json!("../{video_key}.mp4"), "unreadable_file", Error, None, "outside of the dataset"),
    fault(V3, |f| f.raw.push((f.data[0].0.clone(), b"PAR1PAR1".to_vec())), "unreadable_file", Error, None, "expected a file with 2 episodes, 0 to 1: "),
    fault(V21, |f| f.raw.push((f.videos[1].0.clone(), vec![])), "unreadable_file", Error, Some(1), "expected a video of episode 1: "),
    fault(V20, |f| f.raw.push(("meta/stats.json".into(), b"[".to_vec())), "unreadable_file", Warning, None, "expected JSON"),

    // Columns.
    fault(V3, |f| note(f, "language", |_| Column::Texts(vec![vec!["a".to_owned()]])), "stream_left_out", Warning, None, "streams of type \"language\" are not read"),
    fault(V21, |f| note(f, "string", |_| Column::Texts(vec![vec!["a".to_owned()]])), "stream_left_out", Warning, None, "declared as text, stored as List"),
    fault(V21, |f| {
        note(f, "string", |_| Column::Text(vec!["a".to_owned()]));
        *f.data[2].1.column("note") = Column::F32(vec![0.0; 50]);
    }, "dtype_differs", Error, Some(2), "expected text, the file holds float32"),
    fault(V3, |f| f.info["features"][CAMERA]["info"]["video.is_depth_map"] = json!(true), "stream_left_out", Warning, None, "how the distances of the video were quantised"),
    fault(V21, |f| note(f, "string", |row| Column::Words(vec![(row % 7 != 3).then(|| "a".to_owned())])), "text_missing", Warning, Some(1), "of 30 samples, 4 are missing (null) and read as empty; first in sample 3"),
    fault(V21, |f| f.lines[1]["tasks"] = json!([null]), "text_missing", Warning, Some(1), "the words of a task"),
    fault(V21, |f| f.raw.push(("meta/tasks.jsonl".into(), b"{\"task_index\": 0, \"task\": null}\n{\"task_index\": 1, \"task\": \"place\"}\n".to_vec())), "text_missing", Warning, None, "expected words for task 0"),
    fault(V3, |f| f.data[1].1.drop(STATE), "column_missing", Error, Some(2), "expected a column \"observation.state\""),
    fault(V21, |f| f.data[0].1.drop("timestamp"), "column_missing", Warning, None, "\"timestamp\""),
    fault(V3, |f| f.info["features"].as_object_mut().unwrap().retain(|key, _| key != "action"), "column_undeclared", Note, None, "also has \"action\" (Float32) (in 2 files, this one first)"),
    fault(V3, |f| f.info["features"]["action"]["dtype"] = json!("float64"), "dtype_differs", Warning, None, "float64"),
    fault(V3, |f| f.info["features"]["timestamp"]["dtype"] = json!("float64"), "dtype_differs", Warning, None, "expected float64 as declared, the file holds float32"),
    fault(V3, |f| {
        let doubles = f.data[1].1.floats("action").iter().map(|&x| x.into()).collect();
        *f.data[1].1.column("action") = Column::F64(doubles);
    }, "dtype_differs", Error, Some(2), "expected float32, the file holds float64"),
    fault(V3, |f| f.info["features"][STATE]["shape"] = json!([7]), "shape_differs", Error, Some(0), "expected 7 values, got 6"),
    fault(V21, |f| {
        let mut rows: Vec<Vec<f32>> = f.data[1].1.floats(STATE).chunks(6).map(<[f32]>::to_vec).collect();
        rows[29].pop();
        *f.data[1].1.column(STATE) = Column::Lists(rows);
    }, "shape_differs", Error, Some(1), "row 29: expected 6 values, got 5"),
    fault(V3, |f| f.videos[0].1.size = (32, 48), "shape_differs", Warning, None, "expected 64 x 48 as declared, the video is 32 x 48"),
    fault(V3, |f| f.data[0].1.integers("episode_index")[39] = 1, "wrong_episode", Error, Some(0), "1 say another; first sample 39: episode 1"),
    fault(V3, |f| f.data[1].1.integers("index")[3] = 0, "index_differs", Warning, Some(2), "one after the other from 70 on, got 0 in sample 3"),
    fault(V21, |f| f.data[1].1.integers("index").iter_mut().for_each(|n| *n += 1), "index_differs", Warning, Some(1), "expected it to start with row 40 of the dataset, it starts with 41; 1 of 3 episodes start elsewhere"),

    // Stamps.
    fault(V3, |f| f.data[1].1.floats("timestamp").swap(4, 5), "stamps_decrease", Warning, Some(2), "first in sample 5: 0.400000 s after 0.500000 s; not used, times come from frame_index"),
    fault(V3, |f| {
        f.data[1].1.drop("frame_index");
        f.data[1].1.floats("timestamp").swap(4, 5);
    }, "stamps_decrease", Error, Some(2), "first in sample 5: 0.400000 s after 0.500000 s"),
    fault(V3, |f| f.data[1].1.integers("frame_index").swap(4, 5), "stamps_decrease", Error, Some(2), "first in sample 5: 4 after 5"),
    fault(V21, |f| f.data[1].1.floats("timestamp")[5] = 0.4, "stamps_duplicate", Warning, Some(1), "first in sample 5: 0.400000 s after 0.400000 s"),
    fault(V21, |f| f.data[1].1.integers("frame_index")[5] = 4, "stamps_duplicate", Warning, Some(1), "first in sample 5: 4 after 4"),
    fault(V21, |f| f.data[1].1.floats("timestamp")[5..].iter_mut().for_each(|t| *t += 0.25), "stamps_gap", Warning, Some(1), "expected steps of 100.000 ms, 1 are above 3 periods, 350.000 ms at most; first in sample 5"),
    fault(V21, |f| f.data[1].1.integers("frame_index")[5..].iter_mut().for_each(|n| *n += 3), "stamps_gap", Warning, Some(1), "expected every number, 3 are missing in 1 places; first in sample 5: 8 after 4"),
    fault(V3, |f| f.data[1].1.floats("timestamp")[20..].iter_mut().for_each(|t| *t += 0.03), "stamps_drift", Warning, Some(2), "off by up to +30.000 ms in sample"),
    fault(V3, |f| f.data[1].1.floats("timestamp")[20] += 0.003, "stamps_drift", Note, Some(2), "1 of 3 episodes are off by more than 0.1 ms"),
    fault(V3, |f| f.data[1].1.integers("frame_index").iter_mut().for_each(|n| *n += 2), "stamps_start", Note, None, "1 of 3 episodes start later; the first is episode 2 at 0.200 s"),

    fault(V3, |f| f.data[1].1.integers("frame_index")[49] = 93_000_000_000, "stamps_range", Error, Some(2), "93000000000 in sample 49: its time is further from 0"),
    fault(V21, |f| f.data[1].1.integers("frame_index").iter_mut().for_each(|n| *n += 1_760_000_000_000_000_000), "stamps_range", Error, Some(1), "1760000000000000000 in sample 0"),
    fault(V3, |f| f.data[1].1.integers("frame_index").iter_mut().for_each(|n| *n += i64::MIN), "stamps_range", Error, Some(2), "in sample 0"),
    fault(V3, |f| {
        // Each is a time of 64 bits, what lies between them is not.
        let far = 9_223_372_036 * 10;
        f.data[1].1.integers("frame_index")[0] = -far;
        f.data[1].1.integers("frame_index")[49] = far;
    }, "stamps_range", Error, Some(2), "-92233720360 in sample 0"),
    fault(V3, |f| {
        f.data[1].1.drop("frame_index");
        f.data[1].1.floats("timestamp")[0] = -9.1e9;
    }, "not_finite", Error, Some(2), "expected times in seconds, 1 are none; first in sample 0: -9"),

    // Values.
    fault(V3, |f| state(f, 0, |row, v| if row == 41 { v[5] = f32::NAN; v[0] = f32::INFINITY }), "not_finite", Error, Some(1), "got 1 NaN and 1 infinite; first in sample 1, x"),
    fault(V3, |f| f.data[1].1.floats("timestamp")[3] = f32::NAN, "not_finite", Warning, Some(2), "expected times in seconds, 1 are none; first in sample 3: NaN; not used"),
    fault(V3, |f| {
        f.data[1].1.drop("frame_index");
        f.data[1].1.floats("timestamp")[3] = f32::NAN;
    }, "not_finite", Error, Some(2), "expected times in seconds, 1 are none; first in sample 3: NaN"),
    fault(V21, |f| *f.data[1].1.column("timestamp") = Column::Text(vec!["a".to_owned(); 30]), "unreadable_file", Warning, None, "does not hold numbers"),
    fault(V21, |f| {
        f.data[1].1.drop("frame_index");
        *f.data[1].1.column("timestamp") = Column::Text(vec!["a".to_owned(); 30]);
    }, "unreadable_file", Error, None, "does not hold numbers"),
    fault(V21, |f| *f.data[1].1.column("index") = Column::Text(vec!["a".to_owned(); 30]), "unreadable_file", Warning, None, "does not hold numbers"),
    fault(V21, |f| *f.data[1].1.column("frame_index") = Column::Text(vec!["a".to_owned(); 30]), "unreadable_file", Error, None, "does not hold numbers"),
    fault(V3, |f| (0..2).for_each(|file| state(f, file, |_, v| v[5] = 2.5)), "constant", Warning, None, "1 of 6 never do: y = 2.5"),
    fault(V3, |f| (0..2).for_each(|file| state(f, file, |_, v| v[0] = v[0].min(0.9))), "saturated", Note, None, "x = 0.9"),
    fault(V3, |f| state(f, 0, |row, v| if row == 47 { v[1..5].iter_mut().for_each(|q| *q *= 1.5) }), "quaternion_norm", Warning, Some(1), "off by up to 5.000e-1 in sample 7, qx of episode 1"),
    fault(V3, |f| state(f, 0, |row, v| if row == 47 { v[1..5].fill(0.0) }), "quaternion_norm", Error, Some(1), "1 are 0; first in sample 7, qx"),
    fault(V3, |f| state(f, 0, |row, v| if row >= 47 { v[1..5].iter_mut().for_each(|q| *q *= -1.0) }), "quaternion_flip", Warning, Some(1), "1 flip; first in sample 7, qx of episode 1"),

    // Statistics.
    fault(V3, |f| f.stats.as_mut().unwrap()[STATE]["mean"][5] = json!(9.0), "stats_differ", Warning, None, "the mean of y is 9, of the data "),
    fault(V20, |f| f.stats.as_mut().unwrap()["action"]["count"] = json!([100]), "stats_differ", Warning, None, "the count is 100, the data has 120 samples"),
    fault(V21, |f| f.episode_stats.as_mut().unwrap()[1]["stats"]["action"]["max"] = json!([9.5]), "stats_differ", Warning, Some(1), "the max is 9.5, of the data "),
    fault(V20, |f| f.stats = None, "stats_missing", Note, None, "there is no such file"),
    fault(V20, |f| f.stats.as_mut().unwrap()["action"] = Value::Null, "stats_missing", Note, None, "expected statistics of the stream"),
    fault(V21, |f| drop(f.episode_stats.as_mut().unwrap().remove(1)), "stats_missing", Note, Some(1), "expected statistics of the episode"),

    // Videos.
    fault(V21, |f| f.videos[1].1 = Movie::new(29), "video_short", Error, Some(1), "expected 30 frames, one per sample, the video has 29"),
    fault(V3, |f| f.videos[0].1 = Movie::new(119), "video_short", Error, None, "expected 120 frames"),
    fault(V21, |f| f.videos[1].1.cut = 25, "video_short", Error, Some(1), "frame 27 is the first without data"),
    fault(V21, |f| f.videos[1].1 = Movie::new(32), "video_long", Note, None, "expected 30 frames, one per sample, the video has 32"),
    fault(V3, |f| f.videos[0].1 = Movie::new(118), "video_no_frame", Error, Some(2), "of each of 50 samples, 2 have none; the first is sample 48"),
    fault(V21, |f| f.videos[0].1.durations[7] = 130, "video_rate", Warning, None, "expected frames 100.000 ms apart, 1 of 39 steps differ; first after frame 7: 130.000 ms"),
    fault(V21, |f| f.videos.iter_mut().for_each(|v| v.1.durations.fill(90)), "video_rate", Warning, None, "expected 10 frames per second, the video has 11.111"),
    fault(V3, |f| f.episodes.doubles(&video("from_timestamp"))[1] += 0.06, "video_offset", Error, Some(1), "off by +60.000 ms (0.600 frames)"),
    fault(V3, |f| f.episodes.doubles(&video("from_timestamp"))[1] += 0.02, "video_offset", Warning, Some(1), "off by +20.000 ms (0.200 frames)"),
    fault(V3, |f| f.episodes.doubles(&video("from_timestamp"))[1] += 0.001, "video_offset", Note, Some(1), "off by +1.000 ms (0.010 frames)"),
    fault(V3, |f| f.episodes.doubles(&video("to_timestamp"))[2] -= 0.1, "video_offset", Error, Some(2), "expected it to last as long as its samples, off by -100.000 ms"),
    fault(V20, |f| f.data.iter_mut().for_each(|(_, table)| {
        table.drop("frame_index");
        table.floats("timestamp").iter_mut().for_each(|t| *t += 1.0 / FPS as f32);
    }), "video_shifted", Warning, None, "3 of 3 episodes are ahead of it; the first is episode 0, by 100.000 ms"),
    fault(V3, |f| f.videos[0].1.codec = *b"hev1", "codec_differs", Warning, None, "expected h264 as declared, the file holds hevc"),
];

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    for version in [V3, V21, V20] {
        let found = check(&Forge::new(version).write());
        assert!(found.is_empty(), "{version}: {found:#?}");
    }
}

#[test]
fn every_fault_is_found() {
    for fault in FAULTS {
        let mut forge = Forge::new(fault.version);
        (fault.break_it)(&mut forge);
        let folder = forge.write();
        let found = check(&folder);
        let (code, level, episode, words) = fault.found;
        let is_it = |finding: &&Finding| {
            (finding.code, finding.level, finding.episode) == (code, level, episode) && finding.message.contains(words)
        };
        let texts: Vec<String> = found.iter().map(Finding::to_string).collect();
        assert!(found.iter().any(|finding| is_it(&finding)), "{code} {level:?} {episode:?} {words:?}: {texts:#?}");
        let folder = folder.0.display().to_string();
        assert!(texts.iter().all(|text| !text.contains(&folder)), "{texts:#?}");
    }
}

/// What a check calls an error of an episode is not taken, and nothing else is left out.
#[test]
fn ingest_leaves_out_what_a_check_calls_an_error() {
    let mut ends = BTreeSet::new();
    for fault in FAULTS {
        let mut forge = Forge::new(fault.version);
        (fault.break_it)(&mut forge);
        let folder = forge.write();
        let is_of_video = |finding: &&Finding| finding.stream.as_deref() == Some(CAMERA);
        let found = check(&folder);
        let errors: Vec<&Finding> =
            found.iter().filter(|finding| finding.level == Error && !is_of_video(finding)).collect();
        let options = IngestOptions { images: Images::Skip, ..IngestOptions::default() };
        let out = folder.0.join("cache");
        let done = ingest(&folder.0, &out, &options, &Limits::default(), &Progress::default());
        let done = match done {
            Ok(done) => done,
            Err(error) => {
                assert!(!errors.is_empty(), "{:?}: {error}", fault.found);
                ends.insert((fault.found.0, format!("{:?}", error.kind())));
                continue;
            }
        };
        let mut skipped: Vec<u64> = done.skipped.iter().map(|skipped| skipped.episode).collect();
        skipped.dedup();
        let mut wrong: Vec<u64> = errors.iter().filter_map(|finding| finding.episode).collect();
        wrong.sort_unstable();
        wrong.dedup();
        // What is said of a file is of the episodes in it; counts of the whole dataset are of none.
        let is_of_file = |finding: &&Finding| finding.episode.is_none() && finding.code != "counts_differ";
        if errors.iter().any(is_of_file) {
            let has_all = wrong.iter().all(|episode| skipped.contains(episode));
            assert!(!skipped.is_empty() && has_all, "{:?}: {skipped:?} {errors:?}", fault.found);
        } else {
            assert_eq!(skipped, wrong, "{:?}: {errors:?}", fault.found);
        }
    }
    let ends: Vec<_> = ends.iter().map(|(code, kind)| (*code, kind.as_str())).collect();
    // Metadata that contradicts itself.
    assert_eq!(ends, [("counts_differ", "CorruptData"), ("episode_duplicate", "CorruptData")]);
}

#[test]
fn every_code_has_a_fault() {
    let known: BTreeSet<_> = CODES.iter().map(|code| code.name).collect();
    let mut tried: BTreeSet<_> = FAULTS.iter().map(|fault| fault.found.0).collect();
    // No fault of a dataset, but of its reader. It has a test beside that, codes of recordings in src/mcap/tests.rs.
    assert!(tried.insert(NOW));
    let others: BTreeSet<_> = include_str!("codes_of_recordings.txt").split_whitespace().collect();
    assert!(others.iter().all(|&name| tried.insert(name)));
    assert_eq!(known, tried);
    // The level in the list is the worst that comes.
    for code in CODES.iter().filter(|code| code.name != NOW && !others.contains(code.name)) {
        let worst = FAULTS.iter().filter(|fault| fault.found.0 == code.name).map(|fault| fault.found.1).max();
        assert_eq!(worst, Some(code.level), "{}", code.name);
    }
}

#[test]
fn pictures_in_tables_have_the_declared_size() {
    // The header of a PNG of 4 x 2 gray pixels is enough.
    let png = [
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x04\0\0\0\x02\x08\0\0\0\0".as_slice(),
        &crc(b"IHDR\0\0\0\x04\0\0\0\x02\x08\0\0\0\0").to_be_bytes(),
        b"\0\0\0\0IDAT",
        &crc(b"IDAT").to_be_bytes(),
    ]
    .concat();
    let of = |shape: Value, bytes: &[u8]| {
        let mut forge = Forge::new(V21);
        forge.info["features"]["depth"] = json!({"dtype": "image", "shape": shape, "names": null});
        for (_, table) in &mut forge.data {
            let rows = table.integers("index").len();
            *table = table.clone().with("depth", Column::Bytes(vec![bytes.to_vec(); rows]));
        }
        check(&forge.write())
    };
    assert_eq!(of(json!([2, 4, 1]), &png), []);
    let found = of(json!([2, 5, 1]), &png);
    assert_eq!(found.iter().map(|finding| finding.episode).collect::<Vec<_>>(), [Some(0), Some(1), Some(2)]);
    assert!(found[0].message.contains("expected pictures of [2, 5, 1] as declared, sample 0 is [2, 4, 1]"));
    let found = of(json!([2, 4, 1]), b"nothing");
    assert_eq!((found[0].code, found.len()), ("unreadable_file", 3));
}

#[test]
fn pictures_have_the_declared_bits() {
    let png = |bits: u8| {
        let header = [b"IHDR\0\0\0\x04\0\0\0\x02".as_slice(), &[bits], b"\0\0\0\0"].concat();
        let header = [header.clone(), crc(&header).to_be_bytes().to_vec()].concat();
        [b"\x89PNG\r\n\x1a\n\0\0\0\r".as_slice(), &header, b"\0\0\0\0IDAT", &crc(b"IDAT").to_be_bytes()].concat()
    };
    let of = |is_depth: bool, bits: u8| {
        let mut forge = Forge::new(V21);
        let info = json!({"is_depth_map": is_depth});
        forge.info["features"]["depth"] = json!({"dtype": "image", "shape": [2, 4, 1], "names": null, "info": info});
        for (_, table) in &mut forge.data {
            let rows = table.integers("index").len();
            *table = table.clone().with("depth", Column::Bytes(vec![png(bits); rows]));
        }
        check(&forge.write())
    };
    for (is_depth, bits) in [(true, 16), (true, 8), (false, 8)] {
        assert_eq!(of(is_depth, bits), [], "{is_depth} {bits}");
    }
    let found = of(false, 16);
    assert_eq!((found[0].code, found[0].level, found[0].episode), ("dtype_differs", Error, Some(0)));
    assert!(found[0].message.contains("expected pictures of 8 bits per value, sample 0 has 16"), "{}", found[0]);
}

#[test]
fn a_damaged_page_of_texts_is_told() {
    let mut forge = Forge::new(V21);
    note(&mut forge, "string", |_| Column::Text(vec!["hello".to_owned()]));
    let folder = forge.write();
    assert_eq!(check(&folder), []);
    let path = folder.0.join("data/chunk-000/episode_000001.parquet");
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(9).position(|window| window == b"\x05\0\0\0hello").unwrap();
    bytes[at + 3] = 0x7f;
    std::fs::write(&path, bytes).unwrap();
    let found = check(&folder);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!((found[0].code, found[0].level, found[0].episode), ("unreadable_file", Error, Some(1)));
    assert_eq!(found[0].stream.as_deref(), Some("note"));
}

#[test]
fn one_odd_file_does_not_decide_the_type() {
    // Two of three files are as declared; then the odd one is told, and the others are read.
    let mut forge = Forge::new(V21);
    let doubles = |forge: &mut Forge, file: usize| {
        let doubles = forge.data[file].1.floats("action").iter().map(|&x| x.into()).collect();
        *forge.data[file].1.column("action") = Column::F64(doubles);
    };
    doubles(&mut forge, 0);
    let folder = forge.write();
    let dataset = Dataset::open(&folder.0, &Limits::default()).unwrap();
    let action = dataset.stream("action").unwrap();
    assert_eq!(dataset.streams()[action].dtype, Some(robocache::DType::F32));
    assert!(dataset.read(0, &[action]).is_err());
    assert!(dataset.read(1, &[action]).is_ok() && dataset.read(2, &[action]).is_ok());
    let found = check(&folder);
    let errors: Vec<_> = found.iter().filter(|finding| finding.level == Error).map(|finding| finding.episode).collect();
    assert_eq!(errors, [Some(0)], "{found:#?}");
    // All of them: the declaration is wrong.
    doubles(&mut forge, 1);
    doubles(&mut forge, 2);
    let folder = forge.write();
    let dataset = Dataset::open(&folder.0, &Limits::default()).unwrap();
    assert_eq!(dataset.streams()[action].dtype, Some(robocache::DType::F64));
    assert!((0..3).all(|at| dataset.read(at, &[action]).is_ok()));
}

#[test]
fn what_is_left_out_says_why_and_keeps_nobody_from_the_rest() {
    let mut forge = Forge::new(V3);
    note(&mut forge, "language", |_| Column::Texts(vec![vec!["a".to_owned()]]));
    let folder = forge.write();
    let dataset = Dataset::open(&folder.0, &Limits::default()).unwrap();
    let error = dataset.stream("note").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("\"note\" is left out: streams of type \"language\" are not read"), "{error}");
    let all: Vec<usize> = (0..dataset.streams().len()).collect();
    assert_eq!(dataset.read(1, &all).unwrap().len(), all.len());
}

#[test]
fn metadata_that_makes_no_sense_is_refused() {
    type Change = fn(&mut Value);
    let cases: &[(Change, ErrorKind, &str)] = &[
        (
            |info| info["total_episodes"] = json!(-2),
            ErrorKind::CorruptData,
            "\"total_episodes\": expected a count, got -2",
        ),
        (|info| info["total_frames"] = json!("120"), ErrorKind::CorruptData, "expected a count, got \"120\""),
        (|info| info["total_tasks"] = json!(1e30), ErrorKind::CorruptData, "expected a count, got 1e30"),
        (|info| info["fps"] = json!(1e300), ErrorKind::CorruptData, "expected a number of 1e-4 to 1e6, got 1e300"),
        (|info| info["fps"] = json!(1e-300), ErrorKind::CorruptData, "got 1e-300"),
        (|info| info["features"][STATE]["shape"] = json!([0]), ErrorKind::CorruptData, "\"shape\" of sizes above 0"),
        (|info| info["features"][STATE]["shape"] = json!([1u64 << 40]), ErrorKind::LimitExceeded, "max_alloc"),
        (
            |info| info["features"][STATE]["shape"] = json!([1u64 << 40, 1u64 << 40]),
            ErrorKind::LimitExceeded,
            "max_alloc",
        ),
    ];
    for (change, kind, words) in cases {
        let mut forge = Forge::new(V3);
        change(&mut forge.info);
        let folder = forge.write();
        let error = Dataset::open(&folder.0, &Limits::default()).unwrap_err();
        assert!(error.kind() == *kind && error.to_string().contains(words), "{words}: {error}");
        assert_eq!(error.file(), Some(folder.0.join("meta/info.json").as_path()));
    }
    // A wide stream that the files do not hold costs nothing.
    let mut forge = Forge::new(V3);
    forge.info["features"][STATE] = json!({"dtype": "float32", "shape": [100_000_000], "names": null});
    forge.raw.push(("meta/modality.json".into(), json!({"state": {"arm": {"start": 0, "end": 2}}}).to_string().into()));
    let found = check(&forge.write());
    assert!(found.iter().any(|finding| finding.message.contains("too large to be looked at")), "{found:#?}");
}

#[test]
fn a_dataset_that_was_only_just_created_is_empty() {
    for version in [V3, V21] {
        let folder = Forge::new(version).write();
        for name in ["data", "videos", "meta/episodes"] {
            let _ = std::fs::remove_dir_all(folder.0.join(name));
        }
        for name in ["meta/episodes.jsonl", "meta/tasks.jsonl", "meta/tasks.parquet"] {
            let _ = std::fs::remove_file(folder.0.join(name));
        }
        let error = Dataset::open(&folder.0, &Limits::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileError, "{version}");
        assert!(error.to_string().contains("speaks of 3 episodes"), "{error}");
        let mut info = Forge::new(version).info;
        for key in ["total_episodes", "total_frames", "total_tasks"] {
            info[key] = json!(0);
        }
        info["splits"] = json!({});
        std::fs::write(folder.0.join("meta/info.json"), info.to_string()).unwrap();
        let dataset = Dataset::open(&folder.0, &Limits::default()).unwrap();
        assert_eq!((dataset.len(), dataset.tasks().len()), (0, 0), "{version}");
        let found = check(&folder);
        assert!(found.iter().all(|finding| finding.level == Note || finding.code == "stats_differ"), "{found:#?}");
    }
}

fn crc(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _: u32| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0u32, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), step))
}

#[test]
fn progress_counts_every_episode_and_can_stop() {
    let folder = Forge::new(V3).write();
    let steps = AtomicUsize::new(0);
    let step = |done: usize, all: usize| {
        assert_eq!((done, all), (steps.fetch_add(1, Ordering::Relaxed) + 1, 3));
    };
    let progress = Progress { step: &step, interrupted: &|| false };
    Dataset::check(&folder.0, &Limits::default(), &progress).unwrap();
    assert_eq!(steps.load(Ordering::Relaxed), 3);
    let started = Instant::now();
    let progress = Progress { step: &|_, _| {}, interrupted: &|| true };
    let error = Dataset::check(&folder.0, &Limits::default(), &progress).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    assert!(started.elapsed() < Duration::from_secs(5));
}
