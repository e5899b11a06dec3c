//! Memory set to 0 before kernels count in it.

use super::launch::{Grid, KernelFamily, Launcher};
use crate::Result;

/// The kernel.
pub(crate) static CLEAR_KERNELS: KernelFamily = KernelFamily {
    source: include_str!("../../kernels/clear.cu"),
    headers: &[],
    variants: || vec![0],
    entry: |_| "rc_clear".to_owned(),
    options: |_| vec![format!("-DRC_ARGS_SIZE={}", size_of::<ClearArgs>())],
};

/// Mirrors `Args` in clear.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct ClearArgs {
    areas: [*mut u8; 3],
    bytes: [u64; 3],
}

/// Sets up to three areas, each of so many bytes, to 0; nothing for none.
///
/// # Safety
/// The areas must be writable on the launcher's GPU, until the stream has passed.
pub(crate) unsafe fn clear(launcher: &Launcher<'_>, areas: &[(*mut u8, usize)]) -> Result<()> {
    let mut args = ClearArgs { areas: [std::ptr::null_mut(); 3], bytes: [0; 3] };
    for (index, (area, bytes)) in areas.iter().filter(|(area, _)| !area.is_null()).take(3).enumerate() {
        args.areas[index] = *area;
        args.bytes[index] = *bytes as u64;
    }
    let most = args.bytes.iter().copied().max().unwrap_or(0);
    if most == 0 && !launcher.only_loads() {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe { launcher.launch(&CLEAR_KERNELS, 0, Grid::for_items(most.div_ceil(16)), &args) }
}
