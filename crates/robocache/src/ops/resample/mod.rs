//! Values of a stream at other times than it was recorded at.
//!
//! The rules that all backends follow are those of `locate.rs`; this file holds the arguments and
//! every check that needs no data.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod cells;
mod cpu;
mod cuda;
mod locate;

use std::fmt;
use std::str::FromStr;

pub(crate) use cuda::{KERNELS, describe as describe_finding};

use super::rows::{Batch, by_name, name_of, strides};
use crate::cuda::Launcher;
use crate::tensor::{DType, TensorRef};
use crate::{Context, Error, Op, OutputSpec, Outputs, Result, ensure};

/// How a value between two samples is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// On the straight line between the two samples.
    Linear,
    /// The closer sample; the earlier one when both are equally close.
    Nearest,
    /// The sample before, held (zero-order hold).
    Previous,
    /// The sample after.
    Next,
}

/// What happens before the first and after the last sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Extrapolate {
    /// The first or last sample.
    Clamp,
    /// The straight line through the two outermost samples; only for [`Method::Linear`].
    Linear,
    /// NaN; not for integers.
    Nan,
    /// An error.
    Error,
}

impl Method {
    const NAMES: [(&'static str, Self); 4] =
        [("linear", Self::Linear), ("nearest", Self::Nearest), ("previous", Self::Previous), ("next", Self::Next)];
    const PLANNED: [&'static str; 4] = ["cubic", "slerp", "angle", "rot6d"];
}

impl FromStr for Method {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        if Self::PLANNED.contains(&name) {
            return Err(Error::unsupported("method", format!("{name:?} is not implemented yet")));
        }
        by_name("method", &Self::NAMES, name)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name_of(&Self::NAMES, self))
    }
}

impl Extrapolate {
    const NAMES: [(&'static str, Self); 4] =
        [("clamp", Self::Clamp), ("linear", Self::Linear), ("nan", Self::Nan), ("error", Self::Error)];
}

impl FromStr for Extrapolate {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        by_name("extrapolate", &Self::NAMES, name)
    }
}

impl fmt::Display for Extrapolate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name_of(&Self::NAMES, self))
    }
}

/// Values at target times. Output 0 is `out [B,T,D]` with the dtype of the values, output 1, when
/// asked for, `valid [B,T]`. What has no batch axis, or a batch of 1, is shared; without any
/// batch the outputs have none either.
#[derive(Debug, Clone)]
pub struct Resample<'a> {
    /// `[B,S,D]` or `[S,D]`, any dtype; only floats can be blended.
    pub values: TensorRef<'a>,
    /// `[B,S]` or `[S]`, not decreasing: int64 nanoseconds, float64 or float32 seconds.
    pub times: TensorRef<'a>,
    /// `[B,T]` or `[T]`, in any order, of the same type as `times`.
    pub targets: TensorRef<'a>,
    /// How to interpolate.
    pub method: Method,
    /// What to do outside the samples.
    pub extrapolate: Extrapolate,
    /// `[B]` int32 or int64: how many samples of each row exist.
    pub lengths: Option<TensorRef<'a>>,
    /// `[B]` int32 or int64: how many targets of each row exist.
    pub target_lengths: Option<TensorRef<'a>>,
    /// Seconds; a target between samples further apart is not valid.
    pub max_gap: Option<f64>,
    /// Whether to write `valid`.
    pub return_valid: bool,
    /// Whether to look for bad stamps, lengths and targets in the data. Without it bad data
    /// gives unspecified values, never a read out of bounds.
    pub check: bool,
}

/// Sizes and strides in elements, 0 where a tensor is shared by the batch.
#[derive(Debug)]
pub struct Dims {
    has_batch: bool,
    batch: usize,
    samples: usize,
    targets: usize,
    width: usize,
    value_strides: [isize; 3],
    time_strides: [isize; 2],
    target_strides: [isize; 2],
    length_stride: isize,
    target_length_stride: isize,
}

impl<'a> Resample<'a> {
    /// Linear interpolation with clamped ends and checks; the other fields can be set.
    pub fn new(values: TensorRef<'a>, times: TensorRef<'a>, targets: TensorRef<'a>) -> Self {
        Self {
            values,
            times,
            targets,
            method: Method::Linear,
            extrapolate: Extrapolate::Clamp,
            lengths: None,
            target_lengths: None,
            max_gap: None,
            return_valid: false,
            check: true,
        }
    }

    /// Whether there is nothing to compute, and so nothing that bad data could spoil.
    fn is_empty(&self, dims: &Dims) -> bool {
        dims.batch == 0 || dims.targets == 0 || (dims.width == 0 && !self.return_valid)
    }

