//! The one dispatch: check, let the caller allocate, run where the data lives.
//!
//! The order cannot be skipped: only [`prepare`] makes a [`Prepared`], only [`Op::check`] makes
//! an op's `Dims`, and only [`Prepared::run`] makes the [`Outputs`] that a backend writes to.

use crate::cpu;
use crate::cuda::{self, Gpu, GpuInfo, Launcher, StreamHandle};
use crate::tensor::{DType, Device, Layout, Tensor, TensorMut, TensorRef};
use crate::{Error, ErrorKind, Result, ensure};

/// An operation on tensors. Ops never allocate: the caller provides what [`Op::outputs`] lists,
/// so that `out=`, a framework's allocator, chunking and graph capture all work the same way.
pub trait Op: Sync {
    /// The name that users and errors see.
    const NAME: &'static str;
    /// Sizes and strides that `check` proved; private fields, so nobody else can make one.
    type Dims: Sync;

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
    /// The CUDA stream that work on a GPU is queued on; 0 is the default stream.
    pub stream: StreamHandle,
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("interrupt", &self.interrupt.is_some()).field("stream", &self.stream).finish()
    }
}

/// Outputs that were checked against their specifications and the inputs.
#[derive(Debug)]
pub struct Outputs<'o, 'a>(&'o mut [TensorMut<'a>]);

impl<'a> Outputs<'_, 'a> {
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
}

/// Checks an op and says what it needs. On a GPU this also raises what earlier calls there found
/// in their data; the op has then done nothing and can be called again.
pub fn prepare<'o, O: Op>(op: &'o O, context: &Context<'_>) -> Result<Prepared<'o, O>> {
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
    let bytes = op.workspace(&dims, gpu.map(Gpu::info)).map_err(named)?;
    if bytes > 0 {
        outputs.push(OutputSpec::workspace(bytes).map_err(named)?);
    }
    Ok(Prepared { op, dims, device, gpu, stream: context.stream, outputs })
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

    /// Computes into the caller's tensors.
    pub fn run(&self, out: &mut [TensorMut<'_>], context: &Context<'_>) -> Result<()> {
        let ran = self.check_outputs(out).and_then(|()| match self.gpu {
            None => {
                for output in &*out {
                    let (start, end) = output.view().address_range();
                    cpu::want_large_pages(start, end - start);
                }
                self.op.cpu(&self.dims, &mut Outputs(out), context)
            }
            Some(gpu) => self.op.cuda(&self.dims, &mut Outputs(out), &Launcher::new(gpu, self.stream, false)),
        });
        // Whatever has become of it, it is written to.
        out.iter_mut().for_each(TensorMut::forget_zeros);
        ran.map_err(|error| error.op(self.op.name()))
    }

    /// Compiles and loads what [`Prepared::run`] needs for these outputs, without computing: a CUDA
    /// graph can then be captured. Nothing to do on the CPU.
    pub fn warm_up(&self, out: &mut [TensorMut<'_>]) -> Result<()> {
        let loaded = self.check_outputs(out).and_then(|()| match self.gpu {
            None => Ok(()),
            Some(gpu) => self.op.cuda(&self.dims, &mut Outputs(out), &Launcher::new(gpu, self.stream, true)),
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
