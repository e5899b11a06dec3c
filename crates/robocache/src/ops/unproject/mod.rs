//! Depth images to points.
//!
//! `z = depth * scale`, `x = ((u - cx) / fx) * z`, `y = ((v - cy) / fy) * z` for the pixel in column u
//! and row v, then the extrinsics as in `transform_points`; all in f32 without contraction, so every
//! backend computes the same bits. Skew and distortion are not known.

use super::pose::{Camera, Pose, Small, SmallArgs};
use super::rows::{Batch, strides};
use super::transform_points::transform;
use crate::cpu::{Shared, for_each};
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
            DType::U16 => on_host::<u16>(self, dims, out, context, f32::from),
            DType::F16 => on_host::<half::f16>(self, dims, out, context, half::f16::to_f32),
            DType::BF16 => on_host::<half::bf16>(self, dims, out, context, half::bf16::to_f32),
            DType::F32 => on_host::<f32>(self, dims, out, context, |depth| depth),
            _ => on_host::<f64>(self, dims, out, context, |depth| depth as f32),
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

fn on_host<T: Copy + Send + Sync>(
    op: &Unproject<'_>,
    dims: &Dims,
    out: &mut Outputs<'_, '_>,
    context: &Context<'_>,
    widen: fn(T) -> f32,
) -> Result<()> {
    let (valid, valid_strides) = valid_output(out);
    let Some(output) = out.get(0) else { return Ok(()) };
    let out_strides = strides::<3>(output.view());
    let (out, valid) = (Shared(output.data_mut().cast::<f32>()), Shared(valid));
    let depth = Shared(op.depth.data().cast::<T>().cast_mut());
    let camera = Camera { source: op.intrinsics, form: dims.camera };
    let pose = op.extrinsics.zip(dims.pose).map(|(source, form)| Pose { source, form });
    let scale = op.depth_scale as f32;
    for_each(dims.batch * dims.height, context, &|task| {
        let (row, v) = (task / dims.height, task % dims.height);
        let camera = camera.numbers(row).map(|number| number as f32);
        let matrix = pose.map(|pose| pose.matrix(row).map(|number| number as f32));
        let r = row as isize;
        for u in 0..dims.width {
            let [row_step, line, column] = dims.depth_strides;
            let pixel = (v * dims.width + u) as isize;
            // SAFETY: the pixel exists in all three; no other task writes this line.
            unsafe {
                let raw = widen(*depth.get().offset(r * row_step + v as isize * line + u as isize * column));
                let (point, good) = unproject(raw, scale, [u as f32, v as f32], &camera, matrix.as_ref());
                for (axis, number) in point.into_iter().enumerate() {
                    let place = r * out_strides[0] + pixel * out_strides[1] + axis as isize * out_strides[2];
                    *out.get().offset(place) = number;
                }
                if !valid.get().is_null() {
                    *valid.get().offset(r * valid_strides[0] + pixel * valid_strides[1]) = u8::from(good);
                }
            }
        }
    })
}

/// The point of a pixel, NaN where its depth is none, and whether it is one.
#[inline(always)]
fn unproject(
    depth: f32,
    scale: f32,
    [u, v]: [f32; 2],
    camera: &[f32; 4],
    matrix: Option<&[f32; 12]>,
) -> ([f32; 3], bool) {
    let z = depth * scale;
    if !(depth > 0.0 && z.is_finite()) {
        return ([f32::NAN; 3], false);
    }
    let [fx, fy, cx, cy] = *camera;
    let point = [(u - cx) / fx * z, (v - cy) / fy * z, z];
    (matrix.map_or(point, |matrix| transform(matrix, point)), true)
}
