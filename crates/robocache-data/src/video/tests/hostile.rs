//! Files that lie. The id of a row is its number in docs/faults.md.

use super::build::{Movie, boxed, entry, stsd, words};
use super::*;
use robocache::ErrorKind::{self, CorruptData, FileError, LimitExceeded, Unsupported};

fn with(change: impl FnOnce(&mut Movie)) -> Vec<u8> {
    let mut movie = Movie::small();
    change(&mut movie);
    movie.bytes()
}

/// The small movie with a number put over the bytes at an offset behind a box's name.
fn patched(kind: &[u8; 4], offset: usize, value: &[u8]) -> Vec<u8> {
    let mut bytes = Movie::small().bytes();
    let at = bytes.windows(4).position(|window| window == kind).unwrap() + 4 + offset;
    bytes[at..at + value.len()].copy_from_slice(value);
    bytes
}

/// The size of a box, which stands before its name.
fn resized(kind: &[u8; 4], size: u32) -> Vec<u8> {
    let mut bytes = Movie::small().bytes();
    let at = bytes.windows(4).position(|window| window == kind).unwrap() - 4;
    bytes[at..at + 4].copy_from_slice(&size.to_be_bytes());
    bytes
}

#[test]
fn the_small_movie_is_read() {
    for moov_first in [false, true] {
        let folder = Folder::new();
        let video = open(&folder.file("a.mp4", &with(|movie| movie.moov_first = moov_first))).unwrap();
        assert_eq!((video.codec(), video.width(), video.height(), video.frames()), ("h264", 64, 48, 4));
        assert_eq!(video.times(), [0, 100_000_000, 200_000_000, 300_000_000]);
        assert_eq!(video.keyframes().collect::<Vec<_>>(), [true, false, false, false]);
        assert_eq!((video.short(), video.first_missing()), (None, None));
    }
}

