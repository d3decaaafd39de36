//! Entry: the command line becomes a verb, the verb's result the exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(crayfish::cli::main(std::env::args_os()))
}
