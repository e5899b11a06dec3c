//! The scan of `kernels/scan.cu`.

use super::clear::clear;
use super::launch::{Grid, KernelFamily, Launcher};
use crate::Result;

/// The kernel.
pub(crate) static SCAN_KERNELS: KernelFamily = KernelFamily {
    source: include_str!("../../kernels/scan.cu"),
    headers: &[],
    variants: || vec![0],
    entry: |_| "rc_scan".to_owned(),
    options: |_| vec![format!("-DRC_ARGS_SIZE={}", size_of::<ScanArgs>())],
};

const TILE: usize = 4096;

/// Mirrors `Args` in scan.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct ScanArgs {
    numbers: *mut u32,
    total: *mut u32,
    status: *mut u64,
    ticket: *mut u32,
    count: u64,
    tiles: u64,
}

/// A scan of `count` numbers, whose sum fits 32 bits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scan {
    pub(crate) count: usize,
}

impl Scan {
    fn tiles(self) -> usize {
        self.count.div_ceil(TILE)
    }

    /// Bytes that the numbers must have: whole tiles.
    pub(crate) fn number_bytes(self) -> usize {
        self.tiles().saturating_mul(TILE * 4)
    }

    /// Bytes of what tiles tell each other.
    pub(crate) fn state_bytes(self) -> usize {
        self.tiles().saturating_mul(8).saturating_add(16)
    }

    /// Replaces each number by the sum of all before it; `total`, unless null, gets the sum of all.
    /// Nothing for no numbers, not even the total.
    ///
    /// # Safety
    /// Numbers, aligned to 16 bytes, and state must be there, on the launcher's GPU, until the stream
    /// has passed.
    pub(crate) unsafe fn run(
        self,
        launcher: &Launcher<'_>,
        numbers: *mut u32,
        total: *mut u32,
        state: *mut u8,
    ) -> Result<()> {
        if self.count == 0 && !launcher.only_loads() {
            return Ok(());
        }
        let status = state.wrapping_add(16).cast();
        let args = ScanArgs {
            numbers,
            total,
            status,
            ticket: state.cast(),
            count: self.count as u64,
            tiles: self.tiles() as u64,
        };
        let grid = Grid { shared: 64, ..Grid::for_blocks(args.tiles) };
        // SAFETY: the caller's promise.
        unsafe {
            clear(launcher, &[(state, self.state_bytes())])?;
            launcher.launch(&SCAN_KERNELS, 0, grid, &args)
        }
    }
}
