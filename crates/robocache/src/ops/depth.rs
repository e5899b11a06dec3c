//! Depth images, and points that are made from their pixels where they are needed, without a cloud in
//! memory. Every point has the bits that `unproject` writes: both compute it here.

use super::cloud::{BLOCK, Block, Cloud, ReadPoints};
use super::pose::{Camera, Pose, Small, camera_axes, pose_axes};
use super::rows::{Batch, check_lengths, strides};
use super::transform_points::transform;
use crate::chunks::Tensors;
use crate::cpu::prefetch;
use crate::tensor::{DType, TensorRef};
use crate::{Error, Result, ensure};

/// Images whose pixels are points, numbered row by row of the image.
#[derive(Debug, Clone, Copy)]
pub struct DepthImage<'a> {
    /// `[B,H,W]` or `[H,W]`: uint16 or floats.
    pub depth: TensorRef<'a>,
    /// A matrix `[3,3]` or `fx, fy, cx, cy`; with a batch or without.
    pub intrinsics: Small<'a>,
    /// From the camera to the world, as the pose of `transform_points`.
    pub extrinsics: Option<Small<'a>>,
    /// Metres of one unit of depth.
    pub depth_scale: f64,
}

/// Sizes of an image, and the forms of its camera and pose.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Image {
    pub(crate) height: usize,
    pub(crate) width: usize,
    camera: usize,
    pose: Option<usize>,
}

/// The dtypes of depth in the order of the kernels' numbers: the floats, as everywhere, and uint16.
const DEPTHS: [DType; 5] = [DType::F16, DType::BF16, DType::F32, DType::F64, DType::U16];

/// A dtype's number in [`DEPTHS`].
pub(crate) fn depth_number(dtype: DType) -> u32 {
    DEPTHS.iter().position(|known| *known == dtype).unwrap_or(0) as u32
}

impl<'a> DepthImage<'a> {
    /// The data tensors with their names.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = (&'static str, &TensorRef<'a>)> {
        let camera = self.intrinsics.tensor().map(|camera| ("intrinsics", camera));
        let pose = self.extrinsics.as_ref().and_then(Small::tensor).map(|pose| ("extrinsics", pose));
        [("depth", &self.depth)].into_iter().chain(camera).chain(pose)
    }

    /// The same in other memory.
    pub(crate) fn on<'t>(&self, tensors: &mut Tensors<'t>) -> DepthImage<'t>
    where
        'a: 't,
    {
        DepthImage {
            depth: tensors.next(),
            intrinsics: self.intrinsics.on(tensors),
            extrinsics: self.extrinsics.map(|pose| pose.on(tensors)),
            depth_scale: self.depth_scale,
        }
    }

    /// The axes that each of the inputs of images, which were checked, has beside the batch.
    fn axes(&self, image: Option<&Image>) -> impl Iterator<Item = usize> + use<> {
        let camera = self.intrinsics.tensor().and(image).map(|image| camera_axes(image.camera));
        let pose = self.extrinsics.as_ref().and_then(Small::tensor).and(image).and_then(|image| image.pose);
        [2].into_iter().chain(camera).chain(pose.map(pose_axes))
    }

    /// The data tensors with the axes that each has beside the batch.
    pub(crate) fn inputs_and_axes(&self, cloud: &Cloud) -> impl Iterator<Item = (&TensorRef<'a>, usize)> {
        self.inputs().map(|(_, tensor)| tensor).zip(self.axes(cloud.image.as_ref()))
    }

    /// The cloud that the pixels are.
    pub(crate) fn check(&self) -> Result<Cloud> {
        self.depth.layout().expect_rank("depth", &[2, 3], "[B,H,W] or [H,W]")?;
        let dtype = self.depth.dtype();
        ensure!(DEPTHS.contains(&dtype), "depth", "expected uint16 or floats, got {dtype}");
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
        let count = height.checked_mul(width);
        Ok(Cloud {
            has_batch: batch.size.is_some(),
            batch: batch.size.map_or(1, |(size, _)| size),
            count: count.ok_or_else(|| Error::invalid("depth", "more pixels than can be numbered"))?,
            point_strides: strides(&self.depth),
            length_stride: 0,
            image: Some(Image { height, width, camera, pose: pose.map(|pose| pose.form) }),
        })
    }

    /// The camera of an image that was checked.
    pub(crate) fn camera(&self, image: &Image) -> Camera<'a> {
        Camera { source: self.intrinsics, form: image.camera }
    }

    /// Its pose, where it has one.
    pub(crate) fn pose(&self, image: &Image) -> Option<Pose<'a>> {
        self.extrinsics.zip(image.pose).map(|(source, form)| Pose { source, form })
    }

    /// What all pixels of an image have in common, on the host.
    pub(crate) fn lens(&self, image: &Image, row: usize) -> Lens {
        Lens {
            camera: self.camera(image).numbers(row).map(|number| number as f32),
            matrix: self.pose(image).map(|pose| pose.matrix(row).map(|number| number as f32)),
            scale: self.depth_scale as f32,
        }
    }
}