#[test]
fn refused_files() {
    let small = Movie::small().bytes();
    let many = u32::MAX;
    let rows: Vec<(u32, &str, Vec<u8>, ErrorKind, &str)> = vec![
        (39, "0 bytes", vec![], CorruptData, "it has 0 bytes"),
        (39, "1 byte", vec![0], CorruptData, "it has 1 bytes"),
        (39, "magic only", small[..8].to_vec(), CorruptData, "no index"),
        (39, "ftyp only", small[..20].to_vec(), CorruptData, "no index"),
        (
            39,
            "text",
            b"hello world, this is no video".to_vec(),
            CorruptData,
            "not an MP4 file: it starts with \"hello wo\"",
        ),
        (60, "recorder killed", small[..68].to_vec(), CorruptData, "recorder was probably killed"),
        (
            60,
            "recorder killed, open mdat",
            resized(b"mdat", 0)[..60].to_vec(),
            CorruptData,
            "recorder was probably killed",
        ),
        (60, "index cut off", small[..small.len() - 1].to_vec(), CorruptData, "cut off by the end of the file"),
        (60, "mdat smaller than its header", resized(b"mdat", 4), CorruptData, "at byte 20 there is no box"),
        (42, "trak longer than moov", resized(b"trak", 1 << 20), CorruptData, "says 1048576 bytes"),
        (42, "stbl of 2^31-1", resized(b"stbl", i32::MAX.unsigned_abs()), CorruptData, "says 2147483647 bytes"),
        (42, "box shorter than its header", resized(b"stsz", 7), CorruptData, "says 7 bytes"),
        (42, "64-bit size without room", resized(b"stco", 1), CorruptData, "\"stco\""),
        (43, "stts count", patched(b"stts", 4, &words(&[many])), CorruptData, "says 4294967295 entries"),
        (43, "ctts count", patched(b"ctts", 4, &words(&[many])), CorruptData, "says 4294967295 entries"),
        (43, "stss count", patched(b"stss", 4, &words(&[many])), CorruptData, "says 4294967295 entries"),
        (43, "stsc count", patched(b"stsc", 4, &words(&[many])), CorruptData, "says 4294967295 entries"),
        (43, "stco count", patched(b"stco", 4, &words(&[many])), CorruptData, "says 4294967295 entries"),
        (43, "stsz count", patched(b"stsz", 8, &words(&[many])), CorruptData, "says 4294967295 entries"),
        (
            43,
            "equal sizes, endless frames",
            patched(b"stsz", 4, &words(&[1, many])),
            CorruptData,
            "4294967295 frames in a file of",
        ),
        (43, "elst count", patched(b"elst", 4, &words(&[many])), CorruptData, "ends too early"),
        (43, "stsd without entries", with(|movie| movie.stsd = stsd(&[])), CorruptData, "\"stsd\" is empty"),
        (60, "times for more frames", with(|movie| movie.stts = words(&[0, 1, 5, 100])), CorruptData, "times for 5"),
        (60, "times for fewer frames", with(|movie| movie.stts = words(&[0, 1, 3, 100])), CorruptData, "times for 3"),
        (
            60,
            "times for endless frames",
            with(|movie| movie.stts = words(&[0, 1, many, 100])),
            CorruptData,
            "times for 4294967295",
        ),
        (
            60,
            "offsets for fewer frames",
            with(|movie| movie.ctts = Some(words(&[0, 1, 2, 100]))),
            CorruptData,
            "offsets for 2",
        ),
        (60, "chunks hold too few", with(|movie| movie.chunks = vec![0]), CorruptData, "its chunks hold 3"),
        (
            60,
            "keyframe past the end",
            with(|movie| movie.stss = Some(words(&[0, 1, 5]))),
            CorruptData,
            "keyframe 5 of 4",
        ),
        (60, "keyframe 0", with(|movie| movie.stss = Some(words(&[0, 1, 0]))), CorruptData, "keyframe 0 of 4"),
        (
            60,
            "no frames",
            with(|movie| (movie.stsz, movie.stts) = (words(&[0, 0, 0]), words(&[0, 0]))),
            CorruptData,
            "no frames",
        ),
        (60, "time scale 0", patched(b"mdhd", 12, &words(&[0])), CorruptData, "time scale is 0"),
        (60, "time scale 2^32-1", patched(b"mdhd", 12, &words(&[many])), CorruptData, "time scale"),
        (60, "no width", with(|movie| movie.stsd = stsd(&[entry(b"avc1", 0, 48, &[])])), CorruptData, "0 x 48"),
        (
            60,
            "huge frames",
            with(|movie| movie.stsd = stsd(&[entry(b"avc1", 65535, 65535, &[])])),
            LimitExceeded,
            "max_pixels",
        ),
        (60, "audio only", patched(b"hdlr", 8, b"soun"), CorruptData, "no video track; tracks found: soun"),
        (60, "encrypted", with(|movie| movie.stsd = stsd(&[entry(b"encv", 64, 48, &[])])), Unsupported, "encrypted"),
        (
            60,
            "size changes",
            with(|movie| movie.stsd = stsd(&[entry(b"avc1", 64, 48, &[]), entry(b"avc1", 32, 48, &[])])),
            Unsupported,
            "changes from h264 64 x 48 to h264 32 x 48",
        ),
        (
            60,
            "several edits",
            with(|movie| movie.edts = Some(boxed(b"elst", &words(&[0, 2, 60, 0, 1 << 16, 60, 200, 1 << 16])))),
            Unsupported,
            "shows several parts",
        ),
        (
            60,
            "half speed",
            with(|movie| movie.edts = Some(boxed(b"elst", &words(&[0, 1, 240, 0, 1 << 15])))),
            Unsupported,
            "changes the speed",
        ),
        (
            60,
            "edit behind the end",
            with(|movie| movie.edts = Some(boxed(b"elst", &words(&[0, 1, 240, 5000, 1 << 16])))),
            CorruptData,
            "shows none of its frames",
        ),
        (
            60,
            "edit of version 1 with a huge duration",
            with(|movie| movie.edts = Some(boxed(b"elst", &words(&[1 << 24, 1, many, many, 0, 0, 1 << 16])))),
            CorruptData,
            "an edit of 18446744073709551615 units",
        ),
        (
            60,
            "times that overflow",
            with(|movie| {
                movie.edts = None;
                movie.mdhd = words(&[0, 0, 0, 1, 400, 0]);
                movie.stts = words(&[0, 1, 4, u32::MAX]);
            }),
            CorruptData,
            "is shown at",
        ),
    ];
    let folder = Folder::new();
    for (id, name, bytes, kind, text) in rows {
        let path = folder.file("bad.mp4", &bytes);
        let error = open(&path).expect_err(name);
        assert_eq!(error.kind(), kind, "{id} {name}: {error}");
        assert!(error.to_string().contains(text), "{id} {name}: {error}");
        assert_eq!(error.file(), Some(path.as_path()), "{id} {name}");
    }
}

