//! Files written in many ways, read whole and in part.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::builder::{FixedSizeListBuilder, Float32Builder, ListBuilder, StringBuilder};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Float16Array, Float32Array, Float64Array, Int8Array, Int16Array,
    Int32Array, Int64Array, RecordBatch, StringArray, StructArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field};
use half::f16;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use robocache::ErrorKind;

use super::examine::{bits, both};
use super::*;

#[path = "../../tests/parquet_forge/mod.rs"]
mod forge;

const ROWS: usize = 1000;

/// A folder of this test, emptied and removed with it.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("robocache-parquet-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, bytes: &[u8]) -> PathBuf {
        let path = self.0.join("x.parquet");
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Numbers that look random and repeat often enough for a dictionary.
pub(super) fn noise(count: usize, distinct: u32) -> impl Iterator<Item = u32> {
    let mut state = 1u32;
    (0..count).map(move |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % distinct
    })
}

pub(super) fn list(values: ArrayRef, width: usize, nullable: bool) -> ArrayRef {
    let rows = values.len() / width;
    let offsets = OffsetBuffer::new(ScalarBuffer::from_iter((0..=rows).map(|row| i32::try_from(row * width).unwrap())));
    let field = Arc::new(Field::new("element", values.data_type().clone(), nullable));
    Arc::new(arrow_array::ListArray::new(field, offsets, values, None))
}

/// Columns with their shapes.
fn columns() -> Vec<(&'static str, ArrayRef, Vec<usize>)> {
    let floats = |count| Float32Array::from_iter_values(noise(count, 1 << 24).map(|n| f32::from_bits(n << 4)));
    let few = |count| Float32Array::from_iter_values(noise(count, 37).map(|n| n as f32));
    let mut fixed = FixedSizeListBuilder::new(Float32Builder::new(), 6);
    for row in 0..ROWS {
        (0..6).for_each(|place| fixed.values().append_value((row * 6 + place) as f32));
        fixed.append(true);
    }
    vec![
        ("state", list(Arc::new(floats(ROWS * 14)), 14, true), vec![14]),
        ("action", list(Arc::new(few(ROWS * 7)), 7, false), vec![7]),
        ("fixed", Arc::new(fixed.finish()), vec![6]),
        ("one", list(Arc::new(few(ROWS)), 1, true), vec![1]),
        ("image", list(list(Arc::new(few(ROWS * 12)), 3, true), 4, true), vec![4, 3]),
        ("index", Arc::new(Int64Array::from_iter_values((0..ROWS).map(|n| n as i64))), vec![]),
        ("episode", Arc::new(Int64Array::from_iter_values((0..ROWS).map(|n| n as i64 / 300))), vec![1]),
        ("f64", Arc::new(Float64Array::from_iter_values(noise(ROWS, 9999).map(f64::from))), vec![]),
        ("f16", Arc::new(Float16Array::from_iter_values(noise(ROWS, 99).map(|n| f16::from_f32(n as f32)))), vec![]),
        ("i32", Arc::new(Int32Array::from_iter_values(noise(ROWS, 1 << 20).map(|n| n as i32 - 99))), vec![]),
        ("u64", Arc::new(UInt64Array::from_iter_values(noise(ROWS, 7).map(|n| u64::MAX - u64::from(n)))), vec![]),
        ("u32", Arc::new(UInt32Array::from_iter_values(noise(ROWS, 7).map(|n| u32::MAX - n))), vec![]),
        ("i16", Arc::new(Int16Array::from_iter_values(noise(ROWS, 7).map(|n| -(n as i16)))), vec![]),
        ("u16", Arc::new(UInt16Array::from_iter_values(noise(ROWS, 7).map(|n| u16::MAX - n as u16))), vec![]),
        ("i8", Arc::new(Int8Array::from_iter_values(noise(ROWS, 7).map(|n| -(n as i8)))), vec![]),
        ("u8", list(Arc::new(UInt8Array::from_iter_values(noise(ROWS * 3, 256).map(|n| n as u8))), 3, true), vec![3]),
        ("done", Arc::new(BooleanArray::from_iter(noise(ROWS, 2).map(|n| Some(n == 1)))), vec![]),
        ("flags", list(Arc::new(BooleanArray::from_iter(noise(ROWS * 5, 2).map(|n| Some(n == 1)))), 5, true), vec![5]),
    ]
}

