//! `robocache inspect`: what a dataset holds.

mod clock;
mod look;
mod report;
mod timeline;

use std::path::{Path, PathBuf};

use robocache::{Error, ErrorKind, Result, ensure};
use robocache_data::cache::Cache;
use robocache_data::{Dataset, Limits, Recording};

use self::look::Look;
use self::report::{Inspected, Lengths, Looked, Summary};
use crate::cache::Listing;
use crate::flags;
use crate::plot::Target;

/// What to look at, and where to draw it.
#[derive(Debug)]
pub(crate) struct Options {
    path: PathBuf,
    recording: Recording,
    /// Only this episode.
    episode: Option<u64>,
    plot: Option<Target>,
}

impl Options {
    /// A plot that could not be saved is refused before anything is read.
    pub(crate) fn resolve(raw: &flags::Inspect) -> Result<Self> {
        let plot = raw.plot.as_deref().map(Target::new).transpose();
        let plot = plot.map_err(|error| error.argument("--plot").op("inspect"))?;
        let recording = raw.recording.resolve().map_err(|error| error.op("inspect"))?;
        Ok(Self { path: raw.path.clone(), recording, episode: raw.episode, plot })
    }
}

pub(crate) fn run(options: &Options) -> Result<Inspected> {
    inspect(options).map_err(|error| error.op("inspect"))
}

fn inspect(options: &Options) -> Result<Inspected> {
    let path = &options.path;
    let open = || Dataset::open_recording(path, &options.recording, &Limits::default());
    if !["manifest.json", "plan.json"].iter().any(|name| path.join(name).exists()) {
        return dataset(&open()?, options).map(Inspected::Dataset);
    }
    let why = match Cache::open(path) {
        Ok(found) => return cache(&found, options).map(Inspected::Cache),
        Err(why) => why,
    };
    // The names are common ones, and may be in the folder of a dataset too.
    match open() {
        Ok(found) => dataset(&found, options).map(Inspected::Dataset),
        Err(_) => Err(why),
    }
}

fn cache(cache: &Cache, options: &Options) -> Result<Listing> {
    for (is_set, name) in [(options.episode.is_some(), "--episode"), (options.plot.is_some(), "--plot")] {
        ensure!(!is_set, name, "this is a cache, where it does nothing");
    }
    Listing::of(cache)
}

fn dataset(dataset: &Dataset, options: &Options) -> Result<Summary> {
    let only = options.episode.map(|episode| find(dataset, episode, &options.path)).transpose()?;
    let look = match only {
        Some(at) => Look::at(dataset, &[at]),
        None => Look::sample(dataset),
    };
    if let Some(target) = &options.plot {
        let first = (!dataset.is_empty()).then_some(0);
        let at = only.or(first).ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, "there is no episode to draw").argument("--plot").path(&options.path)
        })?;
        target.save(&timeline::draw(dataset, at, &options.path)?)?;
    }
    summary(dataset, look, options)
}

fn summary(dataset: &Dataset, look: Look, options: &Options) -> Result<Summary> {
    let mut lengths = Vec::with_capacity(dataset.len());
    let mut duration_seconds = 0.0;
    for at in 0..dataset.len() {
        let episode = dataset.episode(at)?;
        lengths.push(episode.length);
        duration_seconds += episode.duration;
    }
    Ok(Summary {
        path: options.path.clone(),
        format: dataset.format(),
        episodes: dataset.len(),
        frames: lengths.iter().fold(0u64, |sum, length| sum.saturating_add(*length)),
        duration_seconds,
        bytes: dataset.bytes(),
        rate_hz: dataset.rate(),
        // Numbers that are left out have no text.
        tasks: dataset.tasks().iter().filter(|task| !task.is_empty()).cloned().collect(),
        lengths: Lengths::new(lengths),
        looked_at: Looked { episodes: look.episodes, unreadable: look.unreadable },
        streams: look.streams,
        plot: options.plot.as_ref().map(|plot| plot.path().to_string_lossy().into_owned()),
    })
}

/// The place of an episode, by its number.
fn find(dataset: &Dataset, episode: u64, path: &Path) -> Result<usize> {
    // Most datasets number their episodes from 0 without a gap.
    let direct = usize::try_from(episode).ok().filter(|&at| at < dataset.len());
    let is_it = |&at: &usize| dataset.episode(at).is_ok_and(|info| info.index == episode);
    direct.filter(is_it).or_else(|| (0..dataset.len()).find(is_it)).ok_or_else(|| {
        let text = format!("there is no episode {episode}; the dataset has {}", dataset.len());
        Error::invalid("--episode", text).path(path)
    })
}
