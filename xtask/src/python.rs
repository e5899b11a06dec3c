//! The virtual environment `target/venv`: pinned packages and the freshly built extension.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{self, Outcome};
use crate::workspace::Workspace;

/// Pinned packages of the environment, relative to the root.
const REQUIREMENTS: &str = "crates/robocache-py/tests/requirements.txt";
/// Python sources of the package, relative to the root.
pub(crate) const SOURCES: &str = "crates/robocache-py/python";
/// The extension, inside the package.
pub(crate) const EXTENSION_FILE: &str = if cfg!(windows) { "_core.pyd" } else { "_core.abi3.so" };
const OLDEST: (u32, u32) = (3, 10);
const CANDIDATES: [&str; 6] = ["python3", "python3.13", "python3.12", "python3.11", "python3.10", "python"];

/// How the extension is built: soon after an edit, as all that is tested, or as it is shipped, to be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Build {
    Incremental,
    Shipped,
}

/// An environment whose packages are known to be the pinned ones.
#[derive(Debug)]
pub(crate) struct Venv {
    dir: PathBuf,
}

impl Venv {
    /// Makes the environment or brings it up to date; does nothing when its stamp says it is.
    pub(crate) fn ensure(workspace: &Workspace) -> Result<Self, String> {
        let dir = workspace.target.join("venv");
        let base = find_python()?;
        let file = workspace.root.join(REQUIREMENTS);
        let requirements = std::fs::read_to_string(&file).map_err(|e| format!("{e}: {REQUIREMENTS}"))?;
        let stamp = format!("python {}\n{requirements}", base.version);
        let stamp_file = dir.join("robocache-stamp.txt");
        let venv = Self { dir };
        let usable = version_of(&venv.python_path()).is_ok_and(|version| version == base.version);
        if usable && std::fs::read_to_string(&stamp_file).is_ok_and(|text| text == stamp) {
            return Ok(venv);
        }
        if !usable {
            eprintln!("making {} with Python {}", workspace.show(&venv.dir), base.version);
            remove_dir(&venv.dir)?;
            process::run_aside(workspace.command(&base.program).args(["-m", "venv"]).arg(&venv.dir))?;
        }
        eprintln!("installing {REQUIREMENTS}; torch makes this several gigabytes the first time");
        let mut pip = venv.python(workspace);
        pip.args(["-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar", "off"]);
        process::run_aside(pip.arg("--quiet").arg("--requirement").arg(&file))?;
        std::fs::write(&stamp_file, stamp).map_err(|e| format!("{e}: {}", stamp_file.display()))?;
        Ok(venv)
    }

    /// Builds the extension with the shared release profile and links it into the environment.
    pub(crate) fn build_extension(&self, workspace: &Workspace, build: Build) -> Result<(), String> {
        let mut maturin = self.activated(workspace.command(self.bin("maturin")));
        maturin.args(["develop", "--release"]);
        if build == Build::Incremental {
            maturin.args(["--config", "build.incremental=true"]);
        }
        process::run_aside(&mut maturin)
    }

    /// Whether an extension was linked into the environment before.
    pub(crate) fn has_extension(&self, workspace: &Workspace) -> bool {
        let code = "import importlib.metadata as m; m.version('robocache')";
        process::capture(self.python(workspace).args(["-c", code])).is_ok()
    }

    /// The interpreter of the environment, in the root of the workspace.
    pub(crate) fn python(&self, workspace: &Workspace) -> Command {
        self.activated(workspace.command(self.python_path()))
    }

    /// Where the packages of the environment are.
    pub(crate) fn site_packages(&self) -> Vec<PathBuf> {
        let windows = self.dir.join("Lib").join("site-packages");
        let entries = std::fs::read_dir(self.dir.join("lib")).into_iter().flatten().flatten();
        let folders = entries.map(|entry| entry.path().join("site-packages")).chain([windows]);
        folders.filter(|folder| folder.is_dir()).collect()
    }

    fn python_path(&self) -> PathBuf {
        self.bin("python")
    }

    fn bin(&self, name: &str) -> PathBuf {
        if cfg!(windows) {
            self.dir.join("Scripts").join(format!("{name}.exe"))
        } else {
            self.dir.join("bin").join(name)
        }
    }

    /// What `activate` would set.
    fn activated(&self, mut command: Command) -> Command {
        let mut paths = vec![self.dir.join(if cfg!(windows) { "Scripts" } else { "bin" })];
        if let Some(old) = std::env::var_os("PATH") {
            paths.extend(std::env::split_paths(&old));
        }
        if let Ok(path) = std::env::join_paths(paths) {
            command.env("PATH", path);
        }
        command.env("VIRTUAL_ENV", &self.dir).env_remove("PYTHONHOME").env_remove("CONDA_PREFIX");
        command
    }
}

