//! NVRTC in Python wheels.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// Tells the engine where Python wheels keep NVRTC.
pub(crate) fn search_wheels(py: Python<'_>) {
    static ONCE: PyOnceLock<()> = PyOnceLock::new();
    ONCE.get_or_init(py, || {
        let path = py.import("sys").and_then(|sys| sys.getattr("path")).and_then(|path| path.extract::<Vec<PathBuf>>());
        let folders = path.unwrap_or_default().into_iter().flat_map(|site| {
            // nvidia-cuda-nvrtc (CUDA 13) and nvidia-cuda-nvrtc-cu12.
            ["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"].map(|folder| site.join(folder))
        });
        robocache::cuda::search_also(folders.filter(|folder| folder.is_dir()));
    });
}
