//! The parts that need no file: plans, printed lines, the search for the program.

use std::collections::VecDeque;

use super::super::ffmpeg::{Surroundings, search};
use super::super::plan::{Segment, segments};
use super::super::report::Report;
use super::*;

/// Frames at 10 units each with a keyframe every `group`.
fn timeline(count: i64, group: i64) -> Vec<Sample> {
    (0..count).map(|index| Sample { time: index * 10, key: index % group == 0, whole: true }).collect()
}

#[test]
fn plans_start_at_keyframes_and_skip_what_is_far() {
    let samples = timeline(1000, 100);
    let plan = |wanted: &[usize]| segments(&samples, wanted.iter().copied());
    assert_eq!(plan(&[0]), [Segment { start: 0, ranges: vec![(0, 0)] }]);
    assert_eq!(plan(&[150, 151, 153]), [Segment { start: 100, ranges: vec![(150, 151), (153, 153)] }]);
    // The next keyframe is near: decoding on is cheaper than starting again.
    assert_eq!(plan(&[180, 210]), [Segment { start: 100, ranges: vec![(180, 180), (210, 210)] }]);
    let far = [Segment { start: 100, ranges: vec![(110, 110)] }, Segment { start: 900, ranges: vec![(950, 950)] }];
    assert_eq!(plan(&[110, 950]), far);
    assert_eq!(plan(&[]), []);
}

#[test]
fn a_plan_gives_every_frame_that_is_wanted_once() {
    let samples = timeline(700, 250);
    let mut random = Random(5);
    for sparsity in [1, 2, 3, 10, 200] {
        let wanted: Vec<usize> = (0..700).filter(|_| random.below(sparsity) == 0).collect();
        let plan = segments(&samples, wanted.iter().copied());
        let given: Vec<usize> = plan.iter().flat_map(Segment::frames).collect();
        assert!(given.is_sorted_by(|a, b| a < b), "{sparsity}");
        assert!(wanted.iter().all(|frame| given.binary_search(frame).is_ok()), "{sparsity}");
        assert!(plan.iter().all(|segment| segment.ranges.len() <= 64 && segment.start <= segment.ranges[0].0));
        assert_eq!(plan.iter().map(Segment::len).sum::<usize>(), given.len());
    }
}

#[test]
fn frames_of_one_time_pass_together() {
    let mut samples = timeline(10, 5);
    samples[4].time = samples[3].time;
    samples[5].time = samples[3].time;
    assert_eq!(segments(&samples, [4]), [Segment { start: 0, ranges: vec![(3, 5)] }]);
    assert_eq!(segments(&samples, [3, 4, 6]), [Segment { start: 0, ranges: vec![(3, 6)] }]);
}

#[test]
fn seeks_and_filters_lie_between_frames() {
    let samples = timeline(1000, 100);
    let segment = Segment { start: 100, ranges: vec![(150, 150), (153, 154)] };
    assert_eq!(segment.seek(&samples, 30), Some(33_500_000));
    assert_eq!(segment.filter(&samples, 100), "between(t,14.95,15.05)+between(t,15.25,15.45)");
    assert_eq!(Segment { start: 0, ..segment }.seek(&samples, 30), None);
    let last = Segment { start: 0, ranges: vec![(0, 0), (999, 999)] };
    assert_eq!(last.filter(&samples, 10), "between(t,-0.05,0.5)+between(t,998.5,999.05)");
}

#[test]
fn printed_lines_are_understood_in_any_pieces() {
    let text = b"[Parsed_showinfo_1 @ 0x7f] [info] config in time_base: 1/15360, frame_rate: 30/1\n\
        [Parsed_showinfo_1 @ 0x7f] [info] n:   0 pts:  31744 pts_time:2.066 duration:    512 fmt:yuv420p cl:unspecified sar:1/1 s:128x96 i:P iskey:1\n\
        [info]   title : [Parsed_showinfo_1 @ 0x7f] n: 0 pts: 1 fmt:x s:1x1\n\
        [Parsed_showinfo_1 @ 0x7f] [info] color_range:tv\n\
        [Parsed_showinfo_1 @ 0x7f] n:   1 pts:NOPTS pts_time:NOPTS fmt:gray12le sar:1/1 s:128x96 i:P\n";
    for step in [1, 2, 7, 100, text.len()] {
        let mut report = Report::default();
        let mut printed = VecDeque::new();
        text.chunks(step).for_each(|piece| report.add(piece, &mut printed));
        assert_eq!(printed.len(), 2, "{step}");
        let first = &printed[0];
        assert_eq!(
            (first.pts, first.time_base, first.size, first.format.as_str()),
            (Some(31744), (1, 15360), (128, 96), "yuv420p")
        );
        assert_eq!((printed[1].pts, printed[1].format.as_str()), (None, "gray12le"));
    }
}

