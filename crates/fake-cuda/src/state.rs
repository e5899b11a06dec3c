//! What the fake driver remembers: calls, contexts, memory, functions.

use std::alloc::Layout;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::names::{INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, NOT_INITIALIZED, OUT_OF_MEMORY, poisons};
use crate::settings;

/// An error code of the driver or of NVRTC.
pub(crate) type Code = i32;
pub(crate) type Outcome<T = ()> = Result<T, Code>;

/// What must be so before a function may be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    Init,
    /// A current context that no error has poisoned.
    Context,
}

/// Memory that was allocated, on a device or for it.
#[derive(Debug, Clone, Copy)]
struct Block {
    bytes: usize,
    device: usize,
    /// Pinned host memory.
    host: bool,
}

/// A copy that waits: from, to, bytes.
type Copying = (u64, u64, usize);

#[derive(Debug, Default)]
struct State {
    /// The process that called `cuInit`.
    owner: Option<u32>,
    calls: BTreeMap<String, u64>,
    poisoned: BTreeMap<usize, Code>,
    blocks: BTreeMap<u64, Block>,
    /// The device of each module, and what computes its launches; its handle is its place here plus one.
    modules: Vec<(usize, Option<usize>)>,
    /// The module of each function; handles as above.
    functions: Vec<usize>,
    launches: BTreeMap<usize, u64>,
    /// Mapped memory of each device and stream, which the engine gets its letters in; stream 0 stands for those without.
    letters: BTreeMap<(usize, usize), u64>,
    /// Streams that were made, with the device of each, and copies that wait there. These are made as late as they may be,
    /// so that who does not wait sees what was there before.
    streams: BTreeMap<usize, (usize, Vec<Copying>)>,
    streams_made: usize,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

thread_local! {
    /// The device whose context is current in this thread.
    static CURRENT: Cell<Option<usize>> = const { Cell::new(None) };
}

fn with<T>(work: impl FnOnce(&mut State) -> T) -> T {
    let mut guard: MutexGuard<'_, Option<State>> = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    work(guard.get_or_insert_default())
}

/// Begins a call: counts it, and fails it where the driver would or where a test asks for it.
pub(crate) fn enter(name: &str, needs: Needs) -> Outcome {
    with(|state| {
        let calls = state.calls.entry(name.to_owned()).or_default();
        *calls += 1;
        let failure = settings::failure(name, *calls);
        if needs != Needs::Nothing && state.owner != Some(std::process::id()) {
            return Err(NOT_INITIALIZED);
        }
        let mut context = None;
        if needs == Needs::Context {
            let device = CURRENT.get().ok_or(INVALID_CONTEXT)?;
            if let Some(&code) = state.poisoned.get(&device) {
                return Err(code);
            }
            context = Some(device);
        }
        let Some(code) = failure else { return Ok(()) };
        if let (Some(device), true) = (context, poisons(code)) {
            state.poisoned.insert(device, code);
        }
        Err(code)
    })
}

/// The current context is of no use from here on.
pub(crate) fn poison(code: Code) -> Code {
    if let Some(device) = CURRENT.get() {
        with(|state| state.poisoned.insert(device, code));
    }
    code
}

/// How often a function was called.
pub(crate) fn calls(name: &str) -> u64 {
    with(|state| state.calls.get(name).copied().unwrap_or(0))
}

/// `cuInit`: once it was called, it fails in processes that are forked off.
pub(crate) fn init() -> Outcome {
    with(|state| match state.owner {
        Some(owner) if owner != std::process::id() => Err(NOT_INITIALIZED),
        _ => {
            state.owner = Some(std::process::id());
            Ok(())
        }
    })
}

/// Contexts are known by handles that are no addresses.
pub(crate) fn context_of(device: usize) -> usize {
    (device + 1) << 12
}

pub(crate) fn current_context() -> usize {
    CURRENT.get().map_or(0, context_of)
}

pub(crate) fn set_current_context(handle: usize) -> Outcome {
    if handle == 0 {
        CURRENT.set(None);
        return Ok(());
    }
    let (devices, _) = settings::devices();
    let device = (0..devices).find(|&device| context_of(device) == handle).ok_or(INVALID_CONTEXT)?;
    CURRENT.set(Some(device));
    Ok(())
}

/// The device whose context is current.
pub(crate) fn current_device() -> Outcome<usize> {
    CURRENT.get().ok_or(INVALID_CONTEXT)
}

/// Zeroed memory, for a device or pinned for it, within `FAKE_CUDA_MEMORY`.
pub(crate) fn allocate(bytes: usize, host: bool) -> Outcome<u64> {
    let device = current_device()?;
    if bytes == 0 {
        return Err(INVALID_VALUE);
    }
    with(|state| {
        let used: usize = state.blocks.values().filter(|block| block.device == device).map(|block| block.bytes).sum();
        if used.saturating_add(bytes) > settings::number("FAKE_CUDA_MEMORY", 1 << 30) {
            return Err(OUT_OF_MEMORY);
        }
        let layout = layout(bytes)?;
        // SAFETY: the size is not zero.
        let address = unsafe { std::alloc::alloc_zeroed(layout) } as u64;
        if address == 0 {
            return Err(OUT_OF_MEMORY);
        }
        state.blocks.insert(address, Block { bytes, device, host });
        Ok(address)
    })
}

/// Bytes that are allocated on the current device.
pub(crate) fn used() -> Outcome<usize> {
    let device = current_device()?;
    Ok(with(|state| state.blocks.values().filter(|block| block.device == device).map(|block| block.bytes).sum()))
}

/// Aligned as the driver aligns.
fn layout(bytes: usize) -> Outcome<Layout> {
    Layout::from_size_align(bytes, 256).map_err(|_| OUT_OF_MEMORY)
}

pub(crate) fn free(address: u64) -> Outcome {
    with(|state| {
        let block = state.blocks.remove(&address).ok_or(INVALID_VALUE)?;
        // SAFETY: allocated with this layout, and removed from the list of what is alive.
        unsafe { std::alloc::dealloc(address as *mut u8, layout(block.bytes)?) };
        Ok(())
    })
}

/// Copies when the device's side lies within one block.
///
/// # Safety
/// The host's side must be good for that many bytes.
pub(crate) unsafe fn copy(from: u64, to: u64, bytes: usize, device_side: u64) -> Outcome {
    with(|state| {
        let (start, block) = state.blocks.range(..=device_side).next_back().ok_or(INVALID_VALUE)?;
        if device_side - start + bytes as u64 > block.bytes as u64 {
            return Err(INVALID_VALUE);
        }
        // SAFETY: one side was checked, the other is the caller's promise.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
        Ok(())
    })
}

/// A stream of the current device.
pub(crate) fn new_stream() -> Outcome<usize> {
    let device = current_device()?;
    with(|state| {
        state.streams_made += 1;
        // Small numbers are names of the default stream.
        let handle = 0x5000 + state.streams_made;
        state.streams.insert(handle, (device, Vec::new()));
        Ok(handle)
    })
}

/// Its copies are made first.
pub(crate) fn destroy_stream(handle: usize) -> Outcome {
    run_copies(Some(handle));
    with(|state| state.streams.remove(&handle).map(drop).ok_or(INVALID_HANDLE))
}

/// A copy that is made when the stream comes to it: with its next launch, or when somebody waits.
pub(crate) fn copy_later(stream: usize, from: u64, to: u64, bytes: usize, device_side: u64) -> Outcome {
    let device = current_device()?;
    with(|state| {
        let (start, block) = state.blocks.range(..=device_side).next_back().ok_or(INVALID_VALUE)?;
        if device_side - start + bytes as u64 > block.bytes as u64 || block.device != device {
            return Err(INVALID_VALUE);
        }
        let (owner, copies) = state.streams.get_mut(&stream).ok_or(INVALID_HANDLE)?;
        if *owner != device {
            return Err(INVALID_HANDLE);
        }
        copies.push((from, to, bytes));
        Ok(())
    })
}

/// Makes the copies of a stream, or of all streams of the current device.
pub(crate) fn run_copies(stream: Option<usize>) {
    let device = CURRENT.get();
    let copies: Vec<_> = with(|state| {
        let wanted = state.streams.iter_mut().filter(|(handle, (owner, _))| match stream {
            Some(stream) => stream == **handle,
            None => Some(*owner) == device,
        });
        wanted.flat_map(|(_, (_, copies))| std::mem::take(copies)).collect()
    });
    for (from, to, bytes) in copies {
        // SAFETY: who queued the copy has promised that both sides stay until it is made.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
    }
}

/// Whether an address is one of pinned memory.
pub(crate) fn pinned(address: u64) -> Outcome {
    with(|state| {
        let block = state.blocks.range(..=address).next_back();
        let inside = |(start, block): (&u64, &Block)| block.host && address - start < block.bytes as u64;
        if block.is_some_and(inside) { Ok(()) } else { Err(INVALID_VALUE) }
    })
}

/// Bytes that are allocated on all devices, pinned memory included.
pub(crate) fn live_bytes() -> u64 {
    with(|state| state.blocks.values().map(|block| block.bytes as u64).sum())
}

/// A module for the current context.
pub(crate) fn new_module(computed_by: Option<usize>) -> Outcome<usize> {
    let device = current_device()?;
    with(|state| {
        state.modules.push((device, computed_by));
        Ok(state.modules.len())
    })
}

/// A function of a module, which must be one of the current context.
pub(crate) fn new_function(module: usize) -> Outcome<usize> {
    let device = current_device()?;
    with(|state| {
        let place = module.checked_sub(1).ok_or(INVALID_VALUE)?;
        if state.modules.get(place).is_none_or(|&(loaded_on, _)| loaded_on != device) {
            return Err(INVALID_VALUE);
        }
        state.functions.push(place);
        Ok(state.functions.len())
    })
}

/// A launch on the current device.
#[derive(Debug)]
pub(crate) struct Launch {
    /// Its number there.
    pub(crate) number: u64,
    /// Where what it finds is written to.
    pub(crate) letter: Option<u64>,
    /// What [`crate::compute`] loaded for it.
    pub(crate) computed_by: Option<usize>,
}

/// Takes mapped memory for a letter: that of the latest stream without one, else of the device.
pub(crate) fn map_letter(address: u64) -> Outcome<()> {
    let device = current_device()?;
    with(|state| {
        let without = |stream: &usize| !state.letters.contains_key(&(device, *stream));
        let streams = state.streams.iter().filter(|(_, (owner, _))| *owner == device).map(|(stream, _)| *stream);
        let stream = streams.rev().find(without).unwrap_or(0);
        state.letters.entry((device, stream)).or_insert(address);
        Ok(())
    })
}

pub(crate) fn launch(function: usize, stream: usize) -> Outcome<Launch> {
    let device = current_device()?;
    with(|state| {
        let module = function.checked_sub(1).and_then(|place| state.functions.get(place));
        let Some(&(loaded_on, computed_by)) = module.and_then(|&module| state.modules.get(module)) else {
            return Err(INVALID_HANDLE);
        };
        if loaded_on != device {
            return Err(INVALID_HANDLE);
        }
        let number = state.launches.entry(device).or_default();
        *number += 1;
        let letter = state.letters.get(&(device, stream)).or_else(|| state.letters.get(&(device, 0))).copied();
        Ok(Launch { number: *number, letter, computed_by })
    })
}
