//! Several streams at the same targets, side by side in one tensor: `align` of them all.

pub use super::align::MOST_STREAMS;
use super::align::{
    self, Align, Arguments, Batch, Dims as StreamDims, Extrapolate, Method, Methods, Scale, Source, are_lengths,
    are_stamps, check_ends, check_gap, check_scale, is_stored, with_unit,
};
use crate::chunks::{Cuts, Tensors};
use crate::cuda::{Launcher, Reports};
use crate::tensor::{DType, TensorRef};
use crate::{Context, Error, Op, OutputSpec, Outputs, Result, ensure};

/// One signal with its own clock.
#[derive(Debug, Clone)]
pub struct Stream<'a> {
    /// What errors call it; its place in the list without one.
    pub name: Option<&'a str>,
    /// `[B,S,D]` or `[S,D]`, and stamps `[B,S]` or `[S]`; none for a modality that is missing.
    pub samples: Option<(&'a TensorRef<'a>, &'a TensorRef<'a>)>,
    /// How to interpolate, all columns or by ranges.
    pub method: Methods,
    /// Seconds; a target between samples further apart is not valid.
    pub max_gap: Option<f64>,
    /// `[B]` int32 or int64: how many samples of each row exist.
    pub lengths: Option<&'a TensorRef<'a>>,
    /// What stored values are multiplied with.
    pub scale: Option<Scale<'a>>,
    /// The columns of a missing modality.
    pub dim: usize,
}

impl<'a> Stream<'a> {
    /// A stream that is interpolated linearly; the other fields can be set.
    pub fn new(values: &'a TensorRef<'a>, times: &'a TensorRef<'a>) -> Self {
        Self { samples: Some((values, times)), ..Self::missing(0) }
    }

    /// A modality that was not recorded.
    pub fn missing(dim: usize) -> Self {
        Self {
            name: None,
            samples: None,
            method: Method::Linear.into(),
            max_gap: None,
            lengths: None,
            scale: None,
            dim,
        }
    }
}

/// What errors call a stream, by the names of all: its place where it has none, or another has the same.
pub fn label<'n>(names: impl Iterator<Item = Option<&'n str>> + Clone, index: usize) -> String {
    let name = names.clone().nth(index).flatten();
    match name.filter(|_| names.filter(|other| *other == name).count() == 1) {
        Some(name) => format!("streams[\"{name}\"]"),
        None => format!("streams[{index}]"),
    }
}

/// Streams of different rates, lengths, widths, dtypes and methods at common targets. Outputs:
/// `out [B,T,ΣD]` with the columns in list order, then as asked for `valid [B,T,N]` and
/// `age [B,T,N]`, the seconds since the newest sample at or before the target.
#[derive(Debug, Clone)]
pub struct Fuse<'a> {
    /// 1 to 32 streams.
    pub streams: Vec<Stream<'a>>,
    /// `[B,T]` or `[T]`, in any order, of the type of all stamps.
    pub targets: TensorRef<'a>,
    /// What to do outside a stream's samples.
    pub extrapolate: Extrapolate,
    /// `[B]` int32 or int64: how many targets of each row exist.
    pub target_lengths: Option<TensorRef<'a>>,
    /// The dtype of `out`; otherwise the one that all streams promote to.
    pub out_dtype: Option<DType>,
    /// Whether to write `valid`.
    pub return_valid: bool,
    /// Whether to write `age`.
    pub return_age: bool,
    /// Whether to look for bad stamps, lengths and targets in the data.
    pub check: bool,
}

/// A stream as `check` proved it.
#[derive(Debug)]
struct Part {
    /// Sizes of its samples; none where it is missing.
    samples: Option<StreamDims>,
    /// Its first column in the output.
    column: usize,
    /// Its columns.
    width: usize,
}

/// Sizes that `check` proved.
#[derive(Debug)]
pub struct Dims {
    has_batch: bool,
    batch: usize,
    targets: usize,
    width: usize,
    dtype: DType,
    /// In the order of the streams.
    parts: Vec<Part>,
}

