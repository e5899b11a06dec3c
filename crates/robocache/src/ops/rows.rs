//! What the rows of a batch have in common in all ops: their number, strides and lengths, and names
//! of options.

use crate::tensor::{DType, TensorRef};
use crate::{Error, Result, did_you_mean, ensure};

pub(crate) fn by_name<T: Copy>(argument: &'static str, names: &[(&'static str, T)], wanted: &str) -> Result<T> {
    names.iter().find(|(name, _)| *name == wanted).map(|&(_, value)| value).ok_or_else(|| {
        let known: Vec<_> = names.iter().map(|(name, _)| *name).collect();
        let meant = did_you_mean(wanted, known.iter().copied());
        Error::invalid(argument, format!("expected one of {}, got {wanted:?}{meant}", known.join(", ")))
    })
}

pub(crate) fn name_of<T: PartialEq>(names: &[(&'static str, T)], wanted: &T) -> &'static str {
    names.iter().find(|(_, value)| value == wanted).map_or("?", |(name, _)| name)
}

/// The batch that all arguments agree on.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) size: Option<(usize, &'static str)>,
}

impl Batch {
    /// Takes in an argument whose axes beside the batch are `inner`; returns its batch size.
    #[inline]
    pub(crate) fn add(&mut self, name: &'static str, tensor: &TensorRef<'_>, inner: usize) -> Result<Option<usize>> {
        if tensor.layout().rank() == inner {
            return Ok(None);
        }
        let size = tensor.shape()[0];
        self.add_size(name, size)?;
        Ok(Some(size))
    }

    /// Takes in a batch of this size.
    #[inline]
    pub(crate) fn add_size(&mut self, name: &'static str, size: usize) -> Result<()> {
        match self.size {
            Some((known, first)) if known != 1 && size != 1 => {
                ensure!(size == known, name, "batch of {size}, but {first} has a batch of {known}");
            }
            Some((known, _)) if known != 1 => {}
            _ => self.size = Some((size, name)),
        }
        Ok(())
    }
}

/// Strides of the batch axis and the `inner` last ones; the batch's is 0 when it is shared.
#[inline]
pub(crate) fn strides<const N: usize>(tensor: &TensorRef<'_>) -> [isize; N] {
    let layout = tensor.layout();
    let skipped = N - layout.rank().min(N);
    let is_shared = |axis: usize| axis < skipped || (axis == 0 && layout.shape()[0] == 1);
    // One by one: to copy so few is a call.
    std::array::from_fn(|axis| if is_shared(axis) { 0 } else { layout.strides()[axis - skipped] })
}

/// A length as it was given, which may be anything.
pub(crate) fn given_length(lengths: &TensorRef<'_>, stride: isize, row: usize) -> i64 {
    let offset = row as isize * stride;
    // SAFETY: row < batch, and the stride is 0 or that of a `[B]` view of this dtype.
    unsafe {
        match lengths.dtype() {
            DType::I32 => i64::from(lengths.data().cast::<i32>().offset(offset).read()),
            _ => lengths.data().cast::<i64>().offset(offset).read(),
        }
    }
}

pub(crate) fn clamped_length(lengths: Option<TensorRef<'_>>, stride: isize, row: usize, most: usize) -> usize {
    lengths.map_or(most, |lengths| usize::try_from(given_length(&lengths, stride, row)).unwrap_or(0).min(most))
}

/// Refuses lengths that are no lengths, and takes in their batch.
pub(crate) fn check_lengths(lengths: Option<TensorRef<'_>>, batch: &mut Batch) -> Result<()> {
    let Some(lengths) = lengths else {
        return Ok(());
    };
    are_lengths("lengths", &lengths)?;
    batch.add("lengths", &lengths, 0).map(drop)
}

/// Refuses what by its type and shape are no lengths.
pub(crate) fn are_lengths(name: &'static str, lengths: &TensorRef<'_>) -> Result<()> {
    let dtype = lengths.dtype();
    ensure!(matches!(dtype, DType::I32 | DType::I64), name, "expected int32 or int64, got {dtype}");
    lengths.layout().expect_rank(name, &[0, 1], "[B]")
}

/// Looks at the lengths themselves, on the host.
pub(crate) fn check_length_values(lengths: Option<TensorRef<'_>>, rows: usize, most: usize) -> Result<()> {
    let Some(lengths) = lengths else {
        return Ok(());
    };
    let stride = strides::<1>(&lengths)[0];
    for row in 0..rows {
        let given = given_length(&lengths, stride, row);
        if !usize::try_from(given).is_ok_and(|given| given <= most) {
            return Err(bad_length(row as u64, given, most as u64));
        }
    }
    Ok(())
}

/// The error about a length; kernels report the same.
pub(crate) fn bad_length(row: u64, given: i64, most: u64) -> Error {
    Error::invalid("lengths", format!("row {row} is {given}, expected 0 to {most}"))
}
