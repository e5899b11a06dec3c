//! The gradient of `resample` in its values.
//!
//! Every sample sums, in the order of the targets, what the targets that were made of it hand back:
//! a gather, so that no two writers meet and the sum has one order on every device. The rules for a
//! target are those of `resample` itself.

mod area;
mod call;
mod cells;
mod cpu;
mod cuda;
mod dims;
mod find_cuda;
mod gather_cuda;
mod hand_back;
mod row;
mod rows_cuda;
mod unordered;
mod vjp;

pub use dims::Dims;
pub(crate) use find_cuda::FIND_KERNELS;
pub(crate) use gather_cuda::GATHER_KERNELS;
pub(crate) use rows_cuda::ROW_KERNELS;

use super::align::strides;
use super::resample::Resample;
use crate::chunks::Tensors;
use crate::cuda::{GpuInfo, Launcher};
use crate::tensor::{DType, TensorRef};
use crate::{Context, Op, OutputSpec, Outputs, Result, ensure};

/// Values that a batch shares get the sum over its rows. Rows are summed in so many groups side by
/// side at most, and then the groups: the order is the same whatever computes it.
const GROUPS: usize = 64;

/// The gradient in the values of a [`Resample`]. Output 0 is `grad_values`, of the shape and dtype
/// of the values. Values that a batch shares have the gradients of all rows added up; output 1 is then
/// the memory for that, `[groups,S,D]` in f32 (f64 for f64), of no use afterwards.
#[derive(Debug, Clone)]
pub struct ResampleBackward<'a> {
    /// The call as it was made, without scale and with a result of the values' dtype; `max_gap` and
    /// `return_valid` do not matter. Methods that are linear in the values need only their shape and
    /// dtype: see [`Method::reads_values`](super::resample::Method::reads_values).
    pub forward: Resample<'a>,
    /// The gradient in the call's result, of its shape and dtype.
    pub grad: TensorRef<'a>,
}

impl Op for ResampleBackward<'_> {
    const NAME: &'static str = "resample_backward";
    type Dims = Dims;
    type On<'t>
        = ResampleBackward<'t>
    where
        Self: 't;

    fn inputs(&self) -> impl Iterator<Item = (&'static str, &TensorRef<'_>)> {
        self.forward.inputs().chain([("grad", &self.grad)])
    }

    fn check(&self) -> Result<Dims> {
        let forward = self.forward.check()?;
        let values = &self.forward.values;
        let dtype = values.dtype();
        ensure!(
            !self.forward.is_stored() && self.forward.out_dtype.is_none_or(|wanted| wanted == dtype),
            "values",
            "a gradient through another dtype is not computed here"
        );
        ensure!(dtype.is_float(), "values", "only floats have a gradient, got {dtype}");
        ensure!(self.grad.dtype() == dtype, "grad", "expected {dtype} like values, got {}", self.grad.dtype());
        let shape = [forward.batch, forward.targets, forward.width];
        let shape = if forward.has_batch { &shape[..] } else { &shape[1..] };
        ensure!(self.grad.shape() == shape, "grad", "expected shape {shape:?}, got {:?}", self.grad.shape());
        let shared = values.layout().rank() == 2 || values.shape()[0] == 1;
        let groups = (shared && forward.batch != 1).then(|| forward.batch.min(GROUPS));
        let accumulator = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        Ok(Dims { grad_strides: strides(&self.grad), groups, accumulator, forward })
    }

    fn on<'t>(&'t self, mut tensors: Tensors<'t>) -> ResampleBackward<'t> {
        let last = tensors.take_last();
        ResampleBackward { forward: self.forward.on(tensors), grad: last }
    }

    fn outputs(&self, dims: &Dims) -> Result<Vec<OutputSpec>> {
        let values = &self.forward.values;
        let mut outputs = vec![OutputSpec::new("grad_values", values.dtype(), values.shape())?];
        if let Some(groups) = dims.groups {
            let shape = [groups, dims.forward.samples, dims.forward.width];
            outputs.push(OutputSpec::new("partial", dims.accumulator, &shape)?);
        }
        Ok(outputs)
    }

    fn workspace(&self, dims: &Dims, gpu: Option<&GpuInfo>) -> Result<usize> {
        gpu.map_or(Ok(0), |_| cuda::workspace(dims))
    }

    fn cpu(&self, dims: &Dims, out: &mut Outputs<'_, '_>, context: &Context<'_>) -> Result<()> {
        cpu::backward(self, dims, out, context)
    }

    fn cuda(&self, dims: &Dims, out: &mut Outputs<'_, '_>, launcher: &Launcher<'_>) -> Result<()> {
        cuda::backward(self, dims, out, launcher)
    }
}
