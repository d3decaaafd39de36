//! Configuration: one YAML file, checked whole before anything starts.
//!
//! A key is a constant ([`key::Key`]) with its default, rule and documentation; the check
//! ([`check`]), the default document ([`document`]) and the reload ([`reload`]) walk over the
//! same constants, so they cannot disagree. Settings are plain structs in [`sections`].
//!
//! # Invariants
//! - [`load`] gives either settings in which every value passed its rule, or every problem.
//! - A key the program does not know is a warning: a newer file starts an older program.
//! - A secret is of type [`secrets::Secret`] and appears in no message, log or output.
//!
//! # Absences
//! - No `./config.yaml` is looked for: what a program does must not depend on the directory it
//!   is started in.
//! - The file is never written.

mod address;
pub mod channels;
pub mod check;
mod cross;
pub mod document;
pub mod env;
pub mod key;
pub mod later;
pub mod node;
pub mod problem;
pub mod reload;
pub mod rule;
pub mod secrets;
pub mod sections;
pub mod value;
pub mod values;

use std::fmt;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::env::Env;
use self::problem::{Problem, Severity};
use self::reload::Changes;
use self::sections::agent::{Agent, Memory};
use self::sections::events::EventsKept;
use self::sections::governor::{Governor, Vitals};
use self::sections::gpio::Gpio;
use self::sections::hardware::Hardware;
use self::sections::mood::Mood;
use self::sections::openai::Openai;
use self::sections::provider::Provider;
use self::sections::reserve::{Model, Reserve};
use self::sections::storage::{Log, Storage};
use self::sections::system::System;
use self::sections::web_chat::WebChat;
use self::values::Values;
use crate::limits::CONFIG_BYTES_MAX;

/// The file for a whole machine.
const MACHINE_FILE: &str = "/etc/crayfish/config.yaml";

/// All settings. A turn takes the current ones once and keeps them.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Who the companion is and whom it serves.
    pub system: System,
    /// The model servers on this machine.
    pub hardware: Hardware,
    /// An OpenAI-compatible server, if there is one.
    pub openai: Option<Openai>,
    /// The HTTP interface.
    pub web_chat: WebChat,
    /// How answers are made.
    pub agent: Agent,
    /// What the model sees of the conversation.
    pub memory: Memory,
    /// Where the mood rests and what moves it.
    pub mood: Mood,
    /// What is connected to the pins.
    pub gpio: Gpio,
    /// Timeouts and breaker.
    pub provider: Provider,
    /// Where the vital signs are read.
    pub vitals: Vitals,
    /// What is given up before the processor is too hot.
    pub governor: Governor,
    /// How long happenings are kept.
    pub events: EventsKept,
    /// The small model inside the process.
    pub reserve: Reserve,
    /// Its file.
    pub model: Model,
    /// The database.
    pub storage: Storage,
    /// The log.
    pub log: Log,
}

impl Config {
    /// Builds the settings from checked values.
    #[must_use]
    pub fn new(values: &Values) -> Self {
        Self {
            system: System::new(values),
            hardware: Hardware::new(values),
            openai: Openai::new(values),
            web_chat: WebChat::new(values),
            agent: Agent::new(values),
            memory: Memory::new(values),
            mood: Mood::new(values),
            gpio: Gpio::new(values),
            provider: Provider::new(values),
            vitals: Vitals::new(values),
            governor: Governor::new(values),
            events: EventsKept::new(values),
            reserve: Reserve::new(values),
            model: Model::new(values),
            storage: Storage::new(values),
            log: Log::new(values),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new(&Values::default())
    }
}

/// A configuration that can be started with.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The settings.
    pub config: Arc<Config>,
    /// The values they were built from, with their sources.
    pub values: Values,
    /// What a person should hear about; no errors and no notes.
    pub warnings: Vec<Problem>,
    /// The file; absent if there is none and the defaults stand.
    pub path: Option<PathBuf>,
}

impl Loaded {
    /// Loads again. Keys that take effect without a restart get their new values; the others
    /// keep those the program runs with, so that what is shown as in effect is in effect.
    ///
    /// # Errors
    /// As for [`load`]; the running configuration stands.
    pub fn reload(
        &self,
        path: Option<&Path>,
        env: &dyn Env,
    ) -> Result<(Self, Changes), ConfigError> {
        let loaded = load(path, env)?;
        let changes = reload::changes(&self.values, &loaded.values);
        let values = self.values.with_live_of(&loaded.values);
        let config = Arc::new(Config::new(&values));
        Ok((Self { config, values, ..loaded }, changes))
    }
}

