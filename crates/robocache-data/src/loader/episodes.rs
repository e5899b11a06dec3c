//! The samples that there are: episodes, and how many anchors each has.

use std::sync::OnceLock;

use robocache::{Error, ErrorKind, Result, ensure};

use super::spec::{Anchor, Key, WindowOptions};
use crate::cache::{Cache, Encoding};

/// Rows of a stream in an episode that lie together in the map.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub(crate) times: &'a [i64],
    /// Empty for streams that are not kept raw or do not lie together.
    pub(crate) values: &'a [u8],
}

/// The episodes that are used, by group: one group for each source.
#[derive(Debug)]
pub(crate) struct Selection {
    /// Places in the cache.
    pub(crate) places: Vec<usize>,
    /// Samples up to and with each episode.
    ends: Vec<u64>,
    /// Where each group's episodes start in `places`, and the end.
    pub(crate) groups: Vec<usize>,
}

/// A sample: an episode and the number of its anchor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// The episode's place among those that are used.
    pub(crate) episode: usize,
    /// The number of the anchor in the episode.
    pub(crate) anchor: u64,
}

impl Selection {
    pub(crate) fn new(cache: &Cache, options: &WindowOptions) -> Result<Self> {
        let mut places = match &options.episodes {
            None => (0..cache.len()).collect(),
            Some(places) => places.clone(),
        };
        for &place in &places {
            ensure!(place < cache.len(), "episodes", "expected 0 to {}, got {place}", cache.len().saturating_sub(1));
        }
        places.sort_unstable();
        places.dedup();
        let counts: Vec<u64> = places.iter().map(|&place| anchors(cache, place, options)).collect::<Result<_>>()?;
        // Episodes of one source follow each other in the index.
        let sources: Vec<usize> =
            places.iter().map(|&at| cache.episode(at).map(|e| e.source)).collect::<Result<_>>()?;
        let mut groups: Vec<usize> =
            (0..places.len()).filter(|&at| at == 0 || sources.get(at) != sources.get(at - 1)).collect();
        groups.push(places.len());
        let ends = counts
            .iter()
            .scan(0u64, |end, count| {
                *end += count;
                Some(*end)
            })
            .collect();
        Ok(Self { places, ends, groups })
    }

    /// Samples before an episode.
    fn start(&self, episode: usize) -> u64 {
        episode.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0)
    }

    /// How many samples there are.
    pub(crate) fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The samples of a group: the first, and how many.
    pub(crate) fn group(&self, group: usize) -> (u64, u64) {
        let edge = |at: usize| self.start(self.groups.get(at).copied().unwrap_or(self.places.len()));
        (edge(group), edge(group + 1) - edge(group))
    }

    /// A sample by its number.
    pub(crate) fn sample(&self, number: u64) -> Sample {
        let episode = self.ends.partition_point(|&end| end <= number);
        Sample { episode, anchor: number - self.start(episode) }
    }

    /// A sample's number.
    pub(crate) fn number(&self, sample: Sample) -> u64 {
        self.start(sample.episode) + sample.anchor
    }
}

/// How many samples an episode has.
fn anchors(cache: &Cache, place: usize, options: &WindowOptions) -> Result<u64> {
    match &options.anchor {
        Anchor::Frames => Ok(cache.episode(place)?.length),
        Anchor::Stream(name) => {
            let stream = cache.find(name, "anchor")?;
            Ok(cache.count(place, stream))
        }
        Anchor::Rate(rate) => {
            ensure!(rate.is_finite() && *rate > 0.0 && *rate <= 1e6, "rate", "expected samples per second, got {rate}");
            let (start, end) = overlap(cache, place)?;
            Ok(if end < start { 0 } else { ((end - start) as f64 * 1e-9 * rate + 1e-6).floor() as u64 + 1 })
        }
    }
}

/// The time that all streams of an episode have in common.
fn overlap(cache: &Cache, place: usize) -> Result<(i64, i64)> {
    let (mut start, mut end) = (i64::MIN, i64::MAX);
    for stream in 0..cache.streams().len() {
        if cache.count(place, stream) == 0 {
            continue;
        }
        let times = cache.times(place, stream)?;
        if let (Some(&first), Some(&last)) = (times.first(), times.last()) {
            start = start.max(first);
            end = end.min(last);
        }
    }
    Ok((start, end))
}

