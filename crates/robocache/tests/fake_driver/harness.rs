//! Starting processes on the fake driver, and steering it from within.

use std::ffi::{CString, c_int, c_void};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use libloading::Library;

/// Names the scenario that a process plays.
pub(crate) const SCENARIO: &str = "ROBOCACHE_TEST_SCENARIO";
/// In front of what a scenario has to say, to tell it from the test runner's own lines.
const MARK: &str = ">> ";
const PATIENCE: Duration = Duration::from_secs(60);

/// Its name, and what the process does.
pub(crate) type Scenario = (&'static str, fn());

/// The fake library: named by a variable, else where cargo puts what tests depend on.
pub(crate) fn library() -> PathBuf {
    if let Some(path) = std::env::var_os("ROBOCACHE_FAKE_CUDA") {
        return path.into();
    }
    let program = std::env::current_exe().unwrap();
    let name = format!("{}fake_cuda{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let found = program.ancestors().skip(1).take(2).map(|folder| folder.join(&name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} is not beside {}", program.display()))
}

/// A process that plays a scenario.
#[must_use]
pub(crate) struct Process {
    command: Command,
    described: String,
}

pub(crate) struct Running {
    child: std::process::Child,
    described: String,
}

/// A process on the fake libraries, with nothing else set and no cubins on the disk.
pub(crate) fn process(scenario: &str) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "scenario", "--nocapture", "--test-threads=1"]);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if ["FAKE_", "ROBOCACHE_", "CUDA_"].iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command.env(SCENARIO, scenario);
    let process = Process { command, described: scenario.to_owned() };
    let library = library();
    let library = library.to_str().unwrap();
    let process = process.set("ROBOCACHE_LIBCUDA", library).set("ROBOCACHE_NVRTC", library);
    process.set("ROBOCACHE_CUBIN_DIR", "").set("ROBOCACHE_FAKE_CUDA", library)
}

impl Process {
    pub(crate) fn set(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self.described.push_str(&format!(" {name}={value}"));
        self
    }

    pub(crate) fn set_all(self, settings: &[(&str, &str)]) -> Self {
        settings.iter().fold(self, |process, (name, value)| process.set(name, value))
    }

    pub(crate) fn unset(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    pub(crate) fn start(mut self) -> Running {
        let child = self.command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Running { child, described: self.described }
    }

    /// Runs to its end, which must be a good one; returns what the scenario said.
    pub(crate) fn run(self) -> Vec<String> {
        self.start().finish()
    }
}

impl Running {
    pub(crate) fn finish(mut self) -> Vec<String> {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if started.elapsed() > PATIENCE {
                self.child.kill().unwrap();
                self.child.wait().unwrap();
                panic!("{} did not end", self.described);
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let (mut output, mut errors) = (String::new(), String::new());
        self.child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert!(status.success(), "{} ended with {status}\n{output}\n{errors}", self.described);
        // Before the first line of a scenario the runner leaves its own without an end.
        output.lines().filter_map(|line| line.split_once(MARK)).map(|(_, said)| said.to_owned()).collect()
    }
}

/// Says something to the test that started this process.
pub(crate) fn say(text: &str) {
    println!("{MARK}{text}");
}

/// Changes a variable of this process; the fake driver reads it at its next call.
pub(crate) fn set(name: &str, value: &str) {
    // SAFETY: the runner's main thread waits for the scenario and does not look at variables.
    unsafe { std::env::set_var(name, value) };
}

/// The fake library as another library of this process, such as torch, would use it.
pub(crate) struct Fake(Library);

impl Fake {
    pub(crate) fn open() -> Self {
        // SAFETY: our own library, which does nothing when it is loaded.
        Self(unsafe { Library::new(library()) }.unwrap())
    }

    pub(crate) fn has(&self, function: &str) -> bool {
        // SAFETY: nothing is called.
        unsafe { self.0.get::<*const c_void>(function.as_bytes()) }.is_ok()
    }

    /// How often the engine called a function.
    pub(crate) fn calls(&self, function: &str) -> u64 {
        let name = CString::new(function).unwrap();
        // SAFETY: the function's type is that of the library.
        unsafe { self.0.get::<unsafe extern "C" fn(*const std::ffi::c_char) -> u64>("fakeCudaCalls") }
            .map(|calls| unsafe { calls(name.as_ptr()) })
            .unwrap()
    }

    pub(crate) fn live_bytes(&self) -> u64 {
        // SAFETY: as above.
        unsafe { self.0.get::<unsafe extern "C" fn() -> u64>("fakeCudaLiveBytes").unwrap()() }
    }

    pub(crate) fn init(&self) -> c_int {
        // SAFETY: as above.
        unsafe { self.0.get::<unsafe extern "C" fn(u32) -> c_int>("cuInit").unwrap()(0) }
    }

    /// Makes the primary context of a device current in this thread, as torch does.
    pub(crate) fn make_current(&self, ordinal: c_int) -> usize {
        let mut context = 0;
        // SAFETY: as above.
        unsafe {
            assert_eq!(self.init(), 0);
            let retain = self.0.get::<unsafe extern "C" fn(*mut usize, c_int) -> c_int>("cuDevicePrimaryCtxRetain");
            assert_eq!(retain.unwrap()(&raw mut context, ordinal), 0);
            assert_eq!(self.0.get::<unsafe extern "C" fn(usize) -> c_int>("cuCtxSetCurrent").unwrap()(context), 0);
        }
        context
    }

    pub(crate) fn current(&self) -> usize {
        let mut context = 0;
        // SAFETY: as above.
        unsafe {
            self.0.get::<unsafe extern "C" fn(*mut usize) -> c_int>("cuCtxGetCurrent").unwrap()(&raw mut context)
        };
        context
    }
}

/// A new folder that is removed at the end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("robocache-fake-driver-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, name: &str, content: &[u8]) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
