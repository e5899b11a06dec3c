//! Compiles every kernel for every architecture and prints what each takes; fails on spills, and on more
//! static shared memory than launches leave room for.
//! Needs NVRTC, but neither a driver nor a GPU: `cargo xtask kernels`.
//!
//! Arguments: architectures such as `90`, and parts of names such as `fuse_lean`; all without any. With `--keep` the
//! cubins go to `ROBOCACHE_CUBIN_DIR`, for machines that are to compile nothing, and only their number is told.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use robocache::cuda::{ARCHITECTURES, KernelVariant, STATIC_SHARED};

/// Kernels that may spill, each with its reason.
const ALLOWED_SPILLS: [(&str, &str); 0] = [];
/// Any NVRTC will do: nothing is loaded on a driver.
const ANY_CUDA: i32 = 99_000;

#[derive(Debug, Default, Clone, Copy)]
struct Usage {
    registers: u32,
    spills: u32,
    static_shared: u32,
    cubin: usize,
    took: Duration,
}

/// Reads the assembler's words, such as `Used 40 registers, 0 bytes spill stores`.
fn usage(log: &str, cubin: usize, took: Duration) -> Usage {
    let number_before = |marker: &str| -> u32 {
        let words: Vec<&str> = log.split_whitespace().collect();
        let marker: Vec<&str> = marker.split(' ').collect();
        let found = words
            .windows(marker.len() + 1)
            .find(|window| window[1..].iter().zip(&marker).all(|(word, marker)| word.trim_end_matches(',') == *marker));
        found.and_then(|window| window[0].parse().ok()).unwrap_or(0)
    };
    Usage {
        registers: number_before("registers"),
        spills: number_before("bytes spill stores") + number_before("bytes spill loads"),
        static_shared: number_before("bytes smem"),
        cubin,
        took,
    }
}

fn main() -> ExitCode {
    let (wanted, mut names): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|text| text.parse::<u32>().is_ok());
    let keep = names.iter().any(|name| name == "--keep");
    names.retain(|name| name != "--keep");
    let wanted: Vec<u32> = wanted.iter().filter_map(|text| text.parse().ok()).collect();
    let architectures = if wanted.is_empty() { ARCHITECTURES.to_vec() } else { wanted };
    let mut variants = KernelVariant::all();
    variants.retain(|variant| names.is_empty() || names.iter().any(|name| variant.name().contains(name)));
    let jobs: Vec<_> =
        architectures.iter().flat_map(|&arch| variants.iter().map(move |variant| (variant, arch))).collect();
    let (next, results, failures) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()), Mutex::new(Vec::new()));
    let work = || {
        while let Some(&(variant, arch)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let name = variant.name();
            if keep {
                if let (Err(error), Ok(mut failures)) = (variant.cubin(arch, ANY_CUDA), failures.lock()) {
                    failures.push(format!("sm_{arch}: {error}"));
                }
                continue;
            }
            let started = Instant::now();
            let failure = match variant.compile(arch, ANY_CUDA, true) {
                Err(error) => Some(format!("sm_{arch}: {error}")),
                Ok(compiled) => {
                    let usage = usage(&compiled.log, compiled.cubin.len(), started.elapsed());
                    let allowed = ALLOWED_SPILLS.iter().any(|(allowed, _)| *allowed == name);
                    let failure = if usage.registers == 0 {
                        Some(format!("sm_{arch} {name}: the assembler said nothing: {:?}", compiled.log))
                    } else if usage.spills > 0 && !allowed {
                        Some(format!("sm_{arch} {name}: spills {} bytes", usage.spills))
                    } else if usage.static_shared > STATIC_SHARED {
                        Some(format!("sm_{arch} {name}: {} bytes of static shared memory", usage.static_shared))
                    } else {
                        None
                    };
                    if let Ok(mut results) = results.lock() {
                        results.insert((name, arch), usage);
                    }
                    failure
                }
            };
            if let (Some(failure), Ok(mut failures)) = (failure, failures.lock()) {
                failures.push(failure);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..robocache::cpu_threads() {
            scope.spawn(work);
        }
    });
    let failures = failures.into_inner().unwrap_or_default();
    for failure in &failures {
        eprintln!("{failure}");
    }
    if keep {
        // The engine says nothing about a cubin that it could not keep.
        let kept = std::env::var("ROBOCACHE_CUBIN_DIR").ok().and_then(|folder| std::fs::read_dir(folder).ok());
        let kept =
            kept.into_iter().flatten().flatten().filter(|file| file.path().extension().is_some_and(|e| e == "cubin"));
        let kept = kept.count();
        println!("{kept} cubins kept, of {}", jobs.len());
        return if kept > 0 && kept >= jobs.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let results = results.into_inner().unwrap_or_default();
    println!("{:<40} {:>5} {:>9} {:>6} {:>8} {:>6}", "kernel", "arch", "registers", "spills", "cubin", "ms");
    for ((name, arch), usage) in &results {
        let (Usage { registers, spills, cubin, .. }, ms) = (usage, usage.took.as_millis());
        println!("{name:<40} {arch:>5} {registers:>9} {spills:>6} {cubin:>8} {ms:>6}");
    }
    println!(
        "kernels: {} variants, {} architectures, {} compiled, {} failed",
        variants.len(),
        architectures.len(),
        results.len(),
        failures.len()
    );
    if failures.is_empty() && !results.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
