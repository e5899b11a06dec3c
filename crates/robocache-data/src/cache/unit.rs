//! The work on one unit: its episodes, read from the source and written into shards.

use std::cell::Cell;
use std::path::Path;

use half::{bf16, f16};
use robocache::{DType, Error, ErrorKind, Result, Tensor};

use super::done::{read_done, unit_folder};
use super::fs::{FileOut, Folder, Fs};
use super::layout::{
    CachedStream, Encoding, FORMAT, SHARDS, Skipped, UNIT, Unit, UnitEpisode, UnitManifest, VERSION, to_json,
};
use super::queue::{Outcome, Part, write_groups};
use super::shard::ShardWriter;
use super::stats::StreamStats;
use super::work::{Open, Told, Work};
use crate::check::values::errors;
use crate::files::{cause, is_lasting, look};
use crate::limits::file_error;
use crate::model::{Camera, Kind, Samples, Values};

/// What becomes of an episode.
struct Episode {
    at: usize,
    rows: Vec<(u64, u64)>,
    /// Of its pictures, for each file: they count only if the episode is taken.
    stats: Vec<Option<StreamStats>>,
    failure: Option<Error>,
}

impl Episode {
    fn new(at: usize, files: usize) -> Self {
        Self { at, rows: vec![(0, 0); files], stats: vec![None; files], failure: None }
    }
}

impl<'a> Work<'a> {
    /// Does the work and makes it visible at once. Doing it again changes nothing.
    pub(crate) fn process(&self, unit: &Unit) -> Result<UnitManifest> {
        let shards = Folder { path: self.root.join(SHARDS), fs: self.fs };
        let temporary = shards.temporary(&unit.folder());
        self.fs.create_dir(&temporary).map_err(|error| file_error(&temporary, "cannot make the folder", error))?;
        let done = self.write(unit, &temporary).and_then(|manifest| {
            self.remove_broken(unit, &shards)?;
            shards.commit(&temporary, &unit.folder())?;
            Ok(manifest)
        });
        let Err(error) = done else {
            return done;
        };
        // The error that matters is the first.
        let was_written = self.fs.remove(&temporary).is_ok();
        if was_written
            && is_taken(&error)
            && let Ok(Some((manifest, _))) = read_done(self.plan, self.root, unit)
        {
            // Another process has done the same.
            return Ok(manifest);
        }
        Err(error)
    }

    /// A folder without its description, or with a damaged one, is no unit, but it is in the way.
    fn remove_broken(&self, unit: &Unit, shards: &Folder<'_>) -> Result<()> {
        if look(&unit_folder(self.root, unit))?.is_none() || read_done(self.plan, self.root, unit)?.is_some() {
            return Ok(());
        }
        remove_unit(self.fs, shards, unit)
    }

    fn write(&self, unit: &Unit, folder: &Path) -> Result<UnitManifest> {
        let mut files = self.open(folder)?;
        let mut episodes: Vec<Episode> = (unit.first..unit.end).map(|at| Episode::new(at, files.len())).collect();
        for episode in &mut episodes {
            let number = self.dataset.episode(episode.at)?.index;
            // They lie by source and episode.
            let wanted = (unit.source, number);
            let found = self.plan.errors.binary_search_by_key(&wanted, |bad| (bad.source, bad.episode));
            if let Some(bad) = found.ok().and_then(|at| self.plan.errors.get(at)) {
                self.keep_or_raise(Error::new(ErrorKind::CorruptData, bad.reason.clone()), episode)?;
            }
        }
        let cameras = files.iter().filter(|file| file.stream.kind.is_picture()).count() as u64;
        let told = Told { progress: self.progress, cameras, pictures: Cell::new(0), frames: Cell::new(0) };
        // What is wrong with the numbers is known before pictures are decoded for nothing. Without pictures,
        // reading them once will do.
        for episode in episodes.iter_mut().filter(|episode| cameras > 0 && episode.failure.is_none()) {
            self.stop_if_interrupted()?;
            if let Err(error) = self.read_numbers(episode.at, &files) {
                self.keep_or_raise(error, episode)?;
            }
        }
        // Pictures first: where one cannot be decoded, the episode's numbers are not written.
        for place in 0..files.len() {
            if files.get(place).is_some_and(|file| file.stream.kind.is_picture()) {
                self.write_pictures(place, &mut files, &mut episodes, folder, &told)?;
            }
        }
        for episode in &mut episodes {
            self.stop_if_interrupted()?;
            if episode.failure.is_none()
                && let Err(error) = self.write_numbers(episode, &mut files, folder)
            {
                self.keep_or_raise(error, episode)?;
            }
            if cameras == 0 {
                told.up_to(told.frames.get().saturating_add(self.dataset.episode(episode.at)?.length));
            }
        }
        told.up_to(unit.frames);
        let (manifest, mut outs) = self.manifest(unit, files, &episodes, folder)?;
        let text = to_json(&manifest)?;
        let path = folder.join(UNIT);
        let write = || -> std::io::Result<_> {
            let mut file = self.fs.create(&path)?;
            file.write_all(&text)?;
            file.begin();
            Ok(file)
        };
        outs.push(write().map_err(|error| file_error(&path, "cannot write", error))?);
        // All are written before the first is waited for: a file system makes them last together.
        let names = manifest.files.iter().map(|file| file.file.as_str()).chain([UNIT]);
        for (mut out, name) in outs.into_iter().zip(names) {
            out.sync().map_err(|error| file_error(&folder.join(name), "cannot sync", error))?;
        }
        self.fs.sync_dir(folder).map_err(|error| file_error(folder, "cannot sync the folder", error))?;
        Ok(manifest)
    }

