//! The loader: batches of windows, in an order that is a pure function of seed and epoch.
//!
//! `spec` holds what the user asks for, `episodes` the samples, `tasks` what they are about.
//! `batch` makes windows: `gather` copies samples, `align` computes what lies between them, `stamps` reads clocks.
//! `order` decides which sample comes when, `prefetch` works ahead in threads, `identity` tells whether a saved
//! state fits.

mod align;
mod batch;
mod episodes;
mod gather;
mod identity;
mod normal;
mod order;
mod pixels;
mod prefetch;
mod spec;
mod stamps;
mod tasks;
mod window;

use std::sync::Arc;

use robocache::{Result, ensure};

use self::align::{Group, groups};
use self::episodes::{Selection, Views};
use self::normal::statistics;
use self::order::Mixture;
use self::spec::{Key, keys, lateness, nanoseconds};
use self::stamps::Stamps;
use self::tasks::Tasks;
use crate::Limits;
use crate::cache::{Cache, Summary};

pub use self::batch::{Batch, Column};
pub use self::episodes::Sample;
pub use self::identity::Identity;
pub use self::order::Permutation;
pub use self::prefetch::Prefetch;
pub use self::spec::{Anchor, ImageType, Normalize, WindowOptions};
pub use self::window::Work;

/// Bytes of stamps that are kept as copies, where they do not lie together in the map.
const STAMP_BYTES: usize = 64 << 20;

/// All samples of a cache under some options: a map from numbers to windows.
#[derive(Debug)]
pub struct Windows {
    // Before the cache: they point into it.
    views: Views,
    keys: Vec<Key>,
    /// Of the keys, those that the engine aligns.
    groups: Vec<Group>,
    anchor: Anchor,
    selection: Selection,
    tasks: Tasks,
    stamps: Stamps,
    tolerance: u64,
    /// Nanoseconds by which the stamps of the anchor are late.
    late: i64,
    /// Nanoseconds between frames, for guessing.
    period: Option<f64>,
    limits: Limits,
    cache: Arc<Cache>,
}

impl Windows {
    /// Prepares windows. Nothing is read but the index, stamps where the anchor needs them, and streams that are
    /// normalised in a normal form that the cache has no statistics of: `interrupted` is asked while they are read.
    pub fn new(cache: Arc<Cache>, options: &WindowOptions, interrupted: &dyn Fn() -> bool) -> Result<Self> {
        let keys = keys(&cache, options, interrupted)?;
        let is_grid = matches!(options.anchor, Anchor::Rate(_));
        ensure!(!(is_grid && keys.is_empty()), "streams", "a rate needs streams whose time it divides");
        let selection = Selection::new(&cache, options, &keys)?;
        let rate = cache.sources().first().and_then(|source| source.rate);
        Ok(Self {
            views: Views::new(selection.places.len()),
            groups: groups(&keys),
            keys,
            anchor: options.anchor.clone(),
            selection,
            tasks: Tasks::new(&cache),
            stamps: Stamps::new(STAMP_BYTES),
            tolerance: nanoseconds(options.tolerance_s).unsigned_abs(),
            late: match &options.anchor {
                Anchor::Stream(name) => lateness(name, options),
                // Frames and grids are nobody's stamps.
                Anchor::Frames | Anchor::Rate(_) => 0,
            },
            period: rate.filter(|&rate| rate > 0.0).map(|rate| 1e9 / rate),
            limits: Limits::default(),
            cache,
        })
    }

    /// Statistics of the streams that are handed out in a normal form, by name; all others have the cache's.
    pub fn own_stats(&self, interrupted: &dyn Fn() -> bool) -> Result<Vec<(&str, &Summary)>> {
        let formed = self.keys.iter().filter(|key| key.has_normal_form());
        let known = formed.map(|key| {
            if let Some(known) = key.stats.get() {
                return Ok((key.name.as_str(), known));
            }
            let found = statistics(&self.cache, &key.meta, &key.method, interrupted)?;
            Ok((key.name.as_str(), key.stats.get_or_init(|| found)))
        });
        known.collect()
    }

