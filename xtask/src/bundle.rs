//! `cargo xtask gpu-bundle`: what a GPU machine without Rust and network needs to run the tests.

use std::path::{Path, PathBuf};

use crate::coverage::executables;
use crate::files;
use crate::kernels;
use crate::process::{self, Outcome};
use crate::python::{self, Build, EXTENSION_FILE, SOURCES, Venv};
use crate::test;
use crate::workspace::Workspace;

const LARGEST: u64 = 60 << 20;
/// What Python is on GPU machines; the extension itself runs on any.
const PYTHON: &str = "3.12";
/// Packages that the tests need beside NumPy and torch, as they are imported and installed.
const VENDORED: [(&str, &str); 8] = [
    ("pytest", "pytest"),
    ("pluggy", "pluggy"),
    ("iniconfig", "iniconfig"),
    ("packaging", "packaging"),
    ("pygments", "pygments"),
    ("pytest_timeout", "pytest-timeout"),
    ("hypothesis", "hypothesis"),
    ("sortedcontainers", "sortedcontainers"),
];
/// Where `run.sh` finds compiled kernels, if there are some, and test programs. Packed, they take a tenth and a third.
const CUBINS: &str = "cubins.tar.xz";
const TESTS: &str = "rust-tests.tar.xz";
/// Folders that are taken as they are, and where they go.
const FOLDERS: [(&str, &str); 3] = [("crates/robocache-py/tests", "tests"), ("testdata", "testdata"), ("lab", "lab")];

pub(crate) fn command(workspace: &Workspace, args: &[String]) -> Result<Outcome, String> {
    let (mut python, mut cubins, mut rest) = (PYTHON, None, args);
    loop {
        (python, cubins, rest) = match rest {
            [flag, version, rest @ ..] if flag == "--python" => (version.as_str(), cubins, rest),
            [flag, arch, rest @ ..] if flag == "--cubins" => (python, Some(arch.as_str()), rest),
            _ => break,
        };
    }
    if let Some(architecture) = cubins {
        kernels::architecture(architecture)?;
    }
    let dir = match rest {
        [] => workspace.target.join("gpu-bundle"),
        [dir] if !dir.starts_with('-') => workspace.root.join(dir),
        _ => return Err("gpu-bundle: takes --python VERSION, --cubins ARCH and one folder".to_owned()),
    };
    let bundle = Bundle { workspace, dir };
    bundle.make(python, cubins)?;
    let bytes = files::size(&bundle.dir);
    println!("{}: {:.1} MiB", workspace.show(&bundle.dir), bytes as f64 / f64::from(1 << 20));
    if bytes > LARGEST {
        return Err(format!("gpu-bundle: larger than {} MiB", LARGEST >> 20));
    }
    Ok(Outcome::Passed)
}

struct Bundle<'a> {
    workspace: &'a Workspace,
    dir: PathBuf,
}

