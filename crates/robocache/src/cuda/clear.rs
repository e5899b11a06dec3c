//! Memory filled before kernels count or mark cells in it.

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
    areas: [*mut u8; AREAS],
    bytes: [u64; AREAS],
    patterns: [u64; AREAS],
}

/// Areas of a launch, at most.
const AREAS: usize = 4;
/// Bytes that a block fills.
const BLOCK_BYTES: u64 = 16 << 10;

/// Sets up to [`AREAS`] areas, each of so many bytes, to 0; nothing for none.
///
/// # Safety
/// As for [`fill`].
pub(crate) unsafe fn clear(launcher: &Launcher<'_>, areas: &[(*mut u8, usize)]) -> Result<()> {
    let mut zeros = [(std::ptr::null_mut(), 0, 0, 8); AREAS];
    for (zero, &(area, bytes)) in zeros.iter_mut().zip(areas) {
        *zero = (area, bytes, 0, 8);
    }
    // SAFETY: the caller's promise.
    unsafe { fill(launcher, &zeros) }
}

/// Fills up to [`AREAS`] areas, each of so many bytes, with elements of 1, 2, 4 or 8 bytes, given as the
/// lower part of a number; nothing for none.
///
/// # Safety
/// The areas must be writable on the launcher's GPU, until the stream has passed.
pub(crate) unsafe fn fill(launcher: &Launcher<'_>, areas: &[(*mut u8, usize, u64, usize)]) -> Result<()> {
    let mut args = ClearArgs { areas: [std::ptr::null_mut(); AREAS], bytes: [0; AREAS], patterns: [0; AREAS] };
    for (index, (area, bytes, element, size)) in areas.iter().filter(|area| !area.0.is_null()).take(AREAS).enumerate() {
        args.areas[index] = *area;
        args.bytes[index] = *bytes as u64;
        args.patterns[index] = repeated(*element, *size);
    }
    let most = args.bytes.iter().copied().max().unwrap_or(0);
    if most == 0 && !launcher.only_loads() {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe { launcher.launch(&CLEAR_KERNELS, 0, Grid::for_blocks(most.div_ceil(BLOCK_BYTES)), &args) }
}

/// Eight bytes of elements of this size.
fn repeated(element: u64, size: usize) -> u64 {
    match size {
        1 => (element & 0xff) * 0x0101_0101_0101_0101,
        2 => (element & 0xffff) * 0x0001_0001_0001_0001,
        4 => (element & 0xffff_ffff) * 0x0000_0001_0000_0001,
        _ => element,
    }
}

#[cfg(test)]
mod tests {
    use super::repeated;

    #[test]
    fn elements_fill_a_pattern() {
        assert_eq!(repeated(0x7f, 1), 0x7f7f_7f7f_7f7f_7f7f);
        assert_eq!(repeated(0xbc00, 2), 0xbc00_bc00_bc00_bc00);
        assert_eq!(repeated(0xbf80_0000, 4), 0xbf80_0000_bf80_0000);
        assert_eq!(repeated(u64::MAX - 3, 8), u64::MAX - 3);
    }
}