#[test]
fn limits_hold_before_memory_is_reserved() {
    let folder = Folder::new();
    let path = folder.file("a.mp4", &Movie::small().bytes());
    let default = Limits::default();
    for (limits, text) in [
        (Limits { max_frames: 3, ..default }, "4 frames, more than max_frames = 3"),
        (Limits { max_pixels: 64 * 48 - 1, ..default }, "max_pixels = 3071"),
        (Limits { max_metadata: 100, ..default }, "max_metadata = 100"),
    ] {
        let error = VideoFile::open(&path, &limits).unwrap_err();
        assert_eq!(error.kind(), LimitExceeded, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn what_is_not_a_file_is_refused() {
    let folder = Folder::new();
    let file = folder.file("a.mp4", &Movie::small().bytes());
    let (directory, fifo) = (folder.0.join("dir.mp4"), folder.0.join("fifo.mp4"));
    let (link, circle) = (folder.0.join("link.mp4"), folder.0.join("circle.mp4"));
    std::fs::create_dir(&directory).unwrap();
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    std::os::unix::fs::symlink(&file, &link).unwrap();
    std::os::unix::fs::symlink(&circle, &circle).unwrap();
    assert_eq!(open(&link).unwrap().frames(), 4, "63 link");
    for (name, path) in
        [("missing", folder.0.join("none.mp4")), ("directory", directory), ("fifo", fifo), ("loop", circle)]
    {
        assert_eq!(open(&path).expect_err(name).kind(), FileError, "63 {name}");
    }
    assert_eq!(open(Path::new("/dev/zero")).unwrap_err().kind(), FileError, "63 device");
    let sparse = folder.0.join("sparse.mp4");
    std::fs::File::create(&sparse).unwrap().set_len(9 << 30).unwrap();
    assert_eq!(open(&sparse).unwrap_err().kind(), CorruptData, "68 nine GiB of zeros");
}

#[test]
fn a_short_file_is_opened_and_says_so() {
    let folder = Folder::new();
    let bytes = with(|movie| movie.moov_first = true);
    // Decoded in the order I P B B and shown as I B B P: the last coded frame is shown third.
    for (missing, frames, first) in [(1, 1, 2), (10, 1, 2), (11, 2, 1), (39, 4, 0)] {
        let path = folder.file("short.mp4", &bytes[..bytes.len() - missing]);
        let video = open(&path).unwrap();
        let text = format!("{frames} of 4 frames lie past the end of the file");
        assert!(video.short().unwrap().contains(&text), "60 {missing} bytes: {:?}", video.short());
        assert_eq!(video.first_missing(), Some(first), "60 {missing} bytes");
    }
    let full = open(&folder.file("full.mp4", &bytes)).unwrap();
    assert_eq!(full.short(), None);
}

#[test]
fn edits_delay_and_trim() {
    let folder = Folder::new();
    let times = |edit: &[u32]| {
        let bytes = with(|movie| movie.edts = Some(boxed(b"elst", &words(edit))));
        open(&folder.file("a.mp4", &bytes)).unwrap().times().to_vec()
    };
    // Units of the movie are 1/600 s, of the track 1/1000 s; the first frame is stored at 100.
    assert_eq!(
        times(&[0, 2, 300, u32::MAX, 1 << 16, 240, 100, 1 << 16]),
        [500_000_000, 600_000_000, 700_000_000, 800_000_000]
    );
    assert_eq!(times(&[0, 1, 120, 200, 1 << 16]), [0, 100_000_000]);
    assert_eq!(times(&[0, 1, 240, 150, 1 << 16]), [0, 100_000_000, 200_000_000]);
    assert_eq!(times(&[0, 1, 0, 100, 1 << 16]).len(), 4);
    let bytes = with(|movie| movie.edts = None);
    let video = open(&folder.file("a.mp4", &bytes)).unwrap();
    assert_eq!(video.times(), [100_000_000, 200_000_000, 300_000_000, 400_000_000]);
}

#[test]
fn codecs_by_the_bitstream() {
    let folder = Folder::new();
    let esds =
        |object: u8| boxed(b"esds", &[0, 0, 0, 0, 3, 0x80, 0x80, 0x80, 37, 0, 1, 0, 4, 0x80, 0x80, 0x80, 23, object]);
    for (kind, extensions, codec) in [
        (b"avc3", vec![], "h264"),
        (b"hvc1", vec![], "hevc"),
        (b"hev1", vec![], "hevc"),
        (b"av01", vec![], "av1"),
        (b"vp09", vec![], "vp9"),
        (b"mp4v", esds(0x20), "mpeg4"),
        (b"mp4v", esds(0x6c), "mjpeg"),
        (b"mp4v", vec![], "mpeg4"),
        (b"xyz ", vec![], "xyz"),
    ] {
        let bytes = with(|movie| movie.stsd = stsd(&[entry(kind, 64, 48, &extensions)]));
        assert_eq!(open(&folder.file("a.mp4", &bytes)).unwrap().codec(), codec);
    }
}

#[test]
fn fragments_are_followed() {
    let trex = boxed(b"trex", &words(&[0, 7, 1, 100, 10, 0x0101_0000]));
    let fragment = |time: u32, count: u32| {
        let tfhd = boxed(b"tfhd", &words(&[0x02_0000, 7]));
        let tfdt = boxed(b"tfdt", &words(&[0, time]));
        let trun = boxed(b"trun", &words(&[0x05, count, 80, 0x0200_0000]));
        [boxed(b"moof", &boxed(b"traf", &[tfhd, tfdt, trun].concat())), boxed(b"mdat", &[0xcd; 20])].concat()
    };
    let head = with(|movie| {
        movie.mvex = Some(trex);
        movie.edts = None;
        movie.stsz = words(&[0, 0, 0]);
        (movie.stts, movie.stsc, movie.chunks) = (words(&[0, 0]), words(&[0, 0]), vec![]);
        movie.data.clear();
    });
    let folder = Folder::new();
    let bytes = [&head[..], &fragment(0, 2), &fragment(500, 2)].concat();
    let video = open(&folder.file("a.mp4", &bytes)).unwrap();
    assert_eq!(video.times(), [0, 100_000_000, 500_000_000, 600_000_000]);
    assert_eq!(video.keyframes().collect::<Vec<_>>(), [true, false, true, false]);
    assert_eq!(video.short(), None);
    let cut = open(&folder.file("b.mp4", &bytes[..bytes.len() - 25])).unwrap();
    assert_eq!((cut.frames(), cut.first_missing()), (4, Some(2)));
    assert!(cut.short().is_some());
    let endless = [&head[..], &fragment(0, u32::MAX)].concat();
    let error = open(&folder.file("c.mp4", &endless)).unwrap_err();
    assert!(error.to_string().contains("4294967295 frames in a file"), "{error}");
    let few = Limits { max_frames: 3, ..Limits::default() };
    let error = VideoFile::open(&folder.file("a.mp4", &bytes), &few).unwrap_err();
    assert_eq!(error.kind(), LimitExceeded);
}

/// Whatever the bytes: a typed error that names the file, or an index that holds together.
fn survives(path: &Path, what: &str) {
    match open(path) {
        Ok(video) => {
            assert!(video.frames() > 0 && video.times().is_sorted(), "{what}");
            assert_eq!(video.keyframes().count(), video.frames(), "{what}");
        }
        Err(error) => {
            assert_eq!(error.file(), Some(path), "{what}: {error}");
            let kinds = [CorruptData, LimitExceeded, Unsupported];
            assert!(kinds.contains(&error.kind()), "{what}: {error}");
        }
    }
}

#[test]
fn every_prefix_and_many_mutations_give_an_index_or_a_typed_error() {
    let folder = Folder::new();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for moov_first in [false, true] {
        let bytes = with(|movie| movie.moov_first = moov_first);
        for length in 0..bytes.len() {
            survives(&folder.file("cut.mp4", &bytes[..length]), &format!("first {length} bytes"));
        }
        for round in 0..scaled(3000) {
            let mut bytes = bytes.clone();
            for _ in 0..=random.below(4) {
                let at = random.below(bytes.len());
                bytes[at] = [0, 1, 0x7f, 0x80, 0xff, bytes[at] ^ (1 << random.below(8))][random.below(6)];
            }
            survives(&folder.file("flip.mp4", &bytes), &format!("mutation {round}"));
        }
    }
}
