//! The cache: streams at their own rates, decoded once, laid out so that any window is one
//! contiguous read. `docs/cache.md` is the format.
//!
//! `plan` decides what is to be done, `unit` does one part of it (`work` is what it shares with `queue`, which
//! encodes pictures), `ingest` runs units on all cores and merges the results. `shard` is a stream's file, `done` what
//! a unit on disk says of itself, `index` the table of episodes.

mod blocks;
mod done;
pub(crate) mod examine;
mod footer;
mod fs;
mod index;
mod ingest;
mod jpeg;
mod keep;
mod layout;
mod manifest;
mod pictures;
mod plan;
mod queue;
mod shard;
mod sketch;
mod stats;
#[cfg(test)]
mod tests;
mod unit;
mod work;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use robocache::{DType, Error, ErrorKind, Result, Tensor, ensure};

use self::index::Index;
use self::layout::{MANIFEST, PLAN, SHARDS, UnitManifest, path_in, unit_name};
use self::manifest::Manifest;
use self::shard::{RowsRef, Shard};
use crate::files::{ensure_path, look};
use crate::limits::corrupt;
use crate::model::Camera;

pub use self::index::CachedEpisode;
pub use self::ingest::{IngestReport, ingest, merge, plan, process_unit};
pub use self::keep::{Collected, Damage, VerifyReport, collect_garbage, quarantine, verify};
pub use self::layout::{CachedSource, CachedStream, Encoding, Plan, Skipped, Unit};
pub use self::manifest::DoneUnit;
pub use self::plan::{Choice, Images, IngestOptions};
pub(crate) use self::stats::StreamStats;
pub use self::stats::Summary;

/// A cache, opened to be read. Many processes can do so at once, while one may be writing.
#[derive(Debug)]
pub struct Cache {
    root: PathBuf,
    manifest: Manifest,
    index: Index,
    /// By the unit's number: the checksum of its description, and what was read of it.
    units: HashMap<usize, (u32, OnceLock<OpenUnit>)>,
}

#[derive(Debug)]
struct OpenUnit {
    manifest: UnitManifest,
    /// By the stream's place.
    shards: Vec<OnceLock<Shard>>,
}

impl Cache {
    /// Opens a cache. One whose ingest was cut off opens too, with the units that were done.
    pub fn open(root: &Path) -> Result<Self> {
        ensure_path(root, "path")?;
        let path = root.join(MANIFEST);
        if look(&path)?.is_some() {
            let mut manifest = Manifest::read(&path)?;
            loop {
                let file = path_in(root, &manifest.index)?;
                match Index::open(&file, &manifest.index_crc32c, manifest.streams.len(), manifest.sources.len()) {
                    Ok(index) => return Ok(Self::with(root, manifest, index)),
                    // An ingest and a clean-up may have come in between.
                    Err(error) => match Manifest::read(&path)? {
                        newer if newer.index != manifest.index => manifest = newer,
                        _ => return Err(error),
                    },
                }
            }
        }
        if look(&root.join(PLAN))?.is_some() {
            let (manifest, index) = ingest::put_together(root)?;
            return Ok(Self::with(root, manifest, index));
        }
        Err(no_cache(root))
    }