/// Where an op takes its points from.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::large_enum_variant, reason = "made once for each call, and ops never allocate")]
pub enum PointSource<'a> {
    /// `[B,N,3]` or `[N,3]` floats.
    Cloud(TensorRef<'a>),
    /// The pixels of depth images, as `unproject` would write them: float32.
    Depth(DepthImage<'a>),
}

impl<'a> From<TensorRef<'a>> for PointSource<'a> {
    fn from(points: TensorRef<'a>) -> Self {
        Self::Cloud(points)
    }
}

impl<'a> From<DepthImage<'a>> for PointSource<'a> {
    fn from(image: DepthImage<'a>) -> Self {
        Self::Depth(image)
    }
}

impl<'a> PointSource<'a> {
    /// The data tensors with their names.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = (&'static str, &TensorRef<'a>)> {
        let (points, image) = match self {
            Self::Cloud(points) => (Some(("points", points)), None),
            Self::Depth(image) => (None, Some(image)),
        };
        points.into_iter().chain(image.into_iter().flat_map(DepthImage::inputs))
    }

    /// The data tensors with the axes that each has beside the batch.
    pub(crate) fn inputs_and_axes(&self, cloud: &Cloud) -> impl Iterator<Item = (&TensorRef<'a>, usize)> {
        let (points, image) = match self {
            Self::Cloud(points) => (Some((points, 2)), None),
            Self::Depth(image) => (None, Some(image)),
        };
        points.into_iter().chain(image.into_iter().flat_map(|image| image.inputs_and_axes(cloud)))
    }

    /// The same in other memory.
    pub(crate) fn on<'t>(&self, tensors: &mut Tensors<'t>) -> PointSource<'t>
    where
        'a: 't,
    {
        match self {
            Self::Cloud(_) => PointSource::Cloud(tensors.next()),
            Self::Depth(image) => PointSource::Depth(image.on(tensors)),
        }
    }

    /// Checks where the points come from, and lengths; `batch` has taken in the other arguments.
    pub(crate) fn check(&self, lengths: Option<TensorRef<'_>>, mut batch: Batch) -> Result<Cloud> {
        let image = match self {
            Self::Cloud(points) => return Cloud::new(points, lengths, batch),
            Self::Depth(image) => image.check()?,
        };
        if image.has_batch {
            batch.add_size("depth", image.batch)?;
        }
        check_lengths(lengths, &mut batch)?;
        Ok(Cloud {
            has_batch: batch.size.is_some(),
            batch: batch.size.map_or(1, |(size, _)| size),
            length_stride: lengths.map_or(0, |lengths| strides::<1>(&lengths)[0]),
            ..image
        })
    }

    /// What a coordinate is held in.
    pub(crate) fn dtype(&self) -> DType {
        match self {
            Self::Cloud(points) => points.dtype(),
            Self::Depth(_) => DType::F32,
        }
    }

    /// The argument that the points are.
    pub(crate) fn argument(&self) -> &'static str {
        match self {
            Self::Cloud(_) => "points",
            Self::Depth(_) => "depth",
        }
    }

    /// The op that users called for such points.
    pub(crate) fn op(&self) -> &'static str {
        match self {
            Self::Cloud(_) => "voxelize",
            Self::Depth(_) => "voxelize_depth",
        }
    }
}

