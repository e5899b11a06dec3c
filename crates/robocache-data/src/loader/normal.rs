//! Samples in the normal form of their methods, in which windows hand them out, and their statistics.

use robocache::ops::Resample;
use robocache::ops::resample::Methods;
use robocache::{DType, Device, Error, ErrorKind, Layout, Result, TensorRef};

use crate::cache::{Cache, CachedStream, StreamStats, Summary};

/// Statistics of a stream's samples in the normal form of its methods, in which windows have them.
pub(super) fn statistics(
    cache: &Cache,
    stream: &CachedStream,
    methods: &Methods,
    interrupted: &dyn Fn() -> bool,
) -> Result<Summary> {
    let place = cache.stream(&stream.name)?;
    let dtype = stream.number_type().ok_or_else(|| Error::invalid("stream", "it holds text"))?;
    let (mut stats, points) = StreamStats::of(stream);
    for episode in 0..cache.len() {
        if interrupted() {
            return Err(Error::new(ErrorKind::Interrupted, "interrupted"));
        }
        let rows = cache.rows(episode, place)?;
        // Stamps may come twice, but here every sample counts.
        let clock: Vec<i64> = (0..).take(rows.times.len()).collect();
        if clock.is_empty() {
            continue;
        }
        let clock = TensorRef::from_slice(&clock, &[clock.len()])?;
        let values = numbers(rows.values, stream.row_bytes(), dtype)?;
        // A target at a stamp is that sample in its normal form.
        let op = Resample { method: methods.clone(), check: false, ..Resample::new(values, clock, clock) };
        for formed in robocache::run(&op)? {
            stats.add_points(&formed, points)?;
        }
    }
    Ok(stats.summary())
}

/// The bytes of rows as numbers, `[rows, columns]`; of no bools, which a file may give other bytes.
pub(super) fn numbers(values: &[u8], row: usize, dtype: DType) -> Result<TensorRef<'_>> {
    let count = values.len().checked_div(row).unwrap_or(0);
    let layout = Layout::contiguous(&[count, row / dtype.size()], dtype)?;
    // SAFETY: no more bytes than there are, borrowed for as long as the view; every pattern of them is a number.
    unsafe { TensorRef::from_raw(values.as_ptr(), dtype, Device::Cpu, layout) }
}
