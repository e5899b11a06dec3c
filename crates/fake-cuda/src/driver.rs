//! `libcuda.so.1`.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::names::{CAPTURE_UNSUPPORTED, INVALID_DEVICE, INVALID_IMAGE, INVALID_VALUE, LAUNCH_FAILED, NO_DEVICE};
use crate::state::{self, Needs, Outcome};
use crate::{compute, settings};

type Handle = *mut c_void;

/// Exports functions that first ask [`state::enter`]; `Needs` is written in front of each.
macro_rules! exported {
    ($($needs:ident fn $name:ident($($argument:ident: $type:ty),*) $body:block)+) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
                let call = || -> Outcome {
                    state::enter(stringify!($name), Needs::$needs)?;
                    // SAFETY: the caller's promise, as for the vendor's function.
                    #[allow(unused_unsafe)]
                    unsafe { $body }
                };
                call().err().unwrap_or(0)
            }
        )+
    };
}
pub(crate) use exported;

exported! {
    Nothing fn cuInit(flags: c_uint) {
        let (devices, refuse) = settings::devices();
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        state::init()?;
        if devices == 0 && refuse { Err(NO_DEVICE) } else { Ok(()) }
    }

    Nothing fn cuDriverGetVersion(version: *mut c_int) {
        *version = settings::number("FAKE_CUDA_VERSION", 12_000);
        Ok(())
    }

    Nothing fn cuGetErrorName(code: c_int, text: *mut *const c_char) {
        describe(code, text, |(name, _)| name)
    }

    Nothing fn cuGetErrorString(code: c_int, text: *mut *const c_char) {
        describe(code, text, |(_, text)| text)
    }

    Init fn cuDeviceGetCount(count: *mut c_int) {
        *count = c_int::try_from(settings::devices().0).unwrap_or(0);
        Ok(())
    }

    Init fn cuDeviceGet(device: *mut c_int, ordinal: c_int) {
        known(ordinal)?;
        *device = ordinal;
        Ok(())
    }

    Init fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int) {
        known(device)?;
        let text = c"Fake GPU".to_bytes_with_nul();
        let length = usize::try_from(length).unwrap_or(0).min(text.len());
        std::ptr::copy_nonoverlapping(text.as_ptr(), name.cast(), length);
        Ok(())
    }

    Init fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) {
        let ordinal = known(device)?;
        let capability = || {
            let text = settings::of_device("FAKE_CUDA_CAPABILITY", ordinal);
            text.and_then(|text| settings::pair(&text)).unwrap_or((9, 0))
        };
        *value = match attribute {
            // Multiprocessors, compute mode, capability, and shared memory of a block.
            16 => settings::number("FAKE_CUDA_MULTIPROCESSORS", 132),
            20 => settings::of_device("FAKE_CUDA_COMPUTE_MODE", ordinal).and_then(|mode| mode.parse().ok()).unwrap_or(0),
            75 => capability().0,
            76 => capability().1,
            97 => match capability() {
                (8, 0 | 7) => 166_912,
                (8 | 12, _) => 101_376,
                _ => 232_448,
            },
            _ => return Err(INVALID_VALUE),
        };
        Ok(())
    }

    Init fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) {
        known(device)?;
        *bytes = settings::number("FAKE_CUDA_MEMORY", 1 << 30);
        Ok(())
    }

    Init fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int) {
        *context = state::context_of(known(device)?) as Handle;
        Ok(())
    }

    Init fn cuDevicePrimaryCtxGetState(device: c_int, flags: *mut c_uint, active: *mut c_int) {
        known(device)?;
        *flags = 0;
        *active = c_int::from(settings::text("FAKE_CUDA_RESET").is_none());
        Ok(())
    }

    Init fn cuCtxGetCurrent(context: *mut Handle) {
        *context = state::current_context() as Handle;
        Ok(())
    }

    Init fn cuCtxSetCurrent(context: Handle) {
        state::set_current_context(context as usize)
    }

    Context fn cuCtxSynchronize() {
        not_while_capturing()?;
        hang_if_asked();
        state::run_copies(None);
        Ok(())
    }

    Context fn cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, _flags: c_uint) {
        not_while_capturing()?;
        *pointer = state::allocate(bytes, true)? as *mut c_void;
        Ok(())
    }

    Context fn cuMemHostGetDevicePointer_v2(on_device: *mut u64, host: *mut c_void, _flags: c_uint) {
        *on_device = host as u64;
        state::map_letter(*on_device)
    }

    Context fn cuMemAlloc_v2(pointer: *mut u64, bytes: usize) {
        not_while_capturing()?;
        *pointer = state::allocate(bytes, false)?;
        Ok(())
    }

    Context fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        *total = settings::number("FAKE_CUDA_MEMORY", 1 << 30);
        *free = total.read().saturating_sub(state::used()?);
        Ok(())
    }

    Context fn cuMemFree_v2(pointer: u64) {
        state::free(pointer)
    }

    Context fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) {
        not_while_capturing()?;
        state::copy(from as u64, to, bytes, to)
    }

    Context fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) {
        not_while_capturing()?;
        state::copy(from, to as u64, bytes, from)
    }

    Context fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) {
        not_while_capturing()?;
        state::copy(from, to, bytes, to)
    }

    Context fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: Handle) {
        state::copy_later(stream as usize, from as u64, to, bytes, to)
    }

    Context fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: Handle) {
        state::copy_later(stream as usize, from, to as u64, bytes, from)
    }

    Context fn cuStreamCreate(stream: *mut Handle, _flags: c_uint) {
        *stream = state::new_stream()? as Handle;
        Ok(())
    }

    Context fn cuStreamDestroy_v2(stream: Handle) {
        state::destroy_stream(stream as usize)
    }

    Context fn cuMemHostGetFlags(flags: *mut c_uint, pointer: *mut c_void) {
        *flags = 0;
        state::pinned(pointer as u64)
    }

    Context fn cuMemFreeHost(pointer: *mut c_void) {
        state::free(pointer as u64)
    }

    Context fn cuModuleLoadData(module: *mut Handle, image: *const c_void) {
        let content = crate::nvrtc::content(image.cast()).ok_or(INVALID_IMAGE)?;
        let loaded = match (compute::is_wanted(), content.starts_with(b"\x7fELF")) {
            (_, true) => Some(compute::load(content).map_err(|why| {
                eprintln!("fake CUDA: {why}");
                INVALID_IMAGE
            })?),
            // Nothing else can be computed.
            (true, false) => return Err(INVALID_IMAGE),
            (false, false) => None,
        };
        *module = state::new_module(loaded)? as Handle;
        Ok(())
    }

    Context fn cuModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char) {
        if name.is_null() {
            return Err(INVALID_VALUE);
        }
        *function = state::new_function(module as usize)? as Handle;
        Ok(())
    }

    Context fn cuFuncSetAttribute(_function: Handle, _attribute: c_int, _value: c_int) {
        Ok(())
    }

    Init fn cuStreamIsCapturing(stream: Handle, status: *mut c_int) {
        // The default streams are those of the current context; others know theirs.
        if (stream as usize) <= 2 {
            state::current_device()?;
        }
        *status = c_int::from(is_capturing());
        Ok(())
    }

    Context fn cuStreamSynchronize(stream: Handle) {
        not_while_capturing()?;
        hang_if_asked();
        state::run_copies(Some(stream as usize));
        Ok(())
    }
}

