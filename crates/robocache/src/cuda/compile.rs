//! Kernel sources to cubins: which variants there are, and compiling one for an architecture.

use super::launch::KernelFamily;
use super::nvrtc::nvrtc;
use super::{device::GpuInfo, disk};
use crate::{Error, ErrorKind, Result};

/// The architectures that the whole table of kernels is compiled for in tests.
pub const ARCHITECTURES: [u32; 4] = [80, 90, 100, 120];

/// Headers that every kernel may include, by name.
const SHARED_HEADERS: [(&str, &str); 10] = [
    ("rc.cuh", include_str!("../../kernels/rc.cuh")),
    ("report.cuh", include_str!("../../kernels/report.cuh")),
    ("scalar.cuh", include_str!("../../kernels/scalar.cuh")),
    ("block.cuh", include_str!("../../kernels/block.cuh")),
    ("digits.cuh", include_str!("../../kernels/digits.cuh")),
    ("cloud.cuh", include_str!("../../kernels/cloud.cuh")),
    ("pose.cuh", include_str!("../../kernels/pose.cuh")),
    ("depth.cuh", include_str!("../../kernels/depth.cuh")),
    ("grid.cuh", include_str!("../../kernels/grid.cuh")),
    ("trig.cuh", include_str!("../../kernels/trig.cuh")),
];

/// A header with constants that a kernel is compiled for, in place of its family's of the same name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Special<'a> {
    pub(crate) name: &'static str,
    pub(crate) text: &'a str,
    /// A hash of the text.
    pub(crate) id: u64,
}

/// One kernel of the table.
#[derive(Debug, Clone)]
pub struct KernelVariant<'a> {
    family: &'static KernelFamily,
    variant: u32,
    special: Option<Special<'a>>,
}

/// A cubin and what the assembler said about it.
#[derive(Debug)]
pub struct Compiled {
    /// The machine code.
    pub cubin: Vec<u8>,
    /// Registers, stack and spills, in the assembler's words; empty when it came from the disk.
    pub log: String,
}

impl<'a> KernelVariant<'a> {
    pub(crate) fn new(family: &'static KernelFamily, variant: u32, special: Option<Special<'a>>) -> Self {
        Self { family, variant, special }
    }

    fn headers(&self) -> Vec<(&'static str, &'a str)> {
        let own = self.family.headers.iter().map(|&(name, text)| match self.special {
            Some(special) if special.name == name => (name, special.text),
            _ => (name, text),
        });
        SHARED_HEADERS.iter().copied().chain(own).collect()
    }

    /// Its entry point, such as `rc_align_one_bfloat16_int64`.
    pub fn name(&self) -> String {
        (self.family.entry)(self.variant)
    }

    /// Compiles for an architecture such as 90. `newest_cuda` (as 13000) bounds NVRTC's version.
    pub fn compile(&self, architecture: u32, newest_cuda: i32, verbose: bool) -> Result<Compiled> {
        let nvrtc = nvrtc(newest_cuda)?;
        nvrtc.ensure_supports(architecture)?;
        let name = self.name();
        let options = self.options(architecture, &name, verbose);
        nvrtc.compile(&name, self.family.source, &self.headers(), &options).map(|(cubin, log)| Compiled { cubin, log })
    }

    fn options(&self, architecture: u32, name: &str, verbose: bool) -> Vec<String> {
        let mut options = vec![
            format!("--gpu-architecture=sm_{architecture}"),
            "--std=c++17".to_owned(),
            // Only what we fuse is fused: the CPU computes the same bits.
            "--fmad=false".to_owned(),
            "-default-device".to_owned(),
            format!("-DRC_ENTRY={name}"),
        ];
        options.extend((self.family.options)(self.variant));
        if verbose {
            options.push("--ptxas-options=-v".to_owned());
        }
        options
    }

    /// The cubin for a GPU, from the disk if it was compiled before.
    pub(super) fn cubin_for(&self, info: &GpuInfo, newest_cuda: i32) -> Result<Vec<u8>> {
        self.cubin(info.capability.0 * 10 + info.capability.1, newest_cuda)
    }

    /// As [`KernelVariant::compile`], from the disk if it was compiled before, and kept there for processes that want it
    /// later, on machines with the same version of NVRTC too.
    pub fn cubin(&self, architecture: u32, newest_cuda: i32) -> Result<Vec<u8>> {
        let name = self.name();
        let version = nvrtc(newest_cuda)?.cuda_version();
        let mut key = format!("nvrtc {version}\n{}\n", self.options(architecture, &name, false).join(" ")).into_bytes();
        for (_, text) in self.headers().into_iter().chain([("", self.family.source)]) {
            key.extend_from_slice(text.as_bytes());
        }
        let folder = disk::folder();
        if let Some(cubin) = folder.as_deref().and_then(|folder| disk::read(folder, &name, &key)) {
            return Ok(cubin);
        }
        let compiled = self.compile(architecture, newest_cuda, false)?;
        if let Some(folder) = folder {
            disk::write(&folder, &name, &key, &compiled.cubin);
        }
        Ok(compiled.cubin)
    }
}

impl super::sys::Nvrtc {
    fn ensure_supports(&self, architecture: u32) -> Result<()> {
        let mut count = 0;
        // SAFETY: NVRTC fills as many numbers as it told.
        let known = unsafe {
            (self.arch_count)(&raw mut count);
            let mut known = vec![0i32; usize::try_from(count).unwrap_or(0)];
            (self.archs)(known.as_mut_ptr());
            known
        };
        if known.iter().any(|&known| u32::try_from(known) == Ok(architecture)) {
            return Ok(());
        }
        let version = super::driver::version_text(self.cuda_version());
        Err(Error::new(
            ErrorKind::NoDevice,
            format!("NVRTC {version} ({}) does not compile for sm_{architecture}; install another version", self.path),
        ))
    }
}
