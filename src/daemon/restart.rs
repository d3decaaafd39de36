//! Restarts a hung model server with the configured command.

use std::ffi::OsStr;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::limits::RESTART_COMMAND_MAX;
use crate::process;
use crate::provider::lent::Restart;

/// A command of words, run without a shell.
pub(super) struct Command {
    program: String,
    words: Vec<String>,
}

impl Command {
    /// The command in a line of words; none if there are no words.
    pub(super) fn of(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace().map(str::to_owned);
        Some(Self { program: words.next()?, words: words.collect() })
    }
}

impl Restart for Command {
    fn restart(&self) -> BoxFuture<'_, Result<(), String>> {
        async move {
            let words: Vec<&OsStr> = self.words.iter().map(OsStr::new).collect();
            let done = process::run(&self.program, &words, RESTART_COMMAND_MAX).await;
            done.map_err(|error| error.to_string())
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_is_run_as_words_and_tells_why_it_failed() {
        let dir = tempfile::tempdir().unwrap();
        let made = dir.path().join("made");
        let line = format!("  touch   {} ", made.display());
        assert_eq!(Command::of(&line).unwrap().restart().await, Ok(()));
        assert!(made.exists());
        let missing = Command::of("no-such-program-at-all now").unwrap().restart().await;
        assert!(missing.unwrap_err().starts_with("no-such-program-at-all cannot be started"));
        assert!(Command::of("  ").is_none());
    }
}
