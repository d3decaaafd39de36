//! The only place that starts children: with an end, and with bounds on what they say.

use std::ffi::OsStr;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::Command;

/// What is kept of a child's complaints: its last words are a few lines.
const COMPLAINT_BYTES_MAX: u64 = 16 * 1024;

/// Why a child did not do its work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProcessError {
    /// It could not be started; probably it is not installed.
    #[error("{program} cannot be started: {why}")]
    NotStarted {
        /// The program.
        program: String,
        /// The system's words.
        why: String,
    },
    /// It ended with a fault.
    #[error("{program} failed: {says}")]
    Failed {
        /// The program.
        program: String,
        /// The end of what it said.
        says: String,
    },
    /// It took too long and was killed.
    #[error("{program} was not done after {} s", after.as_secs())]
    TooLong {
        /// The program.
        program: String,
        /// How long it was given.
        after: Duration,
    },
}

/// Runs a program to its end, without input. What it prints is thrown away.
///
/// # Errors
/// See `ProcessError`.
///
/// # Cancel safety
/// Dropping the future kills the child.
pub async fn run(program: &str, words: &[&OsStr], time_max: Duration) -> Result<(), ProcessError> {
    let not_started = |error: std::io::Error| ProcessError::NotStarted {
        program: program.to_owned(),
        why: error.to_string(),
    };
    let mut child = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(not_started)?;
    let mut complaint = Vec::new();
    let work = async {
        if let Some(stderr) = child.stderr.take() {
            let mut stderr = stderr.take(COMPLAINT_BYTES_MAX);
            // A complaint that cannot be read is no complaint.
            let _ = stderr.read_to_end(&mut complaint).await;
            // Its pipe must not fill up; what is beyond the bound is not kept.
            let mut rest = stderr.into_inner();
            let _ = tokio::io::copy(&mut rest, &mut tokio::io::sink()).await;
        }
        child.wait().await
    };
    let status = tokio::time::timeout(time_max, work)
        .await
        .map_err(|_| ProcessError::TooLong { program: program.to_owned(), after: time_max })?;
    if status.map_err(not_started)?.success() {
        return Ok(());
    }
    let says = String::from_utf8_lossy(&complaint);
    let says = says.trim().lines().next_back().unwrap_or("it says nothing").to_owned();
    Err(ProcessError::Failed { program: program.to_owned(), says })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn shell(script: &str, time_max: Duration) -> Result<(), ProcessError> {
        run("sh", &[OsStr::new("-c"), OsStr::new(script)], time_max).await
    }

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_child_is_well_or_says_why_not() {
        assert_eq!(shell("exit 0", LONG).await, Ok(()));
        let Err(ProcessError::Failed { says, .. }) =
            shell("echo a >&2; echo b >&2; exit 3", LONG).await
        else {
            panic!("it failed");
        };
        assert_eq!(says, "b");
        let missing = run("no-such-program-at-all", &[], LONG).await;
        assert!(matches!(missing, Err(ProcessError::NotStarted { .. })));
    }

    #[tokio::test]
    async fn a_child_that_talks_for_ever_does_not_stand_still_and_one_that_hangs_is_ended() {
        let talk = "i=0; while [ $i -lt 9000 ]; do echo 0123456789012345 >&2; i=$((i+1)); done";
        assert_eq!(shell(talk, LONG).await, Ok(()));
        let hung = shell("sleep 600", Duration::from_millis(50)).await;
        assert!(matches!(hung, Err(ProcessError::TooLong { .. })));
    }
}
