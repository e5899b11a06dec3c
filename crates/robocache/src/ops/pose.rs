//! Small matrices beside large data: poses and cameras, one for all rows or one for each.

use super::rows::{Batch, strides};
use crate::chunks::Tensors;
use crate::tensor::{DType, Device, TensorRef};
use crate::{Error, Result, ensure};

/// Numbers of a row, at most.
const MOST: usize = 16;

/// A few numbers for each row.
#[derive(Debug, Clone, Copy)]
pub enum Small<'a> {
    /// A tensor on the device of the data; its first axis is the batch where it has one.
    Tensor(TensorRef<'a>),
    /// A tensor on the host, beside data on any device, that all rows share.
    Host(TensorRef<'a>),
}

impl<'a> Small<'a> {
    fn any(&self) -> &TensorRef<'a> {
        match self {
            Self::Tensor(tensor) | Self::Host(tensor) => tensor,
        }
    }

    /// The same in other memory, where it is a tensor of the call.
    pub(crate) fn on<'t>(&self, tensors: &mut Tensors<'t>) -> Small<'t>
    where
        'a: 't,
    {
        match self {
            Self::Tensor(_) => Small::Tensor(tensors.next()),
            Self::Host(tensor) => Small::Host(*tensor),
        }
    }

    /// The tensor, where it is one.
    pub(crate) fn tensor(&self) -> Option<&TensorRef<'a>> {
        match self {
            Self::Tensor(tensor) => Some(tensor),
            Self::Host(_) => None,
        }
    }

    /// Checks that the last axes are one of `forms`; returns which, and takes in the batch.
    fn form(&self, name: &'static str, forms: &[&[usize]], text: &str, batch: &mut Batch) -> Result<usize> {
        let (shape, dtype) = (self.any().shape(), self.any().dtype());
        let shared = self.tensor().is_none();
        let found = forms.iter().position(|form| {
            shape.ends_with(form) && (shape.len() == form.len() || (shape.len() == form.len() + 1 && !shared))
        });
        let found = found.ok_or_else(|| {
            let where_to = if shared { " (with a batch it must live with the data)" } else { "" };
            Error::invalid(name, format!("expected {text}, got shape {shape:?}{where_to}"))
        })?;
        ensure!(dtype.is_float(), name, "expected floats, got {dtype}");
        match self {
            Self::Tensor(tensor) => batch.add(name, tensor, forms[found].len()).map(drop)?,
            Self::Host(tensor) => {
                ensure!(tensor.device() == Device::Cpu, name, "lives on {}, not on the host", tensor.device());
            }
        }
        Ok(found)
    }

    /// The numbers of a row on the host, in row-major order.
    fn read(&self, form: &[usize], row: usize) -> [f64; MOST] {
        let mut numbers = [0.0; MOST];
        let tensor = self.any();
        let [batch, outer, inner] = small_strides(tensor, form.len());
        let columns = form[form.len() - 1];
        for (index, to) in numbers.iter_mut().enumerate().take(form.iter().product()) {
            let offset = row as isize * batch + (index / columns) as isize * outer + (index % columns) as isize * inner;
            // SAFETY: `form` proved the shape, and the row is below the batch or shared.
            *to = unsafe { read_float(tensor, offset) };
        }
        numbers
    }
}

/// Strides of the batch, of rows and of columns of numbers with so many axes.
fn small_strides(tensor: &TensorRef<'_>, axes: usize) -> [isize; 3] {
    if axes == 1 {
        let [batch, inner] = strides::<2>(tensor);
        return [batch, 0, inner];
    }
    strides::<3>(tensor)
}

/// # Safety
/// The offset must lie within the tensor, which is on the host and of floats.
unsafe fn read_float(tensor: &TensorRef<'_>, offset: isize) -> f64 {
    // SAFETY: the caller's promise.
    unsafe {
        match tensor.dtype() {
            DType::F16 => (*tensor.data().cast::<half::f16>().offset(offset)).to_f64(),
            DType::BF16 => (*tensor.data().cast::<half::bf16>().offset(offset)).to_f64(),
            DType::F32 => f64::from(*tensor.data().cast::<f32>().offset(offset)),
            _ => *tensor.data().cast::<f64>().offset(offset),
        }
    }
}

/// The axes of a camera in a form.
pub(crate) fn camera_axes(form: usize) -> usize {
    CAMERAS[form].len()
}

/// The axes of a pose in a form.
pub(crate) fn pose_axes(form: usize) -> usize {
    POSES[form].len()
}

