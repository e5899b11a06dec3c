//! Windows and the loader, as Python sees them.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use robocache::{Error, Result};
use robocache_data::loader::{
    Anchor, Batch, Column, ImageType, Normalize, Order, Prefetch, WindowOptions, Windows as DataWindows,
};

use crate::cache::{Cache, spans};
use crate::{array, enter, errors};

/// All samples of a cache under some options.
#[pyclass(frozen, module = "robocache")]
pub(crate) struct Windows {
    inner: Arc<DataWindows>,
}

#[pymethods]
impl Windows {
    #[new]
    #[pyo3(signature = (cache, delta_timestamps, streams, anchor, rate, methods, tolerance_s, causal, time_offset,
        normalize, image_dtype, episodes))]
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
                normalize: normalize
                    .iter()
                    .map(|(name, how)| Ok((name.clone(), scaling(how)?)))
                    .collect::<Result<_>>()?,
                image_type: match image_dtype {
                    "uint8" => ImageType::U8,
                    "float32" => ImageType::F32,
                    other => {
                        let text = format!("expected \"uint8\" or \"float32\", got {other:?}");
                        return Err(Error::invalid("image_dtype", text));
                    }
                },
                episodes,
            })
        };
        let options = build().map_err(|error| errors::to_python(py, &error.op("Loader")))?;
        let cache = Arc::clone(&cache.inner);
        let inner = enter::engine(py, |_| DataWindows::new(cache, &options).map_err(|error| error.op("Loader")))?;
        Ok(Self { inner: Arc::new(inner) })
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.inner.len()).unwrap_or(usize::MAX)
    }

    /// The batch of these samples, made here and now.
    fn batch<'py>(&self, py: Python<'py>, numbers: Vec<u64>) -> PyResult<Bound<'py, PyDict>> {
        let batch = enter::engine(py, |_| make(&self.inner, numbers.into_iter()))?;
        to_dict(py, batch)
    }

    /// Batches of an epoch in order, made ahead by threads: `size` samples each, every
    /// `world_size`-th batch from `rank` on, starting at a position.
    #[pyo3(signature = (epoch, start, size, rank, world_size, drop_last, shuffle, seed, weights, threads, prefetch))]
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
        shuffle: bool,
        seed: u64,
        weights: Option<Vec<f64>>,
        threads: usize,
        prefetch: usize,
    ) -> PyResult<Batches> {
        let fail = |error: Error| errors::to_python(py, &error.op("Loader"));
        let order = Order::new(&self.inner, shuffle, seed, weights.as_deref()).map_err(fail)?;
        let windows = Arc::clone(&self.inner);
        let step = size * world_size;
        let prefetch = Prefetch::new(threads, prefetch, move |number| {
            let positions = share(start + number.checked_mul(step)?, order.len(), size, rank, world_size, drop_last)?;
            let epoch = order.epoch(epoch);
            Some(make(&windows, positions.map(|position| epoch.at(position))))
        });
        Ok(Batches { prefetch: prefetch.map_err(fail)? })
    }
}

/// The positions of a rank's part of a step; `None` after the last step. The last, short step is
/// dealt out evenly, and a rank that would get nothing takes the last sample again: all ranks have
/// as many batches, which distributed training needs.
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
    let (first, end) = (edge(rank), edge(rank + 1));
    Some(if first == end { len - 1..len } else { first..end })
}

fn make(windows: &DataWindows, numbers: impl Iterator<Item = u64>) -> Result<Batch> {
    let samples = numbers.map(|number| windows.sample(number)).collect::<Result<Vec<_>>>()?;
    windows.batch(&samples)
}

fn scaling(name: &str) -> Result<Normalize> {
    match name {
        "mean_std" => Ok(Normalize::MeanStd),
        "min_max" => Ok(Normalize::MinMax),
        "quantile" => Ok(Normalize::Quantile),
        other => {
            let text = format!("expected \"mean_std\", \"min_max\" or \"quantile\", got {other:?}");
            Err(Error::invalid("normalize", text))
        }
    }
}

fn to_dict(py: Python<'_>, batch: Batch) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    for (name, column) in batch.columns {
        match column {
            Column::Numbers(tensor) => dict.set_item(name, array::from_tensor(py, Arc::new(tensor))?)?,
            Column::Text(texts) => dict.set_item(name, PyList::new(py, texts)?)?,
        }
    }
    Ok(dict)
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

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let next = enter::engine(py, |interrupt| {
            self.prefetch.next(interrupt).transpose().map_err(|error| error.op("Loader"))
        })?;
        next.map(|batch| to_dict(py, batch)).transpose()
    }
}
