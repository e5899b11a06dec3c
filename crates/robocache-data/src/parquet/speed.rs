//! How fast numbers come out of a file, on one thread and from the page cache:
//! `cargo test --release -p robocache-data parquet_speed -- --ignored --nocapture`.
//! `ROBOCACHE_SPEED_FILES=a.parquet:b.parquet` measures the number columns of these files instead.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use arrow_array::{ArrayRef, Float32Array, Int64Array, RecordBatch};
use arrow_schema::DataType;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use super::tests::{Folder, list, noise};
use super::*;

const ROWS: usize = 1_000_000;

fn write(path: &Path, column: ArrayRef, codec: Compression, dictionary: bool) {
    let properties = WriterProperties::builder()
        .set_compression(codec)
        .set_dictionary_enabled(dictionary)
        .set_offset_index_disabled(true)
        .build();
    let batch = RecordBatch::try_from_iter([("x", column)]).unwrap();
    let file = std::fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

/// The shape of a column whose rows are like the first.
fn shape(file: &ParquetFile, name: &str) -> Vec<usize> {
    let mut array = file.read(&[name], 0..1).unwrap().remove(0);
    let mut shape = Vec::new();
    while let DataType::List(_) = array.data_type() {
        array = arrow_array::cast::AsArray::as_list::<i32>(&array).value(0);
        shape.push(array.len());
    }
    shape
}

/// Gigabytes of output per second, the best of a few.
fn rate(bytes: usize, mut work: impl FnMut()) -> f64 {
    let best = (0..5).map(|_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    });
    bytes as f64 / best.fold(f64::INFINITY, f64::min) / 1e9
}

fn measure(path: &Path, what: &str) {
    let file = ParquetFile::open(path, &Limits::default()).unwrap();
    let rows = file.rows();
    for field in file.schema().fields() {
        let Some(dtype) = file.number_type(field.name()) else { continue };
        let shape = shape(&file, field.name());
        let bytes = usize::try_from(rows).unwrap() * shape.iter().product::<usize>() * dtype.size();
        let numbers = rate(bytes, || drop(file.numbers(field.name(), 0..rows, &shape).unwrap()));
        let arrays = rate(bytes, || drop(file.read(&[field.name()], 0..rows).unwrap()));
        // Rows in the middle, as an episode of a file with many.
        let part = 300.min(rows);
        let start = Instant::now();
        let reads = 200.min(rows / part);
        for read in 0..reads {
            let from = read * (rows - part) / reads.max(1);
            drop(file.numbers(field.name(), from..from + part, &shape).unwrap());
        }
        let each = start.elapsed().as_secs_f64() / reads.max(1) as f64;
        println!(
            "{what:32} {:24} {dtype:8} {shape:?}: numbers {numbers:.2} GB/s, arrays {arrays:.2} GB/s, {part} rows {:.0} us",
            field.name(),
            each * 1e6
        );
    }
}

#[test]
#[ignore = "a measurement"]
fn parquet_speed() {
    if let Ok(files) = std::env::var("ROBOCACHE_SPEED_FILES") {
        for path in files.split(':').map(PathBuf::from) {
            measure(&path, &path.file_name().unwrap().to_string_lossy());
        }
        return;
    }
    let folder = Folder::new("speed");
    let path = folder.0.join("x.parquet");
    let floats = |distinct| -> ArrayRef {
        let values = noise(ROWS * 14, distinct).map(|n| f32::from_bits(n | 0x3f00_0000));
        list(Arc::new(Float32Array::from_iter_values(values)), 14, true)
    };
    let zstd = Compression::ZSTD(ZstdLevel::default());
    write(&path, floats(1 << 23), Compression::SNAPPY, true);
    measure(&path, "random, dictionary, snappy");
    write(&path, floats(1 << 23), Compression::SNAPPY, false);
    measure(&path, "random, plain, snappy");
    write(&path, floats(1 << 23), zstd, false);
    measure(&path, "random, plain, zstd");
    write(&path, floats(4000), Compression::SNAPPY, true);
    measure(&path, "4000 distinct, dictionary, snappy");
    write(&path, floats(4000), Compression::SNAPPY, false);
    measure(&path, "4000 distinct, plain, snappy");
    let counts: ArrayRef = Arc::new(Int64Array::from_iter_values((0..10 * ROWS).map(|n| n as i64)));
    write(&path, counts, Compression::SNAPPY, true);
    measure(&path, "counting, dictionary, snappy");
}