/// What was found of an episode, when it was first used.
#[derive(Debug)]
pub(crate) struct View<'a> {
    /// Stamps that samples are made for; empty for a grid.
    pub(crate) anchors: Rows<'a>,
    /// For a grid: its start.
    pub(crate) start: i64,
    /// For every key.
    pub(crate) rows: Vec<Rows<'a>>,
    pub(crate) episode_index: i64,
    pub(crate) task: i64,
    /// What the slices above point to, where it is not in the map.
    _owned: Vec<Vec<i64>>,
}

/// Views of episodes, made when first used.
#[derive(Debug)]
pub(crate) struct Views {
    slots: Vec<OnceLock<View<'static>>>,
}

impl Views {
    pub(crate) fn new(count: usize) -> Self {
        Self { slots: (0..count).map(|_| OnceLock::new()).collect() }
    }

    /// The view of an episode.
    ///
    /// # Safety
    /// `cache` must be the same at every call and outlive `self`.
    pub(crate) unsafe fn get(
        &self,
        cache: &Cache,
        selection: &Selection,
        keys: &[Key],
        anchor: &Anchor,
        episode: usize,
    ) -> Result<&View<'_>> {
        let slot = self.slots.get(episode).ok_or_else(|| Error::invalid("sample", "there is no such episode"))?;
        if let Some(view) = slot.get() {
            return Ok(view);
        }
        let place = selection.places.get(episode).copied().unwrap_or(usize::MAX);
        let view = look(cache, place, keys, anchor)?;
        // SAFETY: the caller keeps the cache, whose maps never move or go; own vectors move with
        // the view, their contents do not.
        let view = unsafe { std::mem::transmute::<View<'_>, View<'static>>(view) };
        Ok(slot.get_or_init(|| view))
    }
}

fn look<'a>(cache: &'a Cache, place: usize, keys: &[Key], anchor: &Anchor) -> Result<View<'a>> {
    let mut owned = Vec::new();
    let mut rows_of = |stream: usize, raw: bool| -> Result<Rows<'a>> {
        if raw {
            let rows = cache.rows(place, stream)?;
            return Ok(Rows { times: rows.times, values: rows.values });
        }
        let times = cache.times(place, stream)?;
        // SAFETY: the vector goes into `owned` below, which lives as long as the slice is used; its
        // contents do not move when it does.
        let slice = unsafe { std::slice::from_raw_parts(times.as_ptr(), times.len()) };
        owned.push(times);
        Ok(Rows { times: slice, values: &[] })
    };
    let mut rows = Vec::with_capacity(keys.len());
    for key in keys {
        let raw = key.meta.encoding == Encoding::Raw && !key.is_picture();
        rows.push(rows_of(key.stream, raw)?);
    }
    let episode = cache.episode(place)?;
    let (anchors, start) = match anchor {
        Anchor::Rate(_) => (Rows { times: &[], values: &[] }, overlap(cache, place)?.0),
        Anchor::Stream(name) => (rows_of(cache.stream(name)?, false)?, 0),
        // All streams of a LeRobot dataset have its frames.
        Anchor::Frames => match (0..cache.streams().len()).find(|&stream| cache.count(place, stream) == episode.length)
        {
            Some(stream) => (rows_of(stream, false)?, 0),
            None => {
                let text = "no stream has a sample for every frame; choose one with anchor=";
                return Err(Error::new(ErrorKind::InvalidArgument, text).argument("anchor"));
            }
        },
    };
    let tasks = cache.sources().get(episode.source).map(|source| source.tasks.as_slice()).unwrap_or_default();
    let task = episode.tasks.first().and_then(|task| tasks.iter().position(|known| known == task));
    Ok(View {
        anchors,
        start,
        rows,
        episode_index: i64::try_from(episode.index).unwrap_or(i64::MAX),
        task: task.and_then(|task| i64::try_from(task).ok()).unwrap_or(-1),
        _owned: owned,
    })
}
