//! GPUs: found, described and opened once per process.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock, mpsc};
use std::time::{Duration, Instant};

use super::driver::{self, driver, version_text};
use super::lane::Lanes;
use super::launch::Kernel;
use super::report::Mailbox;
use super::sys::{Driver, Handle, attribute};
use crate::{Error, ErrorKind, Result};

const MOST_GPUS: usize = 64;
/// Ampere: bfloat16 and asynchronous copies.
const OLDEST_CAPABILITY: (u32, u32) = (8, 0);
static GPUS: [OnceLock<std::result::Result<Gpu, Refusal>>; MOST_GPUS] = [const { OnceLock::new() }; MOST_GPUS];
/// The least time that an idle GPU is given to say so: a thread must start for it.
const SHORTEST_WAIT: Duration = Duration::from_millis(50);

/// Why a GPU could not be opened; kept, so that every call tells the same.
#[derive(Debug)]
struct Refusal(ErrorKind, String);

/// What is known about a GPU without opening it.
#[derive(Debug, Clone)]
pub struct GpuInfo {
    /// Ordinal, as in `cuda:0`.
    pub ordinal: u32,
    /// The vendor's name.
    pub name: String,
    /// Compute capability, such as (9, 0).
    pub capability: (u32, u32),
    /// Bytes of memory.
    pub memory: usize,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Shared memory that a block may ask for.
    pub shared_memory: u32,
    /// The CUDA version that the driver supports, such as "13.0".
    pub driver: String,
    /// Why it cannot be computed on, where that is known without opening it.
    pub refusal: Option<String>,
}

#[cfg(test)]
impl GpuInfo {
    /// One that is not there, for plans.
    pub(crate) fn imagined(multiprocessors: u32, shared_memory: u32) -> Self {
        Self {
            ordinal: 0,
            name: String::new(),
            capability: (9, 0),
            memory: 0,
            multiprocessors,
            shared_memory,
            driver: String::new(),
            refusal: None,
        }
    }
}

/// A GPU that can be computed on.
#[derive(Debug)]
pub struct Gpu {
    info: GpuInfo,
    pub(super) driver: &'static Driver,
    context: Handle,
    lost: OnceLock<String>,
    opened: Instant,
    /// Milliseconds after `opened` when the driver was last asked whether the context is there.
    asked: AtomicU64,
    pub(super) mailbox: Mailbox,
    pub(super) lanes: Lanes,
    /// By family, variant, and what it is compiled for.
    pub(super) kernels: RwLock<HashMap<(usize, u32, u64), Kernel>>,
}

// SAFETY: contexts and functions may be used from any thread; the mailbox is made of atomics.
unsafe impl Send for Gpu {}
// SAFETY: as above; the kernels are behind a lock.
unsafe impl Sync for Gpu {}

/// All GPUs that the driver shows, or why there are none.
pub fn probe() -> Result<Vec<GpuInfo>> {
    let driver = driver()?;
    let mut count = 0;
    // SAFETY: the pointer is valid.
    match unsafe { (driver.device_count)(&raw mut count) } {
        0 if count > 0 => (0..u32::try_from(count).unwrap_or(0)).map(|ordinal| describe(driver, ordinal)).collect(),
        0 => Err(Error::new(ErrorKind::NoDevice, "the CUDA driver shows no device; is CUDA_VISIBLE_DEVICES empty?")),
        code => Err(Error::new(ErrorKind::NoDevice, format!("devices cannot be counted: {}", driver.describe(code)))),
    }
}

fn describe(driver: &Driver, ordinal: u32) -> Result<GpuInfo> {
    let fail = |what: &str, code| {
        Error::new(ErrorKind::NoDevice, format!("cuda:{ordinal}: {what}: {}", driver.describe(code)))
    };
    let mut device = 0;
    // SAFETY: pointers are valid and buffers as long as told.
    unsafe {
        match (driver.device_get)(&raw mut device, c_int::try_from(ordinal).unwrap_or(c_int::MAX)) {
            0 => {}
            code => return Err(fail("not found", code)),
        }
        let mut name = [0 as c_char; 256];
        (driver.device_name)(name.as_mut_ptr(), 255, device);
        let mut memory = 0;
        (driver.device_memory)(&raw mut memory, device);
        let attribute = |which| {
            let mut value = 0;
            match (driver.device_attribute)(&raw mut value, which, device) {
                0 => Ok(u32::try_from(value).unwrap_or(0)),
                code => Err(fail("cannot be described", code)),
            }
        };
        let capability = (attribute(attribute::CAPABILITY_MAJOR)?, attribute(attribute::CAPABILITY_MINOR)?);
        let name = CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned();
        Ok(GpuInfo {
            ordinal,
            refusal: refusal(&name, capability, attribute(attribute::COMPUTE_MODE)?),
            name,
            capability,
            memory,
            multiprocessors: attribute(attribute::MULTIPROCESSORS)?,
            shared_memory: attribute(attribute::SHARED_MEMORY_OPT_IN)?,
            driver: version_text(driver.version()),
        })
    }
}

