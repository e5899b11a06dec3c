use serde_json::{Value, json};

use super::*;

/// Runs a check that must work, whatever it finds.
fn check(arguments: &[&str]) -> (i32, String) {
    let output = run(&[&["check"], arguments].concat());
    assert_eq!(stderr(&output), "");
    (output.status.code().unwrap(), stdout(&output))
}

fn report(arguments: &[&str]) -> (i32, Value) {
    let (code, text) = check(&[arguments, &["--json"]].concat());
    (code, serde_json::from_str(&text).unwrap())
}

#[test]
fn good_datasets_have_no_errors() {
    for (name, episodes) in [("lerobot_v30", 5), ("lerobot_v21", 3)] {
        let (code, text) = check(&[&sample(name)]);
        assert_eq!(code, 0, "{text}");
        let last = text.lines().last().unwrap();
        assert!(
            last.starts_with("0 errors, 0 warnings, ") && last.ends_with(&format!(" in {episodes} episodes")),
            "{text}"
        );
        let (code, report) = report(&[&sample(name)]);
        assert_eq!((code, &report["ok"], &report["episodes"]), (0, &json!(true), &json!(episodes)));
        assert_eq!((&report["errors"], &report["warnings"]), (&json!(0), &json!(0)), "{report}");
        let notes = report["notes"].as_u64().unwrap();
        assert_eq!(report["findings"].as_array().unwrap().len() as u64, notes);
        assert_eq!((&report["strict"], &report["path"]), (&json!(false), &json!(sample(name))));
    }
}

#[test]
fn errors_are_findings_and_end_with_1() {
    let folder = Folder::copy_of("lerobot_v21", "counts");
    let path = folder.join("meta/info.json");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"total_episodes\": 3", "\"total_episodes\": 4")).unwrap();
    let (code, text) = check(&[folder.text()]);
    assert_eq!(code, 1, "{text}");
    assert!(text.starts_with("error counts_differ\n") || text.contains("\nerror counts_differ\n"), "{text}");
    assert!(text.contains("total_episodes"), "{text}");
    assert!(text.trim_end().lines().last().unwrap().ends_with(" in 3 episodes"), "{text}");
    let (code, report) = report(&[folder.text()]);
    assert_eq!((code, &report["ok"]), (1, &json!(false)));
    assert!(report["errors"].as_u64().unwrap() >= 1);
    let finding = report["findings"].as_array().unwrap().iter().find(|finding| finding["level"] == "error").unwrap();
    assert_eq!(finding["code"], "counts_differ");
    // What cannot be opened is still an error of `inspect`.
    assert!(refused(&["inspect", folder.text()]).contains("total_episodes"));
}

#[test]
fn errors_come_before_warnings_and_all_fits_a_terminal() {
    let folder = Folder::copy_of("lerobot_v21", "several");
    std::fs::remove_dir_all(folder.join("videos")).unwrap();
    std::fs::write(folder.join("data/chunk-000/episode_000001.parquet"), "PAR1").unwrap();
    let (code, text) = check(&[folder.text()]);
    assert_eq!(code, 1, "{text}");
    let place = |level: &str| text.lines().position(|line| line.starts_with(level)).unwrap();
    assert!(place("error ") < place("warning "), "{text}");
    let fits = |line: &str| line.chars().count() <= 80 || !line.trim_start().contains(' ');
    assert!(text.lines().all(|line| fits(line) && !line.ends_with(' ')), "{text}");
}

#[test]
fn warnings_count_when_asked_to() {
    let folder = Folder::copy_of("lerobot_v21", "warnings");
    std::fs::remove_dir_all(folder.join("videos")).unwrap();
    let (code, found) = report(&[folder.text()]);
    assert_eq!((code, &found["errors"], &found["ok"]), (0, &json!(0), &json!(true)), "{found}");
    assert!(found["warnings"].as_u64().unwrap() >= 1, "{found}");
    let (code, found) = report(&[folder.text(), "--strict"]);
    assert_eq!((code, &found["ok"]), (1, &json!(false)));
    assert_eq!(check(&[folder.text(), "--strict"]).0, 1);
}

#[test]
fn metadata_that_cannot_be_read_is_an_error() {
    let folder = Folder::copy_of("lerobot_v30", "metadata");
    std::fs::write(folder.join("meta/info.json"), "{").unwrap();
    let message = refused(&["check", folder.text()]);
    assert!(message.starts_with("robocache: check: ") && message.contains("meta/info.json"), "{message}");
}
