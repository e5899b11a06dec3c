//! What lies between samples: one call of the engine's `fuse` for all streams of a sample that are wanted at the same
//! times.

use robocache::ops::Fuse;
use robocache::ops::fuse::{MOST_STREAMS, Stream};
use robocache::ops::resample::{ColumnRange, Methods};
use robocache::{DType, Device, Error, ErrorKind, Layout, Result, TensorRef};

use super::Windows;
use super::batch::{Anchored, Work};
use super::gather::needed;
use super::spec::{Key, lies_together};
use crate::cache::bytes_mut;
use crate::model::{Interpolation, Span};

/// A step of a window that no sample is taken for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Between {
    /// The window's place in its batch.
    pub(super) window: usize,
    pub(super) step: usize,
    /// The sample before it.
    pub(super) before: usize,
}

/// Streams that are aligned by one call: of one type, at the same times.
#[derive(Debug)]
pub(super) struct Group {
    /// Numbers of keys.
    keys: Vec<usize>,
    /// The type that the engine sees.
    dtype: DType,
}

/// The keys that are interpolated, by what one call can do.
pub(super) fn groups(keys: &[Key]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (number, key) in keys.iter().enumerate().filter(|(_, key)| lies_together(&key.meta) && key.picks().is_none()) {
        let Some(dtype) = key.meta.number_type() else { continue };
        // What only stores numbers is copied, bit by bit.
        let dtype = if dtype.is_stored() { DType::U8 } else { dtype };
        let offsets = |group: &Group| group.keys.first().and_then(|&first| keys.get(first)).map(|first| &first.offsets);
        let fits = |group: &&mut Group| {
            group.dtype == dtype && group.keys.len() < MOST_STREAMS && offsets(group) == Some(&key.offsets)
        };
        match groups.iter_mut().find(fits) {
            Some(group) => group.keys.push(number),
            None => groups.push(Group { keys: vec![number], dtype }),
        }
    }
    groups
}

/// How the engine is told to interpolate.
pub(super) fn methods(spans: &[Span]) -> Methods {
    match spans {
        [all] => Methods::One(all.method.method()),
        spans => Methods::Ranges(
            spans
                .iter()
                .map(|&Span { method, start, end }| ColumnRange { method: method.method(), start, end })
                .collect(),
        ),
    }
}

impl Windows {
    /// Makes what lies between samples of a group's streams; `between` says where, for every key in the order of
    /// windows. `write` is given the number of the key, the place, and the row as the cache would keep it.
    pub(super) fn align(
        &self,
        group: &Group,
        samples: &[Anchored<'_>],
        between: &[Vec<Between>],
        work: &Work<'_>,
        mut write: impl FnMut(usize, Between, &[u8]),
    ) -> Result<()> {
        let list = |&number: &usize| (number, between.get(number).map(Vec::as_slice).unwrap_or_default());
        let mut left: Vec<(usize, &[Between])> = group.keys.iter().map(list).collect();
        loop {
            let first = left.iter().filter_map(|(_, places)| places.first()).map(|place| place.window).min();
            let Some((window, sample)) = first.and_then(|window| Some((window, samples.get(window)?))) else {
                return Ok(());
            };
            work.check()?;
            let mut now = Vec::with_capacity(left.len());
            for (number, places) in &mut left {
                let (own, later) = places.split_at(places.partition_point(|place| place.window <= window));
                *places = later;
                if !own.is_empty() {
                    now.push((*number, own));
                }
            }
            self.align_window(group.dtype, sample, &now, &mut write)?;
        }
    }

    /// Makes what some streams lack in a window.
    fn align_window(
        &self,
        dtype: DType,
        sample: &Anchored<'_>,
        lacking: &[(usize, &[Between])],
        write: &mut impl FnMut(usize, Between, &[u8]),
    ) -> Result<()> {
        let mut steps: Vec<usize> =
            lacking.iter().flat_map(|(_, places)| places.iter().map(|place| place.step)).collect();
        steps.sort_unstable();
        steps.dedup();
        let key =
            |number: usize| self.keys.get(number).ok_or_else(|| Error::invalid("streams", "there is no such key"));
        let (mut views, mut targets, mut width) = (Vec::with_capacity(lacking.len()), Vec::new(), 0);
        for &(number, places) in lacking {
            let key = key(number)?;
            views.push(self.samples_around(number, key, dtype, sample, places)?);
            width += key.width();
            // The same for all.
            targets.clear();
            let offset = |&step: &usize| key.offsets.get(step).copied().unwrap_or(0);
            targets.extend(steps.iter().map(|step| sample.time.saturating_add(offset(step))));
        }
        let mut streams = Vec::with_capacity(lacking.len());
        for ((values, times), &(number, _)) in views.iter().zip(lacking) {
            streams.push(Stream { method: key(number)?.between.clone(), ..Stream::new(values, times) });
        }
        let op = Fuse { check: false, ..Fuse::new(streams, TensorRef::from_slice(&targets, &[targets.len()])?) };
        let mut results = robocache::run(&op)?;
        let rows = results.first_mut().map(bytes_mut).unwrap_or_default();
        let mut column = 0;
        for &(number, places) in lacking {
            let own = key(number)?.row_bytes();
            for &place in places {
                let row = steps.binary_search(&place.step).unwrap_or(0) * width * dtype.size();
                write(number, place, rows.get(row + column..row + column + own).unwrap_or_default());
            }
            column += own;
        }
        Ok(())
    }

    /// The samples of a stream that these places can need, and their stamps.
    fn samples_around<'w>(
        &self,
        number: usize,
        key: &Key,
        dtype: DType,
        sample: &Anchored<'w>,
        places: &[Between],
    ) -> Result<(TensorRef<'w>, TensorRef<'w>)> {
        let missing = || Error::new(ErrorKind::CorruptData, format!("{:?}: samples are missing", key.name));
        let rows = sample.view.rows.get(number).ok_or_else(missing)?;
        let (first, last) = places
            .iter()
            .fold((usize::MAX, 0), |(first, last), place| (first.min(place.before), last.max(place.before)));
        let curved = key.method.iter().any(|span| span.method == Interpolation::Cubic);
        let (start, end) = needed(rows.times, first, last, curved);
        let own = key.row_bytes();
        let times = rows.times.get(start..end).ok_or_else(missing)?;
        let values = rows.values.get(start * own..end * own).ok_or_else(missing)?;
        let layout = Layout::contiguous(&[times.len(), own / dtype.size()], dtype)?;
        // SAFETY: as many bytes as the layout has, of memory that is mapped for as long as the view.
        let values = unsafe { TensorRef::from_raw(values.as_ptr(), dtype, Device::Cpu, layout)? };
        Ok((values, TensorRef::from_slice(times, &[times.len()])?))
    }
}
