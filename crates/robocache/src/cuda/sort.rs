//! The radix sort of `kernels/sort.cu`.

use super::launch::{Grid, KernelFamily, Launcher};
use crate::{Error, ErrorKind, Result};

/// A pass for keys of 32 and of 64 bits, and for tiles of several sizes.
pub(crate) static SORT_KERNELS: KernelFamily = KernelFamily {
    source: include_str!("../../kernels/sort.cu"),
    headers: &[],
    variants: || (0..ITEMS.len() as u32).collect(),
    entry: |number| {
        let (wide, items) = ITEMS[number as usize];
        format!("rc_sort_{}_{items}", if wide { 64 } else { 32 })
    },
    options: |number| {
        let (wide, items) = ITEMS[number as usize];
        vec![
            format!("-DRC_KEY={}", if wide { "u64" } else { "u32" }),
            format!("-DRC_ITEMS={items}"),
            format!("-DRC_ARGS_SIZE={}", size_of::<SortArgs>()),
        ]
    },
};

/// Whether keys have 64 bits, and keys of a thread; at most as many as leave a multiprocessor several
/// blocks.
const ITEMS: [(bool, usize); 5] = [(false, 4), (false, 8), (false, 16), (true, 4), (true, 8)];
const DIGITS: usize = 256;
const THREADS: usize = 256;
/// The smallest tiles are taken that are no more than these: more make the way back longer.
const FEW_TILES: usize = 128;
/// A tile's word holds a count in 30 bits.
const MOST_KEYS: usize = (1 << 30) - 1;

/// Mirrors `Args` in sort.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct SortArgs {
    keys: *const u8,
    values: *const u32,
    keys_out: *mut u8,
    values_out: *mut u32,
    histogram: *const u32,
    status: *mut u32,
    ticket: *mut u32,
    count: u32,
    pass: u32,
}

/// Mirrors `rc::DigitArgs` in `kernels/digits.cuh`: where whoever makes the keys counts their digits.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct DigitArgs {
    histograms: *mut u32,
    passes: u64,
}

impl DigitArgs {
    /// Bytes of shared memory that counting takes.
    pub(crate) fn shared(&self) -> u32 {
        self.passes as u32 * DIGITS as u32 * 4
    }
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
    /// Of [`ITEMS`].
    variant: u32,
    tiles: u32,
}

impl Sort {
    /// A sort of `count` keys of which none is greater than `most`; an error names no argument.
    pub(crate) fn new(count: usize, most: u64) -> Result<Self> {
        if count > MOST_KEYS {
            let text = format!("{count} points; on a GPU at most {MOST_KEYS} can be sorted");
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let wide = most > u64::from(u32::MAX);
        let bits = u64::BITS - most.leading_zeros();
        // The smallest tiles that are not too many, else the largest.
        let tiles_of = |items: usize| count.div_ceil(THREADS * items);
        let mut fitting = (0..).zip(ITEMS).filter(|(_, (own, _))| *own == wide);
        let largest = fitting.clone().last();
        let chosen = fitting.find(|(_, (_, items))| tiles_of(*items) <= FEW_TILES).or(largest);
        let (variant, (_, items)) = chosen.unwrap_or((0, ITEMS[0]));
        let tiles = tiles_of(items) as u32;
        Ok(Self { wide, count: count as u32, passes: bits.div_ceil(8).max(1), variant, tiles })
    }

    /// Bytes of a key.
    pub(crate) fn key_bytes(&self) -> usize {
        if self.wide { 8 } else { 4 }
    }

    /// Bytes of counts and of what tiles tell each other.
    pub(crate) fn state_bytes(&self) -> usize {
        4 * (self.passes as usize * DIGITS * (1 + self.tiles as usize) + DIGITS)
    }

    /// Which of the two buffers holds the result of [`Sort::run`].
    pub(crate) fn lands(&self) -> usize {
        self.passes as usize % 2
    }

    /// What must be 0 before the keys are made.
    pub(crate) fn state_area(&self, memory: &SortMemory) -> (*mut u8, usize) {
        (memory.state.cast(), self.state_bytes())
    }

    /// Where the digits of the keys are counted.
    pub(crate) fn digits(&self, memory: &SortMemory) -> DigitArgs {
        DigitArgs { histograms: memory.state, passes: u64::from(self.passes) }
    }

    /// Sorts the keys of `memory.keys[0]`, whose digits were counted in a state that was 0; tells which
    /// of the two holds them then, and `memory.values` of the same number their former places. Equal
    /// keys keep their order.
    ///
    /// # Safety
    /// The memory must be there, on the launcher's GPU, until the stream has passed.
    pub(crate) unsafe fn run(&self, launcher: &Launcher<'_>, memory: &SortMemory) -> Result<usize> {
        let (_, items) = ITEMS[self.variant as usize % ITEMS.len()];
        // As the kernel lays it out: keys and numbers of a tile, counts of 8 warps, two tables.
        let shared = THREADS * items * (self.key_bytes() + 4) + (8 + 2) * DIGITS * 4 + 64;
        let grid = Grid { blocks: self.tiles.max(1), threads: THREADS as u32, shared: shared as u32 };
        let tickets = memory.state.wrapping_add(self.passes as usize * DIGITS);
        let mut from = 0;
        for pass in 0..self.passes {
            let (to, number) = (1 - from, pass as usize);
            let args = SortArgs {
                keys: memory.keys[from],
                values: if pass == 0 { std::ptr::null() } else { memory.values[from] },
                keys_out: memory.keys[to],
                values_out: memory.values[to],
                histogram: memory.state.wrapping_add(number * DIGITS),
                status: tickets.wrapping_add(DIGITS + number * self.tiles as usize * DIGITS),
                ticket: tickets.wrapping_add(number),
                count: self.count,
                pass,
            };
            if self.tiles > 0 || launcher.only_loads() {
                // SAFETY: the caller's promise.
                unsafe { launcher.launch(&SORT_KERNELS, self.variant, grid, &args)? };
            }
            from = to;
        }
        Ok(from)
    }
}
