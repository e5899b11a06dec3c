//! What is to be done: streams, and units of work that any process can do on its own.

use std::path::Path;

use robocache::{DType, Error, ErrorKind, Result, ensure, shown_path};

use super::layout::{CachedSource, CachedStream, Encoding, FORMAT, Plan, Skipped, Unit, VERSION, whole};
use crate::dataset::Dataset;
use crate::files::is_lasting;
use crate::findings::Finding;
use crate::model::{Interpolation, Kind, Span, StreamInfo, Values, ensure_spans, ensure_whole};
use crate::recording::Recording;

/// Bytes that the largest stream of a unit should take: few enough files for any number of maps,
/// small enough to be done again after a crash.
const UNIT_BYTES: u64 = 256 << 20;
const MOST_UNIT_FRAMES: u64 = 1 << 18;
const LEAST_UNIT_FRAMES: u64 = 256;
/// What JPEG makes of a picture, roughly.
const JPEG_RATIO: u64 = 10;

/// What becomes of pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Images {
    /// JPEG; distances stay raw.
    #[default]
    Jpeg,
    /// As they are.
    Raw,
    /// Left out.
    Skip,
}

/// A stream that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Its name in the source.
    pub from: String,
    /// Its name in the cache; the same where there is none.
    pub to: Option<String>,
    /// The type of its numbers in the cache; floats only.
    pub dtype: Option<DType>,
}

/// How a dataset becomes a cache.
#[derive(Debug, Clone)]
pub struct IngestOptions {
    /// The streams that are wanted; all where there is no list.
    pub streams: Option<Vec<Choice>>,
    /// Interpolation of streams, by their names in the cache.
    pub methods: Vec<(String, Vec<Span>)>,
    /// What becomes of pictures.
    pub images: Images,
    /// Height and width of pictures in the cache.
    pub image_size: Option<(usize, usize)>,
    /// Of JPEG pictures, 1 to 100.
    pub quality: u8,
    /// Stop at the first episode that cannot be taken.
    pub strict: bool,
    /// Threads; as many as there are cores where there is no number.
    pub workers: Option<usize>,
    /// What the source is called among several; its folder's name where there is none.
    pub tag: Option<String>,
    /// Frames of a unit, for tests and schedulers.
    pub unit_frames: Option<u64>,
    /// How a recording is read.
    pub recording: Recording,
}

impl Default for IngestOptions {
    fn default() -> Self {
        Self {
            streams: None,
            methods: Vec::new(),
            images: Images::default(),
            image_size: None,
            quality: 95,
            strict: false,
            workers: None,
            tag: None,
            unit_frames: None,
            recording: Recording::default(),
        }
    }
}

impl IngestOptions {
    fn check(&self) -> Result<()> {
        ensure!((1..=100).contains(&self.quality), "quality", "expected 1 to 100, got {}", self.quality);
        if let Some((height, width)) = self.image_size {
            let fits = |size: usize| (1..=16384).contains(&size);
            ensure!(fits(height) && fits(width), "image_size", "expected 1 to 16384, got {height} x {width}");
        }
        ensure!(self.workers != Some(0), "workers", "expected 1 or more, got 0");
        Ok(())
    }
}

