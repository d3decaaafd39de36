//! Writes what a package has beside the program: `crayfish.1` and a page for each verb, and the
//! completions for bash, zsh and fish.
//!
//! `crayfish-pages DIR`: DIR is made if it is not there.

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, io};

use clap_complete::{Shell, generate_to};

fn main() -> ExitCode {
    let Some(directory) = env::args_os().nth(1) else {
        eprintln!("usage: crayfish-pages DIR");
        return ExitCode::from(64);
    };
    match write(Path::new(&directory)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", directory.display());
            ExitCode::from(73)
        }
    }
}

fn write(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut crayfish::cli::command(), "crayfish", directory)?;
    }
    clap_mangen::generate_to(crayfish::cli::command(), directory)
}
