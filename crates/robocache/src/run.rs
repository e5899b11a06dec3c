//! The one dispatch: check, let the caller allocate, run where the data lives.
//!
//! The order cannot be skipped: only [`prepare`] makes a [`Prepared`], only [`Op::check`] makes
//! an op's `Dims`, and only [`Prepared::run`] makes the [`Outputs`] that a backend writes to.

use std::time::Instant;

use crate::chunks::{Chunks, Cuts, IN_FLIGHT, Tensors, inputs_of};
use crate::cpu;
use crate::cuda::{self, Gpu, GpuInfo, Launcher, StreamHandle};
use crate::metrics;
use crate::plan::{Budget, Footprint, Way};
use crate::tensor::{DType, Device, Layout, Tensor, TensorMut, TensorRef};
use crate::{Error, ErrorKind, Result, ensure};

/// An operation on tensors. Ops never allocate: the caller provides what [`Op::outputs`] lists,
/// so that `out=`, a framework's allocator, chunking and graph capture all work the same way.
pub trait Op: Sync {
    /// The name that users and errors see.
    const NAME: &'static str;
    /// Sizes and strides that `check` proved; private fields, so nobody else can make one.
    type Dims: Sync;
    /// The op over tensors that live as long as these.
    type On<'t>: Op
    where
        Self: 't;

    /// The name of this very call, where several ops are one in the eyes of users.
    fn name(&self) -> &'static str {
        Self::NAME
    }
    /// The data tensors with their names; they must live on one device.
    fn inputs(&self) -> impl Iterator<Item = (&'static str, &TensorRef<'_>)>;
    /// Everything that can be refused before data is read, for all backends.
    fn check(&self) -> Result<Self::Dims>;
    /// What the caller must provide, in this order.
    fn outputs(&self, dims: &Self::Dims) -> Result<Vec<OutputSpec>>;
    /// Bytes of memory that the op needs while it runs, on a GPU or on the host; the caller provides them like an output.
    fn workspace(&self, _dims: &Self::Dims, _gpu: Option<&GpuInfo>) -> Result<usize> {
        Ok(0)
    }
    /// How the op can be cut into parts that give the same bits; without any it runs as a whole.
    fn cuts(&self, _dims: &Self::Dims) -> Option<Cuts> {
        None
    }
    /// The same op over other tensors, of the dtypes of its own, in the order of [`Op::inputs`].
    fn on<'t>(&'t self, tensors: Tensors<'t>) -> Self::On<'t>;
    /// Computes on the host.
    fn cpu(&self, dims: &Self::Dims, out: &mut Outputs<'_, '_>, context: &Context<'_>) -> Result<()>;
    /// Queues the work on a GPU.
    fn cuda(&self, dims: &Self::Dims, out: &mut Outputs<'_, '_>, launcher: &Launcher<'_>) -> Result<()>;
}

/// An output that an op asks for.
#[derive(Debug, Clone, Copy)]
pub struct OutputSpec {
    /// The name that errors use.
    pub name: &'static str,
    /// Its dtype.
    pub dtype: DType,
    /// Its shape, row-major; what the caller provides may be strided.
    pub layout: Layout,
    /// Whether it is memory to work in, which is of no use after the run; the last of its op.
    pub temporary: bool,
}

impl OutputSpec {
    /// A row-major output; fails when the size cannot exist.
    pub fn new(name: &'static str, dtype: DType, shape: &[usize]) -> Result<Self> {
        let layout = Layout::contiguous(shape, dtype).map_err(|error| error.argument(name))?;
        Ok(Self { name, dtype, layout, temporary: false })
    }

    fn workspace(bytes: usize) -> Result<Self> {
        Ok(Self { temporary: true, ..Self::new("workspace", DType::U8, &[bytes])? })
    }
}

/// What a run takes from its surroundings.
#[derive(Default, Clone, Copy)]
pub struct Context<'a> {
    /// Asked a few times a second on the calling thread during long runs; `true` stops the run
    /// with [`ErrorKind::Interrupted`].
    pub interrupt: Option<&'a dyn Fn() -> bool>,
    /// Told on the calling thread how many of how many parts are done, where a call runs in several.
    pub progress: Option<&'a dyn Fn(usize, usize)>,
    /// The CUDA stream that work on a GPU is queued on; 0 is the default stream.
    pub stream: StreamHandle,
    /// Where and in what parts the call runs; as a whole, where its data lives, without.
    pub way: Option<&'a Way>,
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("interrupt", &self.interrupt.is_some())
            .field("progress", &self.progress.is_some())
            .field("stream", &self.stream)
            .field("way", &self.way)
            .finish()
    }
}

