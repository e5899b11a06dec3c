//! The functions of the CUDA driver and of NVRTC that we call, looked up by name.
//!
//! We look them up ourselves rather than through a binding crate: about forty functions are
//! needed, and a library or function that is missing must be an error with a reason.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};

use libloading::Library;

/// Why a library cannot be used.
#[derive(Debug, Clone)]
pub(super) struct LoadError(pub(super) String);

impl LoadError {
    /// The reason with the library's name in front, where it is not there yet.
    pub(super) fn about(&self, path: &str) -> String {
        if self.0.starts_with(path) { self.0.clone() } else { format!("{path}: {}", self.0) }
    }
}

impl From<libloading::Error> for LoadError {
    fn from(error: libloading::Error) -> Self {
        // The system's own words are in the cause.
        Self(std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string))
    }
}

pub(super) type Handle = *mut c_void;
pub(super) type DevicePointer = u64;

macro_rules! library {
    ($(#[$doc:meta])* $name:ident { $($field:ident = $symbol:literal($($argument:ty),*)),+ $(,)? }) => {
        $(#[$doc])*
        pub(super) struct $name {
            // Never unloaded: the functions below point into it.
            _library: std::mem::ManuallyDrop<Library>,
            /// Where it was found.
            pub(super) path: String,
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> c_int,)+
        }

        impl $name {
            /// Looks all functions up.
            pub(super) fn new(library: Library, path: String) -> Result<Self, LoadError> {
                Ok(Self {
                    $($field: {
                        let symbol = CString::new($symbol).unwrap_or_default();
                        // SAFETY: the signature is that of the vendor's header.
                        let found = unsafe { library.get(symbol.as_bytes_with_nul()) };
                        *found.map_err(|_| LoadError(format!("{path} has no {}, it is too old", $symbol)))?
                    },)+
                    _library: std::mem::ManuallyDrop::new(library),
                    path,
                })
            }
        }
    };
}

library! {
    /// `libcuda.so.1`. The names are those of CUDA 12.0, the oldest driver that is supported.
    Driver {
        init = "cuInit"(c_uint),
        driver_version = "cuDriverGetVersion"(*mut c_int),
        error_name = "cuGetErrorName"(c_int, *mut *const c_char),
        error_string = "cuGetErrorString"(c_int, *mut *const c_char),
        device_count = "cuDeviceGetCount"(*mut c_int),
        device_get = "cuDeviceGet"(*mut c_int, c_int),
        device_name = "cuDeviceGetName"(*mut c_char, c_int, c_int),
        device_attribute = "cuDeviceGetAttribute"(*mut c_int, c_int, c_int),
        device_memory = "cuDeviceTotalMem_v2"(*mut usize, c_int),
        retain_context = "cuDevicePrimaryCtxRetain"(*mut Handle, c_int),
        primary_state = "cuDevicePrimaryCtxGetState"(c_int, *mut c_uint, *mut c_int),
        current_context = "cuCtxGetCurrent"(*mut Handle),
        set_context = "cuCtxSetCurrent"(Handle),
        synchronize_context = "cuCtxSynchronize"(),
        host_alloc = "cuMemHostAlloc"(*mut *mut c_void, usize, c_uint),
        host_device_pointer = "cuMemHostGetDevicePointer_v2"(*mut DevicePointer, *mut c_void, c_uint),
        memory_info = "cuMemGetInfo_v2"(*mut usize, *mut usize),
        alloc = "cuMemAlloc_v2"(*mut DevicePointer, usize),
        free = "cuMemFree_v2"(DevicePointer),
        copy_to_device = "cuMemcpyHtoD_v2"(DevicePointer, *const c_void, usize),
        copy_to_host = "cuMemcpyDtoH_v2"(*mut c_void, DevicePointer, usize),
        copy_on_device = "cuMemcpyDtoD_v2"(DevicePointer, DevicePointer, usize),
        copy_up = "cuMemcpyHtoDAsync_v2"(DevicePointer, *const c_void, usize, Handle),
        copy_down = "cuMemcpyDtoHAsync_v2"(*mut c_void, DevicePointer, usize, Handle),
        create_stream = "cuStreamCreate"(*mut Handle, c_uint),
        destroy_stream = "cuStreamDestroy_v2"(Handle),
        host_flags = "cuMemHostGetFlags"(*mut c_uint, *mut c_void),
        free_host = "cuMemFreeHost"(*mut c_void),
        load_module = "cuModuleLoadData"(*mut Handle, *const c_void),
        get_function = "cuModuleGetFunction"(*mut Handle, Handle, *const c_char),
        set_function_attribute = "cuFuncSetAttribute"(Handle, c_int, c_int),
        launch = "cuLaunchKernel"(
            Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
        ),
        is_capturing = "cuStreamIsCapturing"(Handle, *mut c_int),
        synchronize_stream = "cuStreamSynchronize"(Handle),
    }
}

library! {
    /// `libnvrtc.so.12` or `.13`.
    Nvrtc {
        version = "nvrtcVersion"(*mut c_int, *mut c_int),
        arch_count = "nvrtcGetNumSupportedArchs"(*mut c_int),
        archs = "nvrtcGetSupportedArchs"(*mut c_int),
        create = "nvrtcCreateProgram"(
            *mut Handle, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char
        ),
        destroy = "nvrtcDestroyProgram"(*mut Handle),
        compile = "nvrtcCompileProgram"(Handle, c_int, *const *const c_char),
        log_size = "nvrtcGetProgramLogSize"(Handle, *mut usize),
        log = "nvrtcGetProgramLog"(Handle, *mut c_char),
        cubin_size = "nvrtcGetCUBINSize"(Handle, *mut usize),
        cubin = "nvrtcGetCUBIN"(Handle, *mut c_char),
    }
}

/// Attributes of `cuDeviceGetAttribute` and `cuFunc*Attribute`.
pub(super) mod attribute {
    use std::ffi::c_int;

    pub(crate) const MULTIPROCESSORS: c_int = 16;
    pub(crate) const COMPUTE_MODE: c_int = 20;
    pub(crate) const CAPABILITY_MAJOR: c_int = 75;
    pub(crate) const CAPABILITY_MINOR: c_int = 76;
    pub(crate) const SHARED_MEMORY_OPT_IN: c_int = 97;
    pub(crate) const FUNCTION_DYNAMIC_SHARED: c_int = 8;
}