impl<'a> Fuse<'a> {
    /// Clamped ends and checks; the other fields can be set.
    pub fn new(streams: Vec<Stream<'a>>, targets: TensorRef<'a>) -> Self {
        Self {
            streams,
            targets,
            extrapolate: Extrapolate::Clamp,
            target_lengths: None,
            out_dtype: None,
            return_valid: false,
            return_age: false,
            check: true,
        }
    }

    fn is_empty(&self, dims: &Dims) -> bool {
        dims.batch == 0 || dims.targets == 0 || (dims.width == 0 && !self.return_valid && !self.return_age)
    }

    /// A stream's name in errors.
    fn label(&self, index: usize) -> String {
        label(self.streams.iter().map(|stream| stream.name), index)
    }

    /// Puts a stream's name before what an error is about, unless that is shared by all streams.
    fn blame(&self, index: usize, error: Error) -> Error {
        match error.argument_name() {
            Some("targets" | "target_lengths" | "extrapolate" | "out_dtype") => {
                error.while_doing(format!("aligning {}", self.label(index)))
            }
            _ => error.within(&self.label(index)),
        }
    }

    /// The dtype that all streams promote to.
    fn promoted(&self) -> Result<DType> {
        let mut all: Option<DType> = None;
        for (index, stream) in self.streams.iter().enumerate() {
            let Some((values, _)) = stream.samples else { continue };
            let stored = is_stored(values, stream.scale.as_ref());
            let dtype = if stored { DType::F32 } else { values.dtype() };
            all = Some(match all {
                None => dtype,
                Some(known) => known.promote(dtype).ok_or_else(|| {
                    let label = self.label(index);
                    Error::invalid("streams", format!("{label} has {dtype}, which has no common type with {known}"))
                })?,
            });
        }
        Ok(all.unwrap_or(DType::F32))
    }

    fn result_dtype(&self) -> Result<DType> {
        let promoted = self.promoted()?;
        let Some(wanted) = self.out_dtype else { return Ok(promoted) };
        ensure!(
            wanted.is_float() || wanted == promoted,
            "out_dtype",
            "expected a float or {promoted}, which holds the streams, got {wanted}"
        );
        Ok(wanted)
    }

    /// What a stream alone would be asked for; none where it is missing.
    fn arguments<'s>(&'s self, stream: &'s Stream<'a>, out_dtype: Option<DType>) -> Option<Arguments<'s>> {
        let (values, times) = stream.samples?;
        Some(Arguments {
            values,
            times,
            targets: &self.targets,
            lengths: stream.lengths,
            target_lengths: self.target_lengths.as_ref(),
            scale: stream.scale.as_ref(),
            method: &stream.method,
            extrapolate: self.extrapolate,
            max_gap: stream.max_gap,
            out_dtype,
        })
    }

    /// Does what is asked as a call of `align`, unless it is nothing.
    fn align(&self, dims: &Dims, work: impl FnOnce(&Align<'_>) -> Result<()>) -> Result<()> {
        if self.is_empty(dims) {
            return Ok(());
        }
        let sources = self.streams.iter().zip(&dims.parts).map(|(stream, part)| {
            let &Part { ref samples, column, width } = part;
            Source { stream: self.arguments(stream, Some(dims.dtype)).zip(samples.as_ref()), column, width }
        });
        let sources: Vec<_> = sources.collect();
        work(&Align {
            reports: &REPORTS,
            sources: &sources,
            batch: dims.batch,
            target_count: dims.targets,
            targets: &self.targets,
            target_lengths: self.target_lengths.as_ref(),
            extrapolate: self.extrapolate,
            check: self.check,
            dtype: dims.dtype,
            valid: self.return_valid.then_some(1),
            age: self.return_age.then_some(1 + usize::from(self.return_valid)),
            by_stream: true,
            blame: &|index, error| self.blame(index, error),
        })
    }
}

/// The batch that all streams agree on, and the stream that it is from.
#[derive(Default)]
struct Agreed {
    batch: Batch,
    stream: Option<usize>,
}

