//! Bad inputs 39 to 47 as parquet files: each gives a typed error that names the file, with
//! memory bounded by the limits, and never a panic.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::PathBuf;

use parquet_forge::*;
use robocache::ErrorKind::{self, CorruptData, LimitExceeded, Unsupported};
use robocache_data::{Limits, fuzzing};

mod parquet_forge;

/// Counts what is reserved, so that tests can bound it.
struct Counting;

thread_local! {
    // Files are read on the thread that asks, so that tests do not count each other's memory.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn changed(by: isize) {
    let live = LIVE.get() + by;
    LIVE.set(live);
    PEAK.set(PEAK.get().max(live));
}

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        changed(layout.size() as isize);
        // SAFETY: passed on from the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, data: *mut u8, layout: Layout) {
        changed(-(layout.size() as isize));
        // SAFETY: passed on from the caller.
        unsafe { System.dealloc(data, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        changed(layout.size() as isize);
        // SAFETY: passed on from the caller.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, data: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both may exist while one is copied to the other.
        changed(size as isize);
        // SAFETY: passed on from the caller.
        let moved = unsafe { System.realloc(data, layout, size) };
        changed(-(layout.size() as isize));
        moved
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MAX_ALLOC: usize = 16 << 20;

fn limits() -> Limits {
    Limits { max_alloc: MAX_ALLOC as u64, ..Limits::default() }
}

/// A file of this thread.
fn path() -> PathBuf {
    let thread = std::thread::current().id();
    std::env::temp_dir().join(format!("robocache-hostile-{}-{thread:?}.parquet", std::process::id()))
}

/// Reads bytes as a file and returns what came of it; fails when that cost too much.
fn read(bytes: &[u8]) -> Result<usize, (ErrorKind, String)> {
    std::fs::write(path(), bytes).unwrap();
    let before = LIVE.get();
    PEAK.set(before);
    let outcome = fuzzing::parquet_file(&path(), &limits());
    let peak = usize::try_from(PEAK.get() - before).unwrap();
    std::fs::remove_file(path()).unwrap();
    // A little for names, texts and tables of fixed size.
    let allowed = MAX_ALLOC + bytes.len() + (64 << 10);
    assert!(peak <= allowed, "reserved {peak} bytes, allowed {allowed}");
    outcome.map_err(|error| {
        assert_eq!(error.file(), Some(path().as_path()), "{error}");
        (error.kind(), error.to_string())
    })
}

/// Expects an error of a kind whose text has some words.
#[track_caller]
fn refuse(id: &str, bytes: &[u8], kind: ErrorKind, words: &str) {
    match read(bytes) {
        Err((got, text)) => assert!(got == kind && text.contains(words), "{id}: {got:?}: {text}"),
        Ok(_) => panic!("{id}: was read"),
    }
}

/// A small file that can be read, to be spoiled.
fn good() -> File {
    File::numbers(FLOAT, 100, vec![Page::data(100, PLAIN, floats(100))])
}

fn list_file(repetition: &[u8], rows: i64) -> File {
    let count = 28;
    let body = [repetition, &level_run(1, count), &floats(28)].concat();
    File::new(list_of_numbers("x", FLOAT), rows, 28, vec![Page::data(28, PLAIN, body)])
}

fn rows_of_14() -> Vec<u8> {
    (0..28).map(|at| u8::from(at % 14 != 0)).collect()
}

#[test]
fn the_files_that_are_spoiled_below_are_good() {
    assert_eq!(read(&good().bytes()), Ok(1));
    assert_eq!(read(&list_file(&level_bits(&rows_of_14()), 2).bytes()), Ok(1));
    for codec in [SNAPPY, ZSTD, GZIP] {
        let page = Page::data(100, PLAIN, floats(100)).packed(codec);
        assert_eq!(read(&File::numbers(FLOAT, 100, vec![page]).codec(codec).bytes()), Ok(1), "codec {codec}");
    }
    let pages = vec![Page::dictionary(4, floats(4)), Page::data(100, RLE_DICTIONARY, vec![2, 200, 1, 3])];
    assert_eq!(read(&File::numbers(FLOAT, 100, pages).bytes()), Ok(1));
}

#[test]
fn bad_39_empty_and_tiny_files() {
    for (id, bytes) in [("39 empty", &b""[..]), ("39 one byte", b"P"), ("39 magic", b"PAR1"), ("39 short", b"PAR1PAR")]
    {
        refuse(id, bytes, CorruptData, "bytes are no parquet file");
    }
    refuse("39 two magics", b"PAR1PAR1", CorruptData, "footer");
    refuse("39 no footer", b"PAR1\0\0\0\0PAR1", CorruptData, "footer");
    refuse("39 text", b"this is not a parquet file at all", CorruptData, "expected PAR1 in the last four bytes");
    let mut bytes = good().bytes();
    bytes[0] = b'X';
    refuse("39 first magic", &bytes, CorruptData, "expected PAR1 in the first four bytes");
}

#[test]
fn bad_40_truncated_at_every_byte() {
    // Larger than the part of the file that is read with the footer.
    let floats = floats(20_000);
    let whole = File::numbers(FLOAT, 20_000, vec![Page::data(20_000, PLAIN, floats)]).bytes();
    assert_eq!(read(&whole), Ok(1));
    let file = std::env::temp_dir().join(format!("robocache-truncated-{}.parquet", std::process::id()));
    std::fs::write(&file, &whole).unwrap();
    let handle = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
    for cut in 1..=(64 << 10) {
        handle.set_len((whole.len() - cut) as u64).unwrap();
        let error = fuzzing::parquet_file(&file, &limits()).unwrap_err();
        assert_eq!((error.kind(), error.file()), (CorruptData, Some(file.as_path())), "40 cut {cut}: {error}");
    }
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn bad_41_no_footer_as_after_a_crash() {
    let page = Page::data(100, PLAIN, floats(100)).bytes();
    let crashed = [b"PAR1", page.as_slice()].concat();
    refuse("41", &crashed, CorruptData, "The recorder was probably killed before it closed the file");
    refuse("41 only the magic", b"PAR1", CorruptData, "record the episode again or drop it");
}

#[test]
fn bad_42_footer_lengths() {
    for (id, length) in [
        ("42 zero", 0u32),
        ("42 one less", u32::MAX),
        ("42 beyond the file", 100_000),
        ("42 negative", 0x8000_0000),
        ("42 largest", 0x7fff_ffff),
    ] {
        let mut bytes = good().bytes();
        let at = bytes.len() - 8;
        bytes[at..at + 4].copy_from_slice(&length.to_le_bytes());
        refuse(id, &bytes, CorruptData, "footer");
    }
    // In the file, but more than is allowed.
    let mut bytes = b"PAR1".to_vec();
    bytes.resize(2 << 20, 0);
    bytes.extend((1u32 << 20).to_le_bytes());
    bytes.extend(b"PAR1");
    std::fs::write(path(), &bytes).unwrap();
    let error = fuzzing::parquet_file(&path(), &Limits { max_metadata: 1 << 16, ..limits() }).unwrap_err();
    std::fs::remove_file(path()).unwrap();
    assert!(error.kind() == LimitExceeded && error.to_string().contains("max_metadata"), "42 limit: {error}");
}

#[test]
fn bad_43_list_sizes() {
    let huge = i32::MAX as usize;
    let schema = list_of(2, &[Struct::new().text(4, "r").i32(5, 1).end(), leaf("x", FLOAT, 0).end()]);
    let groups = |list: &[u8]| Struct::new().i32(1, 2).list(2, &schema).i64(3, 1).list(4, list);
    for (id, footer) in [
        // Ten bytes in all.
        ("43 schema", Struct::new().i32(1, 2).list(2, &list_of(huge, &[]))),
        ("43 row groups", groups(&list_of(huge, &[]))),
        ("43 columns", groups(&list_of(1, &[Struct::new().list(1, &list_of(huge, &[])).end()]))),
        ("43 more than 32 bits", groups(&list_of(usize::MAX, &[]))),
        ("43 metadata", good().footer().list(5, &list_of(huge, &[]))),
        ("43 unknown field", good().footer().list(15, &list_of(huge, &[]))),
        // As many empty structs as there are bytes.
        ("43 empty row groups", groups(&list_of(1 << 20, &vec![vec![0]; 1 << 20]))),
        ("43 empty elements", Struct::new().list(2, &list_of(1 << 20, &vec![vec![0]; 1 << 20]))),
    ] {
        refuse(id, &with_footer(&[], &footer.end()), CorruptData, "is damaged");
    }
}

#[test]
fn bad_43_lists_that_are_as_long_as_they_say() {
    // Row groups without rows, each as short as it can be.
    let schema = list_of(2, &[Struct::new().text(4, "r").i32(5, 1).end(), leaf("x", FLOAT, 0).end()]);
    let column = Struct::new().i32(4, 0).i64(5, 0).i64(7, 0).i64(9, 4);
    let chunk = Struct::new().structure(3, column).end();
    let group = Struct::new().list(1, &list_of(1, &[chunk])).i64(3, 0).end();
    let footer = |count: usize| {
        let groups = list_of(count, &vec![group.clone(); count]);
        with_footer(&[], &Struct::new().i32(1, 2).list(2, &schema).i64(3, 0).list(4, &groups).end())
    };
    assert_eq!(read(&footer(60_000)), Ok(1));
    refuse("43 million", &footer(1 << 20), LimitExceeded, "max_alloc");
    let pair = Struct::new().text(1, "k").end();
    let footer = Struct::new().i32(1, 2).list(2, &schema).i64(3, 0).list(4, &[0x0c]);
    let pairs = footer.list(5, &list_of(5000, &vec![pair; 5000])).end();
    refuse("43 keys", &with_footer(&[], &pairs), CorruptData, "metadata");
}

#[test]
fn bad_44_pages_larger_than_the_file() {
    let claim = 98 << 20;
    let page = Page::data(100, PLAIN, floats(100));
    let one = |page: Page, codec| File::numbers(FLOAT, 100, vec![page]).codec(codec).bytes();
    let inside = Page { compressed: Some(claim), uncompressed: claim, ..page.clone() };
    refuse("44 compressed size", &one(inside, UNCOMPRESSED), CorruptData, "remain");
    let grown = Page { uncompressed: claim, ..page.clone() };
    refuse("44 not compressed", &one(grown.clone(), UNCOMPRESSED), CorruptData, "not compressed");
    let bytes = one(Page { uncompressed: claim, ..page.clone().packed(SNAPPY) }, SNAPPY);
    assert!(bytes.len() < 600);
    refuse("44 uncompressed size", &bytes, LimitExceeded, "max_ratio");
    let values = Page { values: i32::MAX, ..page.clone() };
    refuse("44 values", &one(values, UNCOMPRESSED), CorruptData, "values");
    // A header that goes on for ever.
    let header = Struct::new().i32(1, 0).list(2, &list_of(i32::MAX as usize, &[])).end();
    let bytes = header.len() as i64;
    let pages = vec![Page { body: header, ..page }];
    let shift = pages[0].bytes().len() as i64 - bytes;
    let broken = File { pages, shift, bytes: Some(bytes), ..good() };
    refuse("44 header", &broken.bytes(), CorruptData, "page header");
}

#[test]
fn bad_44_columns_outside_the_file() {
    for (id, shift, bytes) in [
        ("44 behind the end", 1 << 40, None),
        ("44 into the footer", 0, Some(10_000)),
        ("44 largest", 0, Some(i64::MAX)),
        ("44 at the magic", -4, None),
    ] {
        refuse(id, &File { shift, bytes, ..good() }.bytes(), CorruptData, "do not lie in");
    }
    refuse("44 negative offset", &File { shift: -100, ..good() }.bytes(), CorruptData, "negative");
    refuse("44 negative size", &File { bytes: Some(-1), ..good() }.bytes(), CorruptData, "negative");
    refuse("44 cut", &File { bytes: Some(50), ..good() }.bytes(), CorruptData, "remain");
}

#[test]
fn bad_45_dictionary_indices() {
    let file = |pages| File::numbers(FLOAT, 100, pages).bytes();
    // Width 4, a run of 100 times 7; the dictionary has four entries.
    let indices = Page::data(100, RLE_DICTIONARY, vec![4, 200, 1, 7]);
    refuse(
        "45 run",
        &file(vec![Page::dictionary(4, floats(4)), indices.clone()]),
        CorruptData,
        "outside the dictionary",
    );
    let packed = Page::data(100, RLE_DICTIONARY, [vec![4, 13 << 1 | 1], vec![0xff; 52]].concat());
    refuse("45 packed", &file(vec![Page::dictionary(4, floats(4)), packed]), CorruptData, "outside the dictionary");
    refuse("45 no dictionary", &file(vec![indices.clone()]), CorruptData, "dictionary");
    refuse("45 short", &file(vec![Page::dictionary(99, floats(4)), indices.clone()]), CorruptData, "shorter");
    let wide = Page::data(100, RLE_DICTIONARY, vec![77, 200, 1, 7]);
    refuse("45 width", &file(vec![Page::dictionary(4, floats(4)), wide]), CorruptData, "32 bits");
    let twice = vec![Page::dictionary(4, floats(4)), Page::dictionary(4, floats(4)), indices.clone()];
    refuse("45 twice", &file(twice), CorruptData, "second dictionary");
    let empty = Page::data(100, RLE_DICTIONARY, Vec::new());
    refuse("45 no indices", &file(vec![Page::dictionary(4, floats(4)), empty]), CorruptData, "missing");
    let negative = Page { values: -4, ..Page::dictionary(4, floats(4)) };
    refuse("45 negative", &file(vec![negative, indices]), CorruptData, "negative");
}

#[test]
fn bad_45_counts() {
    let page = Page::data(100, PLAIN, floats(100));
    let negative = Page { values: -100, ..page.clone() };
    refuse("45 negative values", &File { pages: vec![negative], ..good() }.bytes(), CorruptData, "negative");
    refuse("45 negative in the footer", &File { values: -1, ..good() }.bytes(), CorruptData, "negative");
    refuse("45 negative rows", &File { rows: -1, ..good() }.bytes(), CorruptData, "negative");
    refuse("45 more rows", &File { rows: 101, ..good() }.bytes(), CorruptData, "rows");
    refuse("45 rows by the trillion", &File { rows: 1 << 40, ..good() }.bytes(), CorruptData, "rows");
    let short = Page::data(100, PLAIN, floats(99));
    refuse("45 fewer values", &File { pages: vec![short], ..good() }.bytes(), CorruptData, "x");
    let negative = Page { compressed: Some(-1), ..page.clone() };
    refuse("45 negative size", &File { pages: vec![negative], ..good() }.bytes(), CorruptData, "negative");
    let unknown = Page { encoding: 77, ..page.clone() };
    refuse("45 encoding", &File { pages: vec![unknown], ..good() }.bytes(), Unsupported, "encoding 77");
    let unknown = Page { kind: 9, ..page };
    refuse("45 page type", &File { pages: vec![unknown], ..good() }.bytes(), CorruptData, "unknown type");
}

#[test]
fn bad_45_levels() {
    let from_1: Vec<u8> = [&[1], &rows_of_14()[1..]].concat();
    refuse("45 starts at 1", &list_file(&level_bits(&from_1), 2).bytes(), CorruptData, "continues a row");
    refuse("45 run of 1", &list_file(&level_run(1, 28), 2).bytes(), CorruptData, "continues a row");
    refuse("45 too few", &list_file(&level_run(0, 5), 28).bytes(), CorruptData, "ends inside");
    refuse("45 more rows", &list_file(&level_bits(&rows_of_14()), 3).bytes(), CorruptData, "rows");
    refuse("45 level 2", &list_file(&level_run(2, 28), 2).bytes(), CorruptData, "x");
    refuse("45 length", &list_file(&u32::MAX.to_le_bytes(), 2).bytes(), CorruptData, "levels");
}

#[test]
fn bad_46_decompression_bombs() {
    let claim = 300 << 20;
    let zeros = vec![0; claim];
    for (name, codec) in [("zstd", ZSTD), ("snappy", SNAPPY), ("gzip", GZIP)] {
        let body = compress(&zeros, codec);
        let values = (claim / 4) as i32;
        let honest = Page { uncompressed: claim as i32, body: body.clone(), ..Page::data(values, PLAIN, Vec::new()) };
        let file = File::numbers(FLOAT, values.into(), vec![honest.clone()]).codec(codec);
        refuse(&format!("46 {name}"), &file.bytes(), LimitExceeded, "max_");
        // The header says little, the stream makes much of it.
        let liar = Page { uncompressed: 400, values: 100, ..honest };
        let file = File::numbers(FLOAT, 100, vec![liar]).codec(codec);
        refuse(&format!("46 {name} lies"), &file.bytes(), CorruptData, "does not decompress to 400 bytes");
        // The header says more than the stream makes.
        let page = Page::data(100, PLAIN, floats(100)).packed(codec);
        let file = File::numbers(FLOAT, 100, vec![Page { uncompressed: 1 << 20, ..page }]).codec(codec);
        refuse(&format!("46 {name} short"), &file.bytes(), CorruptData, "does not decompress");
    }
    let ratio = zeros.len() / compress(&zeros, ZSTD).len();
    assert!(ratio > 10_000, "zstd made only 1 of {ratio}");
}

#[test]
fn bad_46_other_bombs() {
    // A run of 2^31 values in a few bytes.
    let many = i32::MAX;
    let pages = vec![
        Page::dictionary(1, floats(1)),
        Page::data(many, RLE_DICTIONARY, [vec![1], varint(1 << 32), vec![0]].concat()),
    ];
    refuse("46 run", &File::numbers(FLOAT, many.into(), pages).bytes(), LimitExceeded, "max_alloc");
    // One long text a thousand times.
    let text = [&(1u32 << 16).to_le_bytes(), vec![b'x'; 1 << 16].as_slice()].concat();
    let pages = vec![
        Page::dictionary(1, text),
        Page::data(10_000, RLE_DICTIONARY, [vec![1], varint(20_000), vec![0]].concat()),
    ];
    refuse("46 text", &File::numbers(BYTE_ARRAY, 10_000, pages).bytes(), LimitExceeded, "max_alloc");
    // Prefixes: each value is the one before it and one byte more. The lengths are blocks of 128 in
    // four parts of width 0, so that each length is the one before it and the least delta.
    let count = 20_000u64;
    let lengths = |first: u64, delta: u64| {
        let block = [varint(delta << 1), vec![0; 4]].concat();
        let head = [varint(128), varint(4), varint(count), varint(first << 1)].concat();
        [head, block.repeat((count - 1).div_ceil(128) as usize)].concat()
    };
    let body = [lengths(0, 1), lengths(1, 0), vec![b'x'; count as usize]].concat();
    let page = Page::data(count as i32, DELTA_BYTE_ARRAY, body);
    refuse("46 prefixes", &File::numbers(BYTE_ARRAY, count as i64, vec![page]).bytes(), LimitExceeded, "max_alloc");
    let page = Page::data(100, PLAIN, floats(100));
    refuse("46 lz4", &File::numbers(FLOAT, 100, vec![page]).codec(LZ4).bytes(), Unsupported, "lz4");
}

#[test]
fn bad_47_nested_schema() {
    for (id, depth) in [("47 ten thousand", 10_000), ("47 a hundred", 100)] {
        let mut schema: Vec<_> = (0..depth).map(|_| group("g", 1, 1)).collect();
        schema.push(leaf("x", FLOAT, 0));
        refuse(id, &File::new(schema, 0, 0, Vec::new()).bytes(), LimitExceeded, "max_depth");
    }
    // Structs in a field that nobody knows.
    let deep = vec![0x1c; 100_000];
    let mut footer = good().footer().structure(9, Struct::new()).end();
    footer.truncate(footer.len() - 2);
    footer.extend(deep);
    refuse("47 thrift", &with_footer(&[], &footer), LimitExceeded, "nested too deeply");
    // A long name above many columns, each of which would keep it.
    let name = "n".repeat(1 << 16);
    let mut schema = vec![group(&name, 0, 1000)];
    schema.extend((0..1000).map(|_| leaf("x", FLOAT, 0)));
    refuse("47 names", &File::new(schema, 0, 0, Vec::new()).bytes(), LimitExceeded, "max_alloc");
    // Children that are not there, or that are nobody's.
    refuse("47 children", &File::new(vec![group("g", 0, i32::MAX)], 0, 0, Vec::new()).bytes(), CorruptData, "children");
    let two = vec![leaf("x", FLOAT, 0), leaf("y", FLOAT, 0)];
    refuse("47 two roots", &File::new(two, 0, 0, Vec::new()).bytes(), CorruptData, "more than one root");
}
