//! Depth images to points.
//!
//! `z = depth * scale`, `x = ((u - cx) / fx) * z`, `y = ((v - cy) / fy) * z` for the pixel in column u
//! and row v, then the extrinsics as in `transform_points`; all in f32 without contraction, so every
//! backend computes the same bits. Skew and distortion are not known.

use super::cloud::{BLOCK, PointsMut};
use super::pose::{Camera, Pose, Small, SmallArgs};
use super::rows::{Batch, strides};
use super::transform_points::transform_block;
use crate::cpu::{Shared, for_each, vectorized};
use crate::cuda::{Grid, KernelFamily, Launcher};
use crate::tensor::{DType, TensorRef};
use crate::{Context, Error, Op, OutputSpec, Outputs, Result, ensure};

/// Output 0 is `out [B,H*W,3]` float32, row by row of the image, with NaN where the depth is 0,
/// negative, NaN or infinite; output 1, when asked for, `valid [B,H*W]`.
#[derive(Debug, Clone)]
pub struct Unproject<'a> {
    /// `[B,H,W]` or `[H,W]`: uint16 or floats.
    pub depth: TensorRef<'a>,
    /// A matrix `[3,3]` or `fx, fy, cx, cy`; with a batch or without.
    pub intrinsics: Small<'a>,
    /// From the camera to the world, as the pose of `transform_points`.
    pub extrinsics: Option<Small<'a>>,
    /// Metres of one unit of depth.
    pub depth_scale: f64,
    /// Whether to write `valid`.
    pub return_valid: bool,
}

/// Sizes and strides in elements.
#[derive(Debug)]
pub struct Dims {
    has_batch: bool,
    batch: usize,
    height: usize,
    width: usize,
    depth_strides: [isize; 3],
    camera: usize,
    pose: Option<usize>,
}

const DEPTHS: [(DType, &str); 5] = [
    (DType::U16, "u16"),
    (DType::F16, "rc::f16"),
    (DType::BF16, "rc::bf16"),
    (DType::F32, "float"),
    (DType::F64, "double"),
];

/// The kernels, by the depth's type.
pub(crate) static KERNELS: KernelFamily = KernelFamily {
    source: include_str!("unproject.cu"),
    headers: &[],
    variants: || (0..DEPTHS.len() as u32).collect(),
    entry: |number| format!("rc_unproject_{}", DEPTHS[number as usize].0),
    options: |number| {
        vec![format!("-DRC_DEPTH={}", DEPTHS[number as usize].1), format!("-DRC_ARGS_SIZE={}", size_of::<Args>())]
    },
};

/// Mirrors `Args` in unproject.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    depth: *const u8,
    depth_strides: [i64; 3],
    camera: SmallArgs,
    pose: SmallArgs,
    out: *mut u8,
    out_strides: [i64; 3],
    valid: *mut u8,
    valid_strides: [i64; 2],
    rows: u64,
    height: i64,
    width: i64,
    tiles: u64,
    scale: f32,
    padding: u32,
}