/// Refuses what no GPU could run, computes if it shall, and can "find" something in the data.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernel(
    function: Handle,
    blocks_x: c_uint,
    blocks_y: c_uint,
    blocks_z: c_uint,
    threads_x: c_uint,
    threads_y: c_uint,
    threads_z: c_uint,
    shared: c_uint,
    stream: Handle,
    parameters: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> c_int {
    let call = || -> Outcome {
        state::enter("cuLaunchKernel", Needs::Context)?;
        let blocks = [blocks_x, blocks_y, blocks_z];
        let threads = u64::from(threads_x) * u64::from(threads_y) * u64::from(threads_z);
        let fits = blocks_x <= i32::MAX as c_uint && threads > 0 && threads <= 1024 && shared <= 232_448;
        if blocks.contains(&0) || !fits || parameters.is_null() {
            return Err(INVALID_VALUE);
        }
        state::run_copies(Some(stream as usize));
        let state::Launch { number, letter, computed_by } = state::launch(function as usize, stream as usize)?;
        if let Some(module) = computed_by {
            if [blocks_y, blocks_z, threads_y, threads_z] != [1; 4] {
                return Err(INVALID_VALUE);
            }
            // SAFETY: the engine's kernels have one parameter; the rest is the caller's promise.
            let done = unsafe { compute::launch(module, *parameters, blocks_x, threads_x, shared) };
            return if done { Ok(()) } else { Err(state::poison(LAUNCH_FAILED)) };
        }
        if let (Some(finding), Some(letter)) = (settings::text("FAKE_CUDA_FINDING"), letter) {
            // SAFETY: the engine maps nothing but letters, which it never frees.
            unsafe { post(letter as *mut u64, number, &settings::numbers(&finding, ':')) };
        }
        Ok(())
    };
    call().err().unwrap_or(0)
}

