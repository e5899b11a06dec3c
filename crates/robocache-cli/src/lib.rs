//! The command line.

/// Runs with the arguments of a command line, program name first; returns the exit code.
pub fn main(arguments: Vec<String>) -> i32 {
    let _ = arguments;
    2
}
