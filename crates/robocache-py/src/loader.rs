//! Windows and the loader, as Python sees them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use robocache::{Error, Result, did_you_mean};
use robocache_data::loader::{
    Anchor, Batch, Column, ImageType, Normalize, Order as DataOrder, Prefetch, WindowOptions, Windows as DataWindows,
    Work,
};

use crate::cache::{Cache, stats_dict};
use crate::options::spans;
use crate::{array, enter, errors};

/// How often a signal is asked for, in milliseconds.
const LOOK: u64 = 50;

/// All samples of a cache under some options.
#[pyclass(frozen, module = "robocache")]
pub(crate) struct Windows {
    inner: Arc<DataWindows>,
}

#[pymethods]
impl Windows {
    #[new]
    #[pyo3(signature = (cache, delta_timestamps, streams, anchor, rate, methods, tolerance_s, causal, time_offset,
        max_gap, normalize, image_dtype, episodes))]
    #[expect(clippy::too_many_arguments, reason = "the keywords of rc.Loader")]
    fn new(
        py: Python<'_>,
        cache: &Cache,
        delta_timestamps: Vec<(String, Vec<f64>)>,
        streams: Option<Vec<String>>,
        anchor: Option<String>,
        rate: Option<f64>,
        methods: Vec<(String, Bound<'_, PyAny>)>,
        tolerance_s: f64,
        causal: bool,
        time_offset: Vec<(String, f64)>,
        max_gap: Vec<(String, f64)>,
        normalize: Vec<(String, String)>,
        image_dtype: &str,
        episodes: Option<Vec<usize>>,
    ) -> PyResult<Self> {
        let build = || -> Result<WindowOptions> {
            Ok(WindowOptions {
                delta_timestamps,
                others: streams,
                anchor: match (anchor, rate) {
                    (None, None) => Anchor::Frames,
                    (Some(stream), None) => Anchor::Stream(stream),
                    (None, Some(rate)) => Anchor::Rate(rate),
                    _ => return Err(Error::invalid("rate", "anchor and rate exclude each other")),
                },
                methods: methods.iter().map(|(name, how)| Ok((name.clone(), spans(how)?))).collect::<Result<_>>()?,
                tolerance_s,
                causal,
                time_offset,
                max_gap,
                normalize: normalize
                    .iter()
                    .map(|(name, how)| Ok((name.clone(), scaling(how)?)))
                    .collect::<Result<_>>()?,
                image_type: match image_dtype {
                    "uint8" => ImageType::U8,
                    "float32" => ImageType::F32,
                    other => {
                        let meant = did_you_mean(other, ["uint8", "float32"]);
                        let text = format!("expected \"uint8\" or \"float32\", got {other:?}{meant}");
                        return Err(Error::invalid("image_dtype", text));
                    }
                },
                episodes,
            })
        };
        let options = build().map_err(|error| errors::to_python(py, &error.op("Loader")))?;
        let cache = Arc::clone(&cache.inner);
        let make = |interrupt: &dyn Fn() -> bool| DataWindows::new(cache, &options, interrupt);
        let inner = enter::engine(py, |interrupt| make(interrupt).map_err(|error| error.op("Loader")))?;
        Ok(Self { inner: Arc::new(inner) })
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.inner.len()).unwrap_or(usize::MAX)
    }

    /// The tasks of all sources by their numbers.
    #[getter]
    fn tasks(&self) -> Vec<String> {
        self.inner.tasks().to_vec()
    }

    /// Numbers about the streams that are handed out in a normal form, as those of a cache about all.
    fn own_stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = enter::engine(py, |interrupt| self.inner.own_stats(interrupt).map_err(|error| error.op("Loader")))?;
        stats_dict(py, stats)
    }

    /// What tells these samples from others.
    fn identity<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let identity = enter::engine(py, |_| self.inner.identity())?;
        let dict = PyDict::new(py);
        dict.set_item("sources", identity.sources)?;
        dict.set_item("episodes", identity.episodes)?;
        dict.set_item("anchor", identity.anchor)?;
        Ok(dict)
    }

    /// The batch of these samples, made here and now, and the numbers of their tasks.
    fn batch<'py>(&self, py: Python<'py>, numbers: Vec<u64>) -> PyResult<(Bound<'py, PyDict>, Vec<i64>)> {
        let batch = enter::engine_shared(py, |interrupt| {
            let (begun, looked) = (Instant::now(), AtomicU64::new(0));
            // Asking takes the interpreter's lock.
            let stop = || {
                let now = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                let is_due = now.saturating_sub(looked.load(Ordering::Relaxed)) >= LOOK;
                is_due && {
                    looked.store(now, Ordering::Relaxed);
                    interrupt()
                }
            };
            make(&self.inner, numbers.into_iter(), &Work { stop: &stop, threads: 1 })
        })?;
        to_dict(py, batch)
    }

    /// Which sample comes when.
    fn order(&self, py: Python<'_>, shuffle: bool, seed: u64, weights: Option<Vec<f64>>) -> PyResult<Order> {
        let order = DataOrder::new(&self.inner, shuffle, seed, weights.as_deref());
        let order = order.map_err(|error| errors::to_python(py, &error.op("Loader")))?;
        Ok(Order { windows: Arc::clone(&self.inner), inner: Arc::new(order) })
    }
}

