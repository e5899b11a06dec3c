//! A child process that cannot outlive its owner, block it, or fill its memory.

use std::io::{self, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{self, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A running program with its two outputs. Dropping it kills and reaps the program and what it started.
#[derive(Debug)]
pub(super) struct Child {
    process: process::Child,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
}

/// Which outputs have something to read, or have ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ready {
    pub(super) stdout: bool,
    pub(super) stderr: bool,
}

impl Child {
    /// Starts a program without input. On Linux it dies with the calling thread.
    pub(super) fn spawn(command: &mut Command) -> io::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Its own group, so that what the program starts can be ended with it.
        command.process_group(0);
        #[cfg(target_os = "linux")]
        {
            let parent = process::id();
            let die_with_parent = move || {
                // SAFETY: prctl and getppid are safe to call between fork and exec and touch no memory.
                let (set, now) = unsafe { (libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL), libc::getppid()) };
                if set != 0 {
                    return Err(io::Error::last_os_error());
                }
                // A parent that died before the call would not be noticed.
                if u32::try_from(now) == Ok(parent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
            };
            // SAFETY: the closure allocates nothing and calls only functions that are safe after fork.
            unsafe { command.pre_exec(die_with_parent) };
        }
        let mut process = command.spawn()?;
        let (stdout, stderr) = (process.stdout.take(), process.stderr.take());
        #[cfg(target_os = "linux")]
        if let Some(stdout) = &stdout {
            // Fewer switches between the two processes; a refusal only costs speed.
            // SAFETY: the call changes the size of a pipe that we own.
            unsafe { libc::fcntl(stdout.as_raw_fd(), libc::F_SETPIPE_SZ, 1 << 20) };
        }
        Ok(Self { process, stdout, stderr })
    }

    /// Whether the standard output has ended.
    pub(super) fn is_stdout_closed(&self) -> bool {
        self.stdout.is_none()
    }

    /// Whether the standard error has ended.
    pub(super) fn is_stderr_closed(&self) -> bool {
        self.stderr.is_none()
    }

    /// Waits until an output can be read without blocking; neither is ready when the time is up.
    pub(super) fn wait_readable(&self, stdout: bool, timeout: Duration) -> io::Result<Ready> {
        let entry = |fd: Option<RawFd>| libc::pollfd { fd: fd.unwrap_or(-1), events: libc::POLLIN, revents: 0 };
        let mut entries = [
            entry(self.stdout.as_ref().filter(|_| stdout).map(AsRawFd::as_raw_fd)),
            entry(self.stderr.as_ref().map(AsRawFd::as_raw_fd)),
        ];
        let millis = libc::c_int::try_from(timeout.as_millis()).unwrap_or(libc::c_int::MAX);
        // SAFETY: the pointer and the count are those of `entries`, which outlives the call.
        let count = unsafe { libc::poll(entries.as_mut_ptr(), 2, millis) };
        if count < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
            return Ok(Ready { stdout: false, stderr: false });
        }
        let [stdout, stderr] = entries;
        Ok(Ready { stdout: stdout.revents != 0, stderr: stderr.revents != 0 })
    }

    /// Reads what is there of the standard output; 0 at its end.
    pub(super) fn read_stdout(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        read_available(&mut self.stdout, buffer)
    }

    /// Reads what is there of the standard error; 0 at its end.
    pub(super) fn read_stderr(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        read_available(&mut self.stderr, buffer)
    }

    /// How the program ended, or `None` where it is still running after `patience`.
    pub(super) fn exit(&mut self, patience: Duration) -> io::Result<Option<ExitStatus>> {
        let start = Instant::now();
        loop {
            let status = self.process.try_wait()?;
            if status.is_some() || start.elapsed() > patience {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // While it is not reaped its number cannot belong to another process.
        if let Ok(None) = self.process.try_wait() {
            if let Ok(group) = libc::pid_t::try_from(self.process.id()) {
                // SAFETY: the call sends a signal; the group is the one that this child leads.
                unsafe { libc::kill(-group, libc::SIGKILL) };
            }
            // Ignored: it is killed, and there is nobody to tell.
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

fn read_available<R: Read>(pipe: &mut Option<R>, buffer: &mut [u8]) -> io::Result<usize> {
    let Some(reader) = pipe else { return Ok(0) };
    loop {
        match reader.read(buffer) {
            Ok(0) => {
                *pipe = None;
                return Ok(0);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
