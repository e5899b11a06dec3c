//! Streams of samples at other times than they were recorded at: what `resample` and `fuse` do, for one stream and for
//! several.
//!
//! The rules that all backends follow are those of `locate.rs`; this file holds what is asked for a stream and every
//! check that needs no data.

mod arguments;
#[cfg(target_arch = "x86_64")]
mod avx2;
mod blend;
mod cells;
mod cpu;
mod cuda;
mod integers;
mod locate;
mod method;
mod mixed;
mod plan;
mod rows;
mod variant;

pub use method::{ColumnRange, Extrapolate, Method, Methods};

pub(in crate::ops) use super::rows::{Batch, are_lengths, strides};
pub(in crate::ops) use arguments::STAGE;
pub(in crate::ops) use blend::Real;
pub(in crate::ops) use cpu::align as on_cpu;
pub(crate) use cuda::KERNELS;
pub(in crate::ops) use cuda::{align as on_cuda, describe, flags_of};
pub(in crate::ops) use locate::{Pick, Rules, Stamp, Stamps, longest_gap};
use method::Ranges;
pub(in crate::ops) use rows::Rows;
pub(in crate::ops) use variant::{STAMPS, stamp_number};

use crate::chunks::Tensors;
use crate::cuda::Reports;
use crate::tensor::{DType, TensorRef};
use crate::{Error, Outputs, Result, ensure};

/// Streams that one call can take.
pub const MOST_STREAMS: usize = 32;

/// What is asked for: streams at common targets, side by side.
pub(in crate::ops) struct Align<'a> {
    /// Of the op that asks.
    pub(in crate::ops) reports: &'static Reports,
    pub(in crate::ops) sources: &'a [Source<'a>],
    pub(in crate::ops) batch: usize,
    pub(in crate::ops) target_count: usize,
    pub(in crate::ops) targets: &'a TensorRef<'a>,
    pub(in crate::ops) target_lengths: Option<&'a TensorRef<'a>>,
    pub(in crate::ops) extrapolate: Extrapolate,
    pub(in crate::ops) check: bool,
    /// Of the result.
    pub(in crate::ops) dtype: DType,
    /// The places of `valid` and `age` among the outputs, where they are wanted.
    pub(in crate::ops) valid: Option<usize>,
    pub(in crate::ops) age: Option<usize>,
    /// Whether these have an axis of streams.
    pub(in crate::ops) by_stream: bool,
    /// Names the stream that an error is about, by its place.
    pub(in crate::ops) blame: &'a dyn Fn(usize, Error) -> Error,
}

impl Align<'_> {
    /// An output of one number for each target, `[B,T]` or `[B,T,N]`, with its strides; null where it is not wanted.
    fn marks(&self, out: &mut Outputs<'_, '_>, place: Option<usize>) -> (*mut u8, [isize; 3]) {
        let Some(output) = place.and_then(|place| out.get(place)) else { return (std::ptr::null_mut(), [0; 3]) };
        let [row, target] = strides(output.view());
        let all = if self.by_stream { strides(output.view()) } else { [row, target, 0] };
        (output.data_mut(), all)
    }
}

/// A stream and the columns of the result that it makes.
pub(in crate::ops) struct Source<'a> {
    /// None where it is missing.
    pub(in crate::ops) stream: Option<(Arguments<'a>, &'a Dims)>,
    pub(in crate::ops) column: usize,
    pub(in crate::ops) width: usize,
}

/// What stored values are multiplied with.
#[derive(Debug, Clone, Copy)]
pub enum Scale<'a> {
    /// One number for all columns.
    One(f32),
    /// `[D]` float32, where the data lives.
    Columns(&'a TensorRef<'a>),
}

impl<'a> Scale<'a> {
    /// The same in other memory, where it is in any.
    pub(in crate::ops) fn on<'t>(&self, tensors: &mut Tensors<'t>) -> Scale<'t> {
        match self {
            Self::One(number) => Scale::One(*number),
            Self::Columns(_) => Scale::Columns(tensors.next_ref()),
        }
    }

    /// The numbers of the columns, if each has its own.
    pub(in crate::ops) fn columns(&self) -> Option<&'a TensorRef<'a>> {
        match self {
            Self::One(_) => None,
            Self::Columns(columns) => Some(columns),
        }
    }
}

