//! What a cell holds, and what a checked call knows: its sizes, where its results go and where it counts.

use std::fmt;
use std::str::FromStr;

use crate::ops::cloud::{Cloud, expect_float};
use crate::ops::rows::{by_name, name_of, strides};
use crate::tensor::{DType, TensorRef};
use crate::{Error, Outputs, Result, ensure};

/// What a cell holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reduce {
    /// 1 where there is a point.
    Occupancy,
    /// How many points there are.
    Count,
    /// The sum of the features.
    Sum,
    /// Their mean.
    Mean,
    /// The largest of each; -0 is below +0, NaN above all.
    Max,
    /// The smallest of each; NaN is below all.
    Min,
}

impl Reduce {
    const NAMES: [(&'static str, Self); 6] = [
        ("occupancy", Self::Occupancy),
        ("count", Self::Count),
        ("sum", Self::Sum),
        ("mean", Self::Mean),
        ("max", Self::Max),
        ("min", Self::Min),
    ];

    /// Whether it reduces features.
    pub fn uses_features(self) -> bool {
        !matches!(self, Self::Occupancy | Self::Count)
    }
}

impl FromStr for Reduce {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        by_name("reduce", &Self::NAMES, name)
    }
}

impl fmt::Display for Reduce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name_of(&Self::NAMES, self))
    }
}

/// Sizes, strides and patterns.
#[derive(Debug)]
pub struct Dims {
    pub(super) cloud: Cloud,
    /// Features per point; 0 without.
    pub(super) width: usize,
    pub(super) feature_strides: [isize; 3],
    /// Cells of a row and of all rows.
    pub(super) cells: usize,
    pub(super) all_cells: usize,
    pub(super) dtype: DType,
    /// An empty and an occupied cell, as bits of `dtype`.
    pub(super) fill: u64,
    pub(super) one: u64,
}

/// Features that belong to so many points of a row; returns their number and strides.
pub(super) fn check_features(features: &TensorRef<'_>, count: usize) -> Result<(usize, [isize; 3])> {
    features.layout().expect_rank("features", &[2, 3], "[B,N,F] or [N,F]")?;
    expect_float("features", features.dtype())?;
    let (shape, rank) = (features.shape(), features.layout().rank());
    ensure!(shape[rank - 2] == count, "features", "expected features of {count} points, got shape {shape:?}");
    Ok((shape[rank - 1], strides(features)))
}

/// The addresses of the outputs; null where one was not asked for.
pub(super) struct Targets {
    pub(super) out: *mut u8,
    /// Whether empty cells hold their number already.
    pub(super) blank: bool,
    pub(super) counts: *mut i32,
    pub(super) dropped: *mut i64,
}

impl Targets {
    pub(super) fn new(
        out: &mut Outputs<'_, '_>,
        dims: &Dims,
        return_counts: bool,
        return_dropped: bool,
    ) -> Result<Self> {
        let blank = dims.fill == 0 && out.get(0).is_some_and(|out| out.is_zeroed());
        let mut next = 0;
        let mut take = |wanted: bool, name: &'static str| {
            if !wanted {
                return Ok(std::ptr::null_mut());
            }
            let output = out.get(next).ok_or_else(|| Error::invalid(name, "is missing"))?;
            next += 1;
            let layout = output.view().layout();
            ensure!(layout.is_contiguous(), name, "expected a row-major tensor, got {layout:?}");
            Ok(output.data_mut())
        };
        Ok(Self {
            out: take(true, "out")?,
            blank,
            counts: take(return_counts, "counts")?.cast(),
            dropped: take(return_dropped, "dropped")?.cast(),
        })
    }
}

/// Where counts are kept that are not a result themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CountsIn {
    /// Nowhere: occupancy alone.
    Nothing,
    /// `counts`.
    Counts,
    /// `out`, which then is the result.
    Out,
    /// Memory to work in.
    Workspace,
}
