use super::*;

#[test]
fn readers_are_measured_on_a_dataset() {
    let path = sample("lerobot_v30");
    let output = robocache().args(["bench", "readers", &path, "--json"]).env("PATH", "").output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    for name in ["given_open", "given_columns_1_thread", "given_episodes_1_thread"] {
        let row = rows.iter().find(|row| row["name"] == name).unwrap();
        assert!(row["value"].as_f64().unwrap() > 0.0, "{report}");
        // Five short episodes say nothing about 100,000, nor about long ones.
        assert!(row["target"].is_null() && row["pass"].is_null(), "{report}");
    }
    assert_eq!(report["ok"], true);
    // Without an ffmpeg the rest is measured.
    let notes = report["notes"].as_array().unwrap();
    assert!(notes.iter().any(|note| note.as_str().unwrap().contains("imageio-ffmpeg")), "{report}");
}

#[test]
fn readers_are_measured_in_words() {
    let text = good(&["bench", "readers", &sample("lerobot_v21")]);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["lerobot v2.1, 3 episodes.", "opening 3 episodes", "columns, 1 thread", "GB/s", "too small"] {
        assert!(words.contains(part), "{part:?} is missing in\n{text}");
    }
    assert!(text.lines().skip(2).all(|line| line.chars().count() <= 80 && !line.ends_with(' ')), "{text}");
}

#[test]
fn an_ingest_is_measured_on_a_dataset() {
    let report = json(&["bench", "ingest", &sample("lerobot_v30"), "--json"]);
    let row = |name: &str| report["rows"].as_array().unwrap().iter().find(|row| row["name"] == name);
    assert!(row("numbers_1_worker").unwrap()["value"].as_f64().unwrap() > 0.0, "{report}");
    // So few frames are held to nothing.
    assert!(row("numbers_1_worker").unwrap()["target"].is_null() && report["ok"] == true, "{report}");
    match row("video_share") {
        Some(share) => assert!(share["value"].as_f64().unwrap() > 0.0, "{report}"),
        None => assert!(report["notes"].to_string().contains("no ffmpeg"), "{report}"),
    }
}

#[test]
fn a_loader_is_measured_on_a_cache() {
    let out = Folder::new("bench-loader");
    good(&["ingest", &sample("lerobot_v30"), out.text(), "--images", "skip"]);
    // Fast enough or not, it must tell.
    let output = robocache().args(["bench", "loader", out.text(), "--json"]).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for name in ["numbers_64_windows", "numbers_64_first", "numbers_64_memory", "numbers_1024_windows"] {
        let row = report["rows"].as_array().unwrap().iter().find(|row| row["name"] == name).unwrap();
        assert!(row["value"].as_f64().unwrap() > 0.0, "{report}");
    }
    assert!(refused(&["bench", "loader", &sample("lerobot_v30")]).contains("no cache"));
}

#[cfg(unix)]
mod interrupted {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::FromRawFd;
    use std::process::{Child, Stdio};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::datasets::{interrupt, wait_for};

    /// A benchmark that takes long, in a folder of its own.
    fn start(folder: &Folder, stderr: Stdio) -> Child {
        let mut command = robocache();
        command.args(["bench", "readers"]).env("TMPDIR", &folder.0).env("TERM", "xterm").env_remove("NO_PROGRESS");
        command.stdout(Stdio::piped()).stderr(stderr).spawn().unwrap()
    }

    #[test]
    fn ctrl_c_ends_at_once_and_leaves_nothing() {
        let folder = Folder::new("interrupt");
        let child = start(&folder, Stdio::piped());
        wait_for("a temporary folder", || !folder.names().is_empty());
        std::thread::sleep(Duration::from_millis(200));
        let pressed = Instant::now();
        interrupt(&child);
        let output = child.wait_with_output().unwrap();
        assert!(pressed.elapsed() < Duration::from_secs(5), "{:?}", pressed.elapsed());
        assert_eq!((output.status.code(), stdout(&output).as_str(), stderr(&output).as_str()), (Some(130), "", ""));
        assert_eq!(folder.names(), [""; 0]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_terminal_shows_a_bar_and_is_clean_afterwards() {
        let (mut ours, mut theirs) = (-1, -1);
        let none = std::ptr::null_mut();
        // SAFETY: both places are good for an int, and the other pointers may be null.
        let opened = unsafe { libc::openpty(&mut ours, &mut theirs, none, std::ptr::null(), std::ptr::null()) };
        assert_eq!(opened, 0);
        // SAFETY: both were just opened and have no other owner.
        let (mut ours, theirs) = unsafe { (File::from_raw_fd(ours), File::from_raw_fd(theirs)) };
        let folder = Folder::new("terminal");
        let mut child = start(&folder, theirs.into());
        // The end of the child is the end of the terminal, which Linux calls an error.
        let reader = std::thread::spawn(move || {
            let mut seen = Vec::new();
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = ours.read(&mut buffer) {
                seen.extend_from_slice(&buffer[..count]);
            }
            String::from_utf8(seen).unwrap()
        });
        std::thread::sleep(Duration::from_millis(900));
        interrupt(&child);
        assert_eq!(child.wait().unwrap().code(), Some(130));
        let seen = reader.join().unwrap();
        assert!(
            seen.contains("\r\x1b[Kbench  ") && seen.contains(" steps  ") && seen.ends_with("left\r\x1b[K"),
            "{seen:?}"
        );
        assert_eq!(folder.names(), [""; 0]);
    }
}
