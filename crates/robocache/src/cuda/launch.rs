//! Kernels: loaded once per GPU, launched on the caller's stream.

use std::ffi::{CString, c_int, c_uint};

use super::StreamHandle;
use super::compile::{KernelVariant, Special};
use super::device::{Gpu, is_capturing, needs_warmup};
use super::report::{Mailbox, Reporter};
use super::sys::{Handle, attribute};
use crate::{Error, ErrorKind, Result};

/// The kernels of an op: one source, compiled with different options.
#[derive(Debug)]
pub(crate) struct KernelFamily {
    /// The `.cu` file.
    pub(crate) source: &'static str,
    /// Its own headers, by name.
    pub(crate) headers: &'static [(&'static str, &'static str)],
    /// All variants, as numbers that the op makes and reads.
    pub(crate) variants: fn() -> Vec<u32>,
    /// The entry point's name.
    pub(crate) entry: fn(u32) -> String,
    /// The options that make the variant.
    pub(crate) options: fn(u32) -> Vec<String>,
}

/// Bytes of static shared memory that kernels keep to; launches may ask for the rest.
pub const STATIC_SHARED: u32 = 1024;

/// A loaded kernel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernel {
    function: Handle,
}

/// Blocks, threads and dynamic shared memory of a launch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grid {
    pub(crate) blocks: u32,
    pub(crate) threads: u32,
    pub(crate) shared: u32,
}

impl Grid {
    /// Blocks of 256 threads, at least one; kernels go on in turns where a grid cannot hold more.
    pub(crate) fn for_blocks(blocks: u64) -> Self {
        Self { blocks: blocks.clamp(1, 0x7fff_ffff) as u32, threads: 256, shared: 0 }
    }

    /// Enough blocks of 256 threads for a thread per item.
    pub(crate) fn for_items(items: u64) -> Self {
        Self::for_blocks(items.div_ceil(256))
    }

    /// Calls `launch(first, blocks)` for all of `items`, which take `blocks_of_one` blocks each: more work than a grid can
    /// hold is launched in parts. `argument`: what has too much where even one does not fit.
    pub(crate) fn in_parts(
        argument: &'static str,
        items: u64,
        blocks_of_one: u64,
        mut launch: impl FnMut(u64, u32) -> Result<()>,
    ) -> Result<()> {
        const MOST: u64 = 0x7fff_ffff;
        let at_once = (MOST / blocks_of_one).max(1);
        let mut first = 0;
        while first < items {
            let part = at_once.min(items - first);
            let blocks = u32::try_from(part * blocks_of_one)
                .map_err(|_| Error::invalid(argument, "one row needs more blocks than a launch can have"))?;
            launch(first, blocks)?;
            first += part;
        }
        Ok(())
    }
}

/// Where parts of a workspace start; each is aligned as an allocation is.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Parts {
    next: usize,
}

impl Parts {
    const ALIGN: usize = 256;

    /// Makes room for so many bytes; returns where they start.
    pub(crate) fn add(&mut self, bytes: usize) -> usize {
        let start = self.next;
        self.next = start.saturating_add(bytes.checked_next_multiple_of(Self::ALIGN).unwrap_or(usize::MAX));
        start
    }

    /// Bytes to ask for; 0 when there is nothing.
    pub(crate) fn bytes(&self) -> usize {
        // The start of what comes may be anywhere.
        if self.next == 0 { 0 } else { self.next.saturating_add(Self::ALIGN) }
    }

    /// The start of the first part in memory of [`Parts::bytes`].
    pub(crate) fn base(memory: *mut u8) -> *mut u8 {
        memory.map_addr(|address| address.next_multiple_of(Self::ALIGN))
    }
}

/// Queues kernels on one stream of one GPU.
#[derive(Debug)]
pub struct Launcher<'g> {
    gpu: &'g Gpu,
    stream: StreamHandle,
    /// Load kernels, launch nothing.
    only_load: bool,
    /// Where the rows of this part of a call begin.
    first_row: u64,
    /// Where kernels report to, if not where all calls on the GPU do.
    mailbox: &'g Mailbox,
}

impl<'g> Launcher<'g> {
    pub(crate) fn new(gpu: &'g Gpu, stream: StreamHandle, only_load: bool) -> Self {
        Self { gpu, stream, only_load, first_row: 0, mailbox: &gpu.mailbox }
    }

    /// For a part of a call whose batch begins at this row.
    pub(crate) fn with_first_row(self, first_row: usize) -> Self {
        Self { first_row: first_row as u64, ..self }
    }

    /// For a call that reads its findings itself.
    pub(super) fn with_mailbox(self, mailbox: &'g Mailbox) -> Self {
        Self { mailbox, ..self }
    }

    /// Whether kernels are loaded and not launched.
    pub(crate) fn only_loads(&self) -> bool {
        self.only_load
    }

