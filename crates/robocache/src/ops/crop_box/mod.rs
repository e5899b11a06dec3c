//! Points within a box: `low <= p < high` along every axis, with the bounds rounded to what the points
//! compute in. NaN lies in no box.

mod cpu;
mod cuda;

pub(crate) use cuda::KERNELS;

use super::cloud::Cloud;
use super::rows::{Batch, check_length_values, strides};
use crate::chunks::{Cuts, Tensors};
use crate::cuda::{GpuInfo, Launcher};
use crate::tensor::{DType, TensorRef};
use crate::{Context, Op, OutputSpec, Outputs, Result, ensure};

/// Output 0 is `out [B,N]` bool, or with `compact` `out [B,N,3]` with the points that lie inside first,
/// in their order, then NaN; `index [B,N]` int64, where they were, then -1; and `kept [B]` int64.
#[derive(Debug, Clone)]
pub struct CropBox<'a> {
    /// `[B,N,3]` or `[N,3]` floats.
    pub points: TensorRef<'a>,
    /// The lower corner, inside.
    pub low: [f64; 3],
    /// The upper corner, outside.
    pub high: [f64; 3],
    /// `[B]` int32 or int64: how many points of each row exist; padding lies outside.
    pub lengths: Option<TensorRef<'a>>,
    /// Whether to write the points instead of a mask.
    pub compact: bool,
    /// Whether to look for bad lengths. Without it they are clamped.
    pub check: bool,
}

impl Op for CropBox<'_> {
    const NAME: &'static str = "crop_box";
    type Dims = Cloud;
    type On<'t>
        = CropBox<'t>
    where
        Self: 't;

    fn inputs(&self) -> impl Iterator<Item = (&'static str, &TensorRef<'_>)> {
        [("points", &self.points)].into_iter().chain(self.lengths.as_ref().map(|x| ("lengths", x)))
    }

    fn check(&self) -> Result<Cloud> {
        let cloud = Cloud::new(&self.points, self.lengths, Batch::default())?;
        for (name, corner) in [("low", self.low), ("high", self.high)] {
            ensure!(!corner.iter().any(|x| x.is_nan()), name, "expected three numbers, got {corner:?}");
        }
        Ok(cloud)
    }

    fn cuts(&self, cloud: &Cloud) -> Option<Cuts> {
        let cuts = Cuts::new(cloud.has_batch, cloud.batch);
        // Lengths count from the start of a row, and so does what is compacted.
        let whole_rows = self.lengths.is_some() || self.compact;
        let cuts = if whole_rows { cuts } else { cuts.items("point", cloud.count) };
        Some(cuts.input_of_items(&self.points, 2, 0).inputs(self.lengths.as_ref().map(|lengths| (lengths, 0))))
    }

    fn on<'t>(&'t self, mut tensors: Tensors<'t>) -> CropBox<'t> {
        CropBox { points: tensors.next(), lengths: tensors.next_if(self.lengths.is_some()), ..self.clone() }
    }

    fn outputs(&self, cloud: &Cloud) -> Result<Vec<OutputSpec>> {
        let shape = [cloud.batch, cloud.count, 3];
        if !self.compact {
            return Ok(vec![OutputSpec::new("out", DType::Bool, cloud.shape(&shape[..2]))?]);
        }
        Ok(vec![
            OutputSpec::new("out", self.points.dtype(), cloud.shape(&shape))?,
            OutputSpec::new("index", DType::I64, cloud.shape(&shape[..2]))?,
            OutputSpec::new("kept", DType::I64, cloud.shape(&shape[..1]))?,
        ])
    }

    fn workspace(&self, cloud: &Cloud, gpu: Option<&GpuInfo>) -> Result<usize> {
        gpu.map_or(Ok(0), |_| cuda::workspace(self, cloud))
    }

    fn cpu(&self, cloud: &Cloud, out: &mut Outputs<'_, '_>, context: &Context<'_>) -> Result<()> {
        if self.check {
            check_length_values(self.lengths, cloud.batch, cloud.count)?;
        }
        cpu::crop(self, cloud, out, context)
    }

    fn cuda(&self, cloud: &Cloud, out: &mut Outputs<'_, '_>, launcher: &Launcher<'_>) -> Result<()> {
        cuda::crop(self, cloud, out, launcher)
    }
}

/// Addresses and strides (in elements) of the outputs; null where one was not asked for.
#[derive(Clone, Copy)]
struct Targets {
    mask: *mut u8,
    mask_strides: [isize; 2],
    out: *mut u8,
    out_strides: [isize; 3],
    index: *mut i64,
    index_strides: [isize; 2],
    kept: *mut i64,
    kept_stride: isize,
}

impl Targets {
    fn new(op: &CropBox<'_>, out: &mut Outputs<'_, '_>) -> Self {
        let mut found = Self {
            mask: std::ptr::null_mut(),
            mask_strides: [0; 2],
            out: std::ptr::null_mut(),
            out_strides: [0; 3],
            index: std::ptr::null_mut(),
            index_strides: [0; 2],
            kept: std::ptr::null_mut(),
            kept_stride: 0,
        };
        if !op.compact {
            if let Some(mask) = out.get(0) {
                found.mask_strides = strides(mask.view());
                found.mask = mask.data_mut();
            }
            return found;
        }
        if let Some(points) = out.get(0) {
            found.out_strides = strides(points.view());
            found.out = points.data_mut();
        }
        if let Some(index) = out.get(1) {
            found.index_strides = strides(index.view());
            found.index = index.data_mut().cast();
        }
        if let Some(kept) = out.get(2) {
            found.kept_stride = strides::<1>(kept.view())[0];
            found.kept = kept.data_mut().cast();
        }
        found
    }
}
