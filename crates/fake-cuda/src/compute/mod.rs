//! Launches that compute, with `FAKE_CUDA_COMPUTE=1`: kernels are compiled by the host's C++ compiler and run on it.
//!
//! Seen are wrong results, accesses out of the bounds of shared memory and at odd addresses, and barriers that are missing,
//! where the chosen order of threads lets it matter. Not seen: speed, a GPU's order of memory, and what blocks do to each
//! other, since they run one after the other. Clusters of blocks are not known.

mod ptx;

use std::ffi::{c_int, c_uint, c_void};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use libloading::Library;

use crate::settings;

const HOST_HEADER: &str = include_str!("host.h");
const ENTRY: &str = "fake_cuda_launch";

/// A kernel's argument, blocks, threads, dynamic shared memory, order of the threads; anything but 0 is a fault.
pub(crate) type Entry = unsafe extern "C" fn(*const c_void, c_uint, c_uint, c_uint, c_uint) -> c_int;

struct Module {
    entry: Entry,
    /// Nothing is unloaded before the process ends.
    _library: Library,
}

/// All that was loaded; a module is known by its place.
static MODULES: Mutex<Vec<Module>> = Mutex::new(Vec::new());

pub(crate) fn is_wanted() -> bool {
    settings::text("FAKE_CUDA_COMPUTE").is_some_and(|value| value != "0")
}

/// A library for the host, or what the compiler said.
pub(crate) fn compile(source: &str, headers: &[(String, String)], options: &[String]) -> Result<Vec<u8>, String> {
    let folder = Folder::new()?;
    let write = |name: &str, text: &str| std::fs::write(folder.0.join(name), text).map_err(|error| error.to_string());
    write("host.h", HOST_HEADER)?;
    for (name, text) in headers {
        write(name, &ptx::as_cpp(text)?)?;
    }
    let launch = format!(
        "extern \"C\" __attribute__((visibility(\"default\"))) int {ENTRY}(const void* argument, unsigned blocks, \
         unsigned threads, unsigned shared, unsigned order) {{\n    \
         return host::launch<decltype(host::argument_of(RC_ENTRY)), RC_ENTRY>(argument, blocks, threads, shared, order);\n}}\n"
    );
    let source = ptx::as_cpp(source)?;
    write("kernel.cpp", &format!("#include \"host.h\"\n{source}\nnamespace rc {{}}\nusing namespace rc;\n{launch}"))?;

    let library = folder.0.join("kernel.so");
    let mut command = Command::new(settings::text("CXX").unwrap_or_else(|| "c++".to_owned()));
    command.args(["-std=c++17", "-O1", "-shared", "-fPIC", "-s", "-w", "-mfma", "-mf16c", "-ffp-contract=off"]);
    // Each kernel has shared memory of its own.
    command.args(["-fvisibility=hidden", "-fno-gnu-unique", "-fno-strict-aliasing", "-fno-threadsafe-statics"]);
    // "Illegal instruction" is how a vector at an odd address, an index out of an array, or a shift too far ends.
    command.args(["-fsanitize=alignment,bounds,shift,integer-divide-by-zero", "-fsanitize-undefined-trap-on-error"]);
    command.arg("-ftrivial-auto-var-init=pattern");
    for option in options {
        if let Some(architecture) = option.strip_prefix("--gpu-architecture=sm_") {
            command.arg(format!("-D__CUDA_ARCH__={architecture}0"));
        } else if option.starts_with("-D") {
            command.arg(option);
        }
    }
    command.arg(folder.0.join("kernel.cpp")).arg("-o").arg(&library);
    let done = command.output().map_err(|error| format!("{}: {error}", command.get_program().to_string_lossy()))?;
    if !done.status.success() {
        return Err(String::from_utf8_lossy(&done.stderr).into_owned());
    }
    std::fs::read(&library).map_err(|error| error.to_string())
}

/// Loads what [`compile`] made.
pub(crate) fn load(library: &[u8]) -> Result<usize, String> {
    let folder = Folder::new()?;
    let path = folder.0.join("kernel.so");
    std::fs::write(&path, library).map_err(|error| error.to_string())?;
    // SAFETY: our own library, whose entry has this type.
    let (library, entry) = unsafe {
        let library = Library::new(&path).map_err(|error| error.to_string())?;
        let entry = *library.get::<Entry>(ENTRY).map_err(|error| error.to_string())?;
        (library, entry)
    };
    let mut modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    modules.push(Module { entry, _library: library });
    Ok(modules.len() - 1)
}

/// Runs a kernel to its end. Kernels keep their threads in static memory: one at a time.
///
/// # Safety
/// As for a launch on a GPU.
pub(crate) unsafe fn launch(module: usize, argument: *const c_void, blocks: u32, threads: u32, shared: u32) -> bool {
    let modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    let order = settings::number("FAKE_CUDA_ORDER", 0);
    // SAFETY: the caller's promise.
    modules.get(module).is_some_and(|module| unsafe { (module.entry)(argument, blocks, threads, shared, order) } == 0)
}

/// A folder of its own, which goes away with this.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("fake-cuda-{}-{number}", std::process::id()));
            match std::fs::create_dir(&path) {
                // Left behind by a process of the same number that was killed.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                made => {
                    return made.map(|()| Self(path.clone())).map_err(|error| format!("{}: {error}", path.display()));
                }
            }
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
