//! `cargo xtask kernels`: compiles every kernel, without a GPU.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::files;
use crate::process::{self, Outcome};
use crate::python::Venv;
use crate::workspace::Workspace;

/// The whole table, relative to the target folder.
const TABLE: &str = "kernels.txt";
/// Where Python wheels keep NVRTC, the newest first.
const WHEELS: [&str; 2] = ["nvidia/cu13/lib/libnvrtc.so.13", "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"];

/// What CI compiles for: the oldest architecture, and the one that everything is measured on.
pub(crate) const USUAL: [&str; 2] = ["80", "90"];

pub(crate) fn command(workspace: &Workspace, args: &[String]) -> Result<Outcome, String> {
    let architectures: Vec<&str> = match args {
        [] => USUAL.to_vec(),
        [all] if all == "--all" => Vec::new(),
        named => named.iter().map(String::as_str).collect(),
    };
    architectures.iter().try_for_each(|text| architecture(text))?;
    let venv = Venv::ensure(workspace)?;
    Ok(match compile(workspace, &venv, &architectures) {
        Ok(()) => Outcome::Passed,
        Err(why) => {
            eprintln!("kernels: {why}");
            Outcome::Failed
        }
    })
}

/// Refuses what is no architecture.
pub(crate) fn architecture(text: &str) -> Result<(), String> {
    match text.parse::<u32>() {
        Ok(_) => Ok(()),
        Err(_) => Err(format!("'{text}' is no architecture; they are numbers such as 90")),
    }
}

/// Compiles for the architectures, all of them when none is named; fails on spills too.
pub(crate) fn compile(workspace: &Workspace, venv: &Venv, architectures: &[&str]) -> Result<(), String> {
    let nvrtc = nvrtc(venv)?;
    let mut compiler = compiler(workspace)?;
    compiler.args(architectures).env("ROBOCACHE_NVRTC", nvrtc).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = compiler.output().map_err(|e| format!("cannot start the compiler of kernels: {e}"))?;
    let table = String::from_utf8_lossy(&output.stdout);
    let file = workspace.target.join(TABLE);
    files::write(&file, &table)?;
    println!("{}", summary(&table));
    println!("the whole table: {}", workspace.show(&file));
    if output.status.success() { Ok(()) } else { Err("not every kernel compiles without spills".to_owned()) }
}

/// Compiles all kernels for one architecture into a new folder, where the engine looks if it is told to.
pub(crate) fn keep(workspace: &Workspace, venv: &Venv, architecture: &str, folder: &Path) -> Result<(), String> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(|e| format!("{e}: {}", folder.display()))?;
    }
    let mut compiler = compiler(workspace)?;
    compiler.args([architecture, "--keep"]).env("ROBOCACHE_NVRTC", nvrtc(venv)?).env("ROBOCACHE_CUBIN_DIR", folder);
    process::run(&mut compiler)
}

/// The program that compiles kernels. Built with the whole workspace: its package alone would get other features, and be
/// compiled anew with all below it.
fn compiler(workspace: &Workspace) -> Result<Command, String> {
    process::run(workspace.cargo().args(["build", "--release", "--quiet", "--workspace", "--example", "kernels"]))?;
    Ok(Command::new(workspace.target.join("release/examples/kernels")))
}

/// `ROBOCACHE_NVRTC`, or that of a wheel in the environment; torch brings one.
fn nvrtc(venv: &Venv) -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("ROBOCACHE_NVRTC").filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    let folders = venv.site_packages();
    let found = folders.iter().flat_map(|folder| WHEELS.map(|wheel| folder.join(wheel))).find(|path| path.is_file());
    found.ok_or_else(|| {
        let folders: Vec<_> = folders.iter().map(|folder| Path::display(folder).to_string()).collect();
        format!("no NVRTC ({}) in {}; name one in ROBOCACHE_NVRTC", WHEELS.join(", "), folders.join(", "))
    })
}

/// Lines of the table are `kernel arch registers spills cubin ms`; its last line counts.
fn summary(table: &str) -> String {
    let mut most: Option<(u32, &str, &str)> = None;
    // Per architecture: how many kernels spill, and the worst of them.
    let mut spills: BTreeMap<u32, (usize, u32, &str)> = BTreeMap::new();
    for line in table.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [kernel, arch, registers, spilled, ..] = fields[..] else { continue };
        let (Ok(registers), Ok(spilled)) = (registers.parse::<u32>(), spilled.parse::<u32>()) else { continue };
        if most.is_none_or(|(most, ..)| registers > most) {
            most = Some((registers, kernel, arch));
        }
        if spilled > 0 {
            let (count, worst, name) = spills.entry(arch.parse().unwrap_or(0)).or_default();
            *count += 1;
            if spilled > *worst {
                (*worst, *name) = (spilled, kernel);
            }
        }
    }
    let mut text = table.lines().last().filter(|line| line.starts_with("kernels: ")).unwrap_or_default().to_owned();
    if let Some((registers, kernel, arch)) = most {
        text += &format!("\nmost registers: {registers}, {kernel} on sm_{arch}");
    }
    if spills.is_empty() {
        text += "\nspills: none";
    }
    for (arch, (count, worst, kernel)) in spills {
        text += &format!("\nspills on sm_{arch}: {count} kernels, at most {worst} bytes ({kernel})");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_names_the_worst() {
        let table = "kernel arch registers spills cubin ms\nrc_a 80 40 0 9000 5\nrc_b 80 64 0 9000 5\nrc_b 90 63 8 9000 5\n\
                     kernels: 2 variants, 2 architectures, 3 compiled, 1 failed\n";
        let expected = "kernels: 2 variants, 2 architectures, 3 compiled, 1 failed\n\
                        most registers: 64, rc_b on sm_80\nspills on sm_90: 1 kernels, at most 8 bytes (rc_b)";
        assert_eq!(summary(table), expected);
        assert_eq!(summary(""), "\nspills: none");
    }
}