    fn check_options(&self) -> Result<()> {
        let (dtype, method, extrapolate) = (self.values.dtype(), self.method, self.extrapolate);
        ensure!(
            dtype.is_float() || method != Method::Linear,
            "values",
            "linear blends samples, which {dtype} cannot hold; use nearest, previous or next"
        );
        ensure!(
            dtype.is_float() || extrapolate != Extrapolate::Nan,
            "extrapolate",
            "{dtype} has no NaN; use clamp or error"
        );
        if extrapolate == Extrapolate::Linear && method != Method::Linear {
            return Err(Error::unsupported("extrapolate", format!("{method} cannot extrapolate linearly; use clamp")));
        }
        if let Some(gap) = self.max_gap {
            ensure!(gap >= 0.0, "max_gap", "expected seconds, 0 or more, got {gap}");
        }
        let stamps = self.times.dtype();
        ensure!(
            matches!(stamps, DType::I64 | DType::F64 | DType::F32),
            "times",
            "stamps are int64 nanoseconds, float64 or float32 seconds, got {stamps}"
        );
        let targets = self.targets.dtype();
        ensure!(targets == stamps, "targets", "expected {stamps} like times, got {targets}");
        for (name, lengths) in [("lengths", &self.lengths), ("target_lengths", &self.target_lengths)] {
            if let Some(lengths) = lengths {
                let dtype = lengths.dtype();
                ensure!(matches!(dtype, DType::I32 | DType::I64), name, "expected int32 or int64, got {dtype}");
            }
        }
        Ok(())
    }
}

/// Where `valid` goes, with its strides; null when it was not asked for.
fn valid_output(out: &mut Outputs<'_, '_>) -> (*mut u8, [isize; 2]) {
    match out.get(1) {
        Some(output) => (output.data_mut(), strides(output.view())),
        None => (std::ptr::null_mut(), [0; 2]),
    }
}

impl Op for Resample<'_> {
    const NAME: &'static str = "resample";
    type Dims = Dims;

    fn inputs(&self) -> Vec<(&'static str, &TensorRef<'_>)> {
        let needed = [("values", &self.values), ("times", &self.times), ("targets", &self.targets)];
        let optional = [("lengths", &self.lengths), ("target_lengths", &self.target_lengths)];
        let given = optional.into_iter().filter_map(|(name, input)| Some((name, input.as_ref()?)));
        needed.into_iter().chain(given).collect()
    }

    fn check(&self) -> Result<Dims> {
        self.values.layout().expect_rank("values", &[2, 3], "[B,S,D] or [S,D]")?;
        self.times.layout().expect_rank("times", &[1, 2], "[B,S] or [S]")?;
        self.targets.layout().expect_rank("targets", &[1, 2], "[B,T] or [T]")?;
        self.check_options()?;

        let mut batch = Batch::default();
        batch.add("values", &self.values, 2)?;
        batch.add("times", &self.times, 1)?;
        batch.add("targets", &self.targets, 1)?;
        for (name, lengths) in [("lengths", &self.lengths), ("target_lengths", &self.target_lengths)] {
            if let Some(lengths) = lengths {
                lengths.layout().expect_rank(name, &[0, 1], "[B]")?;
                batch.add(name, lengths, 0)?;
            }
        }
        let [.., samples, width] = *self.values.shape() else {
            return Err(Error::invalid("values", "expected [B,S,D] or [S,D]"));
        };
        let (stamps, targets) = (last(self.times.shape()), last(self.targets.shape()));
        ensure!(samples > 0, "values", "no samples: shape {:?}", self.values.shape());
        ensure!(
            stamps == samples,
            "times",
            "expected a stamp for each of {samples} samples, got shape {:?}",
            self.times.shape()
        );
        Ok(Dims {
            has_batch: batch.size.is_some(),
            batch: batch.size.map_or(1, |(size, _)| size),
            samples,
            targets,
            width,
            value_strides: strides(&self.values),
            time_strides: strides(&self.times),
            target_strides: strides(&self.targets),
            length_stride: self.lengths.map_or(0, |lengths| strides::<1>(&lengths)[0]),
            target_length_stride: self.target_lengths.map_or(0, |lengths| strides::<1>(&lengths)[0]),
        })
    }

    fn outputs(&self, dims: &Dims) -> Result<Vec<OutputSpec>> {
        let shape = [dims.batch, dims.targets, dims.width];
        let shape = if dims.has_batch { &shape[..] } else { &shape[1..] };
        let mut outputs = vec![OutputSpec::new("out", self.values.dtype(), shape)?];
        if self.return_valid {
            outputs.push(OutputSpec::new("valid", DType::Bool, &shape[..shape.len() - 1])?);
        }
        Ok(outputs)
    }

    fn cpu(&self, dims: &Dims, out: &mut Outputs<'_, '_>, context: &Context<'_>) -> Result<()> {
        cpu::resample(self, dims, out, context)
    }

    fn cuda(&self, dims: &Dims, out: &mut Outputs<'_, '_>, launcher: &Launcher<'_>) -> Result<()> {
        cuda::resample(self, dims, out, launcher)
    }
}

fn coarse_message(row: u64, stamp: &str) -> String {
    format!(
        "row {row} holds {stamp} as float32 seconds, which cannot tell one second from the next; \
         use int64 nanoseconds or float64 seconds"
    )
}

fn outside_message(row: u64, index: u64, target: &str, low: &str, high: &str) -> String {
    format!("row {row} index {index} is {target}, outside the stamps {low} to {high}")
}

fn last(shape: &[usize]) -> usize {
    shape.last().copied().unwrap_or(0)
}