impl Plan {
    /// A plan without work.
    pub(crate) fn new() -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            sources: Vec::new(),
            streams: Vec::new(),
            errors: Vec::new(),
            units: Vec::new(),
        }
    }

    /// The source with this content, if it is planned already; one that has changed since is an error.
    pub(crate) fn find(&self, path: &Path, fingerprint: &str, tag: &str) -> Result<Option<usize>> {
        let same_place = |source: &&CachedSource| source.path == path || source.tag == tag;
        if let Some(place) = self.sources.iter().position(|source| source.fingerprint == fingerprint) {
            return Ok(Some(place));
        }
        match self.sources.iter().find(same_place) {
            None => Ok(None),
            Some(source) if source.path == path => Err(has_changed(path)),
            Some(source) => {
                let text = format!("another source is called {tag:?} already ({})", shown_path(&source.path));
                Err(Error::new(ErrorKind::InvalidArgument, text).argument("tag"))
            }
        }
    }

    /// What is asked of a source must be what was planned for it: the work goes on, it is not done anew.
    pub(crate) fn ensure_same_work(&self, place: usize, dataset: &Dataset, options: &IngestOptions) -> Result<()> {
        let Some(source) = self.sources.get(place) else {
            return Ok(());
        };
        if let Some(tag) = &options.tag {
            ensure!(*tag == source.tag, "tag", "the source was planned as {:?}, got {tag:?}; {OTHERWISE}", source.tag);
        }
        let (known, asked) = (source.quality, options.quality);
        ensure!(known == asked, "quality", "the source was planned with {known}, got {asked}; {OTHERWISE}");
        let mut fresh = Self::new();
        fresh.add(dataset, &source.path, String::new(), String::new(), options)?;
        let words = |plan: &Self, source: &CachedSource| {
            let describe = |(from, place): &(String, usize)| {
                let stream = plan.streams.get(*place)?;
                let encoding = if stream.encoding == Encoding::Jpeg { " as jpeg" } else { "" };
                let to = if stream.name == *from { String::new() } else { format!(" as {}", stream.name) };
                Some(format!("{from}{to} {} {:?}{encoding}", stream.dtype, stream.shape))
            };
            source.streams.iter().filter_map(describe).collect::<Vec<_>>().join(", ")
        };
        let planned = words(self, source);
        let asked = fresh.sources.first().map(|source| words(&fresh, source)).unwrap_or_default();
        ensure!(asked == planned, "streams", "the source was planned with {planned}; got {asked}; {OTHERWISE}");
        for stream in &fresh.streams {
            self.ensure_same_methods(stream, options)?;
        }
        Ok(())
    }

    /// Methods that are asked for are those of the cache.
    fn ensure_same_methods(&self, stream: &CachedStream, options: &IngestOptions) -> Result<()> {
        let is_asked = options.methods.iter().any(|(name, _)| *name == stream.name);
        let known = self.streams.iter().find(|known| known.name == stream.name);
        let differs = known.is_some_and(|known| known.method != stream.method);
        ensure!(
            !(is_asked && differs),
            "methods",
            "{:?} was planned with another interpolation; {OTHERWISE}",
            stream.name
        );
        Ok(())
    }

    /// Adds a source and its work.
    pub(crate) fn add(
        &mut self,
        dataset: &Dataset,
        path: &Path,
        fingerprint: String,
        tag: String,
        options: &IngestOptions,
    ) -> Result<()> {
        options.check()?;
        let left_out = dataset.left_out().iter().filter(|_| options.streams.is_none());
        let mut missing: Vec<String> = left_out.map(|(name, _)| name.clone()).collect();
        let mut streams = Vec::new();
        let chosen = chosen(dataset, options)?;
        ensure_methods(&chosen, options)?;
        for (place, info, choice) in chosen {
            if info.kind.is_picture() && options.images == Images::Skip {
                continue;
            }
            let Some(stream) = stream(dataset, place, info, &choice, options)? else {
                missing.push(info.name.clone());
                continue;
            };
            ensure_name(&stream.name)?;
            let place = match self.streams.iter().position(|known| known.name == stream.name) {
                None => {
                    self.streams.push(stream);
                    self.streams.len() - 1
                }
                Some(place) => {
                    self.ensure_same(place, &stream)?;
                    self.ensure_same_methods(&stream, options)?;
                    place
                }
            };
            ensure!(
                streams.iter().all(|(_, other)| *other != place),
                "streams",
                "two streams would be called {:?}",
                choice.to.as_ref().unwrap_or(&info.name)
            );
            streams.push((info.name.clone(), place));
        }
        ensure!(!streams.is_empty(), "streams", "no stream of the source can be taken");
        let source = self.sources.len();
        let taken: Vec<usize> = streams.iter().map(|&(_, place)| place).collect();
        self.sources.push(CachedSource {
            path: path.to_path_buf(),
            format: dataset.format(),
            fingerprint,
            tag,
            rate: dataset.rate(),
            episodes: dataset.len(),
            streams,
            missing,
            image_size: options.image_size,
            quality: options.quality,
            recording: options.recording.clone(),
            tasks: dataset.tasks().to_vec(),
        });
        self.add_units(dataset, source, &taken, options)
    }

    fn ensure_same(&self, place: usize, stream: &CachedStream) -> Result<()> {
        let Some(known) = self.streams.get(place) else {
            return Ok(());
        };
        let words = |stream: &CachedStream| {
            let encoding = if stream.encoding == Encoding::Jpeg { ", kept as JPEG" } else { "" };
            format!("{} {:?}{encoding}", stream.dtype, stream.shape)
        };
        let (name, known_as, found_as) = (&stream.name, words(known), words(stream));
        ensure!(
            known_as == found_as,
            "streams",
            "{name:?} is {known_as} in this cache and {found_as} in this source; rename it"
        );
        if let (Some(known), Some(found)) = (&known.names, &stream.names) {
            // Pictures and their sizes go by the shape.
            ensure!(
                known == found || stream.kind.is_picture(),
                "streams",
                "{name:?} has the components {known:?} in this cache and {found:?} in this source; rename it"
            );
        }
        Ok(())
    }

    /// Notes which episodes of the last source have errors in streams that are taken, or in columns that are no
    /// stream: those say which samples an episode has, and when.
    pub(crate) fn add_errors(&mut self, dataset: &Dataset, errors: &[Finding]) {
        let Some(last) = self.sources.last() else {
            return;
        };
        let source = self.sources.len() - 1;
        let is_stream = |name: &String| {
            let mut left_out = dataset.left_out().iter();
            dataset.streams().iter().any(|stream| stream.name == *name)
                || left_out.any(|(left_out, _)| left_out == name)
        };
        let is_taken = |name: &String| !is_stream(name) || last.streams.iter().any(|(taken, _)| taken == name);
        for finding in errors.iter().filter(|finding| finding.stream.as_ref().is_none_or(is_taken)) {
            let Some(episode) = finding.episode else { continue };
            // One reason is enough; they come by episode.
            if self.errors.last().is_some_and(|last| (last.source, last.episode) == (source, episode)) {
                continue;
            }
            let stream = finding.stream.as_ref().map_or(String::new(), |name| format!("{name}: "));
            // Findings name files from the source on.
            let path =
                finding.path.as_ref().map_or(String::new(), |path| format!(" ({})", shown_path(&last.path.join(path))));
            let reason = format!("{}: {stream}{}{path}", finding.code, finding.message);
            self.errors.push(Skipped { source, episode, reason });
        }
    }

    fn add_units(&mut self, dataset: &Dataset, source: usize, taken: &[usize], options: &IngestOptions) -> Result<()> {
        let row = |stream: &CachedStream| match stream.encoding {
            Encoding::Jpeg => stream.row_bytes() as u64 / JPEG_RATIO,
            _ => stream.row_bytes() as u64,
        };
        let largest = taken.iter().filter_map(|&place| self.streams.get(place)).map(row).max().unwrap_or(1).max(1);
        let frames = (UNIT_BYTES / largest).clamp(LEAST_UNIT_FRAMES, MOST_UNIT_FRAMES);
        let frames = options.unit_frames.unwrap_or(frames).max(1);
        let (mut first, mut so_far) = (0, 0u64);
        for at in 0..dataset.len() {
            let length = dataset.episode(at)?.length;
            if at > first && so_far.saturating_add(length) > frames {
                self.units.push(Unit { unit: self.units.len(), source, first, end: at, frames: so_far });
                (first, so_far) = (at, 0);
            }
            so_far = length.saturating_add(so_far);
        }
        if first < dataset.len() {
            self.units.push(Unit { unit: self.units.len(), source, first, end: dataset.len(), frames: so_far });
        }
        Ok(())
    }
}

