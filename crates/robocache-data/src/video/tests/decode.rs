//! Frames that a real ffmpeg decodes: the ones that are meant, bit for bit.

use std::collections::VecDeque;

use super::super::report::Report;
use super::*;

/// What ffmpeg itself says and gives when it decodes the whole file by its own rules: times in
/// nanoseconds and frames. It applies edit lists itself here, so this is a second opinion.
fn reference(ffmpeg: &Ffmpeg, path: &Path, frame_bytes: usize) -> (Vec<i64>, Vec<Vec<u8>>) {
    let input = path.to_str().unwrap();
    let passthrough = ffmpeg.passthrough_option();
    let output = run(
        ffmpeg,
        &[
            "-noautorotate",
            "-copyts",
            "-i",
            input,
            "-map",
            "0:v:0",
            "-vf",
            "showinfo=checksum=0",
            passthrough,
            "passthrough",
        ]
        .into_iter()
        .chain(["-pix_fmt", "rgb24", "-f", "rawvideo", "pipe:1"])
        .collect::<Vec<_>>(),
    )
    .unwrap();
    let mut printed = VecDeque::new();
    Report::default().add(&output.stderr, &mut printed);
    let times = printed.iter().map(|one| {
        let (num, den) = one.time_base;
        nanoseconds(one.pts.unwrap() * i64::from(num), den).unwrap()
    });
    (times.collect(), output.stdout.chunks(frame_bytes).map(<[u8]>::to_vec).collect())
}

/// Compares index, full decoding and random subsets with ffmpeg's own account.
fn compare(ffmpeg: &Ffmpeg, path: &Path, codec: &str) {
    let video = open(path).unwrap();
    assert_eq!(video.codec(), codec, "{}", path.display());
    let (times, frames) = reference(ffmpeg, path, video.width() * video.height() * 3);
    assert_eq!(video.times(), times, "{}", path.display());
    assert_eq!(video.frames(), frames.len());
    let count = video.frames();
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut wanted: Vec<Vec<usize>> =
        vec![(0..count).collect(), vec![0], vec![count - 1], (count / 2..count).collect()];
    for sparsity in [2, 5, 20, 100] {
        wanted.push((0..count).filter(|_| random.below(sparsity) == 0).collect());
    }
    for wanted in wanted {
        let decoded = decode_all(&video, ffmpeg, &wanted, PixelFormat::Rgb8).unwrap();
        for (&frame, pixels) in wanted.iter().zip(&decoded) {
            // Not assert_eq: megabytes of pixels are no message.
            assert!(*pixels == frames[frame], "{} frame {frame} of {} wanted", path.display(), wanted.len());
        }
        assert_eq!(decoded.len(), wanted.len());
    }
}

#[test]
fn the_samples_decode_as_ffmpeg_says() {
    let Some(ffmpeg) = ffmpeg() else { return };
    for path in samples(&["lerobot_v30", "videos", "observation.images.top", "chunk-000"]) {
        compare(&ffmpeg, &path, "av1");
    }
    for path in samples(&["lerobot_v20", "videos", "chunk-000", "observation.images.ego_view"]).iter().take(2) {
        compare(&ffmpeg, path, "h264");
    }
}

const SOURCE: [&str; 4] = ["-f", "lavfi", "-i", "testsrc2=s=96x64:r=30:d=4"];

/// Makes a video of a moving test picture; `None` where this ffmpeg lacks the encoder.
fn make(ffmpeg: &Ffmpeg, path: &Path, options: &[&str]) -> Option<()> {
    let arguments = [&SOURCE[..], options, &[path.to_str().unwrap()]].concat();
    if run(ffmpeg, &arguments).is_none() {
        println!("skipped: {} cannot make a video with {options:?}", ffmpeg.version());
        return None;
    }
    Some(())
}

/// A video of whatever encoder there is; every ffmpeg has its own MPEG-4.
fn plain(ffmpeg: &Ffmpeg, folder: &Folder) -> PathBuf {
    let path = folder.0.join("plain.mp4");
    make(ffmpeg, &path, &["-c:v", "mpeg4", "-g", "10", "-bf", "2", "-q:v", "5"]).unwrap();
    path
}