/// Sizes and strides in elements, 0 where a tensor is shared by the batch.
#[derive(Debug)]
pub struct Dims {
    pub(in crate::ops) has_batch: bool,
    pub(in crate::ops) batch: usize,
    pub(in crate::ops) samples: usize,
    pub(in crate::ops) targets: usize,
    pub(in crate::ops) width: usize,
    pub(in crate::ops) value_strides: [isize; 3],
    pub(in crate::ops) time_strides: [isize; 2],
    pub(in crate::ops) target_strides: [isize; 2],
    pub(in crate::ops) length_stride: isize,
    pub(in crate::ops) target_length_stride: isize,
    /// Methods by columns, in order.
    pub(in crate::ops) ranges: Ranges,
}

/// What is asked for a stream.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Arguments<'a> {
    pub(in crate::ops) values: &'a TensorRef<'a>,
    pub(in crate::ops) times: &'a TensorRef<'a>,
    pub(in crate::ops) targets: &'a TensorRef<'a>,
    pub(in crate::ops) lengths: Option<&'a TensorRef<'a>>,
    pub(in crate::ops) target_lengths: Option<&'a TensorRef<'a>>,
    pub(in crate::ops) scale: Option<&'a Scale<'a>>,
    pub(in crate::ops) method: &'a Methods,
    pub(in crate::ops) extrapolate: Extrapolate,
    pub(in crate::ops) max_gap: Option<f64>,
    pub(in crate::ops) out_dtype: Option<DType>,
}

impl Arguments<'_> {
    pub(in crate::ops) fn result_dtype(&self) -> DType {
        self.out_dtype.unwrap_or(if self.is_stored() { DType::F32 } else { self.values.dtype() })
    }

    /// Whether the values are numbers that can be blended.
    pub(in crate::ops) fn is_float(&self) -> bool {
        self.is_stored() || self.values.dtype().is_float()
    }

    /// Whether the values only store numbers that are computed in float32.
    pub(in crate::ops) fn is_stored(&self) -> bool {
        is_stored(self.values, self.scale)
    }

    /// The method of all columns where nothing but whole rows is moved or blended.
    fn plain_method(&self) -> Option<Method> {
        self.method.plain().filter(|_| !self.is_stored() && self.result_dtype() == self.values.dtype())
    }

    /// The rules for a target. Gaps matter only where `valid` is wanted.
    pub(in crate::ops) fn rules(&self, method: Method, ignore_gaps: bool) -> Rules {
        let max_gap = if ignore_gaps { f64::INFINITY } else { longest_gap(self.max_gap) };
        Rules { method, extrapolate: self.extrapolate, max_gap }
    }

    /// Checks ranks and the dtype of lengths.
    pub(in crate::ops) fn check_ranks(&self) -> Result<()> {
        self.values.layout().expect_rank("values", &[2, 3], "[B,S,D] or [S,D]")?;
        self.times.layout().expect_rank("times", &[1, 2], "[B,S] or [S]")?;
        self.targets.layout().expect_rank("targets", &[1, 2], "[B,T] or [T]")?;
        self.lengths.map_or(Ok(()), |lengths| are_lengths("lengths", lengths))?;
        self.target_lengths.map_or(Ok(()), |lengths| are_lengths("target_lengths", lengths))
    }

    /// The batch that all arguments agree on, after [`Arguments::check_ranks`].
    pub(in crate::ops) fn batch(&self) -> Result<Batch> {
        let mut batch = Batch::default();
        batch.add("values", self.values, 2)?;
        batch.add("times", self.times, 1)?;
        batch.add("targets", self.targets, 1)?;
        for (name, lengths) in [("lengths", self.lengths), ("target_lengths", self.target_lengths)] {
            if let Some(lengths) = lengths {
                batch.add(name, lengths, 0)?;
            }
        }
        Ok(batch)
    }

    /// Checks what is left when the batch is known.
    pub(in crate::ops) fn check_sizes(&self, batch: &Batch) -> Result<Dims> {
        let [.., samples, width] = *self.values.shape() else {
            return Err(Error::invalid("values", "expected [B,S,D] or [S,D]"));
        };
        check_scale(self.scale, width)?;
        let (stamps, targets) = (last(self.times.shape()), last(self.targets.shape()));
        ensure!(samples > 0, "values", "no samples: shape {:?}", self.values.shape());
        ensure!(
            stamps == samples,
            "times",
            "expected a stamp for each of {samples} samples, got shape {:?}",
            self.times.shape()
        );
        let length_stride = |lengths: Option<&TensorRef<'_>>| lengths.map_or(0, |lengths| strides::<1>(lengths)[0]);
        Ok(Dims {
            has_batch: batch.size.is_some(),
            batch: batch.size.map_or(1, |(size, _)| size),
            samples,
            targets,
            width,
            value_strides: strides(self.values),
            time_strides: strides(self.times),
            target_strides: strides(self.targets),
            length_stride: length_stride(self.lengths),
            target_length_stride: length_stride(self.target_lengths),
            ranges: self.method.ranges("values", width)?,
        })
    }

    /// Checks all that has nothing to do with sizes.
    pub(in crate::ops) fn check_options(&self) -> Result<()> {
        let (dtype, extrapolate) = (self.values.dtype(), self.extrapolate);
        if self.scale.is_some() {
            let stores = dtype == DType::I8 || dtype.is_stored();
            ensure!(stores, "scale", "is for values stored as int8 or float8, got {dtype}");
        }
        for method in self.method.each() {
            ensure!(
                self.is_float() || method.copies(),
                "values",
                "{method} blends samples, which {dtype} cannot hold; use nearest, previous or next, or convert to floats"
            );
        }
        check_ends(self.method, extrapolate)?;
        let result = self.result_dtype();
        ensure!(
            result.is_float() || (result == dtype && !self.is_stored()),
            "out_dtype",
            "expected a float, got {result} for values of {dtype}"
        );
        ensure!(
            result.is_float() || extrapolate != Extrapolate::Nan,
            "extrapolate",
            "{result} has no NaN; use clamp or error"
        );
        check_gap(self.max_gap)?;
        let stamps = self.times.dtype();
        are_stamps("times", self.times)?;
        let targets = self.targets.dtype();
        ensure!(targets == stamps, "targets", "expected {} like times, got {}", with_unit(stamps), with_unit(targets));
        Ok(())
    }
}

