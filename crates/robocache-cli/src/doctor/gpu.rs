//! Ops with host tensors on a GPU: there, computed, and back.

use std::time::Duration;

use robocache::cuda::{self, DeviceBuffer};
use robocache::ops::Resample;
use robocache::{Context, DType, Result, Tensor, TensorRef, prepare};

/// A GPU that hangs must not take the doctor with it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Opens a GPU, then finds NVRTC, compiles a kernel and loads it.
pub(super) fn ready(ordinal: u32) -> Result<()> {
    let gpu = cuda::gpu(ordinal, 0)?;
    let (values, times) = ([0.0f32; 2], [0i64, 1]);
    let mut out = DeviceBuffer::new(gpu, size_of_val(&values))?;
    let (values, times) = (TensorRef::from_slice(&values, &[2, 1])?, TensorRef::from_slice(&times, &[2])?);
    moved(ordinal, &Resample::new(values, times, times), |op| {
        prepare(op, &Context::default())?.warm_up(&mut [out.view_mut(&[2, 1], DType::F32)?])
    })
}

/// Computes and brings the results back.
pub(super) fn run(ordinal: u32, op: &Resample<'_>) -> Result<Vec<Tensor>> {
    let gpu = cuda::gpu(ordinal, 0)?;
    moved(ordinal, op, |op| {
        let context = Context::default();
        let prepared = prepare(op, &context)?;
        let specs = prepared.outputs();
        let buffer = |spec: &robocache::OutputSpec| DeviceBuffer::new(gpu, spec.layout.count() * spec.dtype.size());
        let mut buffers = specs.iter().map(buffer).collect::<Result<Vec<_>>>()?;
        let views =
            buffers.iter_mut().zip(specs).map(|(buffer, spec)| buffer.view_mut(spec.layout.shape(), spec.dtype));
        prepared.run(&mut views.collect::<Result<Vec<_>>>()?, &context)?;
        cuda::synchronize(Some(PATIENCE), None)?;
        buffers.iter().zip(specs).map(|(buffer, spec)| buffer.to_tensor(spec.layout.shape(), spec.dtype)).collect()
    })
}

/// Hands over the same op with copies of its tensors on a GPU.
fn moved<T>(ordinal: u32, op: &Resample<'_>, work: impl FnOnce(&Resample<'_>) -> Result<T>) -> Result<T> {
    let gpu = cuda::gpu(ordinal, 0)?;
    let copy = |tensor: &TensorRef<'_>| DeviceBuffer::from_tensor(gpu, tensor);
    let (values, times, targets) = (copy(&op.values)?, copy(&op.times)?, copy(&op.targets)?);
    work(&Resample {
        values: values.view(op.values.shape(), op.values.dtype())?,
        times: times.view(op.times.shape(), op.times.dtype())?,
        targets: targets.view(op.targets.shape(), op.targets.dtype())?,
        // The cases have no lengths.
        lengths: None,
        target_lengths: None,
        ..op.clone()
    })
}
