//! NVRTC: finding it and compiling kernels to cubins. Needs no driver and no GPU.

use std::ffi::{CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use libloading::Library;

use super::sys::{LoadError, Nvrtc};
use crate::{Error, ErrorKind, Result, shown_path};

static EXTRA_FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Folders to search before the system's, such as those of Python wheels. Has no effect once
/// NVRTC was loaded.
pub fn search_also(folders: impl IntoIterator<Item = PathBuf>) {
    if let Ok(mut extra) = EXTRA_FOLDERS.lock() {
        extra.extend(folders);
    }
}

/// NVRTC, loaded once per process. `newest` is the newest CUDA version that may be used: a cubin
/// of a newer major version does not load on an older driver.
pub(super) fn nvrtc(newest: c_int) -> Result<&'static Nvrtc> {
    static NVRTC: OnceLock<std::result::Result<Nvrtc, LoadError>> = OnceLock::new();
    match NVRTC.get_or_init(|| load(newest)) {
        Ok(nvrtc) => Ok(nvrtc),
        Err(LoadError(reason)) => Err(Error::new(ErrorKind::NoDevice, reason.clone())),
    }
}

fn load(newest: c_int) -> std::result::Result<Nvrtc, LoadError> {
    let mut tried = Vec::new();
    let mut attempt = |library: std::result::Result<Library, libloading::Error>, path: String| {
        let found = library.map_err(LoadError::from).and_then(|library| Nvrtc::new(library, path.clone()));
        match found {
            Ok(nvrtc) if nvrtc.cuda_version() / 1000 <= newest / 1000 => Some(nvrtc),
            Ok(nvrtc) => {
                let version = super::driver::version_text(nvrtc.cuda_version());
                tried.push(format!("{path} is of CUDA {version}, newer than the driver"));
                None
            }
            Err(reason) => {
                tried.push(reason.about(&path));
                None
            }
        }
    };
    // An empty name would be this program itself.
    if let Some(path) = std::env::var("ROBOCACHE_NVRTC").ok().filter(|path| !path.is_empty()) {
        load_builtins(Path::new(&path).parent());
        // SAFETY: loading NVRTC runs its initialisers; the user chose the file.
        let found = attempt(unsafe { Library::new(&path) }, path.clone());
        return found.ok_or_else(|| LoadError(format!("ROBOCACHE_NVRTC cannot be used: {}", tried.join("; "))));
    }
    let names = [13, 12].map(|major| format!("libnvrtc.so.{major}"));
    #[cfg(unix)]
    for name in &names {
        use libloading::os::unix;
        // What a framework has loaded is sure to fit it, and costs nothing.
        // SAFETY: with RTLD_NOLOAD nothing is loaded or run.
        let loaded = unsafe { unix::Library::open(Some(name), unix::RTLD_NOW | libc::RTLD_NOLOAD) };
        if let Ok(library) = loaded
            && let Some(nvrtc) = attempt(Ok(library.into()), name.clone())
        {
            return Ok(nvrtc);
        }
    }
    let extra = EXTRA_FOLDERS.lock().map(|folders| folders.clone()).unwrap_or_default();
    let system = ["/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib"].map(PathBuf::from);
    for folder in extra.iter().chain(&system) {
        for name in &names {
            let path = folder.join(name);
            if !path.exists() {
                continue;
            }
            load_builtins(Some(folder));
            // SAFETY: as above, from a folder of the installation.
            if let Some(nvrtc) = attempt(unsafe { Library::new(&path) }, shown_path(&path)) {
                return Ok(nvrtc);
            }
        }
    }
    for name in names {
        // SAFETY: as above, from the system's library folders.
        if let Some(nvrtc) = attempt(unsafe { Library::new(&name) }, name.clone()) {
            return Ok(nvrtc);
        }
    }
    let folders: Vec<_> = extra.iter().map(|folder| shown_path(folder)).collect();
    // The extra of the package whose NVRTC this driver takes.
    let extra_name = if newest < 13_000 { "cuda12" } else { "cuda" };
    Err(LoadError(format!(
        "NVRTC, which compiles the kernels, was not found: pip install \"robocache[{extra_name}]\", or set \
         ROBOCACHE_NVRTC; searched {}{}{}",
        tried.join("; "),
        if folders.is_empty() { "" } else { " and the folders " },
        folders.join(", ")
    )))
}