/// Whether the dtype is storage only, or numbers have a scale.
pub(in crate::ops) fn is_stored(values: &TensorRef<'_>, scale: Option<&Scale<'_>>) -> bool {
    scale.is_some() || values.dtype().is_stored()
}

/// Refuses types that hold no times.
pub(in crate::ops) fn are_stamps(name: &'static str, stamps: &TensorRef<'_>) -> Result<()> {
    let dtype = stamps.dtype();
    ensure!(
        matches!(dtype, DType::I64 | DType::F64 | DType::F32),
        name,
        "stamps are int64 nanoseconds, float64 or float32 seconds, got {dtype}"
    );
    Ok(())
}

/// Refuses ends that a method does not know.
pub(in crate::ops) fn check_ends(methods: &Methods, extrapolate: Extrapolate) -> Result<()> {
    match methods.each().find(|method| extrapolate == Extrapolate::Linear && !method.extrapolates()) {
        None => Ok(()),
        Some(method) => {
            Err(Error::unsupported("extrapolate", format!("{method} cannot extrapolate linearly; use clamp")))
        }
    }
}

/// The type of stamps or targets with its unit, for messages.
pub(in crate::ops) fn with_unit(stamps: DType) -> String {
    match stamps {
        DType::I64 => format!("{stamps} nanoseconds"),
        DType::F32 | DType::F64 => format!("{stamps} seconds"),
        _ => stamps.to_string(),
    }
}

/// Refuses seconds that no gap can have.
pub(in crate::ops) fn check_gap(max_gap: Option<f64>) -> Result<()> {
    let gap = max_gap.unwrap_or(0.0);
    ensure!(gap >= 0.0, "max_gap", "expected seconds, 0 or more, got {gap}");
    Ok(())
}

/// Refuses factors that are not one for all columns or one for each.
pub(in crate::ops) fn check_scale(scale: Option<&Scale<'_>>, width: usize) -> Result<()> {
    if let Some(Scale::Columns(scale)) = scale {
        ensure!(scale.dtype() == DType::F32, "scale", "expected float32, got {}", scale.dtype());
        scale.layout().expect_rank("scale", &[0, 1], "a number or [D]")?;
        let columns = scale.layout().count();
        ensure!(columns == 1 || columns == width, "scale", "expected 1 or {width} numbers, got {columns}");
    }
    Ok(())
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
