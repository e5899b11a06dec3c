use std::process::Stdio;

use serde_json::{Value, json};

use super::*;

/// The arguments of an ingest of numbers only: there may be no ffmpeg.
fn arguments<'a>(source: &'a str, out: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["ingest", source, out, "--images", "skip"], more].concat()
}

fn plan(out: &Folder, more: &[&str]) -> Value {
    json(&[&["ingest", "--plan", &sample("lerobot_v30"), out.text(), "--images", "skip", "--json"], more].concat())
}

#[test]
fn a_dataset_becomes_a_cache_once() {
    let out = Folder::new("ingest");
    for (name, episodes, frames) in [("lerobot_v30", 5, 177), ("lerobot_v21", 3, 97)] {
        let (source, out) = (sample(name), out.join(name));
        let text = good(&arguments(&source, &out, &["--unit-frames", "64"]));
        let expected = [format!("episodes  {episodes}\n"), format!("frames    {frames}\n")];
        for part in expected.iter().map(String::as_str).chain([" frames/s, ", " MB/s\n", "; the cache is complete\n"]) {
            assert!(text.contains(part), "{part:?} is missing in\n{text}");
        }
        assert!(text.lines().skip(1).all(|line| line.len() <= 80 && !line.ends_with(' ')), "{text}");
        let bytes = |path: &str| std::fs::read(Path::new(&out).join(path)).unwrap();
        let before = bytes("shards/unit-000000/action.arrow");
        // Again: nothing is left to be done.
        let report = json(&arguments(&source, &out, &["--unit-frames", "64", "--json"]));
        assert_eq!(
            (&report["units_done"], &report["frames_done"], &report["bytes_done"]),
            (&0.into(), &0.into(), &0.into())
        );
        assert_eq!((&report["episodes"], &report["frames"]), (&episodes.into(), &frames.into()), "{report}");
        assert_eq!((&report["ok"], &report["complete"], &report["skipped"]), (&true.into(), &true.into(), &json!([])));
        assert!(report["units_before"].as_u64().unwrap() > 1, "{report}");
        assert_eq!(bytes("shards/unit-000000/action.arrow"), before);
    }
}

#[cfg(unix)]
#[test]
fn a_plan_that_cannot_be_looked_at_is_not_missing() {
    let folder = Folder::new("ingest-closed");
    let out = folder.join("out");
    std::os::unix::fs::symlink(&out, &out).unwrap();
    for work in [&["--merge"][..], &["--unit", "0"]] {
        let message = refused(&[&["ingest", out.as_str()], work].concat());
        assert!(message.contains("Too many levels of symbolic links") && message.contains("plan.json"), "{message}");
        let message = refused(&[&["ingest", folder.text()], work].concat());
        assert!(message.contains("there is no plan in this folder"), "{message}");
    }
}

#[cfg(unix)]
#[test]
fn paths_that_are_no_text_are_texts_in_json() {
    use std::os::unix::ffi::OsStrExt;
    let folder = Folder::new("ingest-odd");
    let source = folder.0.join(std::ffi::OsStr::from_bytes(b"sam\xffple"));
    copy(Path::new(&sample("lerobot_v21")), &source);
    let out = folder.join("cache");
    let ingest = |plan: &[&str]| -> Value {
        let mut command = robocache();
        command.arg("ingest").arg(&source).args([&out, "--images", "skip", "--json"]).args(plan);
        serde_json::from_slice(&command.output().unwrap().stdout).unwrap()
    };
    let plan = ingest(&["--plan"]);
    assert_eq!(ingest(&[])["ok"], json!(true));
    let listed = json(&["cache", "ls", &out, "--json"]);
    let shown = json!(source.to_string_lossy());
    assert!(shown.as_str().unwrap().ends_with("sam\u{fffd}ple"));
    assert_eq!((&plan["sources"][0]["path"], &listed["sources"][0]["path"]), (&shown, &shown));
}

#[test]
fn a_first_ingest_has_json() {
    let out = Folder::new("ingest-json");
    let report = json(&arguments(&sample("lerobot_v30"), out.text(), &["--json"]));
    assert_eq!((&report["path"], &report["frames_done"]), (&json!(out.text()), &json!(177)));
    assert_eq!((&report["units_before"], &report["units_done"]), (&json!(0), &json!(1)), "{report}");
    assert!(report["seconds"].as_f64().unwrap() > 0.0);
    assert!(report["bytes"].as_u64().unwrap() > 10_000 && report["bytes_done"] == report["bytes"], "{report}");
}

#[test]
fn streams_are_chosen_renamed_and_cast() {
    let out = Folder::new("ingest-streams");
    let more = ["--streams", "action:f16,observation.state=state", "--method", "state=previous", "--tag", "arm"];
    good(&arguments(&sample("lerobot_v30"), out.text(), &more));
    let report = json(&["cache", "ls", out.text(), "--json"]);
    let streams: Vec<_> = report["streams"].as_array().unwrap().iter().map(|s| (&s["name"], &s["dtype"])).collect();
    assert_eq!(streams, [(&json!("action"), &json!("float16")), (&json!("state"), &json!("float32"))]);
    assert_eq!(report["streams"][1]["method"], json!([{ "method": "previous", "start": 0, "end": 8 }]));
    assert_eq!(report["sources"][0]["tag"], "arm");
}

