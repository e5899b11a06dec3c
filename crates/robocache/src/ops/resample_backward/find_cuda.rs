//! Which targets were made of which samples, on CUDA: the first half of gradients that
//! are more than weights or of values that a batch shares, and the memory that it fills.

use super::dims::Dims;
use crate::cuda::{GpuInfo, Grid, KernelFamily, Launcher, Parts, STATIC_SHARED};
use crate::ops::align::{Method, STAGE, STAMPS, flags_of, stamp_number};
use crate::ops::resample::Resample;
use crate::tensor::{DType, TensorRef};
use crate::{Result, ensure};

/// The kernels, by stamps and what sums are made in.
pub(crate) static FIND_KERNELS: KernelFamily = KernelFamily {
    source: include_str!("find.cu"),
    headers: &[
        ("locate.cuh", include_str!("../align/locate.cuh")),
        ("rows.cuh", include_str!("../align/rows.cuh")),
        ("links.cuh", include_str!("links.cuh")),
    ],
    variants: || (0..6).collect(),
    entry: |number| {
        format!("rc_resample_backward_find_{}_{}", SUMS[number as usize / 3].0, STAMPS[number as usize % 3].0)
    },
    options: |number| {
        vec![
            format!("-DRC_STAMP={}", STAMPS[number as usize % 3].1),
            format!("-DRC_SUM_TYPE={}", SUMS[number as usize / 3].1),
            format!("-DRC_ARGS_SIZE={}", size_of::<Args>()),
        ]
    },
};

const SUMS: [(&str, &str); 2] = [("float32", "float"), ("float64", "double")];

/// Mirrors `Args` in find.cu; the kernels assert the size.
#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    times: *const u8,
    targets: *const u8,
    lengths: *const u8,
    target_lengths: *const u8,
    links: LinkPointers,
    gaps: *mut u8,
    time_strides: [i64; 2],
    target_strides: [i64; 2],
    length_stride: i64,
    target_length_stride: i64,
    first_row: i64,
    samples: u32,
    target_count: u32,
    part: u32,
    parts: u32,
    method: u32,
    extrapolate: u32,
    flags: u32,
    padding: u32,
}

/// Beside the flags of rows.cuh.
const NEAR: u32 = 16;

const THREADS: u32 = 256;
/// Targets of a block, at least and at most.
const PARTS: (u32, u32) = (256, 4096);
/// Samples and targets of a row are fewer.
const MOST: usize = 1 << 30;
/// Numbers of `starts` beside those of samples.
const MORE: usize = 3;

/// Mirrors the pointers of `Links` in links.cuh.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct LinkPointers {
    starts: *mut u32,
    weights: *mut u8,
    order: *mut u32,
}

impl LinkPointers {
    /// Of a kernel that reads none.
    pub(super) const NONE: Self =
        Self { starts: std::ptr::null_mut(), weights: std::ptr::null_mut(), order: std::ptr::null_mut() };
}

/// The memory of a call, for one method at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    starts: usize,
    weights: usize,
    order: usize,
    gaps: Option<usize>,
    bytes: usize,
}

impl Memory {
    pub(super) fn new(dims: &Dims) -> Result<Self> {
        let forward = &dims.forward;
        for (argument, count) in [("values", forward.samples), ("targets", forward.targets)] {
            ensure!(count < MOST, argument, "a row of {count} has no gradient on a GPU: fewer than 2^30 have");
        }
        let sum = dims.accumulator.size();
        let curves = forward.ranges.iter().any(|range| range.method == Method::Cubic);
        let mut parts = Parts::default();
        let mut of = |count: usize, size: usize| parts.add(forward.batch.saturating_mul(count).saturating_mul(size));
        let starts = of(forward.samples + MORE, 4);
        let [weights, order] = [sum, 4].map(|size| of(forward.targets, size));
        let gaps = curves.then(|| of(forward.samples, 2 * sum));
        Ok(Self { starts, weights, order, gaps, bytes: parts.bytes() })
    }

