//! A pool for large results.
//!
//! Fresh pages cost page faults: the system finds and clears each at its first touch. Training asks for results of the
//! same size in every step, so their memory is kept. The OS may reclaim anything above 32 MiB (`FEW`) when it runs
//! short.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The large pages of most systems.
const PAGE: usize = 2 << 20;
/// The small ones, or a multiple of them.
const SMALL_PAGE: usize = 64 << 10;
/// From so many bytes on memory is kept: those for which [`room`] makes a large page. Less is kept by allocators as
/// well (by glibc's up to 32 MiB, in part and not in large pages).
const LARGE: usize = PAGE / 8 * 7;
/// Of so many bytes, those that were used last, the system is not told that it may take them: to tell it costs more
/// than it gains. They are kept even where memory is locked.
const FEW: usize = 32 << 20;
/// The pool takes at most this part of the machine's memory, unless told otherwise.
const PART_OF_ALL: usize = 8;

/// Memory of a large result. When it is dropped the next one of about its size may get it.
#[derive(Debug)]
pub struct Memory {
    block: Block,
    zeroed: bool,
}

impl Memory {
    /// Memory of so many bytes; none where these are few, or where the system has nothing to give: the allocator of
    /// a framework is then as good, and tells better what is wrong.
    pub fn new(bytes: usize) -> Option<Self> {
        if bytes < LARGE || most_kept() == 0 {
            return None;
        }
        let bytes = room(bytes)?;
        // Never waits: a lock that another thread held during `fork` stays locked.
        if let Some(block) = KEPT.try_lock().ok().and_then(|mut kept| kept.take(bytes)) {
            return Some(Self { block, zeroed: false });
        }
        let map_again = || {
            // Where addresses are short, what is kept may be what is missing; also for others that ask now.
            drop(KEPT.try_lock().ok().map(|mut kept| std::mem::take(&mut kept.blocks))?);
            Block::map(bytes)
        };
        Block::map(bytes).or_else(map_again).map(|block| Self { block, zeroed: true })
    }

    /// How many bytes there are: what was asked for, or a little more.
    pub fn bytes(&self) -> usize {
        self.block.bytes
    }

    /// Where it begins, at the start of a page.
    pub fn data(&self) -> *mut u8 {
        self.block.start as *mut u8
    }

    /// Whether all of it was 0 when it was handed out.
    pub fn is_zeroed(&self) -> bool {
        self.zeroed
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let block = std::mem::replace(&mut self.block, Block { start: 0, bytes: 0, lent: false });
        // What is lent, and what is kept no longer, goes when the lock is free again: that takes the system a while.
        let Some(surplus) = KEPT.try_lock().ok().map(|mut kept| kept.put(block, most_kept())) else { return };
        for mut block in surplus.to_lend {
            block.lent = block.lend_to_system();
            if block.lent
                && let Ok(mut kept) = KEPT.try_lock()
            {
                kept.blocks.insert(0, block);
            }
        }
    }
}

static KEPT: Mutex<Kept> = Mutex::new(Kept { blocks: Vec::new() });

/// Upper bound of the pool in bytes: `ROBOCACHE_KEEP_BYTES`, else a part of the machine's memory.
fn most_kept() -> usize {
    static MOST: AtomicUsize = AtomicUsize::new(usize::MAX);
    match MOST.load(Relaxed) {
        usize::MAX => {
            let wanted = std::env::var("ROBOCACHE_KEEP_BYTES").ok().and_then(|text| text.trim().parse().ok());
            let most = wanted.unwrap_or_else(|| machine_bytes() / PART_OF_ALL).min(usize::MAX - 1);
            MOST.store(most, Relaxed);
            most
        }
        known => known,
    }
}

/// Bytes of the pool that nobody uses now.
pub fn kept_bytes() -> usize {
    KEPT.try_lock().map_or(0, |kept| kept.blocks.iter().map(|block| block.bytes).sum())
}