/// What helps where a cache is asked to be another than it was planned.
const OTHERWISE: &str = "give what was given then, or ingest into a new cache";

#[cold]
pub(crate) fn has_changed(path: &Path) -> Error {
    let text = "the source has changed since its ingest was planned; ingest it into a new cache";
    Error::new(ErrorKind::InvalidArgument, text).argument("source").path(path)
}

/// A stream as the cache keeps it; `None` for pictures of which there is not one.
fn stream(
    dataset: &Dataset,
    place: usize,
    info: &StreamInfo,
    choice: &Choice,
    options: &IngestOptions,
) -> Result<Option<CachedStream>> {
    let name = choice.to.as_deref().unwrap_or(&info.name);
    let dtype = match (choice.dtype, info.dtype) {
        (None, dtype) => dtype,
        (Some(wanted), Some(given)) if wanted.is_float() && given.is_float() => Some(wanted),
        (Some(wanted), _) => {
            return Err(Error::invalid("streams", format!("{name:?} cannot become {wanted}: only floats can be cast")));
        }
    };
    let mut stream = CachedStream::from_source(info, name, dtype, Encoding::Raw);
    if info.dtype.is_none() {
        stream.encoding = Encoding::Text;
    }
    if info.kind.is_picture() {
        // Declared sizes are not always the real ones, and declared cameras not always there.
        let Some(shape) = picture_shape(dataset, place)? else {
            return Ok(None);
        };
        let [height, width, channels] = shape;
        let (height, width) = options.image_size.unwrap_or((height, width));
        stream.shape = vec![height, width, channels];
        let can_be_jpeg = info.kind != Kind::Depth && matches!(channels, 1 | 3);
        if options.images == Images::Jpeg && can_be_jpeg {
            stream.encoding = Encoding::Jpeg;
        }
        stream.method = whole(Interpolation::Nearest, stream.shape.iter().product());
    }
    if let Some((_, spans)) = options.methods.iter().find(|(known, _)| known == name) {
        let width = stream.shape.iter().product();
        // One method for all columns need not know how many there are.
        let spans: Vec<Span> = match spans.as_slice() {
            [all] if all.start == 0 && all.end == usize::MAX => whole(all.method, width),
            spans => spans.to_vec(),
        };
        if info.kind.is_picture() || stream.encoding == Encoding::Text {
            ensure_whole(name, &spans)?;
        }
        ensure_spans(name, &spans, width, dtype)?;
        stream.method = spans;
    }
    Ok(Some(stream))
}

