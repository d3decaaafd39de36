//! What the configuration takes from outside its file: environment variables and systemd
//! credentials. A trait, so that tests need no process-wide state.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;

/// Largest credential file read, in bytes; a key or a certificate is far below.
const CREDENTIAL_BYTES_MAX: u64 = 64 * 1024;

/// The surroundings of a process.
pub trait Env {
    /// An environment variable; absent if unset or not UTF-8.
    fn var(&self, name: &str) -> Option<String>;

    /// A systemd credential without its final line end; absent if it cannot be read.
    /// `name` holds no path separator.
    fn credential(&self, name: &str) -> Option<String>;
}

/// The surroundings of this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessEnv;

impl Env for ProcessEnv {
    fn var(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn credential(&self, name: &str) -> Option<String> {
        let directory = std::env::var_os("CREDENTIALS_DIRECTORY")?;
        let file = std::fs::File::open(PathBuf::from(directory).join(name)).ok()?;
        let mut text = String::new();
        file.take(CREDENTIAL_BYTES_MAX).read_to_string(&mut text).ok()?;
        let end = text.trim_end_matches(['\n', '\r']).len();
        text.truncate(end);
        Some(text)
    }
}

/// Made-up surroundings, for tests and for checking a file that is meant for another machine.
#[derive(Clone, Default)]
pub struct FixedEnv {
    variables: BTreeMap<String, String>,
    credentials: BTreeMap<String, String>,
}

impl FixedEnv {
    /// Adds a variable.
    #[must_use]
    pub fn with_var(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    /// Adds a credential.
    #[must_use]
    pub fn with_credential(mut self, name: &str, value: &str) -> Self {
        self.credentials.insert(name.into(), value.into());
        self
    }
}

impl Env for FixedEnv {
    fn var(&self, name: &str) -> Option<String> {
        self.variables.get(name).cloned()
    }

    fn credential(&self, name: &str) -> Option<String> {
        self.credentials.get(name).cloned()
    }
}
