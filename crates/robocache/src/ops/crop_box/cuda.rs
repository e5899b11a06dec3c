//! `crop_box` on CUDA: a mask, or flags, their scan and a move of the points.

use super::{CropBox, Targets};
use crate::cuda::{CloudArgs, Finding, KernelFamily, Launcher, Parts, Reports, Scan};
use crate::ops::cloud::Cloud;
use crate::ops::rows::bad_length;
use crate::ops::scalar::{FLOATS, float_number};
use crate::{Error, ErrorKind, Outputs, Result};

/// The kernels, by stage (mask, flags, move) and the points' type.
pub(crate) static KERNELS: KernelFamily = KernelFamily {
    source: include_str!("crop.cu"),
    headers: &[],
    variants: || (0..12).collect(),
    entry: |number| {
        let stage = ["mask", "flags", "move"][number as usize / 4 % 3];
        format!("rc_crop_box_{stage}_{}", FLOATS[number as usize % 4].0)
    },
    options: |number| {
        vec![
            format!("-DRC_POINT={}", FLOATS[number as usize % 4].1),
            format!("-DRC_STAGE={}", number / 4),
            format!("-DRC_ARGS_SIZE={}", size_of::<Args>()),
        ]
    },
};

/// Mirrors `Args` in crop.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    cloud: CloudArgs,
    low: [f64; 3],
    high: [f64; 3],
    flags: *mut u32,
    mask: *mut u8,
    mask_strides: [i64; 2],
    out: *mut u8,
    out_strides: [i64; 3],
    index: *mut i64,
    index_strides: [i64; 2],
    kept: *mut i64,
    kept_stride: i64,
}

/// One flag for each point, and one more after the last: where a row ends.
fn scan(cloud: &Cloud) -> Result<Scan> {
    if cloud.total() >= u32::MAX as usize {
        let text = format!("{} points; on a GPU fewer than {} can be compacted", cloud.total(), u32::MAX);
        return Err(Error::new(ErrorKind::Unsupported, text).argument("points"));
    }
    Ok(Scan { count: cloud.total() + 1 })
}

pub(super) fn workspace(op: &CropBox<'_>, cloud: &Cloud) -> Result<usize> {
    if !op.compact {
        return Ok(0);
    }
    let (scan, mut parts) = (scan(cloud)?, Parts::default());
    parts.add(scan.number_bytes());
    parts.add(scan.state_bytes());
    Ok(parts.bytes())
}

pub(super) fn crop(op: &CropBox<'_>, cloud: &Cloud, out: &mut Outputs<'_, '_>, launcher: &Launcher<'_>) -> Result<()> {
    if cloud.batch == 0 {
        return Ok(());
    }
    let targets = Targets::new(op, out);
    let rounded = |x: f64| if op.points.dtype() == crate::DType::F64 { x } else { f64::from(x as f32) };
    let base = if op.compact { Parts::base(out.workspace()) } else { std::ptr::null_mut() };
    let args = Args {
        cloud: CloudArgs::new(&op.points, op.lengths, cloud, op.check, Some(&REPORTS), launcher),
        low: op.low.map(rounded),
        high: op.high.map(rounded),
        flags: base.cast(),
        mask: targets.mask,
        mask_strides: targets.mask_strides.map(|stride| stride as i64),
        out: targets.out,
        out_strides: targets.out_strides.map(|stride| stride as i64),
        index: targets.index,
        index_strides: targets.index_strides.map(|stride| stride as i64),
        kept: targets.kept,
        kept_stride: targets.kept_stride as i64,
    };
    let variant = |stage: u32| 4 * stage + u32::from(float_number(op.points.dtype()));
    // SAFETY: the views were checked against the cloud and live on this GPU, as does the workspace;
    // the framework keeps them until the stream has passed.
    unsafe {
        if !op.compact {
            return launcher.launch(&KERNELS, variant(0), args.cloud.grid(), &args);
        }
        let scan = scan(cloud)?;
        let mut parts = Parts::default();
        parts.add(scan.number_bytes());
        let state = base.wrapping_add(parts.add(scan.state_bytes()));
        launcher.launch(&KERNELS, variant(1), args.cloud.grid(), &args)?;
        scan.run(launcher, args.flags, std::ptr::null_mut(), state)?;
        launcher.launch(&KERNELS, variant(2), args.cloud.grid(), &args)
    }
}

/// What kernels find in data.
static REPORTS: Reports = Reports::new(|finding| describe(finding).op("crop_box"));

/// What a kernel found, in the words of the CPU.
fn describe(finding: &Finding) -> Error {
    bad_length(finding.row, finding.first as i64, finding.second)
}
