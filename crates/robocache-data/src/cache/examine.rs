//! Reads everything in files of a cache, for fuzzing. Checksums are made to fit: whoever forges a file can do so too.

use std::path::{Path, PathBuf};

use robocache::Result;

use super::blocks::BLOCK;
use super::footer::{Footer, footer_start, map, read_batch};
use super::index::Index;
use super::layout::{
    CachedStream, Encoding, MANIFEST, PLAN, Plan, ShardFile, UNIT, UnitManifest, parse_json, read_json, seal, to_json,
};
use super::shard::Shard;
use super::{Cache, Manifest, SHARDS, unit_name};
use crate::files::open_regular;
use crate::limits::{corrupt, guarded};
use crate::model::Kind;

/// Episodes that are read of a cache.
const EPISODES: usize = 8;
/// Streams in the index that is looked at.
const STREAMS: usize = 2;

fn sums(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(BLOCK).map(crc32c::crc32c).collect()
}

/// Reads a stream's file as numbers, as pictures and as text; returns in how many ways it can be read.
pub(crate) fn shard(folder: &Path, name: &str, bytes: &[u8]) -> Result<usize> {
    let stream = |kind, dtype: &str, shape: &[usize], encoding| CachedStream {
        name: "stream".to_owned(),
        kind,
        dtype: dtype.to_owned(),
        shape: shape.to_vec(),
        names: None,
        rate: None,
        method: Vec::new(),
        encoding,
    };
    let streams = [
        stream(Kind::Vector, "float32", &[8], Encoding::Raw),
        stream(Kind::Image, "uint8", &[8, 8, 3], Encoding::Jpeg),
        stream(Kind::Text, "string", &[], Encoding::Text),
    ];
    let facts = ShardFile {
        stream: 0,
        file: name.to_owned(),
        bytes: bytes.len() as u64,
        batches: batches(&folder.join(name))?,
        crc32c: sums(bytes),
    };
    let mut failure = None;
    let mut read = 0;
    for stream in &streams {
        match read_shard(folder, &facts, stream) {
            Ok(()) => read += 1,
            Err(error) => failure = Some(error),
        }
    }
    failure.filter(|_| read == 0).map_or(Ok(read), Err)
}

/// Rows of each record batch; 1 where it cannot be read.
fn batches(path: &Path) -> Result<Vec<u64>> {
    let map = map(path, &open_regular(path)?.0)?;
    guarded(path, "batches", || {
        let footer = footer_start(&map).and_then(|start| Footer::read(&map, start));
        let footer = footer.map_err(|error| corrupt(path, error))?;
        let rows = |place| read_batch(&footer.decoder, &map, place).map_or(1, |batch| batch.num_rows() as u64);
        Ok(footer.places.iter().map(rows).collect())
    })
}

fn read_shard(folder: &Path, facts: &ShardFile, stream: &CachedStream) -> Result<()> {
    let shard = Shard::open(folder, facts, stream)?;
    for block in shard.verify() {
        shard.rows_of_block(block);
    }
    shard.times(0, usize::try_from(shard.len()).unwrap_or(usize::MAX))?;
    for row in 0..shard.len() {
        match stream.encoding {
            Encoding::Raw => shard.rows(row, 1, stream.row_bytes()).map(|_| ())?,
            _ => shard.item(row).map(|_| ())?,
        }
    }
    Ok(())
}

/// Reads the table of episodes of a cache with few streams; returns how many episodes there are.
pub(crate) fn index(path: &Path, bytes: &[u8]) -> Result<usize> {
    let index = Index::open(path, &sums(bytes), STREAMS, usize::MAX)?;
    for at in 0..index.len() {
        index.episode(at);
        index.unit(at);
        for stream in 0..STREAMS {
            index.rows(at, stream);
        }
    }
    Ok(index.len())
}

/// A JSON file of a cache and its place in there, which its members tell. `whole` is a cache, `open` one
/// without a manifest. What identifies them is put in: an input of another run cannot have it.
pub(crate) fn forged(whole: &Path, open: &Path, body: &[u8]) -> Result<(Vec<u8>, PathBuf)> {
    let text = [body, seal(body).as_bytes()].concat();
    let path = Path::new("a.json");
    if let Ok(mut manifest) = parse_json::<Manifest>(path, &text) {
        let real: Manifest = read_json(&whole.join(MANIFEST))?;
        for unit in &mut manifest.units {
            let same = real.units.iter().find(|real| real.unit == unit.unit);
            unit.crc32c = same.map_or(unit.crc32c, |same| same.crc32c);
        }
        if manifest.index.starts_with("index-") {
            (manifest.index, manifest.index_crc32c) = (real.index, real.index_crc32c);
        }
        return Ok((to_json(&manifest)?, whole.join(MANIFEST)));
    }
    let real: Plan = read_json(&open.join(PLAN))?;
    if let Ok(mut unit) = parse_json::<UnitManifest>(path, &text) {
        unit.key = real.key(&unit.unit).unwrap_or(unit.key);
        return Ok((to_json(&unit)?, open.join(SHARDS).join(unit_name(0)).join(UNIT)));
    }
    let mut plan: Plan = parse_json(path, &text)?;
    for (source, real) in plan.sources.iter_mut().zip(&real.sources) {
        source.fingerprint.clone_from(&real.fingerprint);
    }
    Ok((to_json(&plan)?, open.join(PLAN)))
}

/// Opens a cache and reads its first episodes; returns how many it has.
pub(crate) fn cache(root: &Path) -> Result<usize> {
    let cache = Cache::open(root)?;
    let mut failure = None;
    for at in 0..cache.len().min(EPISODES) {
        for stream in 0..cache.streams().len() {
            if let Err(error) = read_stream(&cache, at, stream) {
                failure = Some(error);
            }
        }
    }
    failure.map_or(Ok(cache.len()), Err)
}

fn read_stream(cache: &Cache, at: usize, stream: usize) -> Result<()> {
    let samples = cache.times(at, stream)?.len();
    match cache.streams().get(stream).map(|stream| stream.encoding) {
        Some(Encoding::Raw) => drop(cache.numbers(at, stream)?),
        Some(Encoding::Jpeg) => drop(cache.pictures(at, stream, 0..samples.min(1))?),
        _ => (0..samples).try_for_each(|sample| cache.item(at, stream, sample).map(drop))?,
    }
    Ok(())
}