impl Fuse<'_> {
    /// Takes in a tensor of a stream.
    fn agree(
        &self,
        agreed: &mut Agreed,
        index: usize,
        (name, tensor, inner): (&'static str, &TensorRef<'_>, usize),
    ) -> Result<()> {
        let before = agreed.batch.size;
        let result = agreed.batch.add(name, tensor, inner);
        if agreed.batch.size != before {
            agreed.stream = Some(index);
        }
        result.map(drop).map_err(|error| match (before, agreed.stream) {
            (Some((size, other)), Some(stream)) if stream != index => {
                let whose = self.label(stream);
                let given = tensor.shape()[0];
                Error::invalid(name, format!("batch of {given}, but {whose}.{other} has a batch of {size}"))
            }
            _ => error,
        })
    }

    /// Refuses stamps of another type than the targets have. Where no stream has that type it is the targets' fault,
    /// and `resample` says so.
    fn check_stamps(&self, times: &TensorRef<'_>) -> Result<()> {
        let (stamps, targets) = (times.dtype(), self.targets.dtype());
        let as_targets = |stream: &Stream<'_>| stream.samples.is_some_and(|(_, times)| times.dtype() == targets);
        ensure!(
            stamps == targets || !self.streams.iter().any(as_targets),
            "times",
            "expected {} like the targets, got {}",
            with_unit(targets),
            with_unit(stamps)
        );
        Ok(())
    }

    /// What is said about a stream without samples must fit as it would with some.
    fn check_missing(&self, agreed: &mut Agreed, index: usize, stream: &Stream<'_>) -> Result<()> {
        check_gap(stream.max_gap)?;
        check_scale(stream.scale.as_ref(), stream.dim)?;
        check_ends(&stream.method, self.extrapolate)?;
        stream.method.ranges("dim", stream.dim)?;
        if let Some(lengths) = stream.lengths {
            are_lengths("lengths", lengths)?;
            self.agree(agreed, index, ("lengths", lengths, 0))?;
        }
        Ok(())
    }
}

/// What kernels find in data.
static REPORTS: Reports = Reports::new(|finding| align::describe(finding, true).op("fuse"));