/// Writes a finding as `kernels/report.cuh` does; one that nobody has read yet stays.
///
/// # Safety
/// `letter` must point to the eight numbers of a letter.
unsafe fn post(letter: *mut u64, call: u64, finding: &[u64]) {
    // SAFETY: the caller's promise.
    let field = |place: usize| unsafe { AtomicU64::from_ptr(letter.add(place)) };
    let epoch = field(0).load(Ordering::Acquire);
    if field(1).load(Ordering::Acquire) > epoch {
        return;
    }
    for (place, &value) in std::iter::once(&call).chain(finding).take(6).enumerate() {
        field(2 + place).store(value, Ordering::Relaxed);
    }
    field(1).store(epoch + 1, Ordering::Release);
}

fn known(ordinal: c_int) -> Outcome<usize> {
    let (devices, _) = settings::devices();
    usize::try_from(ordinal).ok().filter(|&ordinal| ordinal < devices).ok_or(INVALID_DEVICE)
}

/// # Safety
/// `text` must be valid.
unsafe fn describe(
    code: c_int,
    text: *mut *const c_char,
    which: fn((&'static CStr, &'static CStr)) -> &'static CStr,
) -> Outcome {
    let found = crate::names::of(code);
    // SAFETY: the caller's promise.
    unsafe { *text = found.map_or(std::ptr::null(), |names| which(names).as_ptr()) };
    found.map(drop).ok_or(INVALID_VALUE)
}

fn is_capturing() -> bool {
    settings::text("FAKE_CUDA_CAPTURING").is_some_and(|value| value != "0")
}

fn not_while_capturing() -> Outcome {
    if is_capturing() { Err(CAPTURE_UNSUPPORTED) } else { Ok(()) }
}

fn hang_if_asked() {
    let hanging = settings::text("FAKE_CUDA_HANG").map(|list| settings::numbers::<usize>(&list, ','));
    while let (Some(hanging), Ok(device)) = (&hanging, state::current_device()) {
        if !hanging.contains(&device) {
            return;
        }
        std::thread::sleep(Duration::from_secs(60));
    }
}

/// For tests: how often a function of this library was called in this process.
#[unsafe(no_mangle)]
unsafe extern "C" fn fakeCudaCalls(name: *const c_char) -> u64 {
    // SAFETY: the caller passes a C string.
    state::calls(&unsafe { CStr::from_ptr(name) }.to_string_lossy())
}

/// For tests: bytes that are allocated now.
#[unsafe(no_mangle)]
extern "C" fn fakeCudaLiveBytes() -> u64 {
    state::live_bytes()
}
