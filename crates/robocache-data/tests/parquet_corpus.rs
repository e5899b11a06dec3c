//! Replays the saved corpus of the fuzz target `parquet`. `ROBOCACHE_WRITE_CORPUS=1` writes it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Float32Array, Int64Array, ListArray, RecordBatch, StringArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet_forge::*;
use robocache_data::fuzzing;

mod parquet_forge;

const LARGEST: usize = 4 << 10;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/parquet")
}

/// Small files as writers make them.
fn written() -> Vec<(String, Vec<u8>)> {
    let floats = Float32Array::from_iter_values((0..42).map(|n| n as f32 * 0.25));
    let offsets = OffsetBuffer::from_lengths([14; 3]);
    let item = Arc::new(Field::new("element", DataType::Float32, true));
    let columns: [(&str, ArrayRef); 4] = [
        ("list", Arc::new(ListArray::new(item, offsets, Arc::new(floats), None))),
        ("index", Arc::new(Int64Array::from(vec![0, 1, 2]))),
        ("done", Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)]))),
        ("task", Arc::new(StringArray::from(vec!["pick", "place", "pick"]))),
    ];
    let base = || WriterProperties::builder().set_statistics_enabled(EnabledStatistics::None);
    let plain = || base().set_dictionary_enabled(false).set_offset_index_disabled(true);
    let ways = [
        ("v1-dictionary", base().set_compression(Compression::SNAPPY).build()),
        ("v1-plain", plain().build()),
        (
            "v2-zstd",
            base()
                .set_writer_version(WriterVersion::PARQUET_2_0)
                .set_compression(Compression::ZSTD(ZstdLevel::default()))
                .build(),
        ),
        ("v2-delta", plain().set_writer_version(WriterVersion::PARQUET_2_0).build()),
        ("small-pages", plain().set_data_page_row_count_limit(1).set_write_batch_size(1).build()),
        ("split", plain().set_column_encoding("list.list.element".into(), Encoding::BYTE_STREAM_SPLIT).build()),
    ];
    ways.into_iter()
        .map(|(name, properties)| {
            let batch = RecordBatch::try_from_iter(columns.clone()).unwrap();
            let mut bytes = Vec::new();
            let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
            writer.write(&batch).unwrap();
            writer.close().unwrap();
            (format!("good-{name}"), bytes)
        })
        .collect()
}

/// Files as no writer makes them.
fn forged() -> Vec<(String, Vec<u8>)> {
    let page = || Page::data(100, PLAIN, floats(100));
    let numbers = |pages: Vec<Page>| File::numbers(FLOAT, 100, pages);
    let indices = Page::data(100, RLE_DICTIONARY, vec![4, 200, 1, 7]);
    let rows: Vec<u8> = (0..28).map(|at| u8::from(at % 14 != 0)).collect();
    let list = |levels: &[u8]| {
        let body = [levels, &level_run(1, 28), &floats(28)].concat();
        File::new(list_of_numbers("x", FLOAT), 2, 28, vec![Page::data(28, PLAIN, body)]).bytes()
    };
    let zeros = vec![0; 16 << 20];
    let bomb = |codec| {
        let page =
            Page { uncompressed: 16 << 20, body: compress(&zeros, codec), ..Page::data(4 << 20, PLAIN, Vec::new()) };
        File::numbers(FLOAT, 4 << 20, vec![page]).codec(codec).bytes()
    };
    let liar = |codec| numbers(vec![Page { uncompressed: 1000, ..page().packed(codec) }]).codec(codec).bytes();
    let deep = |depth: usize| {
        let mut schema: Vec<_> = (0..depth).map(|_| group("g", 1, 1)).collect();
        schema.push(leaf("x", FLOAT, 0));
        File::new(schema, 0, 0, Vec::new()).bytes()
    };
    let length = |length: u32| {
        let mut bytes = numbers(vec![page()]).bytes();
        let at = bytes.len() - 8;
        bytes[at..at + 4].copy_from_slice(&length.to_le_bytes());
        bytes
    };
    let huge = i32::MAX as usize;
    let text = [&500u32.to_le_bytes(), vec![b'x'; 500].as_slice()].concat();
    let many = Page::data(i32::MAX, RLE_DICTIONARY, [vec![1], varint(1 << 32), vec![0]].concat());
    [
        ("39-empty", Vec::new()),
        ("39-magic", b"PAR1PAR1".to_vec()),
        ("40-truncated", numbers(vec![page()]).bytes()[..300].to_vec()),
        ("41-no-footer", [b"PAR1", page().bytes().as_slice()].concat()),
        ("42-zero", length(0)),
        ("42-negative", length(0x8000_0000)),
        ("42-largest", length(0x7fff_ffff)),
        ("43-schema", with_footer(&[], &Struct::new().i32(1, 2).list(2, &list_of(huge, &[])).end())),
        ("43-metadata", with_footer(&[], &numbers(vec![page()]).footer().list(5, &list_of(huge, &[])).end())),
        ("44-page-size", numbers(vec![Page { compressed: Some(98 << 20), uncompressed: 98 << 20, ..page() }]).bytes()),
        (
            "44-page-grows",
            numbers(vec![Page { uncompressed: 98 << 20, ..page().packed(SNAPPY) }]).codec(SNAPPY).bytes(),
        ),
        ("44-offset", File { shift: 1 << 40, ..numbers(vec![page()]) }.bytes()),
        ("45-index", numbers(vec![Page::dictionary(4, floats(4)), indices]).bytes()),
        ("45-negative", numbers(vec![Page { values: -100, ..page() }]).bytes()),
        ("45-level-1", list(&level_run(1, 28))),
        ("45-good-list", list(&level_bits(&rows))),
        ("46-zstd", bomb(ZSTD)),
        ("46-gzip-lies", liar(GZIP)),
        ("46-snappy-lies", liar(SNAPPY)),
        ("46-run", File::numbers(FLOAT, i32::MAX.into(), vec![Page::dictionary(1, floats(1)), many.clone()]).bytes()),
        ("46-text", File::numbers(BYTE_ARRAY, i32::MAX.into(), vec![Page::dictionary(1, text), many]).bytes()),
        ("47-deep", deep(400)),
        ("good-nested", deep(20)),
    ]
    .map(|(name, bytes)| (name.to_owned(), bytes))
    .into()
}

#[test]
fn the_corpus_is_replayed() {
    let folder = folder();
    if std::env::var_os("ROBOCACHE_WRITE_CORPUS").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        for (name, bytes) in written().into_iter().chain(forged()) {
            assert!(bytes.len() <= LARGEST, "{name} has {} bytes", bytes.len());
            std::fs::write(folder.join(name), bytes).unwrap();
        }
    }
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let _ = fuzzing::parquet(&std::fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count >= 25, "only {count} files in the corpus");
}