    fn open(&self, folder: &Path) -> Result<Vec<Open<'a>>> {
        let open = |(name, place): &(String, usize)| {
            let stream = self.plan.streams.get(*place).ok_or_else(|| Error::invalid("plan", "it lacks a stream"))?;
            let has_stats = stream.encoding != Encoding::Text && stream.kind != Kind::Depth;
            Ok(Open {
                stream,
                from: self.dataset.stream(name)?,
                writer: ShardWriter::create(self.fs, folder, *place, stream)?,
                stats: has_stats.then(|| StreamStats::of(stream).0),
            })
        };
        self.source.streams.iter().map(open).collect()
    }

    fn stop_if_interrupted(&self) -> Result<()> {
        if (self.interrupted)() { Err(Error::new(ErrorKind::Interrupted, "interrupted")) } else { Ok(()) }
    }

    /// An episode that cannot be read is left out; what concerns all of them stops the work, as a unit
    /// that is done is not done again.
    fn keep_or_raise(&self, error: Error, episode: &mut Episode) -> Result<()> {
        let of_a_file =
            [ErrorKind::CorruptData, ErrorKind::LimitExceeded, ErrorKind::InvalidArgument, ErrorKind::FileError];
        let is_its_own = of_a_file.contains(&error.kind()) && is_lasting(&error);
        let in_the_cache = error.file().is_some_and(|path| path.starts_with(self.root));
        if self.strict || !is_its_own || in_the_cache {
            return Err(error);
        }
        episode.failure = Some(error);
        Ok(())
    }

    /// What was done, and the files that were written, which are to be synced.
    fn manifest(
        &self,
        unit: &Unit,
        mut files: Vec<Open<'_>>,
        episodes: &[Episode],
        folder: &Path,
    ) -> Result<(UnitManifest, Vec<Box<dyn FileOut>>)> {
        for episode in episodes.iter().filter(|episode| episode.failure.is_none()) {
            for (file, own) in files.iter_mut().zip(&episode.stats) {
                if let (Some(all), Some(own)) = (&mut file.stats, own) {
                    all.merge(own)?;
                }
            }
        }
        let mut manifest = UnitManifest {
            format: FORMAT.to_owned(),
            version: VERSION,
            unit: *unit,
            key: self.plan.key(unit)?,
            files: Vec::new(),
            episodes: Vec::new(),
            skipped: Vec::new(),
            stats: Vec::new(),
        };
        for episode in episodes {
            let info = self.dataset.episode(episode.at)?;
            match &episode.failure {
                Some(error) => manifest.skipped.push(Skipped {
                    source: unit.source,
                    episode: info.index,
                    reason: error.to_string(),
                }),
                None => manifest.episodes.push(UnitEpisode {
                    index: info.index,
                    length: info.length,
                    duration: info.duration,
                    tasks: info.tasks,
                    rows: episode.rows.clone(),
                    cameras: self.cameras(episode.at)?,
                }),
            }
        }
        let mut outs = Vec::new();
        for mut file in files {
            let (facts, out) = file.writer.finish(folder)?;
            file.stats.iter_mut().for_each(StreamStats::settle);
            manifest.files.push(facts);
            manifest.stats.push(file.stats);
            outs.push(out);
        }
        Ok((manifest, outs))
    }

    /// The cameras of an episode whose pictures are taken, by their names and sizes in the cache.
    fn cameras(&self, at: usize) -> Result<Vec<Camera>> {
        let cameras = self.dataset.cameras(at)?.into_iter();
        let taken = cameras.filter_map(|camera| {
            let (_, place) = self.source.streams.iter().find(|(from, _)| *from == camera.stream)?;
            let stream = self.plan.streams.get(*place)?;
            let &[height, width, _] = stream.shape.as_slice() else { return None };
            Some(Camera { stream: stream.name.clone(), ..camera.resized(height, width) })
        });
        Ok(taken.collect())
    }

    /// What is no picture, by the places of the files; all of it can be taken.
    fn read_numbers(&self, at: usize, files: &[Open<'_>]) -> Result<(Vec<usize>, Vec<Samples>)> {
        let places: Vec<usize> = (0..files.len()).filter(|&place| !files[place].stream.kind.is_picture()).collect();
        let wanted: Vec<usize> = places.iter().map(|&place| files[place].from).collect();
        let samples = self.dataset.read(at, &wanted)?;
        let number = self.dataset.episode(at)?.index;
        for (samples, from) in samples.iter().zip(wanted) {
            ensure_sorted(samples)?;
            let (Some(info), Values::Numbers(tensor)) = (self.dataset.streams().get(from), &samples.values) else {
                continue;
            };
            if let Some(found) = errors(info, tensor, number)?.first() {
                let text = format!("{}: {}: {}", found.code, info.name, found.message);
                return Err(Error::new(ErrorKind::CorruptData, text));
            }
        }
        Ok((places, samples))
    }

    fn write_numbers(&self, episode: &mut Episode, files: &mut [Open<'_>], folder: &Path) -> Result<()> {
        let (places, samples) = self.read_numbers(episode.at, files)?;
        // All of it is known to be good before any of it is written.
        let casts = places.iter().zip(&samples).map(|(&place, samples)| cast(samples, files[place].stream));
        let casts = casts.collect::<Result<Vec<_>>>()?;
        for ((&place, samples), cast) in places.iter().zip(&samples).zip(&casts) {
            let file = &mut files[place];
            let first = file.writer.rows();
            match &samples.values {
                Values::Text(texts) => {
                    for (text, &time) in texts.iter().zip(samples.times.iter()) {
                        file.writer.push(folder, time, text.as_bytes())?;
                    }
                }
                Values::Numbers(tensor) => {
                    let tensor = cast.as_ref().unwrap_or(tensor);
                    file.writer.push_episode(folder, &samples.times, tensor_bytes(tensor))?;
                    if let Some(stats) = &mut file.stats {
                        stats.add_points(tensor, StreamStats::of(file.stream).1)?;
                    }
                }
                Values::Frames(_) => return Err(Error::invalid("stream", "pictures where numbers were expected")),
            }
            episode.rows[place] = (first, samples.times.len() as u64);
        }
        Ok(())
    }

    /// Pictures of all episodes; those of one video file in one go.
    fn write_pictures(
        &self,
        place: usize,
        files: &mut [Open<'a>],
        episodes: &mut [Episode],
        folder: &Path,
        told: &Told<'_>,
    ) -> Result<()> {
        let file = &mut files[place];
        let mut parts: Vec<Part> = Vec::new();
        for (number, episode) in episodes.iter_mut().enumerate() {
            if episode.failure.is_some() {
                continue;
            }
            let read = self.dataset.read(episode.at, &[file.from]).and_then(|mut samples| {
                let samples = samples.pop().ok_or_else(|| Error::invalid("stream", "nothing was read"))?;
                ensure_sorted(&samples)?;
                match &samples.values {
                    Values::Frames(frames) => Ok(((**frames).clone(), samples)),
                    _ => Err(Error::invalid("stream", "expected pictures")),
                }
            });
            match read {
                Ok((frames, samples)) => parts.push((number, samples, frames)),
                Err(error) => self.keep_or_raise(error, episode)?,
            }
        }
        let groups: Vec<&[Part]> = parts.chunk_by(|earlier, later| later.2.follows(&earlier.2)).collect();
        let mut take = |group: &[Part], outcome: Outcome| {
            let Outcome { written, complete, outcome } = outcome;
            for (&(number, ..), (rows, stats)) in group.iter().zip(written).take(complete) {
                episodes[number].rows[place] = rows;
                episodes[number].stats[place] = stats;
            }
            if let Err(error) = outcome {
                let failed = complete.min(group.len() - 1);
                self.keep_or_raise(error, &mut episodes[group[failed].0])?;
                return Ok(failed + 1);
            }
            // Episodes without pictures have no rows, and are done too.
            Ok(group.len())
        };
        write_groups(self, file, &groups, (folder, told), &mut take)
    }
}

/// Whether there is something of that name.
fn is_taken(error: &Error) -> bool {
    matches!(cause(error), Some(libc::ENOTEMPTY | libc::EEXIST))
}

/// Windows are found by bisection.
fn ensure_sorted(samples: &Samples) -> Result<()> {
    match samples.times.windows(2).position(|pair| pair[1] < pair[0]) {
        None => Ok(()),
        Some(at) => Err(Error::new(ErrorKind::CorruptData, format!("the stamps decrease at sample {}", at + 1))),
    }
}

/// The bytes of a tensor's numbers.
fn tensor_bytes(tensor: &Tensor) -> &[u8] {
    let view = tensor.view();
    // SAFETY: the tensor owns that many initialised bytes, contiguous.
    unsafe { std::slice::from_raw_parts(view.data(), view.layout().count() * view.dtype().size()) }
}

/// Numbers in the type that the cache keeps, where it is another than theirs.
fn cast(samples: &Samples, stream: &CachedStream) -> Result<Option<Tensor>> {
    let Values::Numbers(tensor) = &samples.values else {
        return Ok(None);
    };
    let Some(wanted) = stream.number_type().filter(|&wanted| wanted != tensor.dtype()) else {
        return Ok(None);
    };
    let numbers: Vec<f64> = match tensor.dtype() {
        DType::F64 => tensor.as_slice::<f64>()?.to_vec(),
        DType::F32 => tensor.as_slice::<f32>()?.iter().map(|&x| x.into()).collect(),
        DType::F16 => tensor.as_slice::<f16>()?.iter().map(|x| x.to_f64()).collect(),
        DType::BF16 => tensor.as_slice::<bf16>()?.iter().map(|x| x.to_f64()).collect(),
        other => return Err(Error::invalid("streams", format!("{other} cannot become {wanted}"))),
    };
    let shape = tensor.shape();
    Ok(Some(match wanted {
        DType::F64 => Tensor::from_slice(&numbers, shape)?,
        DType::F32 => Tensor::from_slice(&narrowed(stream, &numbers, |x| x as f32, f32::is_infinite)?, shape)?,
        DType::F16 => Tensor::from_slice(&narrowed(stream, &numbers, f16::from_f64, f16::is_infinite)?, shape)?,
        DType::BF16 => Tensor::from_slice(&narrowed(stream, &numbers, bf16::from_f64, bf16::is_infinite)?, shape)?,
        other => return Err(Error::invalid("streams", format!("numbers cannot become {other}"))),
    }))
}

/// Numbers in a smaller type; one that it has no room for is an error.
fn narrowed<T: Copy>(
    stream: &CachedStream,
    numbers: &[f64],
    cast: impl Fn(f64) -> T,
    is_infinite: impl Fn(T) -> bool,
) -> Result<Vec<T>> {
    let narrow: Vec<T> = numbers.iter().map(|&number| cast(number)).collect();
    let overflows = |(&number, &narrow): (&f64, &T)| number.is_finite() && is_infinite(narrow);
    let Some(at) = numbers.iter().zip(&narrow).position(overflows) else {
        return Ok(narrow);
    };
    let width = stream.shape.iter().product::<usize>().max(1);
    let name = stream.names.as_ref().and_then(|names| names.get(at % width));
    let place = match name {
        Some(name) => format!(", {name}"),
        None if width > 1 => format!(", component {}", at % width),
        None => String::new(),
    };
    let text = format!(
        "{}: expected numbers that {} holds, got {:?} in sample {}{place}",
        stream.name,
        stream.dtype,
        numbers.get(at).copied().unwrap_or(f64::NAN),
        at / width,
    );
    Err(Error::new(ErrorKind::CorruptData, text))
}

/// Takes a unit away, at once for all who look.
pub(crate) fn remove_unit(fs: &dyn Fs, shards: &Folder<'_>, unit: &Unit) -> Result<()> {
    let folder = shards.path.join(unit.folder());
    let aside = shards.temporary(&unit.folder());
    let removed = fs.rename(&folder, &aside).and_then(|()| fs.remove(&aside));
    removed.map_err(|error| file_error(&folder, "cannot remove the unit", error))
}