/// Outputs that were checked against their specifications and the inputs.
#[derive(Debug)]
pub struct Outputs<'o, 'a>(&'o mut [TensorMut<'a>]);

impl<'o, 'a> Outputs<'o, 'a> {
    /// Outputs that were made for what is asked of them.
    pub(crate) fn new(all: &'o mut [TensorMut<'a>]) -> Self {
        Self(all)
    }

    /// The output at `index` of [`Op::outputs`], if the op asked for it.
    pub fn get(&mut self, index: usize) -> Option<&mut TensorMut<'a>> {
        self.0.get_mut(index)
    }

    /// The start of the memory that [`Op::workspace`] asked for; only for ops that did.
    pub(crate) fn workspace(&mut self) -> *mut u8 {
        self.0.last_mut().map_or(std::ptr::null_mut(), TensorMut::data_mut)
    }
}

/// An op whose arguments were checked.
#[derive(Debug)]
pub struct Prepared<'o, O: Op> {
    op: &'o O,
    dims: O::Dims,
    device: Device,
    gpu: Option<&'static Gpu>,
    stream: StreamHandle,
    outputs: Vec<OutputSpec>,
    /// Where the call runs in parts.
    chunks: Option<Box<Chunks>>,
    /// GPUs that data of the host streams through.
    through: Vec<&'static Gpu>,
}

/// Checks an op and says what it needs. On a GPU this also raises what earlier calls there found
/// in their data; the op has then done nothing and can be called again.
pub fn prepare<'o, O: Op>(op: &'o O, context: &Context<'_>) -> Result<Prepared<'o, O>> {
    let prepared = prepare_uncounted(op, context);
    if prepared.is_err() {
        metrics::failed(op.name());
    }
    prepared
}

#[inline(always)]
fn prepare_uncounted<'o, O: Op>(op: &'o O, context: &Context<'_>) -> Result<Prepared<'o, O>> {
    let named = |error: Error| error.op(op.name());
    let device = common_device(op.inputs()).map_err(named)?;
    // What is large is returned by `match`: `map_err` would copy it once more.
    let dims = match op.check() {
        Ok(dims) => dims,
        Err(error) => return Err(named(error)),
    };
    let gpu = match device {
        Device::Cpu => None,
        Device::Cuda(ordinal) => Some(cuda::gpu(ordinal, context.stream).map_err(named)?),
    };
    if let Some(gpu) = gpu {
        let pending = gpu.raise_pending();
        pending.map_err(|error| named(error.while_doing("a later call was prepared, which has done nothing")))?;
    }
    let mut outputs = op.outputs(&dims).map_err(named)?;
    let (chunks, through) = match context.way {
        None => (None, Vec::new()),
        Some(way) => go(op, &dims, gpu, way).map_err(named)?,
    };
    let bytes = match &chunks {
        None => op.workspace(&dims, gpu.map(Gpu::info)),
        // The pipeline has its own.
        Some(_) if !through.is_empty() => Ok(0),
        Some(chunks) => chunks.workspace(op, gpu.map(Gpu::info)),
    };
    let bytes = bytes.map_err(named)?;
    if bytes > 0 {
        outputs.push(OutputSpec::workspace(bytes).map_err(named)?);
    }
    Ok(Prepared { op, dims, device, gpu, stream: context.stream, outputs, chunks, through })
}