/// Bytes that the machine can still give to this process; none where it does not say.
pub fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let machine = line.split_whitespace().next()?.parse::<u64>().ok()? * 1024;
    // What a container may take, where it is told so.
    let read =
        |name: &str| std::fs::read_to_string(format!("/sys/fs/cgroup/memory.{name}")).ok()?.trim().parse::<u64>().ok();
    let group = read("max").map(|most| most.saturating_sub(read("current").unwrap_or(0)));
    Some(group.map_or(machine, |group| group.min(machine)))
}

/// Bytes to take for so many: whole large pages where that is little more, which the system then gives.
fn room(bytes: usize) -> Option<usize> {
    let large = bytes.checked_next_multiple_of(PAGE)?;
    if large - bytes <= large / 8 { Some(large) } else { bytes.checked_next_multiple_of(SMALL_PAGE) }
}

/// Blocks that nobody uses, the longest kept first.
struct Kept {
    blocks: Vec<Block>,
}

/// What is too much to keep as it is.
struct Surplus {
    /// Has to be told to the system before it is kept any longer.
    to_lend: Vec<Block>,
    /// Given back by being dropped.
    _gone: Vec<Block>,
}

impl Kept {
    /// The smallest block of so many bytes, or a little more; of equal ones the last that was used, which caches may hold.
    fn take(&mut self, bytes: usize) -> Option<Block> {
        let fits = |block: &Block| (bytes..=bytes.saturating_add(bytes / 4)).contains(&block.bytes);
        let sizes = self.blocks.iter().enumerate().rev().filter(|(_, block)| fits(block));
        let (index, _) = sizes.min_by_key(|(_, block)| block.bytes)?;
        let mut block = self.blocks.remove(index);
        block.lent = false;
        Some(block)
    }

    /// Keeps a block unless it alone is more than `most`. Hands back those that were kept longest, where all would be
    /// more than that, or more than [`FEW`] that are not lent.
    fn put(&mut self, block: Block, most: usize) -> Surplus {
        if block.bytes > most {
            return Surplus { to_lend: Vec::new(), _gone: vec![block] };
        }
        self.blocks.push(block);
        let mut total: usize = self.blocks.iter().map(|block| block.bytes).sum();
        let mut gone = 0;
        while total > most {
            total -= self.blocks[gone].bytes;
            gone += 1;
        }
        let gone = self.blocks.drain(..gone).collect();
        let mut near: usize = self.blocks.iter().filter(|block| !block.lent).map(|block| block.bytes).sum();
        let mut to_lend = Vec::new();
        while near > FEW
            && let Some(index) = self.blocks.iter().position(|block| !block.lent)
        {
            near -= self.blocks[index].bytes;
            to_lend.push(self.blocks.remove(index));
        }
        Surplus { to_lend, _gone: gone }
    }
}

/// Pages of the system, given back when dropped.
#[derive(Debug, PartialEq, Eq)]
struct Block {
    start: usize,
    bytes: usize,
    /// Whether the system may take its pages.
    lent: bool,
}

#[cfg(target_os = "linux")]
impl Block {
    /// Fresh pages of so many bytes, a multiple of [`SMALL_PAGE`], which begin at one of the large.
    fn map(bytes: usize) -> Option<Self> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let more = bytes.checked_add(PAGE)?;
        // SAFETY: new pages, wherever the system likes; what lies before and behind the block is given back.
        unsafe {
            let start = libc::mmap(std::ptr::null_mut(), more, access, kind, -1, 0);
            if start == libc::MAP_FAILED {
                return None;
            }
            let (first, end) = (start as usize, start as usize + more);
            let block = Self { start: first.next_multiple_of(PAGE), bytes, lent: false };
            for (from, to) in [(first, block.start), (block.start + bytes, end)] {
                if to > from {
                    libc::munmap(from as *mut libc::c_void, to - from);
                }
            }
            // A hint, and the block as a whole: a result alone may end before its last large page does.
            libc::madvise(block.start as *mut libc::c_void, bytes, libc::MADV_HUGEPAGE);
            Some(block)
        }
    }

    /// Tells the system that what these pages hold is of no use until they are written again, so that it may take
    /// them. Where memory is locked, for one, it refuses, and no more of them must be kept.
    fn lend_to_system(&self) -> bool {
        // SAFETY: the pages are ours, and nobody reads them before writing.
        unsafe { libc::madvise(self.start as *mut libc::c_void, self.bytes, libc::MADV_FREE) == 0 }
    }
}