/// `cargo xtask lab NAME [ARGS]`
pub(crate) fn lab(workspace: &Workspace, args: &[String]) -> Result<Outcome, String> {
    let scripts = lab_scripts(&workspace.root.join("lab"));
    let Some((name, rest)) = args.split_first() else {
        return Err(format!("lab: which one? There are: {}", scripts.join(", ")));
    };
    if !scripts.contains(name) {
        return Err(format!("lab: no '{name}'. There are: {}", scripts.join(", ")));
    }
    let venv = Venv::ensure(workspace)?;
    venv.build_extension(workspace, Build::Shipped)?;
    let script = Path::new("lab").join(format!("{name}.py"));
    pass_through(venv.python(workspace).arg(script).args(rest))
}

/// `cargo xtask py [ARGS]`
pub(crate) fn interpreter(workspace: &Workspace, args: &[String]) -> Result<Outcome, String> {
    let venv = Venv::ensure(workspace)?;
    venv.build_extension(workspace, Build::Incremental)?;
    pass_through(venv.python(workspace).args(args))
}

/// A program that tells its user itself why it failed.
fn pass_through(command: &mut Command) -> Result<Outcome, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|e| format!("cannot start {program}: {e}"))?;
    Ok(if status.success() { Outcome::Passed } else { Outcome::Failed })
}

/// Scripts that can be run: those with a main function.
fn lab_scripts(dir: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_script = path.extension().is_some_and(|ext| ext == "py")
            && std::fs::read_to_string(&path).is_ok_and(|text| text.contains("__main__"));
        if let (true, Some(stem)) = (is_script, path.file_stem()) {
            names.push(stem.to_string_lossy().into_owned());
        }
    }
    names.sort();
    names
}

pub(crate) fn remove_dir(dir: &Path) -> Result<(), String> {
    match std::fs::remove_dir_all(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(format!("cannot remove: {e}: {}", dir.display())),
        _ => Ok(()),
    }
}

/// A Python that can make the environment.
#[derive(Debug)]
pub(crate) struct BasePython {
    pub(crate) program: OsString,
    version: String,
}

/// `ROBOCACHE_PYTHON`, or the first good one of the usual names.
pub(crate) fn find_python() -> Result<BasePython, String> {
    if let Some(program) = std::env::var_os("ROBOCACHE_PYTHON") {
        return try_python(&program).map_err(|why| format!("ROBOCACHE_PYTHON: {}: {why}", program.to_string_lossy()));
    }
    let mut tried = Vec::new();
    for name in CANDIDATES {
        match try_python(name.as_ref()) {
            Ok(python) => return Ok(python),
            Err(why) => tried.push(format!("  {name}: {why}")),
        }
    }
    Err(format!(
        "no usable Python {}.{} or later:\n{}\nInstall one (on Debian and Ubuntu: python3 and python3-venv) \
         or name it in ROBOCACHE_PYTHON",
        OLDEST.0,
        OLDEST.1,
        tried.join("\n")
    ))
}

fn try_python(program: &std::ffi::OsStr) -> Result<BasePython, String> {
    let version = version_of(Path::new(program))?;
    match parse_version(&version) {
        Some(found) if found >= OLDEST => {}
        _ => return Err(format!("is {version}, {}.{} or later is needed", OLDEST.0, OLDEST.1)),
    }
    let code = "import venv, ensurepip";
    if process::capture(Command::new(program).args(["-c", code])).is_err() {
        return Err(format!("is {version} without the venv module (on Debian and Ubuntu: install python3-venv)"));
    }
    Ok(BasePython { program: program.to_owned(), version })
}

fn version_of(program: &Path) -> Result<String, String> {
    let code = "import platform; print(platform.python_version())";
    let mut command = Command::new(program);
    match process::capture(command.args(["-c", code])) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(why) if why.starts_with("cannot start") => Err("not found".to_owned()),
        Err(why) => Err(why),
    }
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers() {
        assert_eq!(parse_version("3.9.18"), Some((3, 9)));
        assert!(parse_version("3.10.1") >= Some(OLDEST));
        assert!(parse_version("3.9.18") < Some(OLDEST));
        assert_eq!(parse_version("x"), None);
    }

    #[test]
    fn a_missing_python_is_named() {
        let why = try_python("no-python-of-this-name".as_ref()).unwrap_err();
        assert_eq!(why, "not found");
    }
}
