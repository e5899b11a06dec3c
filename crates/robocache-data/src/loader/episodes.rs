//! The samples that there are: episodes, and how many anchors each has.

use std::sync::atomic::{AtomicPtr, Ordering};

use robocache::{Error, ErrorKind, Result, ensure};

use super::spec::{Anchor, Key, WindowOptions, lies_together};
use super::tasks::Tasks;
use crate::cache::Cache;

/// The episodes that are used, by group: one group for each source.
#[derive(Debug)]
pub(crate) struct Selection {
    /// Places in the cache.
    pub(crate) places: Vec<usize>,
    /// Samples up to and with each episode.
    ends: Vec<u64>,
    /// Where each source's episodes start in `places`, and the end.
    groups: Vec<usize>,
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
    pub(crate) fn new(cache: &Cache, options: &WindowOptions, keys: &[Key]) -> Result<Self> {
        let mut places = match &options.episodes {
            None => (0..cache.len()).collect(),
            Some(places) => places.clone(),
        };
        for &place in &places {
            ensure!(place < cache.len(), "episodes", "expected 0 to {}, got {place}", cache.len().saturating_sub(1));
        }
        places.sort_unstable();
        places.dedup();
        let (mut ends, mut sources, mut end) = (Vec::new(), Vec::new(), 0u64);
        for &place in &places {
            end += anchors(cache, place, &options.anchor, keys)?;
            ends.push(end);
            sources.push(cache.episode(place)?.source);
        }
        // Episodes of one source follow each other in the index; a source without any is an empty group.
        let start = |source: usize| sources.partition_point(|&other| other < source);
        let groups = (0..=cache.sources().len()).map(start).collect();
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

    /// Of every source, the first of its samples and how many there are.
    pub(crate) fn groups(&self) -> Vec<(u64, u64)> {
        let edges: Vec<u64> = self.groups.iter().map(|&at| self.start(at)).collect();
        edges.iter().zip(edges.iter().skip(1)).map(|(&first, &end)| (first, end - first)).collect()
    }

    /// How many samples an episode has.
    pub(crate) fn count(&self, episode: usize) -> u64 {
        self.ends.get(episode).map_or(0, |end| end - self.start(episode))
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
fn anchors(cache: &Cache, place: usize, anchor: &Anchor, keys: &[Key]) -> Result<u64> {
    match anchor {
        Anchor::Frames => {
            frames_stream(cache, place, keys)?;
            Ok(cache.episode(place)?.length)
        }
        Anchor::Stream(name) => Ok(cache.count(place, cache.find(name, "anchor")?)),
        Anchor::Rate(rate) => {
            let Some((start, end)) = overlap(cache, place, keys)? else { return Ok(0) };
            let span = end.saturating_sub(start);
            Ok(if end < start { 0 } else { (span as f64 * 1e-9 * rate + 1e-6).floor() as u64 + 1 })
        }
    }
}

/// A stream that has the frames of a LeRobot dataset, all of whose streams do. One whose stamps can
/// be had without reading pictures, and of those one that is read anyway.
fn frames_stream(cache: &Cache, place: usize, keys: &[Key]) -> Result<usize> {
    let episode = cache.episode(place)?;
    let length = episode.length;
    let streams = cache.streams();
    let choose = |why: &str| {
        let names: Vec<&str> = streams.iter().map(|stream| stream.name.as_str()).collect();
        let text = format!("{why}; choose one with anchor=, or a rate=; the streams are {}", names.join(", "));
        Error::new(ErrorKind::InvalidArgument, text).argument("anchor")
    };
    if cache.sources().get(episode.source).is_some_and(|source| source.rate.is_none()) {
        return Err(choose("a recording has no frames, only streams of their own rates"));
    }
    let chosen = || keys.iter().map(|key| key.stream);
    let light = |stream: &usize| streams.get(*stream).is_some_and(lies_together);
    let by_cost = chosen().filter(light).chain((0..streams.len()).filter(light));
    let mut by_cost = by_cost.chain(chosen()).chain(0..streams.len());
    let found = by_cost.find(|&stream| cache.count(place, stream) == length);
    found.ok_or_else(|| choose("no stream has a sample for every frame"))
}

/// The time that the chosen streams of an episode have in common; `None` where it has none of them.
fn overlap(cache: &Cache, place: usize, keys: &[Key]) -> Result<Option<(i64, i64)>> {
    let mut common: Option<(i64, i64)> = None;
    for key in keys.iter().filter(|key| cache.count(place, key.stream) > 0) {
        let ends = |times: &[i64]| times.first().copied().zip(times.last().copied());
        let own = if lies_together(&key.meta) {
            ends(cache.rows(place, key.stream)?.times)
        } else {
            ends(&cache.times(place, key.stream)?)
        };
        let Some((first, last)) = own else { continue };
        let (first, last) = (first.saturating_sub(key.late), last.saturating_sub(key.late));
        common = Some(common.map_or((first, last), |(start, end)| (start.max(first), end.min(last))));
    }
    Ok(common)
}

/// Rows of a stream in an episode that lie together in the map; empty where they do not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub(crate) times: &'a [i64],
    pub(crate) values: &'a [u8],
}

impl<'a> Rows<'a> {
    const NONE: Self = Self { times: &[], values: &[] };

    fn of(cache: &'a Cache, place: usize, stream: usize) -> Result<Self> {
        let lie_together = cache.streams().get(stream).is_some_and(lies_together);
        if !lie_together || cache.count(place, stream) == 0 {
            return Ok(Self::NONE);
        }
        let rows = cache.rows(place, stream)?;
        Ok(Self { times: rows.times, values: rows.values })
    }
}

/// When an episode's samples are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Clock<'a> {
    /// At stamps in the map.
    Stamps(&'a [i64]),
    /// At the stamps of a stream that does not lie together.
    Stream(usize),
    /// At a grid from here on.
    Grid(i64),
}

/// What was found of an episode, when it was first used. Nothing in it grows with the episode.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(crate) place: usize,
    pub(crate) clock: Clock<'a>,
    /// For every key.
    pub(crate) rows: Box<[Rows<'a>]>,
    pub(crate) source: usize,
    pub(crate) episode_index: i64,
    /// The number of its first task; -1 where it has none.
    pub(crate) task: i64,
    /// Numbers of tasks by frame, for an episode with several.
    pub(crate) tasks: Rows<'a>,
}

/// Views of episodes, made when first used.
///
/// Without a lock: a process may fork while another thread makes one, and the child must go on.
#[derive(Debug)]
pub(crate) struct Views {
    slots: Vec<AtomicPtr<View<'static>>>,
}

impl Views {
    pub(crate) fn new(count: usize) -> Self {
        Self { slots: (0..count).map(|_| AtomicPtr::default()).collect() }
    }

    /// The view of an episode.
    ///
    /// # Safety
    /// What `look` gives must point into something that outlives `self`.
    pub(crate) unsafe fn get<'a>(&self, episode: usize, look: impl FnOnce() -> Result<View<'a>>) -> Result<&View<'_>> {
        let slot = self.slots.get(episode).ok_or_else(|| Error::invalid("sample", "there is no such episode"))?;
        let known = slot.load(Ordering::Acquire);
        if !known.is_null() {
            // SAFETY: it was put there below and stays until `self` is dropped.
            return Ok(unsafe { &*known });
        }
        // SAFETY: the caller keeps what it points to.
        let view = unsafe { std::mem::transmute::<View<'a>, View<'static>>(look()?) };
        let made = Box::into_raw(Box::new(view));
        match slot.compare_exchange(std::ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: as above.
            Ok(_) => Ok(unsafe { &*made }),
            Err(other) => {
                // SAFETY: `made` came from a box and nobody else has seen it; `other` as above.
                unsafe {
                    drop(Box::from_raw(made));
                    Ok(&*other)
                }
            }
        }
    }
}