    /// To ask for.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn links(&self, base: *mut u8) -> LinkPointers {
        LinkPointers {
            starts: base.wrapping_add(self.starts).cast(),
            weights: base.wrapping_add(self.weights),
            order: base.wrapping_add(self.order).cast(),
        }
    }

    /// Gaps beside intervals, where the call has curves.
    pub(super) fn gaps(&self, base: *mut u8) -> *mut u8 {
        self.gaps.map_or(std::ptr::null_mut(), |gaps| base.wrapping_add(gaps))
    }
}

/// Queues the search of what each target was made of, by the rule of a method. `base`: the start of the memory.
pub(super) fn find(
    call: &Resample<'_>,
    dims: &Dims,
    rule: Method,
    (memory, base): (&Memory, *mut u8),
    launcher: &Launcher<'_>,
) -> Result<()> {
    let forward = &dims.forward;
    let stamp = stamp_number(call.times.dtype());
    let variant = u32::from(stamp) + 3 * u32::from(dims.accumulator == DType::F64);
    let plan = Plan::new(dims, STAMPS[usize::from(stamp)].2, launcher.gpu().info());
    let pointer = |tensor: &Option<TensorRef<'_>>| tensor.map_or(std::ptr::null(), |tensor| tensor.data());
    let args = Args {
        times: call.times.data(),
        targets: call.targets.data(),
        lengths: pointer(&call.lengths),
        target_lengths: pointer(&call.target_lengths),
        links: memory.links(base),
        // Curves are found by this rule.
        gaps: if rule == Method::Linear { memory.gaps(base) } else { std::ptr::null_mut() },
        time_strides: forward.time_strides.map(|stride| stride as i64),
        target_strides: forward.target_strides.map(|stride| stride as i64),
        length_stride: forward.length_stride as i64,
        target_length_stride: forward.target_length_stride as i64,
        first_row: 0,
        samples: forward.samples as u32,
        target_count: forward.targets as u32,
        part: plan.part,
        parts: plan.parts,
        method: rule as u32,
        extrapolate: call.extrapolate as u32,
        flags: flags_of(&call.arguments(), call.check)
            | if plan.stage { STAGE } else { 0 }
            | if plan.near { NEAR } else { 0 },
        padding: 0,
    };
    Grid::in_parts("values", forward.batch as u64, u64::from(plan.parts), |first_row, blocks| {
        let grid = Grid { blocks, threads: THREADS, shared: plan.shared };
        // SAFETY: the views were checked against dims and live on this GPU, as does the workspace; the framework keeps
        // them until the stream has passed.
        unsafe { launcher.launch(&FIND_KERNELS, variant, grid, &Args { first_row: first_row as i64, ..args }) }
    })
}

/// How the work is cut.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    part: u32,
    parts: u32,
    stage: bool,
    near: bool,
    shared: u32,
}

impl Plan {
    fn new(dims: &Dims, stamp_bytes: u32, gpu: &GpuInfo) -> Self {
        let forward = &dims.forward;
        let (samples, targets) = (forward.samples as u64, forward.targets as u64);
        let blocks = 3 * u64::from(gpu.multiprocessors);
        // Every block looks at its whole row, so there are more of them only where they keep the GPU busy.
        let wanted = blocks.div_ceil(forward.batch.max(1) as u64);
        let part = targets.div_ceil(wanted.max(1)).clamp(u64::from(PARTS.0), u64::from(PARTS.1)) as u32;
        let parts = targets.div_ceil(u64::from(part)).max(1) as u32;
        let most = u64::from(gpu.shared_memory.saturating_sub(STATIC_SHARED));
        let listing = 4 * (u64::from(part) + 1);
        let stamps = (samples * u64::from(stamp_bytes)).next_multiple_of(16);
        // Two blocks to a multiprocessor at least.
        let stage = stamps + listing <= most / 2;
        let stamps = if stage { stamps } else { 0 };
        let sorting = 4 * (samples + 2);
        let near = stamps + sorting <= most / 3;
        let shared = stamps + if near { sorting.max(listing) } else { listing };
        Self { part, parts, stage, near, shared: shared as u32 }
    }
}