fn write(path: &Path, columns: &[(&'static str, ArrayRef)], properties: WriterProperties) {
    let batch = RecordBatch::try_from_iter(columns.iter().cloned()).unwrap();
    let mut writer =
        ArrowWriter::try_new(std::fs::File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

/// Every combination that writers use, small enough that each file has many pages and groups.
fn all_properties() -> impl Iterator<Item = (String, WriterProperties)> {
    let versions = [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0];
    let codecs = [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::ZSTD(ZstdLevel::default())];
    let mut all = Vec::new();
    for version in versions {
        for codec in codecs {
            for dictionary in [None, Some(300), Some(1 << 20)] {
                for page_rows in [37, 128, 100_000] {
                    for group_rows in [170, 100_000] {
                        for index in [false, true] {
                            let statistics = if index { EnabledStatistics::Page } else { EnabledStatistics::None };
                            let properties = WriterProperties::builder()
                                .set_writer_version(version)
                                .set_compression(codec)
                                .set_dictionary_enabled(dictionary.is_some())
                                .set_dictionary_page_size_limit(dictionary.unwrap_or(1))
                                .set_data_page_row_count_limit(page_rows)
                                .set_write_batch_size(16)
                                .set_max_row_group_row_count(Some(group_rows))
                                .set_offset_index_disabled(!index)
                                .set_statistics_enabled(statistics);
                            let name = format!("{version:?} {codec} {dictionary:?} {page_rows} {group_rows} {index}");
                            all.push((name, properties.build()));
                        }
                    }
                }
            }
        }
    }
    all.into_iter()
}

fn expected(array: &ArrayRef, rows: &Range<u64>, file: &ParquetFile, name: &str, shape: &[usize]) -> Vec<u8> {
    let part = array.slice(usize::try_from(rows.start).unwrap(), usize::try_from(rows.end - rows.start).unwrap());
    let mut tensor = file.room(name, rows, shape).unwrap();
    numbers::fill(&part, shape, &mut tensor).ok().unwrap();
    bits(&tensor).unwrap()
}

#[test]
fn numbers_are_what_was_written_however_it_was_written() {
    let folder = Folder::new("ways");
    let path = folder.0.join("x.parquet");
    let columns = columns();
    let arrays: Vec<_> = columns.iter().map(|(name, array, _)| (*name, Arc::clone(array))).collect();
    let ranges = [0..1000, 0..1, 999..1000, 36..38, 150..700, 340..340, 500..1000];
    for (way, properties) in all_properties() {
        write(&path, &arrays, properties);
        let file = ParquetFile::open(&path, &Limits::default()).unwrap();
        assert_eq!(file.rows(), 1000);
        for (root, (name, array, shape)) in columns.iter().enumerate() {
            for rows in ranges.clone() {
                let got = file.numbers(name, rows.clone(), shape).unwrap_or_else(|e| panic!("{way}: {name}: {e}"));
                let want = expected(array, &rows, &file, name, shape);
                assert_eq!(bits(&got).unwrap(), want, "{way}: {name} {rows:?}");
                let took = both(&file, root, &rows, shape).unwrap_or_else(|e| panic!("{way}: {name} {rows:?}: {e}"));
                // Bits are the general way's, and so are the delta encodings of the second version.
                let deltas = way.contains("2_0") && numbers::number_type(array.data_type()) != Some(DType::F32);
                let fast = !matches!(*name, "done" | "flags") && !rows.is_empty() && !deltas;
                assert!(took || !fast, "{way}: {name} {rows:?} was not read the fast way");
            }
        }
    }
}

#[test]
fn a_column_is_read_as_it_was_written_whatever_it_holds() {
    let folder = Folder::new("kinds");
    let path = folder.0.join("x.parquet");
    let names = StringArray::from_iter((0..ROWS).map(|row| (row % 7 != 0).then(|| format!("frame-{}.png", row % 90))));
    let bytes = BinaryArray::from_iter_values((0..ROWS).map(|row| vec![row as u8; row % 40]));
    let image = StructArray::from(vec![
        (Arc::new(Field::new("bytes", DataType::Binary, true)), Arc::new(bytes) as ArrayRef),
        (Arc::new(Field::new("path", DataType::Utf8, true)), Arc::new(names.clone()) as ArrayRef),
    ]);
    let mut tasks = ListBuilder::new(StringBuilder::new());
    for row in 0..ROWS {
        (0..row % 3).for_each(|task| tasks.values().append_value(format!("task {task}")));
        tasks.append(row % 11 != 0);
    }
    let mut gaps = Float32Builder::new();
    (0..ROWS).for_each(|row| gaps.append_option((row % 5 != 0).then_some(row as f32)));
    let columns: [(&str, ArrayRef); 4] = [
        ("image", Arc::new(image)),
        ("name", Arc::new(names)),
        ("tasks", Arc::new(tasks.finish())),
        ("gaps", Arc::new(gaps.finish())),
    ];
    for (way, properties) in all_properties().step_by(5) {
        write(&path, &columns, properties);
        let file = ParquetFile::open(&path, &Limits::default()).unwrap();
        for rows in [0..ROWS, 0..1, 100..411, 900..ROWS, 5..5] {
            let range = rows.start as u64..rows.end as u64;
            let got = file.read(&["tasks", "image", "gaps", "name"], range).unwrap();
            for (got, of) in got.iter().zip([2, 0, 3, 1]) {
                // Names of list items differ between Arrow and parquet; what is in them does not.
                let want = columns[of].1.slice(rows.start, rows.len());
                assert_eq!(format!("{got:?}"), format!("{want:?}"), "{way}: {} {rows:?}", columns[of].0);
            }
        }
    }
}

#[test]
fn rows_may_go_on_in_the_next_page() {
    // Pages of 10 values under rows of 14, as writers of the first kind of page cut them.
    let folder = Folder::new("straddle");
    let (rows, width, cut) = (40usize, 14usize, 10usize);
    let values = forge::floats(rows * width);
    let levels: Vec<u8> = (0..rows * width).map(|at| u8::from(at % width != 0)).collect();
    let pages = levels.chunks(cut).zip(values.chunks(cut * 4)).map(|(levels, values)| {
        let count = levels.len();
        let body = [forge::level_bits(levels), forge::level_run(1, count as u64), values.to_vec()].concat();
        forge::Page::data(count as i32, forge::PLAIN, body).packed(forge::SNAPPY)
    });
    let mut forged = forge::File::new(
        forge::list_of_numbers("x", forge::FLOAT),
        rows as i64,
        (rows * width) as i64,
        pages.collect(),
    );
    let path = folder.file(&forged.clone().codec(forge::SNAPPY).bytes());
    let file = ParquetFile::open(&path, &Limits::default()).unwrap();
    for range in [7..9, 0..40, 39..40, 0..1, 3..30] {
        let want = &values[range.start as usize * width * 4..range.end as usize * width * 4];
        assert_eq!(bits(&file.numbers("x", range.clone(), &[14]).unwrap()).unwrap(), want, "{range:?}");
        assert!(both(&file, 0, &range, &[14]).unwrap(), "{range:?} was not read the fast way");
    }
    // A row that ends with its page, but goes on in the next one.
    let rest = [vec![1; 7], vec![0], vec![1; 6]].concat();
    let halves = [[vec![0], vec![1; 13]].concat(), rest].map(|levels| {
        let body = [forge::level_bits(&levels), forge::level_run(1, 14), forge::floats(14)].concat();
        forge::Page::data(14, forge::PLAIN, body)
    });
    let two = forge::File::new(forge::list_of_numbers("x", forge::FLOAT), 2, 28, halves.to_vec());
    let file = ParquetFile::open(&folder.file(&two.bytes()), &Limits::default()).unwrap();
    let error = file.numbers("x", 0..1, &[14]).unwrap_err().to_string();
    assert!(error.contains("row 0: expected 14 values, got 21"), "{error}");
    // A row of 13 and one of 15 far before the wanted rows: values no longer tell where rows are.
    let mut levels = levels;
    levels.swap(width, width - 1);
    for (page, levels) in forged.pages.iter_mut().zip(levels.chunks(cut)) {
        let values = forge::floats(levels.len());
        let body = [forge::level_bits(levels), forge::level_run(1, levels.len() as u64), values].concat();
        *page = forge::Page::data(levels.len() as i32, forge::PLAIN, body);
    }
    let file = ParquetFile::open(&folder.file(&forged.bytes()), &Limits::default()).unwrap();
    assert!(!both(&file, 0, &(20..21), &[14]).unwrap());
    let error = file.numbers("x", 0..40, &[14]).unwrap_err().to_string();
    assert!(error.contains("column \"x\", row 0: expected 14 values, got 13"), "{error}");
    let error = file.numbers("x", 1..40, &[14]).unwrap_err().to_string();
    assert!(error.contains("column \"x\", row 1: expected 14 values, got 15"), "{error}");
}

#[test]
fn rows_that_do_not_fit_are_named() {
    let folder = Folder::new("misfit");
    let path = folder.0.join("x.parquet");
    let mut lists = ListBuilder::new(Float32Builder::new());
    for row in 0..100 {
        for place in 0..(if row == 60 { 4 } else { 3 }) {
            lists.values().append_option((row != 80 || place != 1).then_some(1.0));
        }
        lists.append(row != 90);
    }
    let scalar = Int64Array::from_iter((0..100).map(|row| (row != 50).then_some(row)));
    let columns: [(&str, ArrayRef); 3] = [
        ("x", Arc::new(lists.finish())),
        ("y", Arc::new(scalar)),
        ("text", Arc::new(StringArray::from_iter_values((0..100).map(|_| "a")))),
    ];
    write(&path, &columns, WriterProperties::builder().set_data_page_row_count_limit(16).build());
    let file = ParquetFile::open(&path, &Limits::default()).unwrap();
    let refuse = |column: &str, rows: Range<u64>, shape: &[usize], kind: ErrorKind, words: &str| {
        let error = file.numbers(column, rows, shape).unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(words), "{words}: {error}");
        assert_eq!(error.file(), Some(path.as_path()), "{error}");
    };
    refuse("x", 0..100, &[3], ErrorKind::CorruptData, "column \"x\", row 90: a value is missing (null)");
    refuse("x", 61..90, &[3], ErrorKind::CorruptData, "column \"x\", row 80: a value is missing (null)");
    refuse("x", 30..70, &[3], ErrorKind::CorruptData, "column \"x\", row 60: expected 3 values, got 4");
    refuse("x", 10..11, &[5], ErrorKind::CorruptData, "column \"x\", row 10: expected 5 values, got 3");
    refuse("y", 40..60, &[], ErrorKind::CorruptData, "column \"y\", row 50: a value is missing (null)");
    refuse("y", 0..1, &[2], ErrorKind::CorruptData, "column \"y\", row 0: expected 2 values, got 1");
    refuse("text", 0..1, &[], ErrorKind::InvalidArgument, "column \"text\" holds Utf8, not numbers");
    refuse("z", 0..1, &[], ErrorKind::CorruptData, "column \"z\" is missing");
    assert_eq!(file.numbers("x", 61..80, &[3]).unwrap().shape(), [19, 3]);
    // Three values are three values, in whatever shape.
    assert_eq!(file.numbers("x", 61..80, &[3, 1]).unwrap().shape(), [19, 3, 1]);
    assert_eq!((file.number_type("x"), file.number_type("text")), (Some(DType::F32), None));
    assert_eq!(file.numbers("y", 0..101, &[]).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let small = ParquetFile::open(&path, &Limits { max_alloc: 1 << 20, ..Limits::default() }).unwrap();
    let error = small.numbers("x", 0..50, &[1 << 20]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded, "{error}");
}

#[test]
fn lists_within_lists_have_the_declared_shape() {
    let folder = Folder::new("nested");
    let path = folder.0.join("x.parquet");
    let nested = |sizes: &dyn Fn(i32) -> Vec<i32>| -> ArrayRef {
        let mut lists = ListBuilder::new(ListBuilder::new(Float32Builder::new()));
        for row in 0..20 {
            for size in sizes(row) {
                (0..size).for_each(|place| lists.values().values().append_value((row * 10 + place) as f32));
                lists.values().append(true);
            }
            lists.append(true);
        }
        Arc::new(lists.finish())
    };
    let columns: [(&str, ArrayRef); 3] = [
        ("good", nested(&|_| vec![2, 2, 2])),
        ("ragged", nested(&|row| if row < 7 { vec![3, 3] } else { vec![5, 1] })),
        ("flat", list(Arc::new(Float32Array::from_iter_values((0..120).map(|n| n as f32))), 6, true)),
    ];
    write(&path, &columns, WriterProperties::builder().build());
    let file = ParquetFile::open(&path, &Limits::default()).unwrap();
    let refuse = |column: &str, rows: Range<u64>, shape: &[usize], words: &str| {
        let unfit = file.fitting_numbers(column, rows, shape).unwrap_err();
        assert_eq!((unfit.why, unfit.error.kind()), (Why::Shape, ErrorKind::CorruptData));
        assert!(unfit.error.to_string().contains(words), "{}", unfit.error);
    };
    assert_eq!(file.numbers("good", 0..20, &[3, 2]).unwrap().shape(), [20, 3, 2]);
    refuse("good", 3..5, &[2, 3], "row 3: expected values of shape [2, 3], got a list of 3 in place of 2");
    refuse("good", 3..5, &[6], "row 3: expected values of shape [6], got lists in 2 levels");
    assert_eq!(file.numbers("ragged", 0..7, &[2, 3]).unwrap().shape(), [7, 2, 3]);
    refuse("ragged", 2..20, &[2, 3], "row 7: expected values of shape [2, 3], got a list of 5 in place of 3");
    // One list of all values is in the order of the shape.
    let flat = file.numbers("flat", 1..3, &[2, 3]).unwrap();
    assert_eq!((flat.shape(), flat.as_slice::<f32>().unwrap()[0]), (&[2, 2, 3][..], 6.0));
}

#[test]
fn pages_outside_the_rows_are_not_touched() {
    let folder = Folder::new("skip");
    let path = folder.0.join("x.parquet");
    let values = Float32Array::from_iter_values(noise(ROWS * 14, 1 << 23).map(|n| n as f32));
    let columns: [(&str, ArrayRef); 2] = [
        ("x", list(Arc::new(values), 14, true)),
        ("y", Arc::new(Int64Array::from_iter_values((0..ROWS).map(|n| n as i64 * 7919)))),
    ];
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_dictionary_enabled(false)
        .set_data_page_row_count_limit(100)
        .set_write_batch_size(100);
    write(&path, &columns, properties.build());
    let mut bytes = std::fs::read(&path).unwrap();
    let good = ParquetFile::open(&path, &Limits::default()).unwrap();
    let pages = [0, 1].map(|leaf| good.pages(&good.source.open().unwrap(), 0, leaf).unwrap());
    for (pages, (name, shape)) in pages.iter().zip([("x", &[14][..]), ("y", &[])]) {
        let bad = pages.data[3];
        assert!(pages.data.len() > 5);
        // The length that snappy starts with.
        bytes[usize::try_from(bad.at).unwrap()] ^= 0xff;
        std::fs::write(&path, &bytes).unwrap();
        let file = ParquetFile::open(&path, &Limits::default()).unwrap();
        for rows in [0..bad.first_row, bad.first_row + bad.rows..1000] {
            file.numbers(name, rows.clone(), shape).unwrap();
            file.read(&[name], rows).unwrap();
        }
        let error = file.numbers(name, bad.first_row..bad.first_row + 1, shape).unwrap_err();
        assert!(error.to_string().contains("does not decompress"), "{error}");
        assert!(file.read(&[name], 0..1000).unwrap_err().to_string().contains("does not decompress"));
    }
}

/// Rows of every column, each in the way that reads it.
fn episode(file: &ParquetFile, columns: &[(&'static str, ArrayRef, Vec<usize>)], rows: Range<u64>) -> Vec<Vec<u8>> {
    let read = |(name, array, shape): &(&str, ArrayRef, Vec<usize>)| match array.data_type() {
        DataType::Utf8 => format!("{:?}", file.read(&[name], rows.clone()).unwrap()).into_bytes(),
        _ => bits(&file.numbers(name, rows.clone(), shape).unwrap()).unwrap(),
    };
    columns.iter().map(read).collect()
}

#[test]
fn the_episodes_of_one_row_group_unpack_every_page_once() {
    const EPISODE: u64 = 33;
    let folder = Folder::new("once");
    let path = folder.0.join("x.parquet");
    let mut columns = columns();
    columns.retain(|(name, ..)| ["state", "action", "image", "index", "f64", "u8", "done", "flags"].contains(name));
    let names = StringArray::from_iter_values((0..ROWS).map(|row| format!("task {}", row % 50)));
    columns.push(("names", Arc::new(names), vec![]));
    let arrays: Vec<_> = columns.iter().map(|(name, array, _)| (*name, Arc::clone(array))).collect();
    for (way, properties) in all_properties().filter(|(way, _)| way.contains(" 128 100000 ")) {
        write(&path, &arrays, properties);
        let open = || ParquetFile::open(&path, &Limits::default()).unwrap();
        let episodes = || (0..ROWS as u64).step_by(EPISODE as usize).map(|at| at..(at + EPISODE).min(ROWS as u64));
        let fresh: Vec<_> = episodes().map(|rows| episode(&open(), &columns, rows)).collect();
        let file = open();
        for (rows, want) in episodes().zip(&fresh) {
            assert_eq!(&episode(&file, &columns, rows.clone()), want, "{way}: {rows:?}");
        }
        let mut places = file.source.unpacked.lock().unwrap().clone();
        let all: usize = (0..columns.len())
            .map(|leaf| file.pages(&file.source.open().unwrap(), 0, leaf).unwrap())
            .map(|pages| pages.data.len() + usize::from(pages.dictionary.is_some()))
            .sum();
        assert!(all > columns.len() * 5, "{way}: only {all} pages");
        assert_eq!(places.len(), all, "{way}");
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), all, "{way}");
        assert!(file.cache.bytes_of_all() > 0);

        let shared = open();
        std::thread::scope(|scope| {
            for first in 0..4 {
                let (shared, fresh, columns) = (&shared, &fresh, &columns);
                let mine = episodes().zip(fresh).skip(first).step_by(4);
                scope.spawn(move || mine.for_each(|(rows, want)| assert_eq!(&episode(shared, columns, rows), want)));
            }
        });
    }
    // What is kept is not given for a file that has changed.
    let file = ParquetFile::open(&path, &Limits::default()).unwrap();
    file.numbers("state", 0..10, &[14]).unwrap();
    std::fs::OpenOptions::new().append(true).open(&path).unwrap().set_len(file.source.bytes() - 1).unwrap();
    let error = file.numbers("state", 0..10, &[14]).unwrap_err();
    assert!(error.kind() == ErrorKind::FileError && error.to_string().contains("was changed"), "{error}");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(file.read(&["names"], 0..10).unwrap_err().kind(), ErrorKind::FileError);
}

#[test]
fn metadata_and_types_are_those_of_the_file() {
    let mut forged = forge::File::numbers(forge::INT64, 0, Vec::new());
    forged.metadata = vec![("huggingface".into(), "{}".into()), ("ARROW:schema".into(), "garbage".into())];
    let folder = Folder::new("metadata");
    let file = ParquetFile::open(&folder.file(&forged.bytes()), &Limits::default()).unwrap();
    assert_eq!(file.schema().metadata().iter().collect::<Vec<_>>(), [(&"huggingface".into(), &"{}".into())]);
    assert_eq!(file.schema().field(0).data_type(), &DataType::Int64);
    assert_eq!(file.rows(), 0);
    assert_eq!(file.read(&["x"], 0..0).unwrap()[0].len(), 0);
    assert_eq!(file.numbers("x", 0..0, &[]).unwrap().shape(), [0]);
    fn shared<T: Send + Sync>(_: &T) {}
    shared(&file);
}

#[test]
fn what_is_no_file_or_another_file_is_refused() {
    let folder = Folder::new("source");
    let refuse = |path: &Path, words: &str| {
        let error = ParquetFile::open(path, &Limits::default()).unwrap_err();
        assert!(error.kind() == ErrorKind::FileError && error.to_string().contains(words), "{error}");
    };
    refuse(&folder.0.join("none.parquet"), "cannot open");
    refuse(&folder.0, "expected a regular file");
    refuse(Path::new("/dev/null"), "expected a regular file");
    let pipe = folder.0.join("pipe.parquet");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    refuse(&pipe, "expected a regular file");

    let forged = forge::File::numbers(forge::FLOAT, 4, vec![forge::Page::data(4, forge::PLAIN, forge::floats(4))]);
    let path = folder.file(&forged.bytes());
    let file = ParquetFile::open(&path, &Limits::default()).unwrap();
    file.numbers("x", 0..4, &[]).unwrap();
    std::fs::rename(&path, folder.0.join("old.parquet")).unwrap();
    std::fs::write(&path, forged.bytes()).unwrap();
    let error = file.numbers("x", 0..4, &[]).unwrap_err();
    assert!(error.kind() == ErrorKind::FileError && error.to_string().contains("was changed"), "{error}");
}

#[test]
fn the_sample_files_are_read_both_ways() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    if !root.is_dir() {
        println!("skipped: {} is not here", root.display());
        return;
    }
    let mut folders = vec![root];
    let mut count = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "parquet") {
                let columns = examine(&path, &Limits::default()).unwrap();
                assert!(columns > 1, "{}", path.display());
                count += 1;
            }
        }
    }
    assert!(count >= 5, "only {count} files");
}