#[test]
fn pictures_are_kept_at_the_wanted_size() {
    let source = sample("lerobot_v21");
    let out = Folder::new("ingest-pictures");
    // As the program finds it, which the tests take settings away from.
    if json(&["doctor", "--json"])["video"]["ffmpeg"].is_null() {
        println!("skipped: there is no ffmpeg");
        return;
    }
    for (how, kept) in [("jpeg", "jpeg"), ("raw", "raw")] {
        let path = out.join(how);
        good(&["ingest", &source, &path, "--images", how, "--image-size", "24x32", "--quality", "80"]);
        let report = json(&["cache", "ls", &path, "--json"]);
        let streams = report["streams"].as_array().unwrap();
        let top = streams.iter().find(|stream| stream["name"] == "observation.images.top").unwrap();
        assert_eq!((&top["encoding"], &top["shape"], &top["samples"]), (&json!(kept), &json!([24, 32, 3]), &json!(97)));
    }
}

#[test]
fn pictures_without_an_ffmpeg_are_an_error_that_helps() {
    let out = Folder::new("ingest-no-ffmpeg");
    let mut command = robocache();
    command.args(["ingest", &sample("lerobot_v30"), out.text()]).env("ROBOCACHE_FFMPEG", "/nowhere/ffmpeg");
    let output = command.output().unwrap();
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""), "{}", stderr(&output));
    assert!(stderr(&output).contains("ROBOCACHE_FFMPEG"), "{}", stderr(&output));
}

#[test]
fn two_datasets_share_a_cache() {
    let out = Folder::new("ingest-two");
    good(&arguments(&sample("lerobot_v30"), out.text(), &[]));
    let text = good(&arguments(&sample("lerobot_v21"), out.text(), &["--tag", "old arm"]));
    assert!(text.contains("episodes  8\n") && text.contains("1 unit done, 1 unit there before"), "{text}");
    let text = good(&["cache", "ls", out.text()]);
    assert!(text.contains("sources   lerobot_v30: lerobot v3.0, 5 episodes at 30 Hz\n"), "{text}");
    assert!(text.contains("\n          old arm: lerobot v2.1, 3 episodes at 20 Hz\n"), "{text}");
}

#[test]
fn episodes_that_cannot_be_read_are_skipped_and_listed() {
    let source = Folder::copy_of("lerobot_v21", "ingest-bad");
    std::fs::write(source.join("data/chunk-000/episode_000001.parquet"), "PAR1").unwrap();
    let out = Folder::new("ingest-skip");
    for round in ["first", "again"] {
        let output = run(&arguments(source.text(), out.text(), &[]));
        let text = stdout(&output);
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(1), ""), "{round}: {text}");
        assert!(
            text.contains("\n1 episode skipped\n  episode 1, data/chunk-000/") && text.contains("episodes  2\n"),
            "{text}"
        );
    }
    let output = run(&arguments(source.text(), out.text(), &["--json"]));
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["ok"], &report["skipped"][0]["episode"]), (&json!(false), &json!(1)));
    assert!(report["skipped"][0]["reason"].as_str().unwrap().contains("episode_000001.parquet"), "{report}");
    assert!(good(&["cache", "ls", out.text()]).contains("1 episode could not be taken"));
    let strict = Folder::new("ingest-strict");
    let message = refused(&arguments(source.text(), strict.text(), &["--strict"]));
    assert!(message.starts_with("robocache: ingest: ") && message.contains("episode_000001.parquet"), "{message}");
}

#[test]
fn folders_of_others_are_left_alone() {
    let source = sample("lerobot_v30");
    let out = Folder::new("ingest-foreign");
    std::fs::write(out.join("thesis.txt"), "mine").unwrap();
    let message = refused(&arguments(&source, out.text(), &[]));
    assert!(message.contains("other files") && message.contains(out.text()), "{message}");
    for command in [&["ingest", "--merge"][..], &["ingest", "--unit", "0"], &["cache", "gc"], &["cache", "verify"]] {
        let message = refused(&[command, &[out.text()]].concat());
        assert!(message.contains("no plan") || message.contains("no cache"), "{message}");
    }
    assert_eq!(out.names(), ["thesis.txt"]);
    let message = refused(&arguments("/no/such/place", &out.join("new"), &[]));
    assert_eq!(message, "robocache: ingest: there is no such file or folder (/no/such/place)\n");
    assert_eq!(out.names(), ["thesis.txt"]);
}

#[test]
fn a_second_writer_is_refused() {
    use std::os::fd::AsRawFd;
    let out = Folder::new("ingest-lock");
    let source = sample("lerobot_v30");
    good(&arguments(&source, out.text(), &[]));
    let lock = std::fs::OpenOptions::new().write(true).open(out.join("lock")).unwrap();
    // SAFETY: the descriptor is open.
    assert_eq!(unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) }, 0);
    let message = refused(&arguments(&source, out.text(), &[]));
    assert!(message.contains("is writing to this cache") && message.contains(out.text()), "{message}");
    // Readers do not mind.
    good(&["cache", "ls", out.text()]);
    drop(lock);
    good(&arguments(&source, out.text(), &[]));
}