#[test]
fn videos_of_all_kinds_decode_as_ffmpeg_says() {
    let Some(ffmpeg) = ffmpeg() else { return };
    let folder = Folder::new();
    let rows: [(&str, &[&str], &str); 10] = [
        ("b-frames", &["-c:v", "libx264", "-g", "20", "-bf", "3", "-pix_fmt", "yuv420p"], "h264"),
        ("open-gop", &["-c:v", "libx264", "-g", "20", "-x264-params", "open-gop=1", "-pix_fmt", "yuv420p"], "h264"),
        ("no-edits", &["-c:v", "libx264", "-g", "20", "-use_editlist", "0", "-pix_fmt", "yuv420p"], "h264"),
        ("index-first", &["-c:v", "libx264", "-movflags", "faststart", "-pix_fmt", "yuv420p"], "h264"),
        ("fragmented", &["-c:v", "libx264", "-g", "15", "-movflags", "frag_keyframe+empty_moov"], "h264"),
        ("variable", &["-vf", "select='not(mod(n,3))+not(mod(n,7))'", "-fps_mode", "vfr", "-c:v", "mpeg4"], "mpeg4"),
        ("mpeg4", &["-c:v", "mpeg4", "-g", "12", "-bf", "2"], "mpeg4"),
        ("hevc", &["-c:v", "libx265", "-g", "30", "-x265-params", "log-level=none", "-pix_fmt", "yuv420p"], "hevc"),
        (
            "vp9",
            &["-c:v", "libvpx-vp9", "-g", "30", "-pix_fmt", "yuv420p", "-deadline", "realtime", "-cpu-used", "8"],
            "vp9",
        ),
        ("ntsc", &["-r", "30000/1001", "-c:v", "mpeg4"], "mpeg4"),
    ];
    for (name, options, codec) in rows {
        let path = folder.0.join(format!("{name}.mp4"));
        if make(&ffmpeg, &path, options).is_some() {
            compare(&ffmpeg, &path, codec);
        }
    }
}

#[test]
fn cut_and_delayed_copies_decode_as_ffmpeg_says() {
    let Some(ffmpeg) = ffmpeg() else { return };
    let folder = Folder::new();
    let source = plain(&ffmpeg, &folder);
    let source = source.to_str().unwrap();
    let rows: [(&str, &[&str]); 3] = [
        ("cut", &["-ss", "0.51", "-i", source, "-c", "copy"]),
        ("piece", &["-ss", "0.51", "-t", "1.3", "-i", source, "-c", "copy"]),
        ("delayed", &["-itsoffset", "0.7", "-i", source, "-c", "copy"]),
    ];
    for (name, options) in rows {
        let path = folder.0.join(format!("{name}.mp4"));
        run(&ffmpeg, &[options, &[path.to_str().unwrap()]].concat()).unwrap();
        compare(&ffmpeg, &path, "mpeg4");
    }
}

#[test]
fn names_that_look_like_options_or_addresses_are_files() {
    let Some(ffmpeg) = ffmpeg() else { return };
    let folder = Folder::new();
    let source = plain(&ffmpeg, &folder);
    for name in ["-i.mp4", "http:a.mp4", "a b'c%d.mp4", "pipe:0.mp4"] {
        let path = folder.0.join(name);
        std::fs::copy(&source, &path).unwrap();
        assert_eq!(decode_all(&open(&path).unwrap(), &ffmpeg, &[3], PixelFormat::Rgb8).unwrap().len(), 1, "{name}");
    }
}

#[test]
fn depth_keeps_its_twelve_bits() {
    let Some(ffmpeg) = ffmpeg() else { return };
    let folder = Folder::new();
    let path = folder.0.join("depth.mp4");
    // Without loss, each pixel's value is its column times 40 plus its row, plus the frame's number.
    let source = "nullsrc=s=96x64:r=30:d=1,format=gray12le,geq=lum='X*40+Y+N'";
    let options = ["-f", "lavfi", "-i", source, "-c:v", "libx265", "-x265-params", "lossless=1:log-level=none"];
    if run(&ffmpeg, &[&options[..], &["-pix_fmt", "gray12le", path.to_str().unwrap()]].concat()).is_none() {
        println!("skipped: {} has no 12-bit HEVC", ffmpeg.version());
        return;
    }
    let video = open(&path).unwrap();
    let frames = match decode_all(&video, &ffmpeg, &[0, 7, 29], PixelFormat::Gray16) {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            println!("skipped: {error}");
            return;
        }
        frames => frames.unwrap(),
    };
    for (frame, number) in frames.iter().zip([0, 7, 29]) {
        let values: Vec<u16> = frame.chunks(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
        let expected: Vec<u16> =
            (0..64).flat_map(|row| (0..96).map(move |column| column * 40 + row + number)).collect();
        assert!(values == expected, "frame {number}: {:?} {:?}", &values[..4], &expected[..4]);
    }
    let eight_bits = open(&plain(&ffmpeg, &folder)).unwrap();
    let error = decode_all(&eight_bits, &ffmpeg, &[0], PixelFormat::Gray16).unwrap_err();
    assert!(
        error.to_string().contains("depth of 9 to 16 bits") || error.to_string().contains("before frame"),
        "{error}"
    );
}