fn refusal(name: &str, capability: (u32, u32), compute_mode: u32) -> Option<String> {
    const PROHIBITED: u32 = 2;
    if compute_mode == PROHIBITED {
        return Some("its compute mode is \"prohibited\" (nvidia-smi --compute-mode changes it)".to_owned());
    }
    let (major, minor) = capability;
    (capability < OLDEST_CAPABILITY)
        .then(|| format!("{name} has compute capability {major}.{minor}, 8.0 or newer is needed"))
}

/// The GPU of that ordinal, opened at the first call. `stream` is the caller's, which must not be
/// capturing at that first call, since opening allocates.
pub fn gpu(ordinal: u32, stream: super::StreamHandle) -> Result<&'static Gpu> {
    let slot = GPUS.get(ordinal as usize).ok_or_else(|| {
        Error::invalid("device", format!("cuda:{ordinal} is not a device; ordinals go to {}", MOST_GPUS - 1))
    })?;
    let driver = driver()?;
    if slot.get().is_none() {
        if is_capturing(driver, stream) {
            return Err(needs_warmup());
        }
        static OPENING: Mutex<()> = Mutex::new(());
        // What logs may wait for the interpreter, whose thread may wait for this lock: so nothing logs before it is free.
        let alone = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = slot.get().is_none();
        if is_new {
            match Gpu::open(driver, ordinal) {
                // Memory may be free at the next call; every other reason stays.
                Err(error) if error.kind() == ErrorKind::OutOfMemory => return Err(error),
                result => drop(slot.set(result.map_err(|error| Refusal(error.kind(), error.to_string())))),
            }
        }
        drop(alone);
        if let (true, Some(Ok(gpu))) = (is_new, slot.get()) {
            log::debug!("opened cuda:{ordinal}: {}, driver for CUDA {}", gpu.info.name, gpu.info.driver);
        }
    }
    match slot.get() {
        Some(Ok(gpu)) => gpu.ensure_not_lost().map(|()| gpu),
        Some(Err(Refusal(kind, reason))) => Err(Error::new(*kind, reason.clone())),
        None => Err(Error::new(ErrorKind::NoDevice, format!("cuda:{ordinal} was not opened"))),
    }
}

/// The GPUs that were used, and whether each is lost.
pub fn used_gpus() -> impl Iterator<Item = (&'static Gpu, bool)> {
    let used = if driver::is_in_use() { &GPUS[..] } else { &[] };
    used.iter().filter_map(|slot| slot.get()?.as_ref().ok()).map(|gpu| (gpu, gpu.lost.get().is_some()))
}

/// Whether there is one GPU and no other.
pub fn is_only_gpu() -> bool {
    static ONLY: OnceLock<bool> = OnceLock::new();
    *ONLY.get_or_init(|| {
        let mut count = 0;
        // SAFETY: the pointer is valid.
        driver().is_ok_and(|driver| unsafe { (driver.device_count)(&raw mut count) } == 0) && count == 1
    })
}

pub(super) fn is_capturing(driver: &Driver, stream: super::StreamHandle) -> bool {
    // CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: another stream is captured, and the default stream would
    // take part in that.
    const IMPLICIT: c_int = 906;
    let mut status = 0;
    // SAFETY: the stream is the caller's; a stream that does not exist is answered with an error.
    match unsafe { (driver.is_capturing)(stream as Handle, &raw mut status) } {
        0 => status != 0,
        code => code == IMPLICIT,
    }
}

pub(super) fn needs_warmup() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "the first call of a kernel cannot happen while a CUDA graph is captured, since it compiles and loads; \
         call rc.warmup(...) with the same arguments before the capture",
    )
}