/// Calls `$function(points, ..)` with what reads the points of a source on the host.
macro_rules! with_source {
    ($source:expr, $cloud:expr, $function:ident $(::<$($more:ty),+>)?, $($argument:expr),* $(,)?) => {{
        use $crate::ops::cloud::Points;
        use $crate::ops::depth::{Pixels, PointSource};
        match $source {
            PointSource::Depth(image) => match Pixels::new(image, $cloud) {
                Some(pixels) => $function$(::<$($more),+>)?(pixels, $($argument),*),
                None => Err($crate::Error::invalid("depth", "was not checked")),
            },
            PointSource::Cloud(points) => match points.dtype() {
                $crate::DType::F16 => {
                    $function$(::<$($more),+>)?(Points::<half::f16>::new(points, $cloud), $($argument),*)
                }
                $crate::DType::BF16 => {
                    $function$(::<$($more),+>)?(Points::<half::bf16>::new(points, $cloud), $($argument),*)
                }
                $crate::DType::F32 => $function$(::<$($more),+>)?(Points::<f32>::new(points, $cloud), $($argument),*),
                _ => $function$(::<$($more),+>)?(Points::<f64>::new(points, $cloud), $($argument),*),
            },
        }
    }};
}
pub(crate) use with_source;

/// What a pixel holds.
pub(crate) trait Depth: Copy + Send + Sync {
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

/// Pixels that are looked at together, as the numbers that they hold and where they lie.
pub(crate) struct Seen {
    pub(crate) depths: [f32; BLOCK],
    pub(crate) columns: [f32; BLOCK],
    /// `(v - cy) / fy` of their lines.
    pub(crate) slopes: [f32; BLOCK],
}

impl Seen {
    pub(crate) const NOTHING: Self = Self { depths: [0.0; BLOCK], columns: [0.0; BLOCK], slopes: [0.0; BLOCK] };
}

/// What all pixels of an image have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lens {
    camera: [f32; 4],
    matrix: Option<[f32; 12]>,
    scale: f32,
}

impl Lens {
    /// Of a line of the image.
    #[inline(always)]
    pub(crate) fn slope(&self, v: usize) -> f32 {
        let [_, fy, _, cy] = self.camera;
        (v as f32 - cy) / fy
    }

    /// The point of a pixel before the pose, and whether it is one.
    #[inline(always)]
    fn ray(&self, depth: f32, column: f32, slope: f32) -> ([f32; 3], bool) {
        let [fx, _, cx, _] = self.camera;
        let z = depth * self.scale;
        let good = (depth > 0.0) & z.is_finite();
        ([(column - cx) / fx * z, slope * z, z], good)
    }

    /// The points of pixels, NaN where their depth is none; `good` tells which those are not.
    #[inline(always)]
    pub(crate) fn points(&self, seen: &Seen, to: &mut Block<f32>, good: &mut [bool; BLOCK]) {
        for lane in 0..BLOCK {
            let (point, is_good) = self.ray(seen.depths[lane], seen.columns[lane], seen.slopes[lane]);
            [to[0][lane], to[1][lane], to[2][lane]] = point;
            good[lane] = is_good;
        }
        if let Some(matrix) = &self.matrix {
            super::transform_points::transform_block(matrix, to);
        }
        for axis in to {
            for (number, &good) in axis.iter_mut().zip(&*good) {
                *number = if good { *number } else { f32::NAN };
            }
        }
    }

    /// The point of one pixel: the same bits.
    #[inline(always)]
    fn point(&self, depth: f32, u: usize, v: usize) -> [f32; 3] {
        let (point, good) = self.ray(depth, u as f32, self.slope(v));
        let point = self.matrix.as_ref().map_or(point, |matrix| transform(matrix, point));
        if good { point } else { [f32::NAN; 3] }
    }
}

/// The pixels of images on the host.
#[derive(Clone, Copy)]
pub(crate) struct Pixels<'a> {
    source: &'a DepthImage<'a>,
    image: Image,
    strides: [isize; 3],
}

impl<'a> Pixels<'a> {
    /// The pixels of an image that `cloud` was made from.
    pub(crate) fn new(source: &'a DepthImage<'a>, cloud: &Cloud) -> Option<Self> {
        Some(Self { source, image: cloud.image?, strides: cloud.point_strides })
    }