#[test]
fn planes_come_where_they_are_those_of_jpeg() {
    let Some(ffmpeg) = ffmpeg() else { return };
    let folder = Folder::new();
    let tagged = ["-colorspace", "bt709", "-color_primaries", "bt709", "-color_trc", "bt709", "-color_range", "tv"];
    let variants: [(&str, &str, &[&str], Option<Levels>); 5] = [
        ("plain", "yuv420p", &[], Some(Levels::Limited)),
        ("tagged", "yuv420p", &["-colorspace", "smpte170m", "-color_range", "tv"], Some(Levels::Limited)),
        ("full", "yuvj420p", &["-color_range", "pc"], Some(Levels::Full)),
        ("television", "yuv420p", &tagged, None),
        ("fine", "yuv444p", &[], None),
    ];
    for (name, format, options, expected) in variants {
        let path = folder.0.join(format!("{name}.mp4"));
        let start = ["-f", "lavfi", "-i", "testsrc2=s=95x63:r=30:d=1", "-c:v", "libx264", "-pix_fmt", format];
        if run(&ffmpeg, &[&start[..], options, &[path.to_str().unwrap()]].concat()).is_none() {
            println!("skipped: {} cannot make {name}", ffmpeg.version());
            continue;
        }
        let video = open(&path).unwrap();
        let (size, wanted) = ((video.width(), video.height()), [0, 3, 4, 29]);
        let bytes = match expected {
            Some(_) => size.0 * size.1 + 2 * size.0.div_ceil(2) * size.1.div_ceil(2),
            None => 3 * size.0 * size.1,
        };
        let format = if expected.is_some() { format } else { "rgb24" };
        let input = path.to_str().unwrap();
        let output = run(&ffmpeg, &["-i", input, "-f", "rawvideo", "-pix_fmt", format, "pipe:1"]).unwrap().stdout;
        let mut seen = Vec::new();
        let wish = Wish { format: PixelFormat::Yuv420, threads: 2 };
        let sink = &mut |frame: usize, pixels: Pixels<'_>| {
            let (pixels, levels) = match pixels {
                Pixels::Packed(pixels) => (pixels, None),
                Pixels::Planes(pixels, levels) => (pixels, Some(levels)),
            };
            assert_eq!((levels, pixels.len()), (expected, bytes), "{name}");
            assert!(output.chunks(bytes).nth(frame) == Some(pixels), "{name}: frame {frame}");
            seen.push(frame);
            Ok(())
        };
        video.decode_with(&ffmpeg, &wanted, wish, &Context::default(), sink).unwrap();
        assert_eq!(seen, wanted, "{name}");
    }
}

#[test]
fn the_rotation_of_a_phone_is_not_applied() {
    let Some(ffmpeg) = ffmpeg() else { return };
    let folder = Folder::new();
    let (source, turned) = (plain(&ffmpeg, &folder), folder.0.join("turned.mp4"));
    let arguments = ["-display_rotation", "90", "-i", source.to_str().unwrap(), "-c", "copy", turned.to_str().unwrap()];
    if run(&ffmpeg, &arguments).is_none() {
        println!("skipped: {} cannot note a rotation", ffmpeg.version());
        return;
    }
    let (plain, turned) = (open(&source).unwrap(), open(&turned).unwrap());
    assert_eq!((turned.width(), turned.height()), (96, 64));
    let frames = |video: &VideoFile| decode_all(video, &ffmpeg, &[5, 40], PixelFormat::Rgb8).unwrap();
    assert!(frames(&plain) == frames(&turned));
}

#[test]
fn a_size_that_changes_is_refused() {
    let Some(ffmpeg) = ffmpeg() else { return };
    let folder = Folder::new();
    let source = plain(&ffmpeg, &folder);
    // The container says another size than the bitstream.
    let mut bytes = std::fs::read(&source).unwrap();
    let at = bytes.windows(4).position(|window| window == b"mp4v").unwrap() + 4 + 24;
    bytes[at..at + 4].copy_from_slice(&[0, 48, 0, 64]);
    let video = open(&folder.file("lies.mp4", &bytes)).unwrap();
    assert_eq!((video.width(), video.height()), (48, 64));
    let error = decode_all(&video, &ffmpeg, &[0], PixelFormat::Rgb8).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CorruptData);
    assert!(error.to_string().contains("is 96 x 64, the file says 48 x 64"), "{error}");
}