/// Which sample comes when.
#[pyclass(frozen, module = "robocache")]
pub(crate) struct Order {
    windows: Arc<DataWindows>,
    inner: Arc<DataOrder>,
}

#[pymethods]
impl Order {
    /// Batches of an epoch in order, made ahead by threads: `size` samples each, every
    /// `world_size`-th batch from `rank` on, starting at a position. A rank without a sample in the
    /// last step takes the epoch's last one again, or with `skip` ends a step earlier.
    #[pyo3(signature = (epoch, start, size, rank, world_size, drop_last, skip, threads, prefetch))]
    #[expect(clippy::too_many_arguments, reason = "the keywords of rc.Loader")]
    fn batches(
        &self,
        py: Python<'_>,
        epoch: u64,
        start: u64,
        size: u64,
        rank: u64,
        world_size: u64,
        drop_last: bool,
        skip: bool,
        threads: usize,
        prefetch: usize,
    ) -> PyResult<Batches> {
        let (windows, order) = (Arc::clone(&self.windows), Arc::clone(&self.inner));
        let step = size.saturating_mul(world_size);
        // Threads that find no batch to begin help with the pictures of those that are begun.
        let at_once = threads.min(prefetch).max(1);
        let each = threads / at_once;
        let prefetch = Prefetch::new(at_once, prefetch, move |number, stop| {
            let first = number.checked_mul(step)?.checked_add(start)?;
            let positions = share(first, order.len(), size, rank, world_size, drop_last)?;
            if skip && positions.is_empty() {
                return None;
            }
            let positions = if positions.is_empty() { order.len() - 1..order.len() } else { positions };
            let epoch = order.epoch(epoch);
            let work = Work { stop, threads: each };
            Some(make(&windows, positions.map(|position| epoch.at(position)), &work))
        });
        Ok(Batches { prefetch: prefetch.map_err(|error| errors::to_python(py, &error.op("Loader")))? })
    }
}

/// The positions of a rank's part of a step; `None` after the last step. The last, short step is
/// dealt out evenly, so that a rank may get none of fewer samples than ranks.
fn share(start: u64, len: u64, size: u64, rank: u64, world_size: u64, drop_last: bool) -> Option<std::ops::Range<u64>> {
    if start >= len {
        return None;
    }
    let left = len - start;
    if left >= size * world_size {
        let first = start + rank * size;
        return Some(first..first + size);
    }
    if drop_last {
        return None;
    }
    let edge = |rank: u64| start + left * rank / world_size;
    Some(edge(rank)..edge(rank + 1))
}

fn make(windows: &DataWindows, numbers: impl Iterator<Item = u64>, work: &Work<'_>) -> Result<Batch> {
    let samples = numbers.map(|number| windows.sample(number)).collect::<Result<Vec<_>>>()?;
    windows.batch(&samples, work).map_err(|error| error.op("Loader"))
}

fn scaling(name: &str) -> Result<Normalize> {
    match name {
        "mean_std" => Ok(Normalize::MeanStd),
        "min_max" => Ok(Normalize::MinMax),
        "quantile" => Ok(Normalize::Quantile),
        other => {
            let meant = did_you_mean(other, ["mean_std", "min_max", "quantile"]);
            let text = format!("expected \"mean_std\", \"min_max\" or \"quantile\", got {other:?}{meant}");
            Err(Error::invalid("normalize", text))
        }
    }
}

/// The columns by name, and the numbers of the tasks.
fn to_dict(py: Python<'_>, batch: Batch) -> PyResult<(Bound<'_, PyDict>, Vec<i64>)> {
    let dict = PyDict::new(py);
    for (name, column) in batch.columns {
        match column {
            Column::Numbers(tensor) => dict.set_item(name, array::from_tensor(py, Arc::new(tensor))?)?,
            Column::Words(texts) => dict.set_item(name, PyList::new(py, texts)?)?,
            Column::Texts(texts) => dict.set_item(name, PyList::new(py, texts)?)?,
        }
    }
    Ok((dict, batch.tasks))
}

/// Batches as they come.
#[pyclass(frozen, module = "robocache")]
pub(crate) struct Batches {
    prefetch: Prefetch<Batch>,
}

#[pymethods]
impl Batches {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyDict>, Vec<i64>)>> {
        let next = enter::engine(py, |interrupt| {
            self.prefetch.next(interrupt).transpose().map_err(|error| error.op("Loader"))
        })?;
        next.map(|batch| to_dict(py, batch)).transpose()
    }
}