/// The parts of a call that was told how to go, and the GPUs that its data streams through.
#[cold]
fn go<O: Op>(op: &O, dims: &O::Dims, gpu: Option<&Gpu>, way: &Way) -> Result<(Option<Box<Chunks>>, Vec<&'static Gpu>)> {
    if way.fallback {
        metrics::fell_back(op.name());
    }
    let mut through = Vec::new();
    for &ordinal in way.devices.iter().filter(|_| gpu.is_none()) {
        through.push(cuda::gpu(ordinal, 0)?);
    }
    if way.budget.is_none() && way.chunk.is_none() && through.is_empty() {
        return Ok((None, through));
    }
    // What earlier calls found there is theirs.
    let pending = through.iter().try_for_each(|gpu| gpu.raise_pending());
    pending.map_err(|error| error.while_doing("a later call was prepared, which has done nothing"))?;
    let free = match (way.budget, gpu) {
        (Some(Budget::Bytes(_)), _) => None,
        (_, Some(gpu)) => gpu.free_bytes(),
        _ if through.is_empty() => cpu::available_bytes(),
        _ => through.iter().filter_map(|gpu| gpu.free_bytes()).min(),
    };
    let info = gpu.or(through.first().copied()).map(Gpu::info);
    let (chunks, bytes) = Chunks::planned(op, dims, info, way, free, !through.is_empty())?;
    let count = chunks.division.count();
    if count > 1 {
        log::debug!("{}: runs in {count} parts, of which those in flight take {bytes} bytes", op.name());
    }
    Ok((Some(Box::new(chunks)), through))
}

/// Checks an op, allocates its outputs on the host and runs it.
pub fn run<O: Op>(op: &O) -> Result<Vec<Tensor>> {
    let context = Context::default();
    let prepared = prepare(op, &context)?;
    ensure!(
        prepared.device == Device::Cpu,
        "input",
        "lives on {}; use prepare and run with outputs there",
        prepared.device
    );
    let allocate =
        |spec: &OutputSpec| Tensor::zeros(spec.layout.shape(), spec.dtype).map_err(|error| error.op(op.name()));
    let mut tensors = prepared.outputs.iter().map(allocate).collect::<Result<Vec<_>>>()?;
    let mut views: Vec<_> = tensors.iter_mut().map(|tensor| tensor.view_mut().zeroed()).collect();
    prepared.run(&mut views, &context)?;
    tensors.truncate(prepared.outputs.iter().filter(|spec| !spec.temporary).count());
    Ok(tensors)
}

