//! A CUDA driver and NVRTC in one library, for tests of what happens when they fail, and of kernels without a GPU.
//!
//! It exports the functions that the engine looks up, under the names of CUDA 12.0, the oldest
//! driver that is supported: a test that passes here needs nothing newer. "Device memory" is host
//! memory, a launch computes nothing unless it is told to (`compute`), a compilation makes a file that
//! only this driver reads. Rules that real drivers enforce are enforced here: initialise first, have a
//! context current, use functions in the context that they were loaded in, nothing after a `fork`.
//!
//! Point `ROBOCACHE_LIBCUDA` and `ROBOCACHE_NVRTC` to the library. These variables steer it and are
//! read at every call, so that a test can change them in between:
//!
//! | variable | default | meaning |
//! |---|---|---|
//! | `FAKE_CUDA_DEVICES` | 1 | how many; 0 lets `cuInit` refuse, `hidden` shows none after it |
//! | `FAKE_CUDA_VERSION` | 12000 | what the driver supports |
//! | `FAKE_CUDA_CAPABILITY` | 9.0 | per device, as in `9.0,7.5`; the last one counts for the rest |
//! | `FAKE_CUDA_COMPUTE_MODE` | 0 | per device; 2 is "prohibited" |
//! | `FAKE_CUDA_MULTIPROCESSORS` | 132 | how many a device has |
//! | `FAKE_CUDA_COMPUTE` | | `1`: kernels are compiled by the C++ compiler (`CXX`, else `c++`) and run |
//! | `FAKE_CUDA_ORDER` | 0 | how the threads of such a kernel take turns: by their numbers, else in an order made of this |
//! | `FAKE_CUDA_MEMORY` | 2^30 | bytes that can be allocated on each device |
//! | `FAKE_CUDA_FAIL` | | `function:code`, or `function:code:n` for the n-th call; several with `,` |
//! | `FAKE_CUDA_CAPTURING` | | `1`: all streams are being captured |
//! | `FAKE_CUDA_HANG` | | ordinals, as in `0,1`: waiting for these devices never ends |
//! | `FAKE_CUDA_RESET` | | `1`: another library has destroyed all contexts |
//! | `FAKE_CUDA_FINDING` | | `code:row:index:first:second`: every launch that computes nothing finds this in its data |
//! | `FAKE_NVRTC_VERSION` | 12.0 | what NVRTC belongs to |
//! | `FAKE_NVRTC_ARCHS` | 80 to 120 | architectures that it compiles for |
//! | `FAKE_NVRTC_SECONDS` | 0 | how long a compilation takes |
//!
//! `CUDA_VISIBLE_DEVICES` counts when it is empty or -1. After a code that poisons a context, every
//! call in that context answers with it, as on a GPU.

// The functions have the vendor's names.
#![allow(non_snake_case)]

mod compute;
mod driver;
mod names;
mod nvrtc;
mod settings;
mod state;