impl Op for Fuse<'_> {
    const NAME: &'static str = "fuse";
    type Dims = Dims;
    type On<'t>
        = Fuse<'t>
    where
        Self: 't;

    fn inputs(&self) -> impl Iterator<Item = (&'static str, &TensorRef<'_>)> {
        // By number: lists of lists take several times as long to go through, and this is done for every call.
        const EACH: usize = 4;
        let tensor = |number: usize| {
            let stream = &self.streams[number / EACH];
            match number % EACH {
                0 => stream.samples.map(|(values, _)| values),
                1 => stream.samples.map(|(_, times)| times),
                2 => stream.lengths,
                _ => stream.scale.as_ref().and_then(Scale::columns),
            }
        };
        let streams = (0..EACH * self.streams.len()).map(tensor);
        let others = [("targets", Some(&self.targets)), ("target_lengths", self.target_lengths.as_ref())];
        let all = streams.map(|tensor| ("streams", tensor)).chain(others);
        all.filter_map(|(name, tensor)| Some((name, tensor?)))
    }

    fn check(&self) -> Result<Dims> {
        let count = self.streams.len();
        ensure!((1..=MOST_STREAMS).contains(&count), "streams", "expected 1 to {MOST_STREAMS} streams, got {count}");
        self.targets.layout().expect_rank("targets", &[1, 2], "[B,T] or [T]")?;
        are_stamps("targets", &self.targets)?;
        let dtype = self.result_dtype()?;
        let mut agreed = Agreed::default();
        agreed.batch.add("targets", &self.targets, 1)?;
        if let Some(lengths) = &self.target_lengths {
            are_lengths("target_lengths", lengths)?;
            agreed.batch.add("target_lengths", lengths, 0)?;
        }
        let (mut parts, mut column) = (Vec::with_capacity(count), 0usize);
        for (index, stream) in self.streams.iter().enumerate() {
            let blame = |error| self.blame(index, error);
            let mut width = stream.dim;
            // What integers become is settled here; the op itself knows only floats.
            if let Some(alone) = self.arguments(stream, dtype.is_float().then_some(dtype)) {
                alone.check_ranks().and_then(|()| self.check_stamps(alone.times)).map_err(blame)?;
                self.agree(&mut agreed, index, ("values", alone.values, 2)).map_err(blame)?;
                self.agree(&mut agreed, index, ("times", alone.times, 1)).map_err(blame)?;
                if let Some(lengths) = alone.lengths {
                    self.agree(&mut agreed, index, ("lengths", lengths, 0)).map_err(blame)?;
                }
                alone.check_options().map_err(blame)?;
                match alone.check_sizes(&agreed.batch) {
                    Ok(samples) => {
                        width = samples.width;
                        parts.push(Part { samples: Some(samples), column, width });
                    }
                    Err(error) => return Err(blame(error)),
                }
            } else {
                self.check_missing(&mut agreed, index, stream).map_err(blame)?;
                parts.push(Part { samples: None, column, width });
            }
            column = column.checked_add(width).ok_or_else(|| Error::invalid("streams", "too many columns"))?;
        }
        let batch = agreed.batch.size;
        let size = batch.map_or(1, |(size, _)| size);
        for samples in parts.iter_mut().filter_map(|part| part.samples.as_mut()) {
            samples.batch = size;
        }
        let targets = self.targets.shape().last().copied().unwrap_or(0);
        Ok(Dims { has_batch: batch.is_some(), batch: size, targets, width: column, dtype, parts })
    }

    fn cuts(&self, dims: &Dims) -> Option<Cuts> {
        let cuts = Cuts::new(dims.has_batch, dims.batch);
        // Lengths count from the start of a row.
        let mut cuts = if self.target_lengths.is_some() { cuts } else { cuts.items("target", dims.targets) };
        for stream in &self.streams {
            let samples = stream.samples.map(|(values, times)| [(values, 2), (times, 1)]);
            cuts = cuts.inputs(samples.into_iter().flatten()).inputs(stream.lengths.map(|lengths| (lengths, 0)));
            cuts = cuts.shared(usize::from(stream.scale.as_ref().and_then(Scale::columns).is_some()));
        }
        let target_lengths = self.target_lengths.as_ref().map(|lengths| (lengths, 0));
        Some(cuts.input_of_items(&self.targets, 1, 0).inputs(target_lengths))
    }

    fn on<'t>(&'t self, mut tensors: Tensors<'t>) -> Fuse<'t> {
        let stream = |stream: &'t Stream<'_>| Stream {
            samples: stream.samples.map(|_| (tensors.next_ref(), tensors.next_ref())),
            lengths: stream.lengths.map(|_| tensors.next_ref()),
            scale: stream.scale.map(|scale| scale.on(&mut tensors)),
            ..stream.clone()
        };
        let streams = self.streams.iter().map(stream).collect();
        let targets = tensors.next();
        Fuse { streams, targets, target_lengths: tensors.next_if(self.target_lengths.is_some()), ..self.clone() }
    }

    fn outputs(&self, dims: &Dims) -> Result<Vec<OutputSpec>> {
        let shape = |last: usize| [dims.batch, dims.targets, last];
        let skip = usize::from(!dims.has_batch);
        let mut outputs = vec![OutputSpec::new("out", dims.dtype, &shape(dims.width)[skip..])?];
        if self.return_valid {
            outputs.push(OutputSpec::new("valid", DType::Bool, &shape(self.streams.len())[skip..])?);
        }
        if self.return_age {
            outputs.push(OutputSpec::new("age", DType::F32, &shape(self.streams.len())[skip..])?);
        }
        Ok(outputs)
    }

    fn cpu(&self, dims: &Dims, out: &mut Outputs<'_, '_>, context: &Context<'_>) -> Result<()> {
        self.align(dims, |call| align::on_cpu(call, out, context))
    }

    fn cuda(&self, dims: &Dims, out: &mut Outputs<'_, '_>, launcher: &Launcher<'_>) -> Result<()> {
        self.align(dims, |call| align::on_cuda(call, out, launcher))
    }
}