impl Gpu {
    fn open(driver: &'static Driver, ordinal: u32) -> Result<Self> {
        let info = describe(driver, ordinal)?;
        if let Some(reason) = &info.refusal {
            return Err(Error::new(ErrorKind::NoDevice, format!("cuda:{ordinal}: {reason}")));
        }
        let mut context = std::ptr::null_mut();
        // SAFETY: the device exists. The primary context is the one that frameworks use.
        let code = unsafe { (driver.retain_context)(&raw mut context, c_int::try_from(ordinal).unwrap_or(0)) };
        let failed =
            |code| Error::new(kind_of(code), format!("cuda:{ordinal} cannot be opened: {}", driver.describe(code)));
        if code != 0 {
            return Err(failed(code));
        }
        let _current = Current::new(driver, context).map_err(failed)?;
        let mailbox = Mailbox::new(driver)?;
        Ok(Self {
            info,
            driver,
            context,
            lost: OnceLock::new(),
            opened: Instant::now(),
            asked: AtomicU64::new(0),
            mailbox,
            lanes: Lanes::default(),
            kernels: RwLock::default(),
        })
    }

    /// What it is.
    pub fn info(&self) -> &GpuInfo {
        &self.info
    }

    /// Bytes that are free on it now; none where it does not say.
    pub fn free_bytes(&self) -> Option<u64> {
        let _current = self.current().ok()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the pointers are valid.
        (unsafe { (self.driver.memory_info)(&raw mut free, &raw mut total) } == 0).then_some(free as u64)
    }

    /// Makes the GPU the calling thread's current one until the guard is dropped.
    pub(super) fn current(&self) -> Result<Current> {
        if let Some(reason) = self.lost.get() {
            return Err(self.lost_error(reason));
        }
        match Current::new(self.driver, self.context) {
            Ok(current) => Ok(current),
            Err(code) => Err(self.failure(code, "making it the current device")),
        }
    }

    /// Whether it can still be used. Another library may have reset the device: our handles then
    /// point to nothing, and the driver does not look before it follows them.
    fn ensure_not_lost(&self) -> Result<()> {
        if let Some(reason) = self.lost.get() {
            return Err(self.lost_error(reason));
        }
        // To ask takes as long as the rest of a call, so not every call asks.
        let now = self.opened.elapsed().as_millis() as u64;
        if self.asked.load(Ordering::Relaxed) == now {
            return Ok(());
        }
        self.asked.store(now, Ordering::Relaxed);
        self.ensure_context()
    }

    /// Whether the context is still there, which another library may have destroyed.
    fn ensure_context(&self) -> Result<()> {
        let (mut flags, mut active) = (0, 0);
        let ordinal = c_int::try_from(self.info.ordinal).unwrap_or(0);
        // SAFETY: the pointers are valid.
        let code = unsafe { (self.driver.primary_state)(ordinal, &raw mut flags, &raw mut active) };
        if code == 0 && active == 0 {
            return Err(self.lose("its context was destroyed by another library".to_owned()));
        }
        Ok(())
    }

    fn lost_error(&self, reason: &str) -> Error {
        Error::new(
            ErrorKind::DeviceLost,
            format!("cuda:{} is lost until the process ends: {reason}; the CPU goes on working", self.info.ordinal),
        )
    }

    /// Latches the GPU as lost.
    fn lose(&self, reason: String) -> Error {
        let mut is_new = false;
        let reason = self.lost.get_or_init(|| {
            is_new = true;
            reason
        });
        let error = self.lost_error(reason);
        if is_new {
            // Whoever asked is told by the error.
            log::info!("{error}");
        }
        error
    }

    /// Turns a driver's code into an error; codes after which nothing works latch the GPU as lost.
    pub(super) fn check(&self, code: c_int, what: &str) -> Result<()> {
        if code == 0 { Ok(()) } else { Err(self.failure(code, what)) }
    }

    #[cold]
    fn failure(&self, code: c_int, what: &str) -> Error {
        let text = format!("{what}: {}", self.driver.describe(code));
        if driver::is_sticky(code) {
            return self.lose(text);
        }
        Error::new(kind_of(code), format!("cuda:{}: {text}", self.info.ordinal))
    }