const POSES: [&[usize]; 3] = [&[4, 4], &[3, 4], &[7]];
const CAMERAS: [&[usize]; 2] = [&[3, 3], &[4]];

/// A rotation and a translation: a matrix `[4,4]` or `[3,4]`, or seven numbers, xyz and a quaternion
/// xyzw, which is normalised.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pose<'a> {
    pub(crate) source: Small<'a>,
    pub(crate) form: usize,
}

/// Focal lengths and the principal point: a matrix `[3,3]`, or `fx, fy, cx, cy`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Camera<'a> {
    pub(crate) source: Small<'a>,
    pub(crate) form: usize,
}

impl<'a> Pose<'a> {
    pub(crate) fn new(name: &'static str, source: Small<'a>, batch: &mut Batch) -> Result<Self> {
        let text = "[4,4], [3,4] or [7] (xyz and quaternion xyzw), with a batch or without";
        let form = source.form(name, &POSES, text, batch)?;
        Ok(Self { source, form })
    }

    /// Three rows of four numbers on the host.
    pub(crate) fn matrix(&self, row: usize) -> [f64; 12] {
        let numbers = self.source.read(POSES[self.form], row);
        if self.form < 2 { std::array::from_fn(|index| numbers[index]) } else { matrix_of(&numbers) }
    }
}

impl<'a> Camera<'a> {
    pub(crate) fn new(name: &'static str, source: Small<'a>, batch: &mut Batch) -> Result<Self> {
        let form = source.form(name, &CAMERAS, "[3,3] or [4] (fx, fy, cx, cy), with a batch or without", batch)?;
        Ok(Self { source, form })
    }

    /// `fx, fy, cx, cy` on the host.
    pub(crate) fn numbers(&self, row: usize) -> [f64; 4] {
        let n = self.source.read(CAMERAS[self.form], row);
        if self.form == 0 { [n[0], n[4], n[2], n[5]] } else { [n[0], n[1], n[2], n[3]] }
    }
}

/// The matrix of xyz and a quaternion; kernels compute the same in the same order.
fn matrix_of(pose: &[f64]) -> [f64; 12] {
    let [x, y, z, w] = [pose[3], pose[4], pose[5], pose[6]];
    let length = (((x * x + y * y) + z * z) + w * w).sqrt();
    let [x, y, z, w] = [x / length, y / length, z / length, w / length];
    [
        1.0 - 2.0 * (y * y + z * z),
        2.0 * (x * y - z * w),
        2.0 * (x * z + y * w),
        pose[0],
        2.0 * (x * y + z * w),
        1.0 - 2.0 * (x * x + z * z),
        2.0 * (y * z - x * w),
        pose[1],
        2.0 * (x * z - y * w),
        2.0 * (y * z + x * w),
        1.0 - 2.0 * (x * x + y * y),
        pose[2],
    ]
}

/// Mirrors `rc::SmallArgs` in `kernels/pose.cuh`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct SmallArgs {
    data: *const u8,
    strides: [i64; 3],
    host: [f64; 12],
    kind: u32,
    form: u32,
}

impl SmallArgs {
    /// No numbers: an op without a pose.
    pub(crate) const NONE: Self =
        Self { data: std::ptr::null(), strides: [0; 3], host: [0.0; 12], kind: 0, form: u32::MAX };

    fn tensor(tensor: &TensorRef<'_>, rank: usize, form: usize) -> Self {
        Self {
            data: tensor.data(),
            strides: small_strides(tensor, rank).map(|stride| stride as i64),
            kind: u32::from(super::scalar::float_number(tensor.dtype())),
            form: form as u32,
            ..Self::NONE
        }
    }

    pub(crate) fn pose(pose: &Pose<'_>) -> Self {
        match &pose.source {
            Small::Tensor(tensor) => Self::tensor(tensor, POSES[pose.form].len(), pose.form),
            Small::Host(_) => Self { host: pose.matrix(0), form: 0, ..Self::NONE },
        }
    }

    pub(crate) fn camera(camera: &Camera<'_>) -> Self {
        match &camera.source {
            Small::Tensor(tensor) => Self::tensor(tensor, CAMERAS[camera.form].len(), camera.form),
            Small::Host(_) => {
                let mut host = [0.0; 12];
                host[..4].copy_from_slice(&camera.numbers(0));
                Self { host, form: 1, ..Self::NONE }
            }
        }
    }
}
