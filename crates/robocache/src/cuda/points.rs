//! Points as kernels take them: a cloud in memory, or the pixels of depth images.

use super::cloud::CloudArgs;
use super::launch::{Grid, KernelFamily, Launcher};
use super::report::Reports;
use crate::ops::cloud::Cloud;
use crate::ops::depth::{DepthImage, Image, PointSource, depth_number};
use crate::ops::pose::SmallArgs;
use crate::ops::scalar::{FLOATS, float_number};
use crate::tensor::{DType, TensorRef};
use crate::{Error, Result};

/// Mirrors `rc::DepthArgs` in `kernels/depth.cuh`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct DepthArgs {
    depth: *const u8,
    strides: [i64; 3],
    camera: SmallArgs,
    pose: SmallArgs,
    width: i64,
    scale: f32,
    kind: u32,
    vector: u32,
    padding: u32,
}

/// Mirrors `rc::PixelArgs` in `kernels/depth.cuh`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct PixelArgs {
    cloud: CloudArgs,
    image: DepthArgs,
}

/// A kernel's whole argument: where points come from, then what is its own.
#[repr(C)]
#[derive(Clone, Copy)]
struct Whole<S, R> {
    source: S,
    rest: R,
}

/// Where the points of a call come from.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::large_enum_variant, reason = "made once for each call, and ops never allocate")]
pub(crate) enum PointArgs {
    /// A cloud of this dtype.
    Cloud(CloudArgs, DType),
    /// The pixels of depth images.
    Pixels(PixelArgs),
}

impl DepthArgs {
    fn new(source: &DepthImage<'_>, image: &Image, cloud: &Cloud) -> Self {
        let (depth, size) = (&source.depth, source.depth.dtype().size());
        let [row, line, column] = cloud.point_strides;
        // Four pixels are read at once where all of an image lie side by side, and images start well.
        let dense = (image.width <= 1 || column == 1) && (image.height <= 1 || line == image.width as isize);
        let aligned = (depth.data() as usize).is_multiple_of(4 * size) && (cloud.batch <= 1 || row % 4 == 0);
        Self {
            depth: depth.data(),
            strides: cloud.point_strides.map(|stride| stride as i64),
            camera: SmallArgs::camera(&source.camera(image)),
            pose: source.pose(image).map_or(SmallArgs::NONE, |pose| SmallArgs::pose(&pose)),
            width: image.width as i64,
            scale: source.depth_scale as f32,
            kind: depth_number(depth.dtype()),
            vector: u32::from(matches!(depth.dtype(), DType::U16 | DType::F32) && dense && aligned),
            padding: 0,
        }
    }
}

impl PointArgs {
    /// The kind of pixels, whatever their dtype; those of clouds are the floats.
    pub(crate) const PIXELS: u32 = FLOATS.len() as u32;
    /// Kinds of points that kernels are compiled for.
    pub(crate) const KINDS: u32 = Self::PIXELS + 1;

    /// The points and lengths of an op.
    pub(crate) fn new(
        points: &PointSource<'_>,
        lengths: Option<TensorRef<'_>>,
        cloud: &Cloud,
        check: bool,
        reports: Option<&'static Reports>,
        launcher: &Launcher<'_>,
    ) -> Result<Self> {
        let source = match points {
            PointSource::Cloud(points) => {
                let args = CloudArgs::new(points, lengths, cloud, check, reports, launcher);
                return Ok(Self::Cloud(args, points.dtype()));
            }
            PointSource::Depth(source) => source,
        };
        let image = cloud.image.as_ref().ok_or_else(|| Error::invalid("depth", "was not checked"))?;
        Ok(Self::Pixels(PixelArgs {
            cloud: CloudArgs::without_points(lengths, cloud, check, reports, launcher),
            image: DepthArgs::new(source, image, cloud),
        }))
    }

    /// A block for each tile of points of each row.
    pub(crate) fn grid(&self) -> Grid {
        match self {
            Self::Cloud(cloud, _) | Self::Pixels(PixelArgs { cloud, .. }) => cloud.grid(),
        }
    }

    /// Which of the kinds these are.
    pub(crate) fn kind(&self) -> u32 {
        match self {
            Self::Cloud(_, dtype) => u32::from(float_number(*dtype)),
            Self::Pixels(_) => Self::PIXELS,
        }
    }

    /// The name of a kind in a kernel's.
    pub(crate) fn name(kind: u32) -> String {
        FLOATS.get(kind as usize).map_or_else(|| "depth".to_owned(), |(dtype, _)| dtype.to_string())
    }

    /// Options of a kernel for a kind of points; `R` is what its argument holds beside them.
    pub(crate) fn options<R>(kind: u32) -> Vec<String> {
        let (point, pixels, size) = match FLOATS.get(kind as usize) {
            Some((_, name)) => (*name, 0, size_of::<Whole<CloudArgs, R>>()),
            None => ("float", 1, size_of::<Whole<PixelArgs, R>>()),
        };
        vec![format!("-DRC_POINT={point}"), format!("-DRC_PIXELS={pixels}"), format!("-DRC_ARGS_SIZE={size}")]
    }

    /// Launches a kernel that takes these points and `rest`.
    ///
    /// # Safety
    /// As for [`Launcher::launch`].
    pub(crate) unsafe fn launch<R: Copy>(
        &self,
        launcher: &Launcher<'_>,
        family: &'static KernelFamily,
        variant: u32,
        grid: Grid,
        rest: R,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe {
            match *self {
                Self::Cloud(source, _) => launcher.launch(family, variant, grid, &Whole { source, rest }),
                Self::Pixels(source) => launcher.launch(family, variant, grid, &Whole { source, rest }),
            }
        }
    }
}
