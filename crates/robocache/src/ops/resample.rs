//! Values of a stream at other times than it was recorded at: `align` of one stream.

use super::align::{self, Align, Arguments, Dims, Source};
use crate::chunks::{Cuts, Tensors};
use crate::cuda::{Launcher, Reports};
use crate::tensor::{DType, TensorRef};
use crate::{Context, Op, OutputSpec, Outputs, Result};

pub use super::align::{ColumnRange, Extrapolate, Method, Methods, Scale};

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

    /// Does what is asked as a call of `align`, unless it is nothing.
    fn align(&self, dims: &Dims, work: impl FnOnce(&Align<'_>) -> Result<()>) -> Result<()> {
        if self.is_empty(dims) {
            return Ok(());
        }
        work(&Align {
            reports: &REPORTS,
            sources: &[Source { stream: Some((self.arguments(), dims)), column: 0, width: dims.width }],
            batch: dims.batch,
            target_count: dims.targets,
            targets: &self.targets,
            target_lengths: self.target_lengths.as_ref(),
            extrapolate: self.extrapolate,
            check: self.check,
            dtype: self.result_dtype(),
            valid: self.return_valid.then_some(1),
            age: None,
            by_stream: false,
            blame: &|_, error| error,
        })
    }
}

/// What kernels find in data.
static REPORTS: Reports = Reports::new(|finding| align::describe(finding, false).op("resample"));

impl Op for Resample<'_> {
    const NAME: &'static str = "resample";
    type Dims = Dims;
    type On<'t>
        = Resample<'t>
    where
        Self: 't;

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

    fn cuts(&self, dims: &Dims) -> Option<Cuts> {
        let cuts = Cuts::new(dims.has_batch, dims.batch);
        // Lengths count from the start of a row.
        let cuts = if self.target_lengths.is_some() { cuts } else { cuts.items("target", dims.targets) };
        let lengths = [&self.lengths, &self.target_lengths].into_iter().flatten().map(|lengths| (lengths, 0));
        let cuts = cuts.inputs([(&self.values, 2), (&self.times, 1)]).input_of_items(&self.targets, 1, 0);
        Some(cuts.inputs(lengths).shared(usize::from(self.scale.as_ref().and_then(Scale::columns).is_some())))
    }

    fn on<'t>(&'t self, mut tensors: Tensors<'t>) -> Resample<'t> {
        Resample {
            values: tensors.next(),
            times: tensors.next(),
            targets: tensors.next(),
            lengths: tensors.next_if(self.lengths.is_some()),
            target_lengths: tensors.next_if(self.target_lengths.is_some()),
            scale: self.scale.map(|scale| scale.on(&mut tensors)),
            ..self.clone()
        }
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
        self.align(dims, |op| align::on_cpu(op, out, context))
    }

    fn cuda(&self, dims: &Dims, out: &mut Outputs<'_, '_>, launcher: &Launcher<'_>) -> Result<()> {
        self.align(dims, |op| align::on_cuda(op, out, launcher))
    }
}