    /// How many samples there are.
    pub fn len(&self) -> u64 {
        self.selection.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The cache.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// The tasks of all sources: those of the first as it numbers them, then what is new in others.
    pub fn tasks(&self) -> &[String] {
        &self.tasks.texts
    }

    /// A sample by its number.
    pub fn sample(&self, number: u64) -> Result<Sample> {
        ensure!(number < self.len(), "index", "expected 0 to {}, got {number}", self.len().saturating_sub(1));
        Ok(self.selection.sample(number))
    }

    /// The place in the cache of the episode that a sample is from.
    pub fn episode_of(&self, sample: Sample) -> usize {
        self.selection.places.get(sample.episode).copied().unwrap_or(0)
    }
}

/// Which sample comes when.
#[derive(Debug, Clone)]
pub struct Order {
    /// The samples of each group: the first, and how many.
    groups: Vec<(u64, u64)>,
    mixture: Option<Mixture>,
    shuffle: bool,
    seed: u64,
    len: u64,
}

impl Order {
    /// An order of all samples; with weights, one for each source, an epoch draws as many samples
    /// as there are, from each source in proportion to its weight. A source without samples is not
    /// drawn from, whatever its weight.
    pub fn new(windows: &Windows, shuffle: bool, seed: u64, weights: Option<&[f64]>) -> Result<Self> {
        let groups = windows.selection.groups();
        let mixture = match weights {
            None => None,
            Some(weights) => {
                let count = groups.len();
                ensure!(weights.len() == count, "weights", "expected {count}, one per source, got {}", weights.len());
                let sound = weights.iter().all(|weight| weight.is_finite() && *weight >= 0.0);
                ensure!(sound, "weights", "expected numbers of at least 0, got {weights:?}");
                let usable = weights.iter().zip(&groups).map(|(&weight, group)| if group.1 > 0 { weight } else { 0.0 });
                let mut usable: Vec<f64> = usable.collect();
                ensure!(
                    usable.iter().any(|&weight| weight > 0.0),
                    "weights",
                    "no source with a weight above 0 has samples"
                );
                if usable.iter().sum::<f64>().is_infinite() {
                    // A power of two: the proportions stay as they are. There are at most 2^16 sources.
                    let smaller =
                        |weight: f64| (weight / 65536.0).max(if weight > 0.0 { f64::MIN_POSITIVE } else { 0.0 });
                    usable.iter_mut().for_each(|weight| *weight = smaller(*weight));
                }
                let tag = |group: usize| windows.cache.sources().get(group).map_or("", |source| source.tag.as_str());
                Some(Mixture::new(&usable, seed, &tag)?)
            }
        };
        Ok(Self { groups, mixture, shuffle, seed, len: windows.len() })
    }

    /// Samples of an epoch.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether an epoch has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// An epoch's order.
    pub fn epoch(&self, epoch: u64) -> EpochOrder<'_> {
        EpochOrder { order: self, epoch, all: Permutation::new(self.len, self.seed, epoch) }
    }
}

/// The order of one epoch.
#[derive(Debug, Clone, Copy)]
pub struct EpochOrder<'o> {
    order: &'o Order,
    epoch: u64,
    all: Permutation,
}

impl EpochOrder<'_> {
    /// The number of the sample at a position.
    pub fn at(&self, position: u64) -> u64 {
        let order = self.order;
        let Some(mixture) = &order.mixture else {
            return if order.shuffle { self.all.at(position) } else { position };
        };
        // Drawn through all epochs, so that small groups go round more often.
        let (group, drawn) = mixture.at(u128::from(self.epoch) * u128::from(order.len) + u128::from(position));
        let (first, count) = order.groups.get(group).copied().unwrap_or_default();
        let rounds = u128::from(count.max(1));
        // Rounds after 2^64 would come again.
        let (round, place) = ((drawn / rounds) as u64, (drawn % rounds) as u64);
        let seed = order.seed.wrapping_add(group as u64 + 1);
        first + if order.shuffle { Permutation::new(count, seed, round).at(place) } else { place }
    }
}