/// A name with a slip in it would do nothing.
fn ensure_methods(chosen: &[(usize, &StreamInfo, Choice)], options: &IngestOptions) -> Result<()> {
    let names: Vec<&str> = chosen.iter().map(|(_, info, choice)| choice.to.as_deref().unwrap_or(&info.name)).collect();
    for (name, _) in &options.methods {
        if !names.contains(&name.as_str()) {
            return Err(Error::no_such("methods", "streams", name, names));
        }
    }
    Ok(())
}

/// Names that batches use for other things.
fn ensure_name(name: &str) -> Result<()> {
    const TAKEN: [&str; 6] = ["index", "episode_index", "frame_index", "timestamp", "task", "source_index"];
    ensure!(!name.is_empty(), "streams", "a stream needs a name");
    ensure!(
        !TAKEN.contains(&name) && !name.ends_with("_is_pad"),
        "streams",
        "batches use the name {name:?} for something else; rename the stream"
    );
    Ok(())
}

/// The streams that are wanted, with their places and what is wanted of them.
fn chosen<'d>(dataset: &'d Dataset, options: &IngestOptions) -> Result<Vec<(usize, &'d StreamInfo, Choice)>> {
    let all = dataset.streams();
    let Some(wanted) = &options.streams else {
        let choice = |info: &StreamInfo| Choice { from: info.name.clone(), to: None, dtype: None };
        return Ok(all.iter().enumerate().map(|(place, info)| (place, info, choice(info))).collect());
    };
    let find = |choice: &Choice| {
        let found = all.iter().enumerate().find(|(_, info)| info.name == choice.from);
        let (place, info) = found
            .ok_or_else(|| Error::no_such("streams", "streams", &choice.from, all.iter().map(|info| &*info.name)))?;
        Ok((place, info, choice.clone()))
    };
    wanted.iter().map(find).collect()
}

/// The shape of a stream's pictures, from the first episode that has some; `None` where none has.
fn picture_shape(dataset: &Dataset, place: usize) -> Result<Option<[usize; 3]>> {
    let mut failure = None;
    for at in 0..dataset.len() {
        match dataset.read(at, &[place]) {
            Ok(samples) => {
                if let Some(Values::Frames(frames)) = samples.first().map(|samples| &samples.values) {
                    return Ok(Some(frames.shape()));
                }
            }
            // Whether there are pictures is planned once.
            Err(error) if !is_lasting(&error) => return Err(error),
            Err(error) if error.kind() == ErrorKind::FileError => {}
            Err(error) => failure = Some(error),
        }
    }
    failure.map_or(Ok(None), Err)
}
