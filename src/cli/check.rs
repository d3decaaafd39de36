//! `crayfish check`: every problem of a configuration at once, and what is in effect.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use clap::Args;

use crate::config::env::{Env, ProcessEnv};
use crate::config::problem::Severity;
use crate::config::{Inspection, inspect};

/// Exit code for a configuration that the program would not start with (sysexits `EX_CONFIG`).
const EXIT_CONFIG: u8 = 78;

/// Settings wider than this do not push the sources of all others out of the window.
const WIDTH_MAX: usize = 64;

/// Check the configuration and show every problem at once.
#[derive(Debug, Clone, Default, Args)]
pub struct CheckArgs {
    /// File to check [default: the one that would be used]
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Take warnings for errors
    #[arg(long)]
    pub strict: bool,
    /// Show all values in effect and where each comes from
    #[arg(long)]
    pub effective: bool,
}

/// Runs the verb in this process's surroundings and gives its exit code: 0, or 78 if there are
/// errors (with `strict`, also warnings) or the file cannot be read.
pub fn run(args: &CheckArgs, out: &mut dyn io::Write) -> u8 {
    run_in(args, &ProcessEnv, out)
}

/// The same in other surroundings.
pub fn run_in(args: &CheckArgs, env: &dyn Env, out: &mut dyn io::Write) -> u8 {
    let (text, code) = match inspect(args.config.as_deref(), env) {
        Ok(inspection) => report(args, &inspection),
        Err(error) => (format!("{error}\n"), EXIT_CONFIG),
    };
    // A reader that has gone away (`| head`) changes nothing about the verdict.
    let _gone = out.write_all(text.as_bytes());
    code
}

/// The report, and the exit code.
fn report(args: &CheckArgs, inspection: &Inspection) -> (String, u8) {
    let Inspection { path, values, problems } = inspection;
    let mut text = String::new();
    let file = match path {
        Some(path) => path.display().to_string(),
        None => "no configuration file, so all keys have their defaults".into(),
    };
    for problem in problems {
        line(&mut text, problem.in_file(&file));
    }
    if args.effective {
        let lines = values.effective();
        let widths = lines.iter().map(|line| line.path.len() + line.value.len());
        let width = widths.filter(|width| *width <= WIDTH_MAX).max().unwrap_or(0);
        for effective in lines {
            let setting = format!("{}: {}", effective.path, effective.value);
            line(&mut text, format_args!("{setting:<0$}  # {1}", width + 2, effective.source));
        }
    }
    let count = |severity| problems.iter().filter(|problem| problem.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let found = [
        counted(errors, "error"),
        counted(warnings, "warning"),
        counted(count(Severity::Note), "note"),
    ];
    let found: Vec<String> = found.into_iter().flatten().collect();
    match found.is_empty() {
        true => line(&mut text, format_args!("{file}: no problems")),
        false => line(&mut text, format_args!("{file}: {}", found.join(", "))),
    }
    let refused = errors > 0 || (args.strict && warnings > 0);
    (text, if refused { EXIT_CONFIG } else { 0 })
}

fn counted(count: usize, what: &str) -> Option<String> {
    match count {
        0 => None,
        1 => Some(format!("1 {what}")),
        _ => Some(format!("{count} {what}s")),
    }
}

fn line(text: &mut String, shown: impl std::fmt::Display) {
    // Writing to a String cannot fail.
    let _infallible = writeln!(text, "{shown}");
}