#[cfg(target_os = "linux")]
impl Drop for Block {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: the pages are ours and nobody uses them any more.
            unsafe { libc::munmap(self.start as *mut libc::c_void, self.bytes) };
        }
    }
}

#[cfg(target_os = "linux")]
fn machine_bytes() -> usize {
    // SAFETY: only asks.
    let [pages, size] = [libc::_SC_PHYS_PAGES, libc::_SC_PAGESIZE].map(|what| unsafe { libc::sysconf(what) });
    usize::try_from(pages).unwrap_or(0).saturating_mul(usize::try_from(size).unwrap_or(0))
}

#[cfg(not(target_os = "linux"))]
impl Block {
    fn map(_: usize) -> Option<Self> {
        None
    }

    fn lend_to_system(&self) -> bool {
        false
    }
}

/// Elsewhere nothing is kept.
#[cfg(not(target_os = "linux"))]
fn machine_bytes() -> usize {
    0
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// All bytes of a memory, to read and to write.
    fn bytes(memory: &mut Memory) -> &mut [u8] {
        // SAFETY: it holds as many, which are numbers or 0, and is borrowed.
        unsafe { std::slice::from_raw_parts_mut(memory.data(), memory.block.bytes) }
    }

    #[test]
    fn little_is_taken_beside_what_is_asked_for() {
        assert_eq!(room(LARGE), Some(PAGE));
        assert_eq!(room(PAGE), Some(PAGE));
        assert_eq!(room(PAGE + 1), Some(PAGE + SMALL_PAGE));
        assert_eq!(room(15 * PAGE + 1), Some(16 * PAGE));
        assert_eq!(room(usize::MAX), None);
        for bytes in (LARGE..20 * PAGE).step_by(12_345) {
            let room = room(bytes).unwrap();
            assert!(room >= bytes && room.is_multiple_of(SMALL_PAGE) && room - bytes <= bytes / 7, "{bytes}: {room}");
        }
    }

    #[test]
    fn memory_is_kept_for_the_next_of_its_size() {
        const BYTES: usize = (37 << 20) - 5;
        assert!(Memory::new(LARGE - 1).is_none());
        let mut first = Memory::new(BYTES).unwrap();
        assert!(first.is_zeroed() && bytes(&mut first).iter().all(|byte| *byte == 0));
        assert!((first.data() as usize).is_multiple_of(PAGE) && first.block.bytes >= BYTES);
        bytes(&mut first).fill(7);
        let mut second = Memory::new(BYTES).unwrap();
        assert!(second.is_zeroed() && second.data() != first.data(), "the first is in use");
        bytes(&mut second).fill(9);
        assert!(bytes(&mut first).iter().all(|byte| *byte == 7));
        let place = first.data();
        drop(first);
        // Twice as much is none of its business.
        assert_ne!(Memory::new(2 * BYTES).unwrap().data(), place);
        let mut again = Memory::new(BYTES).unwrap();
        assert!(again.data() == place && !again.is_zeroed());
        bytes(&mut again).fill(3);
        assert!(bytes(&mut second).iter().all(|byte| *byte == 9));
        assert!(bytes(&mut again).iter().all(|byte| *byte == 3));
        // Here, since threads that have the lock take it from the test above.
        std::thread::scope(|scope| {
            for own in 1..4u8 {
                scope.spawn(move || {
                    for _ in 0..4 {
                        let mut memory = Memory::new(2 * LARGE).unwrap();
                        bytes(&mut memory).fill(own);
                        assert!(bytes(&mut memory).iter().all(|byte| *byte == own));
                    }
                });
            }
        });
    }

    #[test]
    fn the_oldest_are_given_back_first_and_the_nearest_size_is_taken() {
        let mut kept = Kept { blocks: Vec::new() };
        let pages = |kept: &Kept| kept.blocks.iter().map(|block| block.bytes / PAGE).collect::<Vec<_>>();
        let block = |count: usize| {
            let mut block = Block::map(count * PAGE).unwrap();
            block.lent = true;
            block
        };
        for count in [20, 16, 18, 40] {
            assert_eq!(kept.put(block(count), 80 * PAGE)._gone.len(), usize::from(count == 40));
        }
        assert_eq!(pages(&kept), [16, 18, 40]);
        let taken = kept.take(15 * PAGE).unwrap();
        assert!(taken.bytes == 16 * PAGE && !taken.lent);
        assert!(kept.take(10 * PAGE).is_none() && kept.take(41 * PAGE).is_none());
        assert_eq!(kept.take(17 * PAGE).unwrap().bytes, 18 * PAGE);
        // Of equal ones always the same, and not all in turn.
        for _ in 0..2 {
            kept.put(block(4), 80 * PAGE);
        }
        let last = kept.take(4 * PAGE).unwrap();
        let place = last.start;
        kept.put(last, 80 * PAGE);
        assert_eq!(kept.take(4 * PAGE).unwrap().start, place);
        drop(kept.take(4 * PAGE));
        // More than all that may be kept.
        assert_eq!(kept.put(block(100), 80 * PAGE)._gone.len(), 1);
        assert_eq!(pages(&kept), [40]);
        assert!(Block::map(usize::MAX - 2 * PAGE + 1).is_none());
    }

    #[test]
    fn what_was_not_used_for_long_is_lent_and_the_rest_is_not() {
        const MOST: usize = 1000 * PAGE;
        let mut kept = Kept { blocks: Vec::new() };
        let put = |kept: &mut Kept, block: Block| {
            let lent = kept.put(block, MOST).to_lend;
            let pages: Vec<_> = lent.iter().map(|block| block.bytes / PAGE).collect();
            for mut block in lent {
                block.lent = block.lend_to_system();
                assert!(block.lent);
                kept.blocks.insert(0, block);
            }
            pages
        };
        // One that is too large by itself, and then what a step of training takes again and again.
        assert_eq!(put(&mut kept, Block::map(FEW + PAGE).unwrap()), [FEW / PAGE + 1]);
        for _ in 0..3 {
            let step = [2, 1].map(|pages| kept.take(pages * PAGE).unwrap_or_else(|| Block::map(pages * PAGE).unwrap()));
            for block in step {
                assert!(put(&mut kept, block).is_empty());
            }
        }
        // Others push them out, the oldest first.
        assert_eq!(put(&mut kept, Block::map(FEW - PAGE).unwrap()), [2]);
        assert_eq!(kept.blocks.iter().filter(|block| !block.lent).map(|block| block.bytes).sum::<usize>(), FEW);
        assert_eq!(kept.blocks.len(), 4);
    }

    #[test]
    fn large_pages_are_asked_for() {
        let block = Block::map(3 * PAGE).unwrap();
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut inside = false;
        for line in maps.lines() {
            let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
            if let Some((start, end)) = range
                && let (Ok(start), Ok(end)) = (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16))
            {
                inside = (start..end).contains(&block.start);
            }
            if inside && let Some(flags) = line.strip_prefix("VmFlags:") {
                let possible = std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
                assert_eq!(flags.split_whitespace().any(|flag| flag == "hg"), possible);
                return;
            }
        }
        panic!("the block is not among the maps of this process");
    }
}
