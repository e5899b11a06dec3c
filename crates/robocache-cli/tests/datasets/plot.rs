use super::*;

/// Tags that are opened and closed in the right order, and no letter that XML forbids.
fn is_well_formed(text: &str) -> bool {
    let mut open = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        if rest[..start].contains('>') {
            return false;
        }
        let Some(end) = rest.find('>') else { return false };
        let tag = &rest[start + 1..end];
        if let Some(name) = tag.strip_prefix('/') {
            if open.pop() != Some(name) {
                return false;
            }
        } else if !tag.ends_with('/') {
            open.push(tag.split(' ').next().unwrap());
        }
        if tag.contains('<') || tag.matches('"').count() % 2 == 1 {
            return false;
        }
        rest = &rest[end + 1..];
    }
    open.is_empty() && rest.trim().is_empty() && text.chars().all(|letter| letter == '\n' || !letter.is_control())
}

#[test]
fn a_timeline_is_drawn_as_svg() {
    let folder = Folder::new("svg");
    let target = folder.join("lanes.svg");
    // What was there is replaced.
    std::fs::write(&target, "old").unwrap();
    let path = sample("lerobot_v30");
    let report = json(&["inspect", &path, "--plot", &target, "--json"]);
    assert_eq!(report["plot"], target.as_str());
    let text = good(&["inspect", &path, "--episode", "2", "--plot", &target]);
    assert!(text.trim_end().ends_with(&format!("The timeline is in {target}")), "{text}");
    let svg = std::fs::read_to_string(&target).unwrap();
    assert!(svg.starts_with("<svg ") && is_well_formed(&svg), "{svg}");
    for part in
        [">lerobot_v30, episode 2<", ">observation.images.wrist<", ">vector, 30 Hz, 60 samples, linear", ">1.8<"]
    {
        assert!(svg.contains(part), "{part:?} is missing in\n{svg}");
    }
    // A tick for every sample of eight streams, at least.
    assert!(svg.matches("<rect ").count() > 8 * 60, "{svg}");
    assert_eq!(folder.names(), ["lanes.svg"]);
}

#[test]
fn what_cannot_be_read_is_drawn_as_such() {
    let folder = Folder::copy_of("lerobot_v21", "plot-damaged");
    std::fs::remove_dir_all(folder.join("videos")).unwrap();
    std::fs::write(folder.join("data/chunk-000/episode_000001.parquet"), "PAR1").unwrap();
    for (episode, lanes) in [("0", 1), ("1", 7)] {
        let target = folder.join("lanes.svg");
        good(&["inspect", folder.text(), "--episode", episode, "--plot", &target]);
        let svg = std::fs::read_to_string(&target).unwrap();
        assert!(is_well_formed(&svg), "{svg}");
        assert_eq!(svg.matches(">cannot be read<").count(), lanes, "{svg}");
    }
}

#[test]
fn targets_that_cannot_be_written_are_refused() {
    let folder = Folder::new("refused");
    let path = sample("lerobot_v30");
    let refusal = |target: &str| refused(&["inspect", &path, "--plot", target]);
    for name in ["a.png", "a", "a.svgz", ".svg"] {
        let target = folder.join(name);
        let expected = "robocache: inspect: --plot: expected a file that ends in .svg (";
        assert!(refusal(&target).starts_with(expected), "{}", refusal(&target));
    }
    assert!(refusal(&folder.join("no/where.svg")).contains("there is no such folder"));
    std::fs::create_dir(folder.join("folder.svg")).unwrap();
    assert!(refusal(&folder.join("folder.svg")).contains("it is a folder"));
    assert_eq!(folder.names(), ["folder.svg"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_failed_write_is_an_error() {
    // Nobody may make files there, not even root.
    let message = refused(&["inspect", &sample("lerobot_v30"), "--plot", "/proc/lanes.svg"]);
    assert!(
        message.starts_with("robocache: inspect: cannot save: ") && message.contains("/proc/lanes.svg"),
        "{message}"
    );
}