    pub(crate) fn gpu(&self) -> &'g Gpu {
        self.gpu
    }

    /// The CUDA version that the driver supports, as 13000.
    pub(crate) fn driver_version(&self) -> i32 {
        self.gpu.driver.version()
    }

    /// A reporter for this call's findings.
    pub(crate) fn reporter(&self) -> Reporter {
        self.mailbox.reporter(is_capturing(self.gpu.driver, self.stream), self.first_row)
    }

    /// Launches a kernel with its one argument.
    ///
    /// # Safety
    /// `A` must be the kernel's parameter type, and every pointer in it must be good on this GPU
    /// for what the kernel does with it, until the stream has passed the launch.
    pub(crate) unsafe fn launch<A: Copy>(
        &self,
        family: &'static KernelFamily,
        variant: u32,
        grid: Grid,
        argument: &A,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.start(family, variant, None, grid, argument) }
    }

    /// Launches a kernel that is compiled for what `special` holds.
    ///
    /// # Safety
    /// As for [`Launcher::launch`].
    pub(crate) unsafe fn launch_special<A: Copy>(
        &self,
        family: &'static KernelFamily,
        variant: u32,
        special: Special<'_>,
        grid: Grid,
        argument: &A,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.start(family, variant, Some(special), grid, argument) }
    }

    unsafe fn start<A: Copy>(
        &self,
        family: &'static KernelFamily,
        variant: u32,
        special: Option<Special<'_>>,
        grid: Grid,
        argument: &A,
    ) -> Result<()> {
        let _current = self.gpu.current()?;
        let kernel = self.kernel(family, variant, special)?;
        if self.only_load {
            return Ok(());
        }
        let mut parameters = [std::ptr::from_ref(argument).cast_mut().cast()];
        // SAFETY: the driver copies the argument during the call; the rest is the caller's promise.
        let code = unsafe {
            (self.gpu.driver.launch)(
                kernel.function,
                grid.blocks as c_uint,
                1,
                1,
                grid.threads as c_uint,
                1,
                1,
                grid.shared as c_uint,
                self.stream as Handle,
                parameters.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        self.gpu.check(code, "launching a kernel")?;
        if blocking() && !is_capturing(self.gpu.driver, self.stream) {
            self.gpu.wait_for_stream(self.stream)?;
            self.gpu.raise_pending()?;
        }
        Ok(())
    }

    fn kernel(&self, family: &'static KernelFamily, variant: u32, special: Option<Special<'_>>) -> Result<Kernel> {
        let key = (std::ptr::from_ref(family) as usize, variant, special.map_or(0, |special| special.id));
        let poisoned = |_| Error::new(ErrorKind::NoDevice, "a thread failed while it loaded a kernel");
        if let Some(kernel) = self.gpu.kernels.read().map_err(|_| poisoned(()))?.get(&key) {
            return Ok(*kernel);
        }
        if is_capturing(self.gpu.driver, self.stream) {
            return Err(needs_warmup());
        }
        // Threads that want the same kernel wait here for the one that compiles it.
        let mut kernels = self.gpu.kernels.write().map_err(|_| poisoned(()))?;
        if let Some(kernel) = kernels.get(&key) {
            return Ok(*kernel);
        }
        let variant = KernelVariant::new(family, variant, special);
        let began = std::time::Instant::now();
        let kernel = self.load(&variant)?;
        kernels.insert(key, kernel);
        drop(kernels);
        log::debug!("loaded {} in {:.1} ms", variant.name(), began.elapsed().as_secs_f64() * 1e3);
        Ok(kernel)
    }

    fn load(&self, variant: &KernelVariant<'_>) -> Result<Kernel> {
        let (gpu, driver) = (self.gpu, self.gpu.driver);
        let name = variant.name();
        let cubin = variant.cubin_for(gpu.info(), driver.version())?;
        let entry = CString::new(name.as_str()).unwrap_or_default();
        let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the cubin and the name outlive the calls; modules are never unloaded.
        unsafe {
            gpu.check((driver.load_module)(&raw mut module, cubin.as_ptr().cast()), &format!("loading {name}"))?;
            gpu.check((driver.get_function)(&raw mut function, module, entry.as_ptr()), &format!("finding {name}"))?;
            // The limit holds for static and dynamic shared memory together.
            let most = c_int::try_from(gpu.info().shared_memory.saturating_sub(STATIC_SHARED)).unwrap_or(0);
            let code = (driver.set_function_attribute)(function, attribute::FUNCTION_DYNAMIC_SHARED, most);
            gpu.check(code, &format!("giving {name} its shared memory"))?;
        }
        Ok(Kernel { function })
    }
}

/// `ROBOCACHE_BLOCKING=1`: every call waits and raises its own findings, for debugging.
fn blocking() -> bool {
    static BLOCKING: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *BLOCKING.get_or_init(|| std::env::var("ROBOCACHE_BLOCKING").is_ok_and(|value| value != "0" && !value.is_empty()))
}
