//! Finding and talking to the CUDA driver.

use std::ffi::{CStr, c_int};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use libloading::Library;

use super::sys::{Driver, LoadError};
use crate::{Error, ErrorKind};

/// CUDA 12.0. NVRTC 12 and 13 make cubins for it.
pub(super) const OLDEST_DRIVER: c_int = 12_000;

pub(super) const OUT_OF_MEMORY: c_int = 2;
pub(super) const INVALID_HANDLE: c_int = 400;

/// Errors after which the context is of no use: bad accesses, failed launches, hardware faults,
/// and a context that somebody destroyed.
const STICKY: [c_int; 17] = [4, 201, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 999];

pub(super) fn is_sticky(code: c_int) -> bool {
    STICKY.contains(&code)
}

/// Whether this process initialised the driver. CUDA does not survive `fork`, so a child takes it back: to compare
/// numbers of processes would be a system call in every call.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// Whether this process initialised the driver; asking does not.
pub(super) fn is_in_use() -> bool {
    IN_USE.load(Ordering::Relaxed)
}

#[cfg(unix)]
extern "C" fn after_fork() {
    IN_USE.store(false, Ordering::Relaxed);
}

/// The driver, loaded and initialised once per process.
pub(super) fn driver() -> Result<&'static Driver, Error> {
    static DRIVER: OnceLock<Result<Driver, LoadError>> = OnceLock::new();
    match DRIVER.get_or_init(load) {
        Ok(driver) if is_in_use() => Ok(driver),
        Ok(_) => Err(Error::new(
            ErrorKind::NoDevice,
            "CUDA was used before this process was forked, and does not survive that; start workers with \"spawn\"",
        )),
        Err(LoadError(reason)) => Err(Error::new(ErrorKind::NoDevice, reason.clone())),
    }
}

/// What the library may be called; a name without a folder is searched by the system.
fn library_names() -> Vec<String> {
    match std::env::var("ROBOCACHE_LIBCUDA") {
        // An empty name would be this program itself.
        Ok(path) if !path.is_empty() => vec![path],
        _ if cfg!(windows) => vec!["nvcuda.dll".to_owned()],
        _ => vec!["libcuda.so.1".to_owned(), "libcuda.so".to_owned()],
    }
}

fn load() -> Result<Driver, LoadError> {
    let names = library_names();
    let mut tried = Vec::new();
    for name in &names {
        // SAFETY: loading the vendor's driver runs its initialisers, which every CUDA program does.
        match unsafe { Library::new(name) } {
            Ok(library) => return init(Driver::new(library, name.clone())?),
            Err(error) => tried.push(LoadError::from(error).about(name)),
        }
    }
    Err(LoadError(format!("no CUDA driver found; searched {}", tried.join("; "))))
}

fn init(driver: Driver) -> Result<Driver, LoadError> {
    let mut version = 0;
    // SAFETY: the pointer is valid; the version can be asked before initialisation.
    unsafe { (driver.driver_version)(&raw mut version) };
    if version < OLDEST_DRIVER {
        return Err(LoadError(format!(
            "the driver supports CUDA {}, but {} or newer is needed (driver 525 or newer)",
            version_text(version),
            version_text(OLDEST_DRIVER)
        )));
    }
    // SAFETY: 0 is the only flag.
    match unsafe { (driver.init)(0) } {
        0 => {
            #[cfg(unix)]
            // SAFETY: the handler stores a number, which is allowed after a fork, and is never unloaded.
            if unsafe { libc::pthread_atfork(None, None, Some(after_fork)) } != 0 {
                return Err(LoadError("no memory to watch for forks of this process".to_owned()));
            }
            IN_USE.store(true, Ordering::Relaxed);
            Ok(driver)
        }
        // What a driver that another library has used answers after a fork.
        code @ 3 => Err(LoadError(format!(
            "the CUDA driver does not start: {}; if CUDA was used before this process was forked, start workers with \"spawn\"",
            driver.describe(code)
        ))),
        100 => Err(LoadError(
            "the CUDA driver sees no device (CUDA_ERROR_NO_DEVICE); is CUDA_VISIBLE_DEVICES empty?".to_owned(),
        )),
        code => Err(LoadError(format!("the CUDA driver does not start: {}", driver.describe(code)))),
    }
}

/// 12040 as "12.4".
pub(super) fn version_text(version: c_int) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

impl Driver {
    /// The CUDA version that the driver supports, as 12040.
    pub(super) fn version(&self) -> c_int {
        let mut version = 0;
        // SAFETY: the pointer is valid.
        unsafe { (self.driver_version)(&raw mut version) };
        version
    }

    /// Name and text of an error code.
    pub(super) fn describe(&self, code: c_int) -> String {
        let text = |ask: unsafe extern "C" fn(c_int, *mut *const std::ffi::c_char) -> c_int| {
            let mut pointer = std::ptr::null();
            // SAFETY: the driver returns a static string, or an error and null.
            unsafe {
                if ask(code, &raw mut pointer) != 0 || pointer.is_null() {
                    return format!("error {code}");
                }
                CStr::from_ptr(pointer).to_string_lossy().into_owned()
            }
        };
        format!("{} ({})", text(self.error_name), text(self.error_string))
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("path", &self.path).finish_non_exhaustive()
    }
}
