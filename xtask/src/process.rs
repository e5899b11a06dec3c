//! Running programs: with their output passed through, captured, or both.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed,
}

impl Outcome {
    pub(crate) fn exit_code(self) -> ExitCode {
        match self {
            Self::Passed => ExitCode::SUCCESS,
            Self::Failed => ExitCode::FAILURE,
        }
    }
}

/// Runs a command with its output passed through. An exit status other than 0 is an error.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|e| cannot_start(command, &e))?;
    if status.success() { Ok(()) } else { Err(format!("`{}` ended with {status}", name(command))) }
}

/// As [`run`], with the program's stdout on our stderr: for set-up in front of a program whose
/// stdout may go into a file.
pub(crate) fn run_aside(command: &mut Command) -> Result<(), String> {
    run(command.stdout(Stdio::from(std::io::stderr())))
}

/// Runs a command and returns its stdout; stderr becomes part of the error.
pub(crate) fn capture(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|e| cannot_start(command, &e))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{}` ended with {}: {}", name(command), output.status, stderr.trim()))
}

/// Runs a command, prints each line of its stdout and stderr as it comes and hands it to `see`.
pub(crate) fn stream(command: &mut Command, mut see: impl FnMut(&str)) -> Result<(), String> {
    let (reader, writer) = std::io::pipe().map_err(|e| format!("cannot make a pipe: {e}"))?;
    let second = writer.try_clone().map_err(|e| format!("cannot make a pipe: {e}"))?;
    let mut child = command.stdout(writer).stderr(second).spawn().map_err(|e| cannot_start(command, &e))?;
    // Drops our ends of the pipe: else it would never end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let read = each_line(BufReader::new(reader), &mut see);
    let status = child.wait().map_err(|e| format!("waiting for `{}`: {e}", name(command)))?;
    read.map_err(|e| format!("reading the output of `{}`: {e}", name(command)))?;
    if status.success() { Ok(()) } else { Err(format!("`{}` ended with {status}", name(command))) }
}

fn each_line(mut reader: impl BufRead, see: &mut impl FnMut(&str)) -> std::io::Result<()> {
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        let mut screen = std::io::stdout().lock();
        // A closed stdout (`| head`) must not stop the tests from being counted.
        let _ = screen.write_all(&line).and_then(|()| screen.flush());
        see(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    Ok(())
}

/// The program and its first arguments, as a person would type them.
fn name(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let mut text = program.file_name().unwrap_or(command.get_program()).to_string_lossy().into_owned();
    for arg in command.get_args().take(4) {
        let arg = arg.to_string_lossy();
        text.push(' ');
        text.push_str(if arg.len() > 60 { "..." } else { &arg });
    }
    text
}

fn cannot_start(command: &Command, error: &std::io::Error) -> String {
    format!("cannot start `{}`: {error}", name(command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_program_is_an_error_with_its_name() {
        let error = run(Command::new("false").arg("one")).unwrap_err();
        assert!(error.contains("`false one`"), "{error}");
        let error = run(&mut Command::new("no-such-program-here")).unwrap_err();
        assert!(error.contains("cannot start"), "{error}");
    }

    #[test]
    fn streamed_lines_are_seen_in_order() {
        let mut lines = Vec::new();
        stream(Command::new("sh").args(["-c", "echo a; echo b >&2; echo c"]), |line| lines.push(line.to_owned()))
            .unwrap();
        assert_eq!(lines, ["a", "b", "c"]);
    }

    #[test]
    fn captured_stderr_is_in_the_error() {
        let error = capture(Command::new("sh").args(["-c", "echo why >&2; exit 3"])).unwrap_err();
        assert!(error.contains("why") && error.contains('3'), "{error}");
    }
}