    /// Raises what earlier calls found in their data, once.
    pub(crate) fn raise_pending(&self) -> Result<()> {
        match self.mailbox.take(self.info.ordinal) {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }

    pub(super) fn wait_for_stream(&self, stream: super::StreamHandle) -> Result<()> {
        let _current = self.current()?;
        // SAFETY: the stream is the caller's.
        self.check(unsafe { (self.driver.synchronize_stream)(stream as Handle) }, "waiting for a stream")
    }

    /// Waits also where the GPU was given up: what is still queued may use memory of the caller. Not where another library
    /// destroyed the context, with which all work ended.
    pub(super) fn wait_anyway(&self, stream: Handle) -> Result<()> {
        self.ensure_context()?;
        let current = Current::new(self.driver, self.context);
        let _current = current.map_err(|code| self.failure(code, "making it the current device"))?;
        // SAFETY: the stream is the caller's.
        self.check(unsafe { (self.driver.synchronize_stream)(stream) }, "waiting for a stream")
    }

    /// The driver's wait can be neither timed nor interrupted, so a thread of its own waits.
    fn start_waiting(&'static self) -> Result<mpsc::Receiver<Result<()>>> {
        let (sender, receiver) = mpsc::channel();
        let waiter = move || {
            // SAFETY: waits for all work of the current context.
            let wait = |_current: Current| unsafe { (self.driver.synchronize_context)() };
            let done = self.current().map(wait).and_then(|code| self.check(code, "waiting for the device"));
            let _ = sender.send(done);
        };
        match std::thread::Builder::new().name(format!("robocache-wait-{}", self.info.ordinal)).spawn(waiter) {
            Ok(_) => Ok(receiver),
            Err(error) => Err(Error::new(ErrorKind::OutOfMemory, "cannot start a thread to wait on").caused_by(error)),
        }
    }

    fn finish_waiting(
        &self,
        receiver: &mpsc::Receiver<Result<()>>,
        deadline: Option<Instant>,
        interrupt: Option<&dyn Fn() -> bool>,
    ) -> Result<()> {
        loop {
            let step = Duration::from_millis(50);
            let step = deadline.map_or(step, |deadline| step.min(deadline.saturating_duration_since(Instant::now())));
            match receiver.recv_timeout(step) {
                Ok(done) => return done,
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(self.lose("waiting for it failed".to_owned())),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(self.lose("its work did not end within the timeout of synchronize".to_owned()));
            }
            if interrupt.is_some_and(|interrupt| interrupt()) {
                return Err(Error::new(ErrorKind::Interrupted, "interrupted"));
            }
        }
    }
}

fn kind_of(code: c_int) -> ErrorKind {
    match code {
        driver::OUT_OF_MEMORY => ErrorKind::OutOfMemory,
        // Of what callers hand over, only a stream can be unknown to the driver.
        driver::INVALID_HANDLE => ErrorKind::InvalidArgument,
        _ => ErrorKind::NoDevice,
    }
}

/// Waits until all GPUs that were used are done, and raises what their calls found. A GPU that is
/// not done in time is latched as lost.
pub fn synchronize(timeout: Option<Duration>, interrupt: Option<&dyn Fn() -> bool>) -> Result<()> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout.max(SHORTEST_WAIT)));
    if !driver::is_in_use() {
        return Ok(());
    }
    // All at once: a GPU that hangs must take neither the wait nor the time of the others.
    let used = GPUS.iter().filter_map(|slot| slot.get()?.as_ref().ok());
    let waits: Vec<_> = used.map(|gpu| (gpu, gpu.ensure_not_lost().and_then(|()| gpu.start_waiting()))).collect();
    let mut outcome = Ok(());
    for (gpu, receiver) in waits {
        let done = receiver.and_then(|receiver| gpu.finish_waiting(&receiver, deadline, interrupt));
        if done.as_ref().is_err_and(|error| error.kind() == ErrorKind::Interrupted) {
            return done;
        }
        // One error per call: what a further GPU found stays for the next.
        if outcome.is_ok() {
            outcome = done.and_then(|()| gpu.raise_pending());
        }
    }
    outcome
}

/// Sets the calling thread's context and puts the former one back on every way out.
pub(super) struct Current {
    driver: &'static Driver,
    before: Option<Handle>,
}

impl Current {
    fn new(driver: &'static Driver, context: Handle) -> std::result::Result<Self, c_int> {
        let mut before = std::ptr::null_mut();
        // SAFETY: asks for and sets this thread's context; frameworks in this thread get theirs back.
        unsafe {
            if (driver.current_context)(&raw mut before) == 0 && before == context {
                return Ok(Self { driver, before: None });
            }
            match (driver.set_context)(context) {
                0 => Ok(Self { driver, before: Some(before) }),
                code => Err(code),
            }
        }
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // SAFETY: a context that was current before. An error here surfaces at the next call.
            unsafe { (self.driver.set_context)(before) };
        }
    }
}