#[test]
fn damaged_streams_give_errors_and_never_hang() {
    let Some(ffmpeg) = ffmpeg() else { return };
    let folder = Folder::new();
    let bytes = std::fs::read(plain(&ffmpeg, &folder)).unwrap();
    let data = bytes.windows(4).position(|window| window == b"mdat").unwrap() + 4;
    let end = bytes.windows(4).position(|window| window == b"moov").unwrap() - 4;
    let mut random = Random(77);
    let mut refused = 0;
    let rounds = scaled(30);
    for _ in 0..rounds {
        let mut bytes = bytes.clone();
        for _ in 0..40 {
            let at = data + random.below(end - data);
            bytes[at] = u8::try_from(random.below(256)).unwrap();
        }
        let video = open(&folder.file("damaged.mp4", &bytes)).unwrap();
        let wanted: Vec<usize> = (0..video.frames()).collect();
        match decode_all(&video, &ffmpeg, &wanted, PixelFormat::Rgb8) {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::CorruptData, "60 corrupt stream: {error}");
                assert!(error.to_string().contains("before frame"), "{error}");
                refused += 1;
            }
        }
    }
    // Not every flipped bit can be seen in the stream, but this many cannot all pass.
    assert!(refused * 2 > rounds, "60 corrupt stream: {refused} of {rounds} refused");
}

#[test]
fn a_damaged_frame_is_an_error_each_time() {
    let Some(ffmpeg) = ffmpeg() else { return };
    let folder = Folder::new();
    let path = folder.0.join("h264.mp4");
    let options = ["-c:v", "libx264", "-bf", "2", "-pix_fmt", "yuv420p", "-g", "12", "-s", "160x120"];
    if make(&ffmpeg, &path, &options).is_none() {
        return;
    }
    let bytes = std::fs::read(&path).unwrap();
    let data = bytes.windows(4).position(|window| window == b"mdat").unwrap() + 4;
    let end = bytes.windows(4).position(|window| window == b"moov").unwrap() - 4;
    let mut random = Random(5);
    let mut seen = 0;
    for round in 0..scaled(6) {
        let mut bytes = bytes.clone();
        let at = data + 1000 + random.below(end - data - 1060);
        bytes[at..at + 30].iter_mut().for_each(|byte| *byte = u8::try_from(random.below(256)).unwrap());
        let video = open(&folder.file("damaged.mp4", &bytes)).unwrap();
        let wanted: Vec<usize> = (0..video.frames()).collect();
        let errors = (0..10).filter(|_| decode_all(&video, &ffmpeg, &wanted, PixelFormat::Rgb8).is_err()).count();
        // Some damage is a good bitstream of another picture; what is seen once is seen always.
        assert!(errors == 0 || errors == 10, "60 round {round}: {errors} of 10 reads failed");
        seen += usize::from(errors == 10);
    }
    assert!(seen > 0, "60 no damage was seen");
}

#[test]
fn frames_past_the_end_and_changed_files_are_refused() {
    let Some(ffmpeg) = ffmpeg() else { return };
    let folder = Folder::new();
    let path = folder.0.join("first.mp4");
    make(&ffmpeg, &path, &["-c:v", "mpeg4", "-g", "10", "-movflags", "faststart"]).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let short = folder.file("short.mp4", &bytes[..bytes.len() * 3 / 4]);
    let video = open(&short).unwrap();
    let missing = video.first_missing().unwrap();
    assert!(missing > 10 && missing < video.frames(), "{missing} of {}", video.frames());
    assert_eq!(decode_all(&video, &ffmpeg, &[0, missing - 1], PixelFormat::Rgb8).unwrap().len(), 2);
    let error = decode_all(&video, &ffmpeg, &[0, missing], PixelFormat::Rgb8).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CorruptData);
    assert!(error.to_string().contains(&format!("frame {missing} ")), "60 last frames missing: {error}");

    let video = open(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let error = decode_all(&video, &ffmpeg, &[0], PixelFormat::Rgb8).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FileError, "64 truncated: {error}");
    assert!(error.to_string().contains("changed since"), "{error}");
}

#[test]
fn wrong_requests_are_refused_and_empty_ones_do_nothing() {
    let Some(ffmpeg) = ffmpeg() else { return };
    let folder = Folder::new();
    let video = open(&plain(&ffmpeg, &folder)).unwrap();
    for (wanted, text) in
        [(vec![3, 3], "must ascend"), (vec![4, 2], "must ascend"), (vec![120], "frame 120 of a video of 120")]
    {
        let error = decode_all(&video, &ffmpeg, &wanted, PixelFormat::Rgb8).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(text), "{error}");
    }
    assert!(decode_all(&video, &ffmpeg, &[], PixelFormat::Rgb8).unwrap().is_empty());
    let limits = Limits { max_alloc: 96 * 64 * 3 - 1, ..Limits::default() };
    let video = VideoFile::open(&folder.0.join("plain.mp4"), &limits).unwrap();
    let error = decode_all(&video, &ffmpeg, &[0], PixelFormat::Rgb8).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded, "{error}");
}