impl Op for Unproject<'_> {
    const NAME: &'static str = "unproject";
    type Dims = Dims;

    fn inputs(&self) -> Vec<(&'static str, &TensorRef<'_>)> {
        let camera = self.intrinsics.tensor().map(|camera| ("intrinsics", camera));
        let pose = self.extrinsics.as_ref().and_then(Small::tensor).map(|pose| ("extrinsics", pose));
        [("depth", &self.depth)].into_iter().chain(camera).chain(pose).collect()
    }

    fn check(&self) -> Result<Dims> {
        self.depth.layout().expect_rank("depth", &[2, 3], "[B,H,W] or [H,W]")?;
        let dtype = self.depth.dtype();
        ensure!(DEPTHS.iter().any(|(known, _)| *known == dtype), "depth", "expected uint16 or floats, got {dtype}");
        let scale = self.depth_scale;
        ensure!(
            scale as f32 > 0.0 && (scale as f32).is_finite(),
            "depth_scale",
            "expected a finite number over 0, got {scale}"
        );
        let mut batch = Batch::default();
        batch.add("depth", &self.depth, 2)?;
        let camera = Camera::new("intrinsics", self.intrinsics, &mut batch)?.form;
        let pose = self.extrinsics.map(|pose| Pose::new("extrinsics", pose, &mut batch)).transpose()?;
        let [.., height, width] = *self.depth.shape() else {
            return Err(Error::invalid("depth", "expected [B,H,W] or [H,W]"));
        };
        Ok(Dims {
            has_batch: batch.size.is_some(),
            batch: batch.size.map_or(1, |(size, _)| size),
            height,
            width,
            depth_strides: strides(&self.depth),
            camera,
            pose: pose.map(|pose| pose.form),
        })
    }

    fn outputs(&self, dims: &Dims) -> Result<Vec<OutputSpec>> {
        let shape = [dims.batch, dims.height * dims.width, 3];
        let shape = if dims.has_batch { &shape[..] } else { &shape[1..] };
        let mut outputs = vec![OutputSpec::new("out", DType::F32, shape)?];
        if self.return_valid {
            outputs.push(OutputSpec::new("valid", DType::Bool, &shape[..shape.len() - 1])?);
        }
        Ok(outputs)
    }

    fn cpu(&self, dims: &Dims, out: &mut Outputs<'_, '_>, context: &Context<'_>) -> Result<()> {
        match self.depth.dtype() {
            DType::U16 => on_host::<u16>(self, dims, out, context),
            DType::F16 => on_host::<half::f16>(self, dims, out, context),
            DType::BF16 => on_host::<half::bf16>(self, dims, out, context),
            DType::F32 => on_host::<f32>(self, dims, out, context),
            _ => on_host::<f64>(self, dims, out, context),
        }
    }

    fn cuda(&self, dims: &Dims, out: &mut Outputs<'_, '_>, launcher: &Launcher<'_>) -> Result<()> {
        let (valid, valid_strides) = valid_output(out);
        let Some(output) = out.get(0) else { return Ok(()) };
        let pixels = dims.height * dims.width;
        if dims.batch * pixels == 0 {
            return Ok(());
        }
        let pose = self.extrinsics.zip(dims.pose);
        let args = Args {
            depth: self.depth.data(),
            depth_strides: dims.depth_strides.map(|stride| stride as i64),
            camera: SmallArgs::camera(&Camera { source: self.intrinsics, form: dims.camera }),
            pose: pose.map_or(SmallArgs::NONE, |(source, form)| SmallArgs::pose(&Pose { source, form })),
            out_strides: strides::<3>(output.view()).map(|stride| stride as i64),
            out: output.data_mut(),
            valid,
            valid_strides: valid_strides.map(|stride| stride as i64),
            rows: dims.batch as u64,
            height: dims.height as i64,
            width: dims.width as i64,
            tiles: (pixels as u64).div_ceil(1024),
            scale: self.depth_scale as f32,
            padding: 0,
        };
        let variant = DEPTHS.iter().position(|(dtype, _)| *dtype == self.depth.dtype()).unwrap_or(0);
        let grid = Grid { shared: 128, ..Grid::for_blocks(args.rows.saturating_mul(args.tiles)) };
        // SAFETY: the views were checked against dims and live on this GPU; the framework keeps
        // them until the stream has passed.
        unsafe { launcher.launch(&KERNELS, variant as u32, grid, &args) }
    }
}

fn valid_output(out: &mut Outputs<'_, '_>) -> (*mut u8, [isize; 2]) {
    match out.get(1) {
        Some(output) => (output.data_mut(), strides(output.view())),
        None => (std::ptr::null_mut(), [0; 2]),
    }
}

/// What a pixel holds.
trait Depth: Copy + Send + Sync {
    fn widen(self) -> f32;
}

macro_rules! depths {
    ($(($type:ty, $widen:expr)),+) => {$(
        impl Depth for $type {
            #[inline(always)]
            fn widen(self) -> f32 {
                $widen(self)
            }
        }
    )+};
}
depths!(
    (u16, f32::from),
    (half::f16, half::f16::to_f32),
    (half::bf16, half::bf16::to_f32),
    (f32, |depth| depth),
    (f64, |depth| depth as f32)
);

