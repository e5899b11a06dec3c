//! Conversions on CUDA: one launch, a thread for each row.

use super::representation::Representation;
use super::{Convert, Dims, Steps, steps};
use crate::cuda::{Grid, KernelFamily, Launcher};
use crate::ops::scalar::{FLOATS, float_number};
use crate::tensor::TensorRef;
use crate::{Outputs, Result};

/// The kernels, by whether they compute the gradient and by dtype.
pub(crate) static KERNELS: KernelFamily = KernelFamily {
    source: include_str!("rotation.cu"),
    headers: &[("rotation.cuh", include_str!("rotation.cuh"))],
    variants: || (0..8).collect(),
    entry: |number| {
        let way = ["convert", "backward"][number as usize / 4 % 2];
        format!("rc_rotation_{way}_{}", FLOATS[number as usize % 4].0)
    },
    options: |number| {
        vec![
            format!("-DRC_NUMBER={}", FLOATS[number as usize % 4].1),
            format!("-DRC_BACKWARD={}", number / 4),
            format!("-DRC_ARGS_SIZE={}", size_of::<Args>()),
        ]
    },
};

/// Threads of a block, and so rows of a tile.
const TILE: usize = 256;

/// Mirror `Flags` in rotation.cu.
const DENSE: u32 = 1;
const ALIGNED: u32 = 2;

/// Mirrors `Rows` in rotation.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct Rows {
    data: *mut u8,
    steps: [i64; 3],
    numbers: u32,
    flags: u32,
}

/// Mirrors `Args` in rotation.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    x: Rows,
    grad: Rows,
    out: Rows,
    rows: u64,
    source: u32,
    target: u32,
}

impl Rows {
    fn new(data: *mut u8, steps: Steps, representation: Representation, rows: usize) -> Self {
        let numbers = representation.numbers();
        let [row, three, one] = steps;
        let is_dense = one == 1 && three == 3 && (rows == 1 || row == numbers as isize);
        let is_aligned = (data as usize).is_multiple_of(16);
        let flags = if is_dense { DENSE } else { 0 } | if is_aligned { ALIGNED } else { 0 };
        Self { data, steps: steps.map(|step| step as i64), numbers: numbers as u32, flags }
    }

    fn of(tensor: &TensorRef<'_>, representation: Representation, rows: usize) -> Self {
        Self::new(tensor.data().cast_mut(), steps(tensor, representation), representation, rows)
    }

    /// Numbers of a tile that pass through shared memory.
    fn staged(&self) -> usize {
        if self.flags & DENSE == 0 { 0 } else { self.numbers as usize * TILE }
    }
}

/// The conversion, or its gradient where there is one in the result.
pub(super) fn launch(
    op: &Convert<'_>,
    grad: Option<&TensorRef<'_>>,
    dims: &Dims,
    out: &mut Outputs<'_, '_>,
    launcher: &Launcher<'_>,
) -> Result<()> {
    let Some(output) = out.get(0) else { return Ok(()) };
    if dims.rows == 0 {
        return Ok(());
    }
    let written = if grad.is_some() { op.source } else { op.target };
    let x = Rows::of(&op.x, op.source, dims.rows);
    let args = Args {
        x,
        grad: grad.map_or(x, |grad| Rows::of(grad, op.target, dims.rows)),
        out: Rows::new(output.data_mut(), steps(output.view(), written), written, dims.rows),
        rows: dims.rows as u64,
        source: op.source.code(),
        target: op.target.code(),
    };
    let staged = args.x.staged().max(args.grad.staged()).max(args.out.staged());
    let grid = Grid { shared: (staged * op.x.dtype().size()) as u32, ..Grid::for_items(dims.rows as u64) };
    let variant = u32::from(float_number(op.x.dtype())) + if grad.is_some() { 4 } else { 0 };
    // SAFETY: the views were checked against dims and live on this GPU; the framework keeps
    // them until the stream has passed.
    unsafe { launcher.launch(&KERNELS, variant, grid, &args) }
}