#[test]
fn nearest_prefers_the_earlier_of_two() {
    let folder = Folder::new();
    let video = open(&folder.file("a.mp4", &super::build::Movie::small().bytes())).unwrap();
    for (time, frame, off) in [
        (-5, 0, 5),
        (0, 0, 0),
        (49_999_999, 0, -49_999_999),
        (50_000_000, 0, -50_000_000),
        (50_000_001, 1, 49_999_999),
        (300_000_000, 3, 0),
        (i64::MAX, 3, 300_000_000 - i64::MAX),
        (i64::MIN, 0, i64::MAX),
    ] {
        assert_eq!(video.nearest(time), (frame, off), "{time}");
    }
}

#[test]
fn nanoseconds_are_rounded_once() {
    assert_eq!(nanoseconds(1, 30), Some(33_333_333));
    assert_eq!(nanoseconds(2, 30), Some(66_666_667));
    assert_eq!(nanoseconds(-1, 30), Some(-33_333_333));
    assert_eq!(nanoseconds(1001, 30_000), Some(33_366_667));
    assert_eq!(nanoseconds(i64::MAX, 1), None);
}

#[test]
fn the_program_is_searched_in_order() {
    let folder = Folder::new();
    let put = |place: &str, name: &str, version: &str| {
        let place = folder.0.join(place);
        std::fs::create_dir_all(&place).unwrap();
        let script = format!("#!/bin/sh\necho 'ffmpeg version {version} Copyright'\n");
        // Written by a shell, see the fakes.
        let write = "printf '%s' \"$1\" > \"$2\" && chmod 755 \"$2\"";
        let path = place.join(name);
        assert!(Command::new("sh").args(["-c", write, "sh", &script]).arg(&path).status().unwrap().success());
        path
    };
    let chosen = put("chosen", "my-ffmpeg", "1.2");
    put("path", "ffmpeg", "5.0.3");
    put("wheel", "ffmpeg-linux-x86_64-v7.0.2", "7.0.2-static");
    let broken = put("broken", "ffmpeg", "x");
    std::fs::write(&broken, "#!/bin/sh\nexit 1\n").unwrap();
    let around = |chosen: Option<&Path>, path: &[&str], folders: &[&str]| Surroundings {
        chosen: chosen.map(|path| path.as_os_str().to_owned()),
        path: Some(std::env::join_paths(path.iter().map(|place| folder.0.join(place))).unwrap()),
        folders: folders.iter().map(|place| folder.0.join(place)).collect(),
    };
    let version = |around: &Surroundings| search(around).unwrap().version().to_owned();
    assert_eq!(version(&around(Some(&chosen), &["path"], &["wheel"])), "1.2");
    assert_eq!(version(&around(None, &["none", "path"], &["wheel"])), "5.0.3");
    assert_eq!(version(&around(None, &["none"], &["nowhere", "wheel"])), "7.0.2-static");
    assert_eq!(version(&around(None, &["broken"], &["wheel"])), "7.0.2-static");
    let old = search(&around(None, &["path"], &[])).unwrap();
    let new = search(&around(None, &[], &["wheel"])).unwrap();
    assert_eq!((old.passthrough_option(), new.passthrough_option()), ("-vsync", "-fps_mode"));

    // What the user chose is not replaced by something else.
    let error = search(&around(Some(&broken), &["path"], &["wheel"])).unwrap_err().to_string();
    assert!(error.starts_with("ROBOCACHE_FFMPEG: cannot use ffmpeg"), "{error}");
    let error = search(&around(None, &["broken"], &["nowhere"])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    for part in ["ROBOCACHE_FFMPEG is not set", "nowhere", "unusable", "pip install imageio-ffmpeg"] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
}

#[test]
fn a_missing_program_says_what_was_searched() {
    let folder = Folder::new();
    let error = Ffmpeg::at(&folder.0.join("none")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let error = Ffmpeg::at(Path::new("/bin/echo")).unwrap_err();
    assert!(error.to_string().contains("does not say \"ffmpeg version\" but \"-version\""), "{error}");
}