fn on_host<T: Depth>(op: &Unproject<'_>, dims: &Dims, out: &mut Outputs<'_, '_>, context: &Context<'_>) -> Result<()> {
    let (valid, valid_strides) = valid_output(out);
    let Some(output) = out.get(0) else { return Ok(()) };
    let out_strides = strides::<3>(output.view());
    let (out, valid) = (PointsMut::<f32>::new(output.data_mut(), out_strides), Shared(valid));
    let depth = Shared(op.depth.data().cast::<T>().cast_mut());
    let camera = Camera { source: op.intrinsics, form: dims.camera };
    let pose = op.extrinsics.zip(dims.pose).map(|(source, form)| Pose { source, form });
    let scale = op.depth_scale as f32;
    for_each(dims.batch * dims.height, context, &|task| {
        let (row, v) = (task / dims.height, task % dims.height);
        let [row_step, line, column] = dims.depth_strides;
        let start = valid_strides[0] * row as isize + valid_strides[1] * (v * dims.width) as isize;
        let job = Line {
            depth: depth.get().wrapping_offset(row as isize * row_step + v as isize * line),
            column,
            scale,
            camera: camera.numbers(row).map(|number| number as f32),
            matrix: pose.map(|pose| pose.matrix(row).map(|number| number as f32)),
            row,
            v,
            width: dims.width,
            valid: if valid.get().is_null() { valid.get() } else { valid.get().wrapping_offset(start) },
            valid_step: valid_strides[1],
        };
        // SAFETY: the line exists in all three; no other task writes it.
        unsafe { unproject_line(&job, &out) };
    })
}

/// A line of an image.
struct Line<T> {
    depth: *const T,
    column: isize,
    scale: f32,
    camera: [f32; 4],
    matrix: Option<[f32; 12]>,
    row: usize,
    v: usize,
    width: usize,
    /// Null where it is not wanted.
    valid: *mut u8,
    valid_step: isize,
}

vectorized! {
    /// Points of pixels, NaN where their depth is none.
    ///
    /// # Safety
    /// The line must exist in the image and in both results, and nobody else may use those.
    unsafe fn unproject_line[T: Depth](line: &Line<T>, out: &PointsMut<f32>) {
        let [fx, fy, cx, cy] = line.camera;
        let slope = (line.v as f32 - cy) / fy;
        let (mut block, mut good) = ([[0.0; BLOCK]; 3], [false; BLOCK]);
        let mut depths = [0.0; BLOCK];
        for first in (0..line.width).step_by(BLOCK) {
            let end = (first + BLOCK).min(line.width);
            for (u, depth) in (first..end).zip(&mut depths) {
                // SAFETY: the caller's promise.
                *depth = unsafe { *line.depth.offset(u as isize * line.column) }.widen();
            }
            for lane in 0..BLOCK {
                let z = depths[lane] * line.scale;
                good[lane] = (depths[lane] > 0.0) & z.is_finite();
                // By way of f64, which holds every column, and which vectors can add to.
                let u = (first as f64 + lane as f64) as f32;
                let ray = (u - cx) / fx;
                [block[0][lane], block[1][lane], block[2][lane]] = [ray * z, slope * z, z];
            }
            if let Some(matrix) = &line.matrix {
                transform_block(matrix, &mut block);
            }
            for axis in &mut block {
                for (number, &good) in axis.iter_mut().zip(&good) {
                    *number = if good { *number } else { f32::NAN };
                }
            }
            let pixel = line.v * line.width;
            // SAFETY: the caller's promise.
            unsafe {
                out.write(line.row, pixel + first, pixel + end, &block);
                if !line.valid.is_null() {
                    for (u, &good) in (first..end).zip(&good) {
                        *line.valid.offset(u as isize * line.valid_step) = u8::from(good);
                    }
                }
            }
        }
    }
}
