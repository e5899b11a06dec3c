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
mod method;
mod rows;

pub use method::{ColumnRange, Extrapolate, Method, Methods};

use method::Ranges;

pub(in crate::ops) use super::rows::{Batch, are_lengths, strides};
pub(in crate::ops) use cpu::{Destination, StreamJob, age_of, run_jobs, stream_job};
pub(crate) use cuda::{KERNELS, describe as describe_finding};
pub(in crate::ops) use cuda::{STAMPS, flags_of, stamp_number};
pub(in crate::ops) use locate::{Pick, Rules, Stamp, Stamps, longest_gap};
pub(in crate::ops) use rows::Rows;

use crate::cuda::Launcher;
use crate::tensor::{DType, TensorRef};
use crate::{Context, Error, Op, OutputSpec, Outputs, Result, ensure};

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
    /// How to interpolate, all columns or by ranges.
    pub method: Methods,
    /// What to do outside the samples.
    pub extrapolate: Extrapolate,
    /// `[B]` int32 or int64: how many samples of each row exist.
    pub lengths: Option<TensorRef<'a>>,
    /// `[B]` int32 or int64: how many targets of each row exist.
    pub target_lengths: Option<TensorRef<'a>>,
    /// Seconds; a target between samples further apart is not valid.
    pub max_gap: Option<f64>,
    /// What stored values are multiplied with; int8 can then be blended.
    pub scale: Option<Scale<'a>>,
    /// The dtype of the result: that of the values, or float32 with a scale, unless this says another.
    pub out_dtype: Option<DType>,
    /// Whether to write `valid`.
    pub return_valid: bool,
    /// Whether to look for bad stamps, lengths and targets in the data. Without it bad data
    /// gives unspecified values, never a read out of bounds.
    pub check: bool,
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

impl<'a> Resample<'a> {
    /// Linear interpolation with clamped ends and checks; the other fields can be set.
    pub fn new(values: TensorRef<'a>, times: TensorRef<'a>, targets: TensorRef<'a>) -> Self {
        Self {
            values,
            times,
            targets,
            method: Method::Linear.into(),
            extrapolate: Extrapolate::Clamp,
            lengths: None,
            target_lengths: None,
            max_gap: None,
            scale: None,
            out_dtype: None,
            return_valid: false,
            check: true,
        }
    }

    /// Whether there is nothing to compute, and so nothing that bad data could spoil.
    pub(in crate::ops) fn is_empty(&self, dims: &Dims) -> bool {
        dims.batch == 0 || dims.targets == 0 || (dims.width == 0 && !self.return_valid)
    }

    /// The dtype of the result.
    pub(in crate::ops) fn result_dtype(&self) -> DType {
        self.arguments().result_dtype()
    }

    /// Whether the values only store numbers that are computed in float32.
    pub(in crate::ops) fn is_stored(&self) -> bool {
        self.arguments().is_stored()
    }

    /// Its arguments.
    pub(in crate::ops) fn arguments(&self) -> Arguments<'_> {
        Arguments {
            values: &self.values,
            times: &self.times,
            targets: &self.targets,
            lengths: self.lengths.as_ref(),
            target_lengths: self.target_lengths.as_ref(),
            scale: self.scale.as_ref(),
            method: &self.method,
            extrapolate: self.extrapolate,
            max_gap: self.max_gap,
            out_dtype: self.out_dtype,
        }
    }

    /// The method of all columns where nothing but whole rows is moved or blended.
    pub(in crate::ops) fn plain_method(&self) -> Option<Method> {
        self.method.plain().filter(|_| !self.is_stored() && self.result_dtype() == self.values.dtype())
    }

    /// What decides about a target; without `valid` nobody asks for gaps.
    pub(in crate::ops) fn rules(&self, method: Method, ignore_gaps: bool) -> Rules {
        let max_gap = if ignore_gaps { f64::INFINITY } else { longest_gap(self.max_gap) };
        Rules { method, extrapolate: self.extrapolate, max_gap }
    }
}

/// What a [`Resample`], or `fuse` for one of its streams, is asked for.
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
    fn result_dtype(&self) -> DType {
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

    /// Refuses what has not the axes that it must have, and what are no lengths.
    pub(in crate::ops) fn check_ranks(&self) -> Result<()> {
        self.values.layout().expect_rank("values", &[2, 3], "[B,S,D] or [S,D]")?;
        self.times.layout().expect_rank("times", &[1, 2], "[B,S] or [S]")?;
        self.targets.layout().expect_rank("targets", &[1, 2], "[B,T] or [T]")?;
        self.lengths.map_or(Ok(()), |lengths| are_lengths("lengths", lengths))?;
        self.target_lengths.map_or(Ok(()), |lengths| are_lengths("target_lengths", lengths))
    }

    /// The batch that all arguments agree on, after [`Arguments::check_ranks`].
    fn batch(&self) -> Result<Batch> {
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

/// Whether values only store numbers that are computed in float32.
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

/// Where `valid` goes, with its strides; null when it was not asked for.
pub(in crate::ops) fn valid_output(out: &mut Outputs<'_, '_>) -> (*mut u8, [isize; 2]) {
    match out.get(1) {
        Some(output) => (output.data_mut(), strides(output.view())),
        None => (std::ptr::null_mut(), [0; 2]),
    }
}

impl Op for Resample<'_> {
    const NAME: &'static str = "resample";
    type Dims = Dims;

    fn inputs(&self) -> impl Iterator<Item = (&'static str, &TensorRef<'_>)> {
        let needed = [("values", &self.values), ("times", &self.times), ("targets", &self.targets)];
        let optional = [("lengths", &self.lengths), ("target_lengths", &self.target_lengths)];
        let given = optional.into_iter().filter_map(|(name, input)| Some((name, input.as_ref()?)));
        let scale = self.scale.as_ref().and_then(Scale::columns).map(|columns| ("scale", columns));
        needed.into_iter().chain(given).chain(scale)
    }

    fn check(&self) -> Result<Dims> {
        let arguments = self.arguments();
        arguments.check_ranks()?;
        arguments.check_options()?;
        arguments.check_sizes(&arguments.batch()?)
    }

    fn outputs(&self, dims: &Dims) -> Result<Vec<OutputSpec>> {
        let shape = [dims.batch, dims.targets, dims.width];
        let shape = if dims.has_batch { &shape[..] } else { &shape[1..] };
        let mut outputs = vec![OutputSpec::new("out", self.result_dtype(), shape)?];
        if self.return_valid {
            outputs.push(OutputSpec::new("valid", DType::Bool, &shape[..shape.len() - 1])?);
        }
        Ok(outputs)
    }

    fn cpu(&self, dims: &Dims, out: &mut Outputs<'_, '_>, context: &Context<'_>) -> Result<()> {
        cpu::resample(self, dims, out, context)
    }

    fn cuda(&self, dims: &Dims, out: &mut Outputs<'_, '_>, launcher: &Launcher<'_>) -> Result<()> {
        if self.plain_method().is_none() && !self.is_empty(dims) {
            return super::fuse::align(self, dims, out, launcher);
        }
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