/// NVRTC opens its builtins by name alone, which works only in the system's folders; elsewhere
/// they must be there already.
fn load_builtins(folder: Option<&Path>) {
    for entry in folder.and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("libnvrtc-builtins.so") {
            // SAFETY: data of NVRTC without initialisers of note. It stays loaded.
            if let Ok(library) = unsafe { Library::new(entry.path()) } {
                std::mem::forget(library);
            }
        }
    }
}

impl Nvrtc {
    /// Its CUDA version, as 13000.
    pub(super) fn cuda_version(&self) -> c_int {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both pointers are valid.
        unsafe { (self.version)(&raw mut major, &raw mut minor) };
        major * 1000 + minor * 10
    }

    /// Compiles `source` to a cubin for the architecture in `options`; also returns the log.
    pub(super) fn compile(
        &self,
        name: &str,
        source: &str,
        headers: &[(&str, &str)],
        options: &[String],
    ) -> Result<(Vec<u8>, String)> {
        let c_string =
            |text: &str| CString::new(text).map_err(|_| Error::new(ErrorKind::InvalidArgument, "NUL in a kernel"));
        let (name_c, source_c) = (c_string(name)?, c_string(source)?);
        let texts = headers.iter().map(|(_, text)| c_string(text)).collect::<Result<Vec<_>>>()?;
        let names = headers.iter().map(|(name, _)| c_string(name)).collect::<Result<Vec<_>>>()?;
        let options = options.iter().map(|option| c_string(option)).collect::<Result<Vec<_>>>()?;
        let pointers = |strings: &[CString]| strings.iter().map(|text| text.as_ptr()).collect::<Vec<*const c_char>>();
        let (text_pointers, name_pointers, option_pointers) = (pointers(&texts), pointers(&names), pointers(&options));
        let mut program = std::ptr::null_mut();
        // SAFETY: all strings and arrays outlive the calls; counts are those of the arrays.
        unsafe {
            let code = (self.create)(
                &raw mut program,
                source_c.as_ptr(),
                name_c.as_ptr(),
                c_int::try_from(headers.len()).unwrap_or(0),
                text_pointers.as_ptr(),
                name_pointers.as_ptr(),
            );
            if code != 0 {
                return Err(failed(name, code, ""));
            }
            let code = (self.compile)(program, c_int::try_from(options.len()).unwrap_or(0), option_pointers.as_ptr());
            let log = self.read(program, self.log_size, self.log).unwrap_or_default();
            let log = String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n']).to_owned();
            let result = if code == 0 {
                self.read(program, self.cubin_size, self.cubin).map(|cubin| (cubin, log))
            } else {
                Err(failed(name, code, &log))
            };
            (self.destroy)(&raw mut program);
            result
        }
    }

    /// # Safety
    /// `size` and `copy` must belong to the same property of a live program.
    unsafe fn read(
        &self,
        program: super::sys::Handle,
        size: unsafe extern "C" fn(super::sys::Handle, *mut usize) -> c_int,
        copy: unsafe extern "C" fn(super::sys::Handle, *mut c_char) -> c_int,
    ) -> Result<Vec<u8>> {
        let mut bytes = 0;
        // SAFETY: the buffer is as long as NVRTC asks for.
        unsafe {
            let mut code = size(program, &raw mut bytes);
            let mut buffer = vec![0u8; bytes];
            if code == 0 {
                code = copy(program, buffer.as_mut_ptr().cast());
            }
            if code == 0 { Ok(buffer) } else { Err(failed("kernel", code, "its output cannot be read")) }
        }
    }
}

fn failed(name: &str, code: c_int, log: &str) -> Error {
    let hint = match code {
        // NVRTC_ERROR_BUILTIN_OPERATION_FAILURE
        7 => " (libnvrtc-builtins is missing or of another version)",
        // NVRTC_ERROR_INVALID_OPTION
        5 => " (this NVRTC does not know the GPU's architecture; a newer one is needed)",
        _ => "",
    };
    // NVRTC_ERROR_OUT_OF_MEMORY
    let kind = if code == 1 { ErrorKind::OutOfMemory } else { ErrorKind::NoDevice };
    Error::new(
        kind,
        format!("NVRTC cannot compile {name}: error {code}{hint}{}{log}", if log.is_empty() { "" } else { ": " }),
    )
}

impl std::fmt::Debug for Nvrtc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nvrtc").field("path", &self.path).finish_non_exhaustive()
    }
}