impl<O: Op> Prepared<'_, O> {
    /// Where the op runs.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The name that errors call the op.
    pub fn name(&self) -> &'static str {
        self.op.name()
    }

    /// What [`Prepared::run`] must be given; memory to work in is marked as temporary.
    pub fn outputs(&self) -> &[OutputSpec] {
        &self.outputs
    }

    /// Runs in smaller parts, which work in less memory; says whether it does. For callers that cannot provide what
    /// [`Prepared::outputs`] lists as temporary.
    pub fn halve(&mut self) -> Result<bool> {
        let mut chunks = match self.chunks.take() {
            Some(chunks) => chunks,
            None => Box::new(Chunks::whole(self.op, &self.dims)),
        };
        let halved = chunks.division.halved();
        chunks.division = halved.unwrap_or(chunks.division);
        let bytes = chunks.workspace(self.op, self.gpu.map(Gpu::info))?;
        let parts = chunks.division.count();
        self.chunks = Some(chunks);
        let Some(last) = self.outputs.last_mut().filter(|last| last.temporary && halved.is_some()) else {
            return Ok(false);
        };
        let before = last.layout.count();
        log::info!("{}: no {before} bytes to work in; trying {parts} parts", self.op.name());
        // An output that is not there any more would change the places of those that follow; none do.
        *last = OutputSpec::workspace(bytes.max(1))?;
        Ok(true)
    }

    /// Computes into the caller's tensors.
    pub fn run(&self, out: &mut [TensorMut<'_>], context: &Context<'_>) -> Result<()> {
        let began = metrics::begin();
        let ran = self.check_outputs(out).and_then(|()| {
            if self.gpu.is_none() {
                for output in &*out {
                    let (start, end) = output.view().address_range();
                    cpu::want_large_pages(start, end - start);
                }
            }
            match (&self.chunks, self.gpu) {
                (Some(chunks), _) if !self.through.is_empty() => {
                    cuda::stream(self.op, chunks, &self.through, out, context).map(drop)
                }
                (Some(chunks), _) => self.run_parts(chunks, out, context),
                (None, None) => self.op.cpu(&self.dims, &mut Outputs(out), context),
                (None, Some(gpu)) => {
                    self.op.cuda(&self.dims, &mut Outputs(out), &Launcher::new(gpu, self.stream, false))
                }
            }
        });
        // Whatever has become of it, it is written to.
        out.iter_mut().for_each(TensorMut::forget_zeros);
        self.count(out, began);
        ran.map_err(|error| {
            metrics::failed(self.op.name());
            error.op(self.op.name())
        })
    }

    /// Counts the call.
    #[inline]
    fn count(&self, out: &[TensorMut<'_>], began: Option<Instant>) {
        let mut input = 0u64;
        self.op.inputs().for_each(|(_, tensor)| input = input.wrapping_add(tensor.bytes() as u64));
        let (mut output, mut temporary) = (0u64, 0u64);
        for (spec, given) in self.outputs.iter().zip(out) {
            *(if spec.temporary { &mut temporary } else { &mut output }) += given.view().bytes() as u64;
        }
        let chunks = self.chunks.as_ref().map_or(1, |chunks| chunks.division.count());
        metrics::ran(self.op.name(), input.wrapping_add(output), chunks, began);
        if metrics::is_profiling() {
            self.record(Footprint { input, output, temporary }, chunks);
        }
    }

    /// Records the memory of the call: of all of it, or of the parts that were on a GPU at a time.
    #[cold]
    fn record(&self, whole: Footprint, count: usize) {
        let name = self.op.name();
        let Some((gpu, chunks)) = self.through.first().zip(self.chunks.as_ref()) else {
            return metrics::record(name, self.device, whole, count, self.gpu.and_then(Gpu::free_bytes));
        };
        let bytes = chunks.in_flight(self.op, Some(gpu.info()), IN_FLIGHT).unwrap_or(whole);
        metrics::record(name, Device::Cuda(gpu.info().ordinal), bytes, count, gpu.free_bytes());
    }

    /// Runs the parts of the call one after the other, where its data lives.
    fn run_parts(&self, chunks: &Chunks, out: &mut [TensorMut<'_>], context: &Context<'_>) -> Result<()> {
        let (inputs, count) = (inputs_of(self.op), chunks.division.count());
        let mut asked = Instant::now();
        for index in 0..count {
            if let Some(interrupt) = context.interrupt
                && asked.elapsed() > cpu::POLL
            {
                if interrupt() {
                    return Err(Error::new(ErrorKind::Interrupted, "interrupted"));
                }
                asked = Instant::now();
            }
            let part = chunks.division.part(index);
            let tensors = chunks.inputs_of_part(&inputs, &part);
            let of_output = |(spec, output)| self.of_output(chunks, &part, spec, output);
            let mut views: Vec<_> = self.outputs.iter().zip(&mut *out).map(of_output).collect();
            let launcher = self.gpu.map(|gpu| Launcher::new(gpu, self.stream, false).with_first_row(part.rows.start));
            run_whole(&self.op.on(Tensors::new(&tensors)), &mut views, launcher.as_ref(), context)
                .map_err(|error| if launcher.is_some() { error } else { in_part(error, part.rows.start) })?;
            if let Some(progress) = context.progress {
                progress(index + 1, count);
            }
        }
        Ok(())
    }

    /// What a part writes to of an output; memory to work in it gets all of.
    fn of_output<'p>(
        &self,
        chunks: &Chunks,
        part: &crate::chunks::Part,
        spec: &OutputSpec,
        output: &'p mut TensorMut<'_>,
    ) -> TensorMut<'p> {
        if spec.temporary { output.parts([]) } else { chunks.cuts.of_output(output, part) }
    }

    /// Compiles and loads what [`Prepared::run`] needs for these outputs, without computing: a CUDA
    /// graph can then be captured. Nothing to do on the CPU.
    pub fn warm_up(&self, out: &mut [TensorMut<'_>]) -> Result<()> {
        let loaded = self.check_outputs(out).and_then(|()| match (self.gpu, &self.chunks) {
            (None, _) => Ok(()),
            (Some(gpu), None) => self.op.cuda(&self.dims, &mut Outputs(out), &Launcher::new(gpu, self.stream, true)),
            (Some(gpu), Some(chunks)) => {
                let (inputs, count) = (inputs_of(self.op), chunks.division.count());
                let launcher = Launcher::new(gpu, self.stream, true);
                // All parts but the last have the same sizes.
                [0, count - 1].into_iter().try_for_each(|index| {
                    let part = chunks.division.part(index);
                    let tensors = chunks.inputs_of_part(&inputs, &part);
                    let of_output = |(spec, output)| self.of_output(chunks, &part, spec, output);
                    let mut views: Vec<_> = self.outputs.iter().zip(&mut *out).map(of_output).collect();
                    let context = Context::default();
                    run_whole(&self.op.on(Tensors::new(&tensors)), &mut views, Some(&launcher), &context)
                })
            }
        });
        loaded.map_err(|error| error.op(self.op.name()))
    }

    fn check_outputs(&self, out: &[TensorMut<'_>]) -> Result<()> {
        if out.len() != self.outputs.len() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("{} outputs given, {} expected", out.len(), self.outputs.len()),
            ));
        }
        for (spec, given) in self.outputs.iter().zip(out) {
            let view = given.view();
            ensure!(view.dtype() == spec.dtype, spec.name, "expected {}, got {}", spec.dtype, view.dtype());
            ensure!(
                view.shape() == spec.layout.shape(),
                spec.name,
                "expected shape {:?}, got {:?}",
                spec.layout.shape(),
                view.shape()
            );
            ensure!(view.device() == self.device, spec.name, "lives on {}, the data on {}", view.device(), self.device);
            let range = view.address_range();
            // As one call, which the iterators of ops are made for: one by one they begin anew each time.
            self.op.inputs().try_for_each(|(name, input)| {
                ensure!(!meets(range, input), spec.name, "shares memory with {name}");
                Ok(())
            })?;
        }
        for (index, (spec, given)) in self.outputs.iter().zip(out).enumerate() {
            let range = given.view().address_range();
            for (other, earlier) in self.outputs.iter().zip(&out[..index]) {
                ensure!(!meets(range, earlier.view()), spec.name, "shares memory with {}", other.name);
            }
        }
        Ok(())
    }
}

