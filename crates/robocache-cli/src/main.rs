//! The program `robocache`; everything is in the library, which the Python package calls too.

use std::process::ExitCode;

fn main() -> ExitCode {
    let code = robocache_cli::main(std::env::args_os());
    u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)
}