impl Bundle<'_> {
    fn make(&self, python: &str, cubins: Option<&str>) -> Result<(), String> {
        files::make_dir(&self.dir)?;
        let venv = Venv::ensure(self.workspace)?;
        self.package(&venv)?;
        self.programs()?;
        self.rust_tests(&venv)?;
        for (from, to) in FOLDERS {
            files::copy_sources(&self.workspace.root.join(from), &self.fresh(to)?)?;
        }
        // Carries the settings of pytest.
        files::copy(&self.workspace.root.join("pyproject.toml"), &self.dir.join("pyproject.toml"))?;
        self.vendor(&venv, python)?;
        self.cubins(&venv, cubins)?;
        files::write(&self.dir.join("bundle.txt"), &self.facts(python))?;
        let script = self.dir.join("run.sh");
        files::write(&script, include_str!("gpu_run.sh"))?;
        make_executable(&script)
    }

    /// A folder of the bundle, emptied. Others, which somebody put there, stay.
    fn fresh(&self, name: &str) -> Result<PathBuf, String> {
        let folder = self.dir.join(name);
        python::remove_dir(&folder)?;
        files::make_dir(&folder)?;
        Ok(folder)
    }

    fn package(&self, venv: &Venv) -> Result<(), String> {
        venv.build_extension(self.workspace, Build::Shipped)?;
        let sources = self.workspace.root.join(SOURCES).join("robocache");
        let package = self.fresh("robocache")?;
        files::copy_sources(&sources, &package)?;
        self.copy_stripped(&sources.join(EXTENSION_FILE), &package.join(EXTENSION_FILE))
    }

    /// The program itself is not among them: the extension has all of it (`python -m robocache`).
    fn programs(&self) -> Result<(), String> {
        let bin = self.fresh("bin")?;
        let fake = test::build_fake_driver(self.workspace)?;
        let name = fake.file_name().unwrap_or_default().to_owned();
        self.copy_stripped(&fake, &bin.join(name))
    }

    /// Those of the engine; the others test programs of a checkout.
    fn rust_tests(&self, venv: &Venv) -> Result<(), String> {
        let mut cargo = self.workspace.cargo();
        cargo.args(["test", "--release", "--package", "robocache", "--lib", "--tests", "--no-run"]);
        let messages = process::capture(cargo.args(["--quiet", "--message-format=json"]))?;
        let folder = self.fresh("rust-tests")?;
        let programs = executables(&messages);
        if programs.is_empty() {
            return Err("cargo made no test program".to_owned());
        }
        for program in programs {
            let program = Path::new(&program);
            let name = program.file_name().unwrap_or_default().to_string_lossy();
            self.copy_stripped(program, &folder.join(without_hash(&name)))?;
        }
        self.pack(venv, &folder, TESTS)?;
        python::remove_dir(&folder)
    }

    /// The files of a folder, without it: its owner is to be who unpacks it.
    fn pack(&self, venv: &Venv, folder: &Path, name: &str) -> Result<(), String> {
        let mut tar = venv.python(self.workspace);
        tar.args(["-m", "tarfile", "-c"]).arg(self.dir.join(name)).args(files::names(folder)?);
        process::run(tar.current_dir(folder))
    }

    /// All kernels, compiled for one architecture: work that a GPU machine, where time is dear, then need not do.
    fn cubins(&self, venv: &Venv, architecture: Option<&str>) -> Result<(), String> {
        let packed = self.dir.join(CUBINS);
        if packed.exists() {
            std::fs::remove_file(&packed).map_err(|e| format!("{e}: {}", packed.display()))?;
        }
        let Some(architecture) = architecture else { return Ok(()) };
        let folder = self.workspace.target.join("gpu-cubins");
        kernels::keep(self.workspace, venv, architecture, &folder)?;
        self.pack(venv, &folder, CUBINS)
    }

    /// Debug information is most of a program. Without the tool that removes it, it stays.
    fn copy_stripped(&self, from: &Path, to: &Path) -> Result<(), String> {
        files::copy(from, to)?;
        if let Err(why) = process::run(self.workspace.command("strip").arg(to)) {
            eprintln!("not stripped: {}: {why}", self.workspace.show(to));
        }
        Ok(())
    }

    /// The packages in folders of their own, so that `run.sh` can take only those that are missing.
    /// Kept in the target folder while the versions stay.
    fn vendor(&self, venv: &Venv, python: &str) -> Result<(), String> {
        let kept = self.workspace.target.join("gpu-vendor");
        let pins = pins(self.workspace, venv)?;
        let stamp = format!("python {python}\n{}\n", pins.join("\n"));
        let stamp_file = kept.join("stamp.txt");
        if std::fs::read_to_string(&stamp_file).ok().as_deref() != Some(&*stamp) {
            python::remove_dir(&kept)?;
            for ((module, _), pin) in VENDORED.iter().zip(&pins) {
                eprintln!("fetching {pin} for Python {python}");
                let mut pip = venv.python(self.workspace);
                pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]);
                pip.args(["--no-deps", "--no-compile", "--only-binary", ":all:", "--python-version", python]);
                // The oldest systems first; packages without machine code match any.
                pip.args(["--implementation", "cp", "--platform", "manylinux2014_x86_64"]);
                pip.args(["--platform", "manylinux_2_28_x86_64"]);
                process::run_aside(pip.arg("--target").arg(kept.join(module)).arg(pin))?;
            }
            files::write(&stamp_file, &stamp)?;
        }
        let folder = self.fresh("vendor")?;
        for (module, _) in VENDORED {
            copy_all(&kept.join(module), &folder.join(module))?;
        }
        Ok(())
    }

    fn facts(&self, python: &str) -> String {
        let git = |args: &[&str]| {
            let text = process::capture(self.workspace.command("git").args(args));
            text.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
        };
        let changes = if git(&["status", "--porcelain"]).is_empty() { "" } else { ", with changes" };
        format!("bundle of commit {}{changes}, vendor/ for Python {python}\n", git(&["rev-parse", "--short", "HEAD"]))
    }
}

/// `name==version` as installed in the environment, in the order of [`VENDORED`].
fn pins(workspace: &Workspace, venv: &Venv) -> Result<Vec<String>, String> {
    let code = "import sys, importlib.metadata as m\nfor n in sys.argv[1:]: print(f'{n}=={m.version(n)}')";
    let names = VENDORED.map(|(_, package)| package);
    let text = process::capture(venv.python(workspace).args(["-c", code]).args(names))?;
    Ok(text.lines().map(ToOwned::to_owned).collect())
}

/// As [`files::copy_sources`], with libraries: packages may have machine code.
fn copy_all(from: &Path, to: &Path) -> Result<(), String> {
    files::copy_sources(from, to)?;
    let context = |e: std::io::Error| format!("{e}: {}", from.display());
    for entry in std::fs::read_dir(from).map_err(context)? {
        let path = entry.map_err(context)?.path();
        let Some(name) = path.file_name() else { continue };
        if path.is_dir() && name != "bin" {
            copy_all(&path, &to.join(name))?;
        } else if path.extension().is_some_and(|ext| ext == "so") {
            files::copy(&path, &to.join(name))?;
        }
    }
    Ok(())
}

/// `golden-0123456789abcdef` without what cargo adds.
fn without_hash(name: &str) -> &str {
    match name.rsplit_once('-') {
        Some((stem, hash)) if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => stem,
        _ => name,
    }
}

#[cfg(unix)]
fn make_executable(path: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    let permissions = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(path, permissions).map_err(|e| format!("{e}: {}", path.display()))
}

#[cfg(not(unix))]
fn make_executable(_path: &Path) -> Result<(), String> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_test_programs_lose_cargos_hash() {
        assert_eq!(without_hash("bad_inputs-0123456789abcdef"), "bad_inputs");
        assert_eq!(without_hash("no-hash"), "no-hash");
    }
}