#[test]
fn units_are_planned_done_one_by_one_and_merged() {
    let out = Folder::new("ingest-units");
    let planned = plan(&out, &["--unit-frames", "64"]);
    let units = planned["units"].as_array().unwrap().len();
    assert!(units > 1, "{planned}");
    let mut on_disk: Value = serde_json::from_slice(&std::fs::read(out.join("plan.json")).unwrap()).unwrap();
    // The file's own checksum is not of the plan.
    on_disk.as_object_mut().unwrap().remove("crc32c");
    assert_eq!(planned, on_disk);
    let text = good(&["ingest", "--plan", &sample("lerobot_v30"), out.text(), "--images", "skip"]);
    assert!(text.starts_with("unit  source       episodes  frames\n   0  lerobot_v30  "), "{text}");
    assert!(text.ends_with(&format!("{units} units, 177 frames, 6 streams\n")), "{text}");
    assert_eq!(good(&["ingest", "--unit", "1", out.text()]), "unit 1 is done\n");
    let report = json(&["ingest", "--unit", "1", out.text(), "--json"]);
    assert_eq!(report, json!({ "unit": 1, "ok": true, "skipped": [] }));
    let text = good(&["ingest", "--merge", out.text()]);
    assert!(text.contains("1 unit there; more is planned: the cache is not complete"), "{text}");
    assert!(good(&["cache", "ls", out.text()]).contains("Not complete: 1 unit done; "));
    (0..units).for_each(|unit| drop(good(&["ingest", "--unit", &unit.to_string(), out.text()])));
    let report = json(&["ingest", "--merge", out.text(), "--json"]);
    assert_eq!((&report["complete"], &report["frames"], &report["seconds"]), (&true.into(), &177.into(), &Value::Null));
    let message = refused(&["ingest", "--unit", &units.to_string(), out.text()]);
    assert!(message.contains(&format!("unit: expected 0 to {}", units - 1)), "{message}");
}

#[test]
fn wrong_options_are_named() {
    let (out, source) = (Folder::new("ingest-usage"), sample("lerobot_v30"));
    for (more, expected) in [
        (&["--quality", "101"][..], "ingest: --quality: expected 1 to 100, got 101"),
        (&["--quality", "-1"], "ingest: --quality: expected 1 to 100, got -1"),
        (&["--workers", "0"], "ingest: --workers: expected 1 or more"),
        (&["--image-size", "big"], "ingest: --image-size: expected N or HxW"),
        (&["--streams", "action:int8"], "ingest: --streams: expected a type out of float16"),
        (&["--streams", "acton"], "acton"),
        (&["--method", "acton=linear"], "ingest: methods: there is no \"acton\"; the streams are observation.state"),
        (&["--method", "action=spline"], "ingest: --method: expected one of linear, nearest, previous, next"),
        (&["--streams", "task_index:float32"], "only floats can be cast"),
        (&["--unit", "1"], "--unit"),
        (&["--merge"], "--merge"),
        (&["--plan", "--merge"], "--merge"),
    ] {
        let message = refused(&arguments(&source, out.text(), more));
        assert!(message.contains(expected), "{more:?}: {message}");
    }
    assert!(refused(&["ingest", &source, out.text(), "--images", "png"]).contains("jpeg, raw, skip"));
    assert!(refused(&["ingest", "--unit", "1", "--quality", "80", out.text()]).contains("--quality"));
    assert!(refused(&["ingest", &source]).contains("<SRC>"));
}

#[test]
fn ctrl_c_leaves_what_is_done_and_the_same_command_continues() {
    const EPISODES: usize = 400;
    let (source, out) = (made("many", EPISODES, 3), Folder::new("ingest-interrupt"));
    let arguments = arguments(source.text(), out.text(), &["--unit-frames", "1", "--workers", "1", "--json"]);
    let child = robocache().args(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("a first unit", || Path::new(&out.join("shards/unit-000002")).exists());
    let pressed = Instant::now();
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert!(pressed.elapsed() < Duration::from_secs(10), "{:?}", pressed.elapsed());
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(130), ""), "{}", stderr(&output));
    assert_eq!(stderr(&output), "robocache: ingest: interrupted; running the same command again continues\n");
    // Nothing half is left, and what is there is good.
    let left = std::fs::read_dir(out.join("shards")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| name.to_str().unwrap().starts_with("unit-")));
    let report = json(&["cache", "ls", out.text(), "--json"]);
    let done = report["units"].as_u64().unwrap();
    assert!(done >= 3 && done < EPISODES as u64 && report["complete"] == false, "{done}");
    good(&["cache", "verify", out.text()]);
    let report = json(&arguments);
    assert_eq!((&report["units_before"], &report["units_done"]), (&done.into(), &(EPISODES as u64 - done).into()));
    assert_eq!((&report["complete"], &report["episodes"]), (&true.into(), &EPISODES.into()));
}
