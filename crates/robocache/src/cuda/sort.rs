//! The radix sort of `kernels/sort.cu`.

use super::clear::clear;
use super::launch::{Grid, KernelFamily, Launcher};
use crate::{Error, ErrorKind, Result};

/// The kernels: two stages for keys of 32 and of 64 bits.
pub(crate) static SORT_KERNELS: KernelFamily = KernelFamily {
    source: include_str!("../../kernels/sort.cu"),
    headers: &[],
    variants: || (0..4).collect(),
    entry: |number| {
        let stage = ["histogram", "pass"][number as usize % 2];
        format!("rc_sort_{stage}_{}", if number < 2 { 32 } else { 64 })
    },
    options: |number| {
        let wide = number >= 2;
        vec![
            format!("-DRC_KEY={}", if wide { "u64" } else { "u32" }),
            format!("-DRC_STAGE={}", number % 2),
            format!("-DRC_ITEMS={}", items(wide)),
            format!("-DRC_ARGS_SIZE={}", size_of::<SortArgs>()),
        ]
    },
};

const HISTOGRAM: u32 = 0;
const PASS: u32 = 1;
const DIGITS: usize = 256;
const THREADS: usize = 256;
/// A tile's word holds a count in 30 bits.
const MOST_KEYS: usize = (1 << 30) - 1;

/// Keys of a thread: as many as leave a multiprocessor several blocks.
const fn items(wide: bool) -> usize {
    if wide { 8 } else { 16 }
}

/// Mirrors `Args` in sort.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct SortArgs {
    keys: *const u8,
    values: *const u32,
    keys_out: *mut u8,
    values_out: *mut u32,
    histograms: *mut u32,
    status: *mut u32,
    ticket: *mut u32,
    count: u32,
    pass: u32,
    passes: u32,
    padding: u32,
}

/// Memory for a sort, all on the GPU.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SortMemory {
    /// The keys, and as much again.
    pub(crate) keys: [*mut u8; 2],
    /// Twice a number for each key.
    pub(crate) values: [*mut u32; 2],
    /// [`Sort::state_bytes`].
    pub(crate) state: *mut u32,
}

/// How keys are sorted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sort {
    /// Keys of 64 bits instead of 32.
    pub(crate) wide: bool,
    count: u32,
    passes: u32,
    tiles: u32,
}

impl Sort {
    /// A sort of `count` keys of which none is greater than `most`.
    pub(crate) fn new(count: usize, most: u64) -> Result<Self> {
        if count > MOST_KEYS {
            let text = format!("{count} points; on a GPU at most {MOST_KEYS} can be sorted");
            return Err(Error::new(ErrorKind::Unsupported, text).argument("points"));
        }
        let wide = most > u64::from(u32::MAX);
        let bits = u64::BITS - most.leading_zeros();
        let tiles = count.div_ceil(THREADS * items(wide));
        Ok(Self { wide, count: count as u32, passes: bits.div_ceil(8).max(1), tiles: tiles as u32 })
    }

    /// Bytes of a key.
    pub(crate) fn key_bytes(&self) -> usize {
        if self.wide { 8 } else { 4 }
    }

    /// Bytes of counts and of what tiles tell each other.
    pub(crate) fn state_bytes(&self) -> usize {
        4 * (self.passes as usize * DIGITS * (1 + self.tiles as usize) + DIGITS)
    }

    fn args(&self, memory: &SortMemory) -> SortArgs {
        SortArgs {
            keys: memory.keys[0],
            values: std::ptr::null(),
            keys_out: memory.keys[1],
            values_out: memory.values[0],
            histograms: memory.state,
            status: memory.state,
            ticket: memory.state,
            count: self.count,
            pass: 0,
            passes: self.passes,
            padding: 0,
        }
    }

    fn variant(&self, stage: u32) -> u32 {
        stage + if self.wide { 2 } else { 0 }
    }

    /// Sorts the keys of `memory.keys[0]`; tells which of the two holds them then, and `memory.values`
    /// of the same number their former places. Equal keys keep their order.
    ///
    /// # Safety
    /// The memory must be there, on the launcher's GPU, until the stream has passed.
    pub(crate) unsafe fn run(&self, launcher: &Launcher<'_>, memory: &SortMemory) -> Result<usize> {
        // SAFETY: the caller's promise, for all launches.
        unsafe {
            clear(launcher, &[(memory.state.cast(), self.state_bytes())])?;
            let args = self.args(memory);
            let shared = self.passes * DIGITS as u32 * 4;
            let grid = Grid { shared, ..Grid::for_items(u64::from(self.count).div_ceil(8)) };
            launcher.launch(&SORT_KERNELS, self.variant(HISTOGRAM), grid, &args)?;
            let tile = THREADS * items(self.wide);
            // As the kernel lays it out: keys and numbers of a tile, counts of 8 warps, two tables.
            let shared = tile * (self.key_bytes() + 4) + (8 + 2) * DIGITS * 4 + 64;
            let mut from = 0;
            for pass in 0..self.passes {
                let to = 1 - from;
                let counts = memory.state.wrapping_add(self.passes as usize * DIGITS);
                let status = counts.wrapping_add(DIGITS + pass as usize * self.tiles as usize * DIGITS);
                let args = SortArgs {
                    keys: memory.keys[from],
                    values: if pass == 0 { std::ptr::null() } else { memory.values[from] },
                    keys_out: memory.keys[to],
                    values_out: memory.values[to],
                    status,
                    ticket: counts.wrapping_add(pass as usize),
                    pass,
                    ..args
                };
                let grid = Grid { blocks: self.tiles.max(1), threads: THREADS as u32, shared: shared as u32 };
                if self.tiles > 0 || launcher.only_loads() {
                    launcher.launch(&SORT_KERNELS, self.variant(PASS), grid, &args)?;
                }
                from = to;
            }
            Ok(from)
        }
    }
}
