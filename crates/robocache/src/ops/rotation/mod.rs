//! Rotations from one representation to another, and the gradient of that.
//!
//! To a matrix or a part of one by way of the matrix, else by way of the quaternion. Quaternions that come in are
//! normalised, those that come out have w >= 0. A row that holds NaN, or a rotation of length 0, becomes NaN.

mod cpu;
mod cuda;
mod dual;
mod formulas;
mod representation;

use cpu::{backward, forward};
pub(crate) use cuda::KERNELS;
pub use representation::{EulerOrder, Representation};

use super::cloud::expect_float;
use super::rows::strides;
use super::scalar::with_float;
use crate::chunks::{Cuts, Tensors};
use crate::cuda::Launcher;
use crate::tensor::TensorRef;
use crate::{Context, Op, OutputSpec, Outputs, Result, ensure};

/// Output 0 is `out`: `[B]` and the axes of the target, without `B` where `x` has none; the dtype of `x`.
#[derive(Debug, Clone)]
pub struct Convert<'a> {
    /// `[B,n]` or `[n]` floats; a matrix is `[B,3,3]` or `[3,3]`.
    pub x: TensorRef<'a>,
    /// What `x` holds.
    pub source: Representation,
    /// What is wanted.
    pub target: Representation,
}

/// The gradient of a [`Convert`]. Output 0 is `grad_x`, of the shape and dtype of `x`: of the branch that the call has
/// taken, and 0 where a root or an angle at the origin has none.
#[derive(Debug, Clone)]
pub struct ConvertBackward<'a> {
    /// The call.
    pub forward: Convert<'a>,
    /// The gradient in the call's result, of its shape and dtype.
    pub grad: TensorRef<'a>,
}

/// What `check` proved.
#[derive(Debug)]
pub struct Dims {
    has_batch: bool,
    rows: usize,
}

/// Strides (in elements) of rows, of threes of numbers, and of single numbers.
type Steps = [isize; 3];

fn steps(tensor: &TensorRef<'_>, representation: Representation) -> Steps {
    if representation == Representation::Matrix {
        return strides::<3>(tensor);
    }
    let [row, number] = strides::<2>(tensor);
    [row, number.wrapping_mul(3), number]
}

impl Convert<'_> {
    /// A shape of the result.
    fn shape(&self, dims: &Dims) -> Vec<usize> {
        let batch = dims.has_batch.then_some(dims.rows);
        batch.into_iter().chain(self.target.shape().iter().copied()).collect()
    }
}

impl Op for Convert<'_> {
    const NAME: &'static str = "rotation.convert";
    type Dims = Dims;
    type On<'t>
        = Convert<'t>
    where
        Self: 't;

    fn inputs(&self) -> impl Iterator<Item = (&'static str, &TensorRef<'_>)> {
        [("x", &self.x)].into_iter()
    }

    fn check(&self) -> Result<Dims> {
        let (shape, own) = (self.x.shape(), self.source.shape());
        let form = if own.len() == 2 { "3,3".to_owned() } else { own[0].to_string() };
        let source = self.source;
        ensure!(shape.ends_with(own), "x", "expected [...,{form}] for {source}, got shape {shape:?}");
        self.x.layout().expect_rank("x", &[own.len(), own.len() + 1], &format!("[B,{form}] or [{form}]"))?;
        expect_float("x", self.x.dtype())?;
        let has_batch = shape.len() > own.len();
        Ok(Dims { has_batch, rows: if has_batch { shape[0] } else { 1 } })
    }

    fn cuts(&self, dims: &Dims) -> Option<Cuts> {
        Some(Cuts::new(dims.has_batch, dims.rows).inputs([(&self.x, self.source.shape().len())]))
    }

    fn on<'t>(&'t self, mut tensors: Tensors<'t>) -> Convert<'t> {
        Convert { x: tensors.next(), ..*self }
    }

    fn outputs(&self, dims: &Dims) -> Result<Vec<OutputSpec>> {
        Ok(vec![OutputSpec::new("out", self.x.dtype(), &self.shape(dims))?])
    }

    fn cpu(&self, dims: &Dims, out: &mut Outputs<'_, '_>, context: &Context<'_>) -> Result<()> {
        with_float!(self.x.dtype(), forward, self, dims, out, context)
    }

    fn cuda(&self, dims: &Dims, out: &mut Outputs<'_, '_>, launcher: &Launcher<'_>) -> Result<()> {
        cuda::launch(self, None, dims, out, launcher)
    }
}

