//! The loader: batches of windows, in an order that is a pure function of seed and epoch.
//!
//! `spec` is what the user asks for, `episodes` the samples that there are, `gather` and `batch`
//! make windows, `order` decides which sample comes when, `prefetch` has threads work ahead.

mod batch;
mod episodes;
mod gather;
mod order;
mod prefetch;
mod spec;

use std::sync::Arc;

use robocache::{Result, ensure};

use self::episodes::{Selection, Views};
use self::order::Mixture;
use self::spec::{Key, keys, nanoseconds};
use crate::Limits;
use crate::cache::Cache;

pub use self::batch::{Batch, Column};
pub use self::episodes::Sample;
pub use self::order::Permutation;
pub use self::prefetch::Prefetch;
pub use self::spec::{Anchor, ImageType, Normalize, WindowOptions};

/// All samples of a cache under some options: a map from numbers to windows.
#[derive(Debug)]
pub struct Windows {
    // Before the cache: they point into it.
    views: Views,
    keys: Vec<Key>,
    anchor: Anchor,
    selection: Selection,
    tolerance: i64,
    /// Nanoseconds between frames, for guessing.
    period: Option<f64>,
    limits: Limits,
    cache: Arc<Cache>,
}

impl Windows {
    /// Prepares windows; nothing is read but the index, and stamps where the anchor needs them.
    pub fn new(cache: Arc<Cache>, options: &WindowOptions) -> Result<Self> {
        let keys = keys(&cache, options)?;
        let selection = Selection::new(&cache, options)?;
        let rate = cache.sources().first().and_then(|source| source.rate);
        Ok(Self {
            views: Views::new(selection.places.len()),
            keys,
            anchor: options.anchor.clone(),
            selection,
            tolerance: nanoseconds(options.tolerance_s),
            period: rate.filter(|&rate| rate > 0.0).map(|rate| 1e9 / rate),
            limits: Limits::default(),
            cache,
        })
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
    /// as there are, from each source in proportion to its weight.
    pub fn new(windows: &Windows, shuffle: bool, seed: u64, weights: Option<&[f64]>) -> Result<Self> {
        let groups = windows.selection.groups.len().saturating_sub(1);
        let mixture = match weights {
            None => None,
            Some(weights) => {
                ensure!(weights.len() == groups, "weights", "expected {groups}, one per source, got {}", weights.len());
                let sound = weights.iter().all(|weight| weight.is_finite() && *weight >= 0.0);
                ensure!(sound && weights.iter().sum::<f64>() > 0.0, "weights", "expected numbers above 0");
                Some(Mixture::new(weights, seed))
            }
        };
        let groups = (0..groups).map(|group| windows.selection.group(group)).collect();
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
        let (group, drawn) = mixture.at(self.epoch.wrapping_mul(order.len).wrapping_add(position));
        let (first, count) = order.groups.get(group).copied().unwrap_or_default();
        let (round, place) = (drawn / count.max(1), drawn % count.max(1));
        let seed = order.seed.wrapping_add(group as u64 + 1);
        first + if order.shuffle { Permutation::new(count, seed, round).at(place) } else { place }
    }
}
