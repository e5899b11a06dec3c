//! Where things are.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Paths of the checkout. Nothing in it is known at compile time.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
}

impl Workspace {
    /// From the variable that `cargo run` sets, else by looking upwards for `xtask/Cargo.toml`.
    pub(crate) fn find() -> Result<Self, String> {
        let by_cargo = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        let root = match by_cargo.as_deref().and_then(Path::parent) {
            Some(root) if root.join("xtask/Cargo.toml").is_file() => root.to_path_buf(),
            _ => {
                let here = std::env::current_dir().map_err(|e| format!("no current directory: {e}"))?;
                here.ancestors()
                    .find(|dir| dir.join("xtask/Cargo.toml").is_file())
                    .map(Path::to_path_buf)
                    .ok_or_else(|| format!("no RoboCache checkout at or above {}", here.display()))?
            }
        };
        let target = match std::env::var_os("CARGO_TARGET_DIR") {
            Some(dir) => root.join(dir),
            None => root.join("target"),
        };
        Ok(Self { root, target })
    }

    /// The cargo that started us, in the root of the workspace.
    pub(crate) fn cargo(&self) -> Command {
        let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        self.command(program)
    }

    /// A program in the root of the workspace, without what `cargo run` added to our environment.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        // The extension is abi3: without asking a Python, pyo3 is built once for all our commands.
        command.env("PYO3_NO_PYTHON", "1");
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&name);
            }
        }
        if let Some(paths) = std::env::var_os("LD_LIBRARY_PATH") {
            match self.without_cargo_paths(&paths) {
                Some(kept) => command.env("LD_LIBRARY_PATH", kept),
                None => command.env_remove("LD_LIBRARY_PATH"),
            };
        }
        command
    }

    /// A path for people: relative to the root where it lies below it.
    pub(crate) fn show(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }

    /// `cargo run` puts its own folders in front of the library path; benchmarks and the search for
    /// CUDA libraries must not see them.
    fn without_cargo_paths(&self, paths: &OsString) -> Option<OsString> {
        let kept: Vec<PathBuf> = std::env::split_paths(paths)
            .filter(|path| {
                let toolchain = path.components().any(|part| matches!(part.as_os_str().to_str(), Some("toolchains")));
                !path.as_os_str().is_empty() && !path.starts_with(&self.target) && !toolchain
            })
            .collect();
        if kept.is_empty() { None } else { std::env::join_paths(kept).ok() }
    }
}