    fn with(root: &Path, manifest: Manifest, index: Index) -> Self {
        let units = manifest.units.iter().map(|unit| (unit.unit, (unit.crc32c, OnceLock::new()))).collect();
        Self { root: root.to_path_buf(), manifest, index, units }
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Whether everything that was planned is there.
    pub fn is_complete(&self) -> bool {
        self.manifest.complete
    }

    /// Where its episodes come from.
    pub fn sources(&self) -> &[CachedSource] {
        &self.manifest.sources
    }

    /// All streams.
    pub fn streams(&self) -> &[CachedStream] {
        &self.manifest.streams
    }

    /// The place of a stream.
    pub fn stream(&self, name: &str) -> Result<usize> {
        self.find(name, "stream")
    }

    /// As [`Cache::stream`], with the argument that the name was given in.
    pub(crate) fn find(&self, name: &str, argument: &'static str) -> Result<usize> {
        let streams = self.streams();
        streams
            .iter()
            .position(|stream| stream.name == name)
            .ok_or_else(|| Error::no_such(argument, "streams", name, streams.iter().map(|stream| &*stream.name)))
    }

    /// Statistics of the streams with numbers or pictures, by name.
    pub fn stats(&self) -> &BTreeMap<String, Summary> {
        &self.manifest.stats
    }

    /// Episodes that could not be taken.
    pub fn skipped(&self) -> &[Skipped] {
        &self.manifest.skipped
    }

    /// The units that are there.
    pub fn units(&self) -> &[DoneUnit] {
        &self.manifest.units
    }

    /// How many episodes there are.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An episode, by its place.
    pub fn episode(&self, at: usize) -> Result<CachedEpisode> {
        ensure!(at < self.len(), "episode", "expected 0 to {}, got {at}", self.len().saturating_sub(1));
        Ok(self.index.episode(at))
    }

    /// The samples of a stream in an episode, as they are kept: `[samples, shape...]` for raw
    /// streams, whatever their size. None where the episode's source does not have the stream.
    pub fn numbers(&self, at: usize, stream: usize) -> Result<Tensor> {
        let Place { meta, shard, first, count } = self.place(at, stream)?;
        let dtype = meta.number_type().filter(|_| meta.encoding == Encoding::Raw);
        let dtype = dtype.ok_or_else(|| Error::invalid("stream", format!("{:?} is not kept as numbers", meta.name)))?;
        let shape: Vec<usize> = [count].into_iter().chain(meta.shape.iter().copied()).collect();
        let mut tensor = Tensor::zeros(&shape, dtype)?;
        let Some(shard) = shard else {
            return Ok(tensor);
        };
        let row_bytes = meta.row_bytes();
        let bytes = bytes_mut(&mut tensor);
        for (row, place) in bytes.chunks_exact_mut(row_bytes.max(1)).enumerate() {
            place.copy_from_slice(shard.rows(first + row as u64, 1, row_bytes)?.values);
        }
        Ok(tensor)
    }

    /// The same for who has no bfloat16: float32 holds all of its numbers.
    pub fn wide_numbers(&self, at: usize, stream: usize) -> Result<Tensor> {
        let tensor = self.numbers(at, stream)?;
        if tensor.dtype() != DType::BF16 {
            return Ok(tensor);
        }
        let wide: Vec<f32> = tensor.as_slice::<half::bf16>()?.iter().map(|number| number.to_f32()).collect();
        Tensor::from_slice(&wide, tensor.shape())
    }

    /// Decodes pictures of a stream that is kept as JPEG: `[samples, height, width, channels]`.
    pub fn pictures(&self, at: usize, stream: usize, range: std::ops::Range<usize>) -> Result<Tensor> {
        let Place { meta, shard, first, count } = self.place(at, stream)?;
        ensure!(
            meta.encoding == Encoding::Jpeg && range.start <= range.end && range.end <= count,
            "samples",
            "{:?} has {count} samples, got {range:?}",
            meta.name
        );
        let shape: Vec<usize> = [range.len()].into_iter().chain(meta.shape.iter().copied()).collect();
        let mut tensor = Tensor::zeros(&shape, DType::U8)?;
        let Some(shard) = shard else {
            return Ok(tensor);
        };
        let limits = crate::Limits::default();
        let bytes = tensor.as_mut_slice::<u8>()?;
        for (sample, place) in range.zip(bytes.chunks_exact_mut(meta.row_bytes().max(1))) {
            let encoded = shard.item(first + sample as u64)?;
            let image = crate::image::decode_image(shard.path(), encoded, &limits)?;
            match image.pixels {
                crate::image::Pixels::U8(pixels) if pixels.len() == place.len() => place.copy_from_slice(&pixels),
                _ => return Err(corrupt(shard.path(), format!("picture {sample} has another size than the stream"))),
            }
        }
        Ok(tensor)
    }

    /// The samples of a raw stream of numbers in an episode, without a copy.
    pub(crate) fn rows(&self, at: usize, stream: usize) -> Result<RowsRef<'_>> {
        let Place { meta, shard, first, count } = self.place(at, stream)?;
        let nothing = RowsRef { times: &[], values: &[] };
        shard.map_or(Ok(nothing), |shard| shard.rows(first, count, meta.row_bytes()))
    }

    /// One sample of a raw stream, without a copy.
    pub(crate) fn row(&self, at: usize, stream: usize, sample: usize) -> Result<&[u8]> {
        let place = self.place(at, stream)?;
        let (shard, row) = place.sample(sample)?;
        Ok(shard.rows(row, 1, place.meta.row_bytes())?.values)
    }

    /// The cameras of an episode whose calibration the source had.
    pub fn cameras(&self, at: usize) -> Result<Vec<Camera>> {
        ensure!(at < self.len(), "episode", "expected 0 to {}, got {at}", self.len().saturating_sub(1));
        let unit = self.index.unit(at);
        let place = (0..at).rev().take_while(|&before| self.index.unit(before) == unit).count();
        let episode = self.unit(unit)?.manifest.episodes.get(place);
        Ok(episode.map(|episode| episode.cameras.clone()).unwrap_or_default())
    }

