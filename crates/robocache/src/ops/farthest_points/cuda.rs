//! `farthest_points` on CUDA: one block for each row.

use super::{FarthestPoints, bad_length};
use crate::cuda::{CloudArgs, Finding, Grid, KernelFamily, Launcher, Parts, Reports};
use crate::ops::cloud::Cloud;
use crate::ops::rows::strides;
use crate::ops::scalar::{FLOATS, float_number};
use crate::tensor::DType;
use crate::{Error, Outputs, Result};

/// Points of a thread whose distances stay in registers: as many as 1024 threads have room for.
const fn per_thread(wide: bool) -> usize {
    if wide { 8 } else { 16 }
}
const MOST_THREADS: usize = 1024;
/// Two rounds of what 32 warps found.
const FOUND_BYTES: usize = 2 * 32 * 16;

/// The kernels, by the points' type and whether a row stays within a multiprocessor.
pub(crate) static KERNELS: KernelFamily = KernelFamily {
    source: include_str!("farthest.cu"),
    headers: &[],
    variants: || (0..8).collect(),
    entry: |number| {
        format!("rc_farthest_points_{}_{}", if number < 4 { "near" } else { "far" }, FLOATS[number as usize % 4].0)
    },
    options: |number| {
        vec![
            format!("-DRC_POINT={}", FLOATS[number as usize % 4].1),
            format!("-DRC_NEAR={}", u8::from(number < 4)),
            format!("-DRC_PER_THREAD={}", per_thread(number % 4 == 3)),
            format!("-DRC_ARGS_SIZE={}", size_of::<Args>()),
        ]
    },
};

/// Mirrors `Args` in farthest.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    cloud: CloudArgs,
    index: *mut i64,
    index_strides: [i64; 2],
    distances: *mut u8,
    k: i64,
    start: i64,
    least: i64,
}

fn compute_bytes(op: &FarthestPoints<'_>) -> usize {
    if op.points.dtype() == DType::F64 { 8 } else { 4 }
}

/// Points of a row that one block keeps.
fn most_near(op: &FarthestPoints<'_>) -> usize {
    MOST_THREADS * per_thread(op.points.dtype() == DType::F64)
}

/// Distances of rows that do not fit a multiprocessor; the GPU is not known yet, so it is asked for
/// where any might not take it.
pub(super) fn workspace(op: &FarthestPoints<'_>, cloud: &Cloud) -> Result<usize> {
    let mut parts = Parts::default();
    // Every GPU that is supported has 99 KiB of shared memory for a block.
    if shared_bytes(op, cloud) > 96 << 10 || cloud.count > most_near(op) {
        parts.add(cloud.total().saturating_mul(compute_bytes(op)));
    }
    Ok(parts.bytes())
}

fn shared_bytes(op: &FarthestPoints<'_>, cloud: &Cloud) -> usize {
    FOUND_BYTES + cloud.count.saturating_mul(3 * compute_bytes(op))
}

pub(super) fn farthest_points(
    op: &FarthestPoints<'_>,
    cloud: &Cloud,
    out: &mut Outputs<'_, '_>,
    launcher: &Launcher<'_>,
) -> Result<()> {
    let has_workspace = workspace(op, cloud)? > 0;
    let distances = if has_workspace { Parts::base(out.workspace()) } else { std::ptr::null_mut() };
    let Some(output) = out.get(0) else { return Ok(()) };
    if cloud.batch == 0 || op.k == 0 {
        return Ok(());
    }
    let shared = shared_bytes(op, cloud);
    // Static shared memory takes a little of what there is.
    let most = (launcher.gpu().info().shared_memory as usize).saturating_sub(1024);
    let near = !has_workspace || (shared <= most && cloud.count <= most_near(op));
    let args = Args {
        cloud: CloudArgs::new(&op.points, op.lengths, cloud, op.check, Some(&REPORTS), launcher),
        index_strides: strides::<2>(output.view()).map(|stride| stride as i64),
        index: output.data_mut().cast(),
        distances,
        k: op.k as i64,
        start: op.start as i64,
        least: op.least() as i64,
    };
    // Few threads wait less for each other; a row must have one for each 8 points.
    let threads = cloud.count.div_ceil(8).next_power_of_two().clamp(64, MOST_THREADS);
    let grid = Grid {
        threads: threads as u32,
        shared: if near { shared } else { FOUND_BYTES } as u32,
        ..Grid::for_blocks(cloud.batch as u64)
    };
    let variant = u32::from(float_number(op.points.dtype())) + if near { 0 } else { 4 };
    // SAFETY: the views were checked against the cloud and live on this GPU, as does the workspace;
    // the framework keeps them until the stream has passed.
    unsafe { launcher.launch(&KERNELS, variant, grid, &args) }
}

/// What kernels find in data.
static REPORTS: Reports = Reports::new(|finding| describe(finding).op("farthest_points"));

/// What a kernel found, in the words of the CPU.
fn describe(finding: &Finding) -> Error {
    bad_length(finding.row, finding.first as i64, finding.third, finding.second)
}