    fn offset(&self, row: usize, v: usize, u: usize) -> isize {
        let [row_step, line, column] = self.strides;
        (row as isize).wrapping_mul(row_step).wrapping_add(v as isize * line).wrapping_add(u as isize * column)
    }

    /// Line and column of a pixel.
    #[inline(always)]
    fn place(&self, index: usize) -> (usize, usize) {
        let width = self.image.width.max(1);
        (index / width, index % width)
    }

    /// The depth of pixels of a line.
    ///
    /// # Safety
    /// They must exist, from the offset on.
    #[inline(always)]
    pub(crate) unsafe fn depths(&self, offset: isize, to: &mut [f32]) {
        /// # Safety
        /// As above.
        #[inline(always)]
        unsafe fn read<T: Depth>(from: *const T, step: isize, to: &mut [f32]) {
            // SAFETY: the caller's promise.
            unsafe {
                if step == 1 {
                    let from = std::slice::from_raw_parts(from, to.len());
                    to.iter_mut().zip(from).for_each(|(to, from)| *to = from.widen());
                } else {
                    to.iter_mut().enumerate().for_each(|(i, to)| *to = (*from.offset(i as isize * step)).widen());
                }
            }
        }
        let (data, step) = (self.source.depth.data(), self.strides[2]);
        // SAFETY: the caller's promise, and the type is that of the tensor.
        unsafe {
            match self.source.depth.dtype() {
                DType::U16 => read(data.cast::<u16>().offset(offset), step, to),
                DType::F16 => read(data.cast::<half::f16>().offset(offset), step, to),
                DType::BF16 => read(data.cast::<half::bf16>().offset(offset), step, to),
                DType::F32 => read(data.cast::<f32>().offset(offset), step, to),
                _ => read(data.cast::<f64>().offset(offset), step, to),
            }
        }
    }

    /// Looks at the pixels `first..end`, at most a block of them; a block may reach over several lines.
    ///
    /// # Safety
    /// As for [`ReadPoints::read`].
    #[inline(always)]
    pub(crate) unsafe fn look(&self, (row, lens): &(usize, Lens), first: usize, end: usize, seen: &mut Seen) {
        let count = (end - first).min(BLOCK);
        let (mut v, mut u) = self.place(first);
        let mut done = 0;
        while done < count {
            let lanes = done..done + (self.image.width - u).min(count - done);
            // SAFETY: the caller's promise.
            unsafe { self.depths(self.offset(*row, v, u), &mut seen.depths[lanes.clone()]) };
            for (index, column) in seen.columns[lanes.clone()].iter_mut().enumerate() {
                // By way of f64, which holds every column, and which vectors can add to.
                *column = (u as f64 + index as f64) as f32;
            }
            done = lanes.end;
            seen.slopes[lanes].fill(lens.slope(v));
            (v, u) = (v + 1, 0);
        }
    }
}

impl ReadPoints for Pixels<'_> {
    type Number = f32;
    type Row = (usize, Lens);

    fn row(&self, row: usize) -> (usize, Lens) {
        (row, self.source.lens(&self.image, row))
    }

    #[inline(always)]
    unsafe fn read(&self, row: &(usize, Lens), first: usize, end: usize, to: &mut Block<f32>) {
        let mut seen = Seen::NOTHING;
        // SAFETY: the caller's promise.
        unsafe { self.look(row, first, end, &mut seen) };
        row.1.points(&seen, to, &mut [false; BLOCK]);
    }

    #[inline(always)]
    unsafe fn at(&self, (row, lens): &(usize, Lens), index: usize) -> [f32; 3] {
        let (v, u) = self.place(index);
        let mut depth = [0.0];
        // SAFETY: the caller's promise.
        unsafe { self.depths(self.offset(*row, v, u), &mut depth) };
        lens.point(depth[0], u, v)
    }

    #[inline(always)]
    fn prefetch(&self, (row, _): &(usize, Lens), index: usize) {
        let (v, u) = self.place(index);
        let size = self.source.depth.dtype().size() as isize;
        prefetch(self.source.depth.data().wrapping_offset(self.offset(*row, v, u).wrapping_mul(size)));
    }
}