    /// How many samples a stream has in an episode.
    pub fn count(&self, at: usize, stream: usize) -> u64 {
        if at < self.len() && stream < self.streams().len() { self.index.rows(at, stream).1 } else { 0 }
    }

    /// The stamps of a stream in an episode.
    pub fn times(&self, at: usize, stream: usize) -> Result<Vec<i64>> {
        let Place { shard, first, count, .. } = self.place(at, stream)?;
        shard.map_or(Ok(Vec::new()), |shard| shard.times(first, count))
    }

    /// One sample that is kept as JPEG or text.
    pub fn item(&self, at: usize, stream: usize, sample: usize) -> Result<&[u8]> {
        let (shard, row) = self.place(at, stream)?.sample(sample)?;
        shard.item(row)
    }

    fn place(&self, at: usize, stream: usize) -> Result<Place<'_>> {
        ensure!(at < self.len(), "episode", "expected 0 to {}, got {at}", self.len().saturating_sub(1));
        let meta = self.streams().get(stream).ok_or_else(|| Error::invalid("stream", "there is no such stream"))?;
        let (first, count) = self.index.rows(at, stream);
        if count == 0 {
            return Ok(Place { meta, shard: None, first, count: 0 });
        }
        let episode = || format!("reading {} of episode {}", meta.name, self.index.episode(at).index);
        let shard = self.shard(self.index.unit(at), stream).map_err(|error| error.while_doing(episode()))?;
        if first.checked_add(count).is_none_or(|end| end > shard.len()) {
            let text = format!("rows {first} on, {count} of them, are not all there");
            return Err(corrupt(shard.path(), text).while_doing(episode()));
        }
        Ok(Place { meta, shard: Some(shard), first, count: usize::try_from(count).unwrap_or(usize::MAX) })
    }

    fn shard(&self, unit: usize, stream: usize) -> Result<&Shard> {
        let open = self.unit(unit)?;
        let slot = open.shards.get(stream).ok_or_else(|| Error::invalid("stream", "there is no such stream"))?;
        if let Some(shard) = slot.get() {
            return Ok(shard);
        }
        let facts = open.manifest.files.iter().find(|file| file.stream == stream);
        let folder = self.folder(unit);
        let facts = facts.ok_or_else(|| corrupt(&folder, "the unit has no file for this stream"))?;
        let meta = self.streams().get(stream).ok_or_else(|| Error::invalid("stream", "there is no such stream"))?;
        let shard = Shard::open(&folder, facts, meta)?;
        Ok(slot.get_or_init(|| shard))
    }

    fn unit(&self, unit: usize) -> Result<&OpenUnit> {
        let slot = self.units.get(&unit);
        let (sum, slot) = slot.ok_or_else(|| corrupt(&self.root, format!("there is no unit {unit}")))?;
        if let Some(open) = slot.get() {
            return Ok(open);
        }
        let manifest = done::read_unit(&self.folder(unit), *sum)?;
        let shards = self.manifest.streams.iter().map(|_| OnceLock::new()).collect();
        Ok(slot.get_or_init(|| OpenUnit { manifest, shards }))
    }

    fn folder(&self, unit: usize) -> PathBuf {
        self.root.join(SHARDS).join(unit_name(unit))
    }
}

/// The rows of a stream in an episode.
struct Place<'a> {
    meta: &'a CachedStream,
    /// Absent where there are no rows: a source need not have all streams.
    shard: Option<&'a Shard>,
    first: u64,
    count: usize,
}

impl<'a> Place<'a> {
    /// Where one sample is.
    fn sample(&self, sample: usize) -> Result<(&'a Shard, u64)> {
        let shard = self.shard.filter(|_| sample < self.count);
        let nothing =
            || Error::invalid("sample", format!("{:?} has {} samples, got {sample}", self.meta.name, self.count));
        Ok((shard.ok_or_else(nothing)?, self.first + sample as u64))
    }
}

#[cold]
fn no_cache(root: &Path) -> Error {
    let text = "no cache: expected manifest.json in the folder; make one with robocache ingest";
    Error::new(ErrorKind::FileError, text).path(root)
}

/// The bytes of a tensor's numbers, to be written.
pub(crate) fn bytes_mut(tensor: &mut Tensor) -> &mut [u8] {
    let bytes = tensor.view().layout().count() * tensor.dtype().size();
    let mut view = tensor.view_mut();
    // SAFETY: the tensor owns that many initialised bytes and is borrowed for as long.
    unsafe { std::slice::from_raw_parts_mut(view.data_mut(), bytes) }
}