impl Op for ConvertBackward<'_> {
    const NAME: &'static str = "rotation_backward";
    type Dims = Dims;
    type On<'t>
        = ConvertBackward<'t>
    where
        Self: 't;

    fn inputs(&self) -> impl Iterator<Item = (&'static str, &TensorRef<'_>)> {
        [("x", &self.forward.x), ("grad", &self.grad)].into_iter()
    }

    fn check(&self) -> Result<Dims> {
        let dims = self.forward.check()?;
        let (dtype, shape) = (self.forward.x.dtype(), self.forward.shape(&dims));
        ensure!(self.grad.dtype() == dtype, "grad", "expected {dtype} like x, got {}", self.grad.dtype());
        ensure!(self.grad.shape() == shape, "grad", "expected shape {shape:?}, got {:?}", self.grad.shape());
        Ok(dims)
    }

    fn cuts(&self, dims: &Dims) -> Option<Cuts> {
        let grad = (&self.grad, self.forward.target.shape().len());
        Some(Cuts::new(dims.has_batch, dims.rows).inputs([(&self.forward.x, self.forward.source.shape().len()), grad]))
    }

    fn on<'t>(&'t self, mut tensors: Tensors<'t>) -> ConvertBackward<'t> {
        ConvertBackward { forward: Convert { x: tensors.next(), ..self.forward }, grad: tensors.next() }
    }

    fn outputs(&self, _: &Dims) -> Result<Vec<OutputSpec>> {
        Ok(vec![OutputSpec::new("grad_x", self.forward.x.dtype(), self.forward.x.shape())?])
    }

    fn cpu(&self, dims: &Dims, out: &mut Outputs<'_, '_>, context: &Context<'_>) -> Result<()> {
        with_float!(self.forward.x.dtype(), backward, self, dims, out, context)
    }

    fn cuda(&self, dims: &Dims, out: &mut Outputs<'_, '_>, launcher: &Launcher<'_>) -> Result<()> {
        cuda::launch(&self.forward, Some(&self.grad), dims, out, launcher)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Tensor, run};

    fn named(name: &str) -> Representation {
        Representation::named("source", name).unwrap()
    }

    #[test]
    fn views_give_the_bits_of_their_copies() {
        let numbers: Vec<f32> = (0..6000).map(|i| ((i * 37 % 101) as f32 - 50.0) / 17.0).collect();
        let whole = Tensor::from_slice(&numbers, &[600, 10]).unwrap();
        let view = |first: usize, strides: &[i64], shape: &[i64]| {
            let layout = crate::Layout::strided(shape, Some(strides), DType::F32).unwrap();
            // SAFETY: within the numbers, which outlive the view.
            unsafe { TensorRef::from_raw(whole.view().data().add(4 * first), DType::F32, crate::Device::Cpu, layout) }
                .unwrap()
        };
        for (source, first, strides, shape) in [
            ("quat_xyzw", 3, &[10, 1][..], &[600, 4][..]),
            ("rot6d", 1, &[-10, 1], &[1, 6]),
            ("axis_angle", 29, &[20, -7], &[250, 3]),
            ("matrix", 0, &[10, 1, 3], &[600, 3, 3]),
            ("euler_xyz", 5, &[2], &[3]),
        ] {
            let view = view(first, strides, shape);
            let shape: Vec<_> = view.shape().to_vec();
            let count: usize = shape.iter().product();
            let mut copied = vec![0.0f32; count];
            for (at, number) in copied.iter_mut().enumerate() {
                let (mut rest, mut offset) = (at, 0isize);
                for axis in (0..shape.len()).rev() {
                    offset += (rest % shape[axis]) as isize * strides[axis] as isize;
                    rest /= shape[axis];
                }
                *number = numbers[(first as isize + offset) as usize];
            }
            let copy = Tensor::from_slice(&copied, &shape).unwrap();
            let of = |x: TensorRef<'_>| run(&Convert { x, source: named(source), target: named("rot6d") }).unwrap();
            let bits =
                |out: Vec<Tensor>| out[0].as_slice::<f32>().unwrap().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(of(view)), bits(of(copy.view())), "{source}");
        }
    }

    #[test]
    fn shapes_and_dtypes_are_checked() {
        let convert = |shape: &[usize], dtype, source: &str| {
            let x = Tensor::zeros(shape, dtype).unwrap();
            run(&Convert { x: x.view(), source: named(source), target: named("matrix") })
                .map(|out| out[0].view().shape().to_vec())
        };
        assert_eq!(convert(&[5, 4], DType::F16, "quat_xyzw").unwrap(), [5, 3, 3]);
        assert_eq!(convert(&[3, 3], DType::BF16, "matrix").unwrap(), [3, 3]);
        assert_eq!(convert(&[0, 6], DType::F64, "rot6d").unwrap(), [0, 3, 3]);
        for (shape, dtype, source, told) in [
            (&[5, 3][..], DType::F32, "quat_xyzw", "[...,4] for quat_xyzw, got shape [5, 3]"),
            (&[], DType::F32, "quat_xyzw", "got shape []"),
            (&[9], DType::F32, "matrix", "[...,3,3] for matrix"),
            (&[2, 2, 4], DType::F32, "quat_wxyz", "[B,4] or [4]"),
            (&[5, 3], DType::I32, "euler_xyz", "int32"),
        ] {
            let error = convert(shape, dtype, source).unwrap_err();
            assert!(error.argument_name() == Some("x") && error.to_string().contains(told), "{error}");
        }
        let (x, grad) = (Tensor::zeros(&[5, 4], DType::F32).unwrap(), Tensor::zeros(&[5, 4], DType::F32).unwrap());
        let forward = Convert { x: x.view(), source: named("quat_xyzw"), target: named("rot6d") };
        let error = run(&ConvertBackward { forward, grad: grad.view() }).unwrap_err();
        assert_eq!(error.argument_name(), Some("grad"), "{error}");
    }
}
