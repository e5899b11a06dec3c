//! The gradient of `resample` on CUDA: methods that are linear in the values go through `rows_cuda`; others, and
//! values that a batch shares, through `find_cuda` and `gather_cuda`.

use super::ResampleBackward;
use super::call::{Call, rule_of};
use super::dims::Dims;
use super::find_cuda::{Memory, find};
use super::gather_cuda::{add_groups, gather};
use super::rows_cuda::sum_rows;
use crate::cuda::{Launcher, Parts};
use crate::ops::align::{ColumnRange, strides};
use crate::{Outputs, Result};

/// Whether there is nothing to compute.
fn is_empty(dims: &Dims) -> bool {
    let forward = &dims.forward;
    forward.width == 0 || forward.samples == 0 || (forward.batch == 0 && dims.groups.is_none())
}

/// Whether targets are listed by their samples before they are summed up.
fn is_listed(dims: &Dims, range: &ColumnRange) -> bool {
    dims.groups.is_some() || range.method.reads_values()
}

/// Bytes of memory that a call needs while it runs.
pub(super) fn workspace(dims: &Dims) -> Result<usize> {
    if is_empty(dims) {
        return Ok(0);
    }
    if dims.forward.ranges.iter().any(|range| is_listed(dims, range)) {
        return Ok(Memory::new(dims)?.bytes());
    }
    Ok(0)
}

pub(super) fn backward(
    op: &ResampleBackward<'_>,
    dims: &Dims,
    out: &mut Outputs<'_, '_>,
    launcher: &Launcher<'_>,
) -> Result<()> {
    if is_empty(dims) {
        return Ok(());
    }
    let base = Parts::base(out.workspace());
    let partial = dims.groups.and_then(|_| out.get(1)).map(|partial| partial.data_mut());
    let Some(output) = out.get(0) else {
        return Ok(());
    };
    let call = Call {
        forward: &op.forward,
        grad: &op.grad,
        dims,
        out_strides: strides(output.view()),
        out: output.data_mut(),
    };
    let mut found = None;
    for range in dims.forward.ranges.iter() {
        if !is_listed(dims, range) {
            sum_rows(&call, range, launcher)?;
            continue;
        }
        let memory = Memory::new(dims)?;
        let rule = rule_of(range);
        if found != Some(rule) {
            find(&op.forward, dims, rule, (&memory, base), launcher)?;
            found = Some(rule);
        }
        gather(&call, range, partial, (&memory, base), launcher)?;
    }
    partial.map_or(Ok(()), |partial| add_groups(&call, partial, launcher))
}
