//! Files written in many ways, read whole and in part.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::builder::{FixedSizeListBuilder, Float32Builder, ListBuilder};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float16Array, Float32Array, Float64Array, Int8Array, Int16Array, Int32Array,
    Int64Array, RecordBatch, StringArray, StructArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field};
use half::f16;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder, WriterVersion};
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
                            let base = || {
                                WriterProperties::builder()
                                    .set_writer_version(version)
                                    .set_compression(codec)
                                    .set_dictionary_enabled(dictionary.is_some())
                                    .set_dictionary_page_size_limit(dictionary.unwrap_or(1))
                                    .set_data_page_row_count_limit(page_rows)
                                    .set_write_batch_size(16)
                                    .set_max_row_group_row_count(Some(group_rows))
                                    .set_offset_index_disabled(!index)
                                    .set_statistics_enabled(if index {
                                        EnabledStatistics::Page
                                    } else {
                                        EnabledStatistics::None
                                    })
                            };
                            let name = format!("{version:?} {codec} {dictionary:?} {page_rows} {group_rows} {index}");
                            all.push((name, base().build()));
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
    numbers::fill(&part, shape.iter().product(), &mut tensor).ok().unwrap();
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
                // Bits and delta encodings are the general way's.
                let delta = way.contains("2_0")
                    && !matches!(array.data_type(), DataType::List(f) if f.data_type() == &DataType::Float32);
                let fast = !matches!(*name, "done" | "flags") && !rows.is_empty() && !delta;
                assert!(took || !fast, "{way}: {name} {rows:?} was not read the fast way");
            }
        }
    }
}