/// Runs an op that is a part of another, whose outputs were checked. The last of `out` is memory to work in, where the
/// whole has any, of which this op may need less.
fn run_whole<O: Op>(
    op: &O,
    out: &mut Vec<TensorMut<'_>>,
    launcher: Option<&Launcher<'_>>,
    context: &Context<'_>,
) -> Result<()> {
    let dims = op.check()?;
    if op.workspace(&dims, launcher.map(|launcher| launcher.gpu().info()))? == 0 {
        out.truncate(op.outputs(&dims)?.len());
    }
    match launcher {
        None => op.cpu(&dims, &mut Outputs(out), context),
        Some(launcher) => op.cuda(&dims, &mut Outputs(out), launcher),
    }
}

/// Says from where the rows in an error are counted.
fn in_part(error: Error, row: usize) -> Error {
    if row == 0 || error.kind() != ErrorKind::InvalidArgument {
        return error;
    }
    error
        .while_doing(format!("running the part of the batch that begins at its row {row}, from which rows are counted"))
}

fn common_device<'t>(mut inputs: impl Iterator<Item = (&'static str, &'t TensorRef<'t>)>) -> Result<Device> {
    let mut first: Option<(&'static str, Device)> = None;
    inputs.try_for_each(|(name, input)| {
        let &mut (first_name, device) = first.get_or_insert((name, input.device()));
        ensure!(
            input.device() == device,
            name,
            "lives on {}, {first_name} on {device}; move one of them",
            input.device()
        );
        Ok(())
    })?;
    Ok(first.map_or(Device::Cpu, |(_, device)| device))
}

/// Whether a tensor's addresses meet a range. Interleaved views of one buffer count as shared: telling
/// them apart exactly is not worth the rare case that it would allow.
fn meets((low, high): (usize, usize), tensor: &TensorRef<'_>) -> bool {
    let (start, end) = tensor.address_range();
    low < end && start < high
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::voxelize::{Grid, Voxelize};

    /// A view that was zeros is not taken for zeros by the next run.
    #[test]
    fn zeros_are_told_once() {
        let context = Context::default();
        let grid = Grid { origin: [0.0; 3], voxel_size: [1.0; 3], shape: [2, 1, 1] };
        let points = [1.5f32, 0.5].map(|x| Tensor::from_slice(&[x, 0.5, 0.5], &[1, 3]).unwrap());
        let ops = points.each_ref().map(|points| Voxelize::new(points.view(), grid));
        let specs = prepare(&ops[0], &context).unwrap().outputs().to_vec();
        let [mut out, mut work] =
            [0, 1].map(|index: usize| Tensor::zeros(specs[index].layout.shape(), DType::U8).unwrap());
        let mut views = [out.view_mut().zeroed(), work.view_mut()];
        for op in &ops {
            prepare(op, &context).unwrap().run(&mut views, &context).unwrap();
        }
        assert_eq!(out.as_slice::<u8>().unwrap(), [1, 0]);
    }
}