/// Why there is no configuration. The program exits with code 78, or keeps the one it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigError {
    /// The file was read and is wrong.
    Problems {
        /// The file.
        path: PathBuf,
        /// Everything wrong with it, warnings included, notes not.
        problems: Vec<Problem>,
    },
    /// The file cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why, and what to do.
        why: String,
    },
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, why } => write!(f, "{}: {why}", path.display()),
            Self::Problems { path, problems } => {
                let file = path.display().to_string();
                for (at, problem) in problems.iter().enumerate() {
                    let end = if at == 0 { "" } else { "\n" };
                    write!(f, "{end}{}", problem.in_file(&file))?;
                }
                Ok(())
            }
        }
    }
}

/// A configuration and everything found in it, for a person who wants to see it.
#[derive(Debug, Clone)]
pub struct Inspection {
    /// The file; absent if there is none and the defaults stand.
    pub path: Option<PathBuf>,
    /// All values; a refused one is at its default.
    pub values: Values,
    /// All problems, notes included, in the order of the file.
    pub problems: Vec<Problem>,
}

/// A file's bytes and permission bits.
struct Text {
    path: PathBuf,
    bytes: Vec<u8>,
    mode: u32,
}

/// Loads the configuration: from `path` if one is given, else from the first of
/// `$CRAYFISH_CONFIG`, `$XDG_CONFIG_HOME/crayfish/config.yaml` (or `~/.config/...`) and
/// `/etc/crayfish/config.yaml` that exists, else the defaults.
///
/// # Errors
/// The file is wrong or cannot be read; also if `path` or `$CRAYFISH_CONFIG` names none.
pub fn load(path: Option<&Path>, env: &dyn Env) -> Result<Loaded, ConfigError> {
    let Inspection { path, values, mut problems } = inspect(path, env)?;
    problems.retain(|problem| problem.severity != Severity::Note);
    if problems.iter().any(|problem| problem.severity == Severity::Error) {
        let path = path.unwrap_or_default();
        return Err(ConfigError::Problems { path, problems });
    }
    let config = Arc::new(Config::new(&values));
    Ok(Loaded { config, values, warnings: problems, path })
}

/// Checks the file that [`load`] would take, and tells everything about it.
///
/// # Errors
/// The file cannot be read.
pub fn inspect(path: Option<&Path>, env: &dyn Env) -> Result<Inspection, ConfigError> {
    let Some(Text { path, bytes, mode }) = find(path, env)? else {
        return Ok(Inspection { path: None, values: Values::default(), problems: Vec::new() });
    };
    let check::Checked { values, problems } = check::check(&bytes, Some(mode), env);
    Ok(Inspection { path: Some(path), values, problems })
}

/// Finds and reads the file that [`load`] describes; nothing if there is none.
fn find(path: Option<&Path>, env: &dyn Env) -> Result<Option<Text>, ConfigError> {
    if let Some(path) = path {
        let fix = "give the path of an existing file to --config, or leave it out for the defaults";
        return read_named(path, fix).map(Some);
    }
    if let Some(path) = env.var("CRAYFISH_CONFIG").filter(|path| !path.is_empty()) {
        let fix = "set CRAYFISH_CONFIG to an existing file, or unset it";
        return read_named(Path::new(&path), fix).map(Some);
    }
    let person = env
        .var("XDG_CONFIG_HOME")
        .filter(|path| path.starts_with('/'))
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(env.var("HOME")?).join(".config")))
        .map(|base| base.join("crayfish/config.yaml"));
    for path in person.into_iter().chain([PathBuf::from(MACHINE_FILE)]) {
        match read(&path) {
            Ok(text) => return Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let why = format!("cannot be read: {error}; make it readable, or remove it");
                return Err(ConfigError::Unreadable { path, why });
            }
        }
    }
    Ok(None)
}

fn read_named(path: &Path, fix_missing: &str) -> Result<Text, ConfigError> {
    read(path).map_err(|error| {
        let why = if error.kind() == io::ErrorKind::NotFound {
            format!("there is no such file; {fix_missing}")
        } else {
            format!("cannot be read: {error}")
        };
        ConfigError::Unreadable { path: path.into(), why }
    })
}

/// Reads a file, one byte more than is allowed at most, so that the check sees it is too large.
fn read(path: &Path) -> io::Result<Text> {
    let file = std::fs::File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory"));
    }
    let mut bytes = Vec::new();
    file.take(CONFIG_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(Text { path: path.into(), bytes, mode: metadata.mode() })
}

#[cfg(test)]
mod tests;