impl Drop for Views {
    fn drop(&mut self) {
        for slot in &mut self.slots {
            let view = std::mem::replace(slot.get_mut(), std::ptr::null_mut());
            if !view.is_null() {
                // SAFETY: it came from a box, and references to it end with the borrow of `self`.
                drop(unsafe { Box::from_raw(view) });
            }
        }
    }
}

/// Looks at an episode.
pub(crate) fn look<'a>(
    cache: &'a Cache,
    place: usize,
    keys: &[Key],
    anchor: &Anchor,
    tasks: &Tasks,
) -> Result<View<'a>> {
    let rows = keys.iter().map(|key| Rows::of(cache, place, key.stream)).collect::<Result<_>>()?;
    let clock = |stream: usize| -> Result<Clock<'a>> {
        let lie_together = cache.streams().get(stream).is_some_and(lies_together);
        Ok(if lie_together { Clock::Stamps(Rows::of(cache, place, stream)?.times) } else { Clock::Stream(stream) })
    };
    let clock = match anchor {
        Anchor::Rate(_) => Clock::Grid(overlap(cache, place, keys)?.map_or(0, |(start, _)| start)),
        Anchor::Stream(name) => clock(cache.find(name, "anchor")?)?,
        Anchor::Frames => clock(frames_stream(cache, place, keys)?)?,
    };
    let episode = cache.episode(place)?;
    Ok(View {
        place,
        clock,
        rows,
        source: episode.source,
        episode_index: i64::try_from(episode.index).unwrap_or(i64::MAX),
        task: episode.tasks.first().map_or(-1, |task| tasks.number_of(episode.source, task)),
        tasks: match tasks.stream {
            Some(stream) if episode.tasks.len() > 1 => Rows::of(cache, place, stream)?,
            _ => Rows::NONE,
        },
    })
}
