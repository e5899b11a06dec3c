//! Depth images to points.
//!
//! `z = depth * scale`, `x = ((u - cx) / fx) * z`, `y = ((v - cy) / fy) * z` for the pixel in column u
//! and row v, then the extrinsics as in `transform_points`; all in f32 without contraction, so every
//! backend computes the same bits. Skew and distortion are not known.

use super::cloud::{BLOCK, Cloud, PointsMut, ReadPoints};
use super::depth::{DepthImage, Lens, Pixels, PointSource, Seen};
use super::rows::strides;
use crate::chunks::{Cuts, Tensors};
use crate::cpu::{Shared, for_each, vectorized};
use crate::cuda::{Grid, KernelFamily, Launcher, PointArgs, PointsOut};
use crate::tensor::{DType, TensorRef};
use crate::{Context, Op, OutputSpec, Outputs, Result};

/// Output 0 is `out [B,H*W,3]` float32, row by row of the image, with NaN where the depth is 0,
/// negative, NaN or infinite; output 1, when asked for, `valid [B,H*W]`.
#[derive(Debug, Clone)]
pub struct Unproject<'a> {
    /// The images.
    pub image: DepthImage<'a>,
    /// Whether to write `valid`.
    pub return_valid: bool,
}

/// Sizes and strides.
#[derive(Debug)]
pub struct Dims {
    cloud: Cloud,
}

/// The kernel, for all types of depth.
pub(crate) static KERNELS: KernelFamily = KernelFamily {
    source: include_str!("unproject.cu"),
    headers: &[],
    variants: || vec![0],
    entry: |_| "rc_unproject".to_owned(),
    options: |_| PointArgs::options::<Rest>(PointArgs::PIXELS),
};

/// Mirrors `Args` in unproject.cu, behind the points.
#[repr(C)]
#[derive(Clone, Copy)]
struct Rest {
    out: PointsOut,
    valid: *mut u8,
    valid_strides: [i64; 2],
}

impl Op for Unproject<'_> {
    const NAME: &'static str = "unproject";
    type Dims = Dims;
    type On<'t>
        = Unproject<'t>
    where
        Self: 't;

    fn inputs(&self) -> impl Iterator<Item = (&'static str, &TensorRef<'_>)> {
        self.image.inputs()
    }

    fn check(&self) -> Result<Dims> {
        Ok(Dims { cloud: self.image.check()? })
    }

    fn cuts(&self, dims: &Dims) -> Option<Cuts> {
        Some(Cuts::new(dims.cloud.has_batch, dims.cloud.batch).inputs(self.image.inputs_and_axes(&dims.cloud)))
    }

    fn on<'t>(&'t self, mut tensors: Tensors<'t>) -> Unproject<'t> {
        Unproject { image: self.image.on(&mut tensors), ..self.clone() }
    }

    fn outputs(&self, dims: &Dims) -> Result<Vec<OutputSpec>> {
        let shape = [dims.cloud.batch, dims.cloud.count, 3];
        let mut outputs = vec![OutputSpec::new("out", DType::F32, dims.cloud.shape(&shape))?];
        if self.return_valid {
            outputs.push(OutputSpec::new("valid", DType::Bool, dims.cloud.shape(&shape[..2]))?);
        }
        Ok(outputs)
    }

    fn cpu(&self, dims: &Dims, out: &mut Outputs<'_, '_>, context: &Context<'_>) -> Result<()> {
        on_host(self, &dims.cloud, out, context)
    }

    fn cuda(&self, Dims { cloud }: &Dims, out: &mut Outputs<'_, '_>, launcher: &Launcher<'_>) -> Result<()> {
        let (valid, valid_strides) = valid_output(out);
        let Some(output) = out.get(0) else { return Ok(()) };
        if cloud.total() == 0 {
            return Ok(());
        }
        let points = PointArgs::new(&PointSource::Depth(self.image), None, cloud, false, None, launcher)?;
        let rest =
            Rest { out: PointsOut::new(output), valid, valid_strides: valid_strides.map(|stride| stride as i64) };
        let grid = Grid { shared: PointsOut::staged(DType::F32), ..points.grid() };
        // SAFETY: the views were checked against dims and live on this GPU; the framework keeps
        // them until the stream has passed.
        unsafe { points.launch(launcher, &KERNELS, 0, grid, rest) }
    }
}

fn valid_output(out: &mut Outputs<'_, '_>) -> (*mut u8, [isize; 2]) {
    match out.get(1) {
        Some(output) => (output.data_mut(), strides(output.view())),
        None => (std::ptr::null_mut(), [0; 2]),
    }
}

fn on_host(op: &Unproject<'_>, cloud: &Cloud, out: &mut Outputs<'_, '_>, context: &Context<'_>) -> Result<()> {
    let (valid, valid_strides) = valid_output(out);
    let (Some(output), Some(image), Some(pixels)) = (out.get(0), &cloud.image, Pixels::new(&op.image, cloud)) else {
        return Ok(());
    };
    let out_strides = strides::<3>(output.view());
    let (out, valid) = (PointsMut::<f32>::new(output.data_mut(), out_strides), Shared(valid));
    for_each(cloud.batch * image.height, context, &|task| {
        let (row, v) = (task / image.height, task % image.height);
        let start = valid_strides[0] * row as isize + valid_strides[1] * (v * image.width) as isize;
        let line = Line {
            row: pixels.row(row),
            first: v * image.width,
            end: (v + 1) * image.width,
            valid: if valid.get().is_null() { valid.get() } else { valid.get().wrapping_offset(start) },
            valid_step: valid_strides[1],
        };
        // SAFETY: the line exists in all three; no other task writes it.
        unsafe { unproject_line(&pixels, &line, &out) };
    })
}

/// A line of an image.
struct Line {
    row: (usize, Lens),
    /// Its pixels.
    first: usize,
    end: usize,
    /// Null where it is not wanted.
    valid: *mut u8,
    valid_step: isize,
}

vectorized! {
    /// Points of pixels, NaN where their depth is none.
    ///
    /// # Safety
    /// The line must exist in the image and in both results, and nobody else may use those.
    unsafe fn unproject_line[](pixels: &Pixels<'_>, line: &Line, out: &PointsMut<f32>) {
        let (mut block, mut good) = ([[0.0; BLOCK]; 3], [false; BLOCK]);
        let mut seen = Seen::NOTHING;
        let (row, lens) = &line.row;
        for first in (line.first..line.end).step_by(BLOCK) {
            let end = (first + BLOCK).min(line.end);
            // SAFETY: the caller's promise.
            unsafe { pixels.look(&line.row, first, end, &mut seen) };
            lens.points(&seen, &mut block, &mut good);
            // SAFETY: the caller's promise.
            unsafe {
                out.write(*row, first, end, &block);
                if !line.valid.is_null() {
                    for (u, &good) in (first - line.first..end - line.first).zip(&good) {
                        *line.valid.offset(u as isize * line.valid_step) = u8::from(good);
                    }
                }
            }
        }
    }
}
