//! Logs: journald with its fields when stderr is the journal, else lines on stderr. One level for
//! all, changeable while running.
//!
//! A message is constant, facts are fields; the field `event` becomes journald's `EVENT`, so that
//! `journalctl EVENT=breaker.opened` finds what it says.
//!
//! # Invariants
//! - One event is one line: control characters inside facts are escaped, because they come from
//!   servers and people.
//! - A panic is logged once, with its place, by the hook; its effect is told by the supervisor.

use std::fmt;
use std::io::{self, IsTerminal};
use std::panic::PanicHookInfo;

use tracing::{Event, Level, Subscriber};
use tracing_journald::{Priority, PriorityMappings};
use tracing_subscriber::Registry;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::reload;

use super::supervisor::panic_text;

/// The variable that overrides the configured level.
pub const LEVEL_VARIABLE: &str = "CRAYFISH_LOG";

/// Names of the levels, from quiet to loud.
pub const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

/// Text that names no level.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a log level; use error, warn, info, debug or trace")]
pub struct NotALevel(String);

/// Changes the level while running.
#[derive(Debug, Clone)]
pub struct LogLevel {
    handle: reload::Handle<LevelFilter, Registry>,
    overridden: bool,
}

impl LogLevel {
    /// Puts the configured level in force, unless `CRAYFISH_LOG` overrides it. True if it now is.
    pub fn set(&self, level: Level) -> bool {
        // An error means that the subscriber is gone: the process is leaving.
        !self.overridden && self.handle.reload(LevelFilter::from_level(level)).is_ok()
    }
}

/// The level `text` names, in any case.
///
/// # Errors
/// It names none.
pub fn level(text: &str) -> Result<Level, NotALevel> {
    let name = text.trim().to_ascii_lowercase();
    match name.as_str() {
        "error" => Ok(Level::ERROR),
        "warn" => Ok(Level::WARN),
        "info" => Ok(Level::INFO),
        "debug" => Ok(Level::DEBUG),
        "trace" => Ok(Level::TRACE),
        _ => Err(NotALevel(text.to_owned())),
    }
}

/// Starts logging with the configured level and takes panics over. Once per process, before
/// anything else; a second call changes nothing and answers None.
#[must_use]
pub fn start(configured: Level) -> Option<LogLevel> {
    let wanted = std::env::var(LEVEL_VARIABLE).ok().map(|text| level(&text));
    let overridden = matches!(wanted, Some(Ok(_)));
    let first = match &wanted {
        Some(Ok(level)) => *level,
        _ => configured,
    };
    let (filter, handle) = reload::Layer::new(LevelFilter::from_level(first));
    let journal = stderr_is_journal().then(journal);
    let (sink, failed): (Box<dyn Layer<_> + Send + Sync>, _) = match journal {
        Some(Ok(journal)) => (Box::new(journal), None),
        Some(Err(error)) => (Box::new(stderr()), Some(error)),
        None => (Box::new(stderr()), None),
    };
    let subscriber = Registry::default().with(filter).with(sink);
    tracing::subscriber::set_global_default(subscriber).ok()?;
    std::panic::set_hook(Box::new(log_panic));
    if let Some(error) = failed {
        tracing::warn!(%error, "journald cannot be reached; logging to stderr");
    }
    if let Some(Err(error)) = wanted {
        tracing::warn!(%error, variable = LEVEL_VARIABLE, "ignored");
    }
    Some(LogLevel { handle, overridden })
}

fn journal() -> io::Result<tracing_journald::Layer> {
    let priorities = PriorityMappings {
        // journald's "notice" is for things a person should notice; an edge at info is not.
        info: Priority::Informational,
        debug: Priority::Debug,
        ..PriorityMappings::new()
    };
    Ok(tracing_journald::layer()?
        .with_field_prefix(None)
        .with_syslog_identifier("crayfish".to_owned())
        .with_priority_mappings(priorities))
}

fn stderr<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let colour = io::stderr().is_terminal() && !plain;
    // Otherwise a line that cannot be written is complained of on the same stderr, by a macro that
    // panics when that fails too: a full disk or a closed pipe would end whatever task logs.
    tracing_subscriber::fmt::layer()
        .log_internal_errors(false)
        .with_writer(io::stderr)
        .event_format(Lines { colour })
}

fn stderr_is_journal() -> bool {
    let variable = std::env::var("JOURNAL_STREAM").ok();
    let stat = rustix::fs::fstat(io::stderr()).ok();
    match (variable, stat) {
        // The types differ between architectures; the values are the kernel's.
        (Some(variable), Some(stat)) => names_stream(&variable, (stat.st_dev, stat.st_ino)),
        _ => false,
    }
}

/// `JOURNAL_STREAM` is `device:inode` of the stream that systemd connected; a redirection later on
/// leaves the variable behind, so the numbers must be those of stderr as it is now.
fn names_stream(variable: &str, (device, inode): (u64, u64)) -> bool {
    let parsed = variable.split_once(':').map(|(dev, ino)| (dev.parse(), ino.parse()));
    parsed == Some((Ok(device), Ok(inode)))
}

fn log_panic(info: &PanicHookInfo<'_>) {
    let location = info.location().map(ToString::to_string).unwrap_or_default();
    let message = panic_text(info.payload());
    tracing::error!(event = "panic", location, panic = message, "a task panicked");
}

/// One event as one line: time, level, target, message, facts.
struct Lines {
    colour: bool,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        SystemTime.format_time(&mut writer)?;
        let meta = event.metadata();
        let (colour, end) = if self.colour { (colour(*meta.level()), "\x1b[0m") } else { ("", "") };
        write!(writer, " {colour}{:>5}{end} {}: ", meta.level(), meta.target())?;
        let mut facts = String::new();
        context.field_format().format_fields(Writer::new(&mut facts), event)?;
        for c in facts.chars() {
            match c.is_control() {
                true => write!(writer, "{}", c.escape_default())?,
                false => writer.write_char(c)?,
            }
        }
        writeln!(writer)
    }
}

fn colour(level: Level) -> &'static str {
    match level {
        Level::ERROR => "\x1b[31m",
        Level::WARN => "\x1b[33m",
        Level::INFO => "\x1b[32m",
        _ => "\x1b[2m",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is logged while `work` runs.
    fn logged(colour: bool, work: impl FnOnce(&LogLevel)) -> String {
        let page = Page::default();
        let writer = page.clone();
        let (filter, handle) = reload::Layer::new(LevelFilter::INFO);
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(move || writer.clone())
            .event_format(Lines { colour });
        let subscriber = Registry::default().with(filter).with(lines);
        tracing::subscriber::with_default(subscriber, || {
            work(&LogLevel { handle, overridden: false });
        });
        String::from_utf8(page.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn an_event_is_one_line_with_its_facts_whatever_they_hold() {
        let text = logged(false, |_| {
            let foreign = "no\n2026 ERROR forged \x1b[31m";
            tracing::warn!(event = "breaker.opened", foreign, shown = %foreign, "degraded");
        });
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!text.contains('\x1b'), "{text}");
        let (time, rest) = text.split_once(' ').unwrap();
        assert!(time.ends_with('Z') && time.contains('T'), "{time}");
        let place = module_path!();
        assert!(rest.starts_with(&format!(" WARN {place}: degraded event=")), "{rest}");
        assert!(rest.contains("breaker.opened"), "{rest}");
    }

    #[test]
    fn colour_is_only_on_the_level() {
        let text = logged(true, |_| tracing::info!("up"));
        assert!(text.contains("\x1b[32m INFO\x1b[0m crayfish"), "{text}");
    }

    #[test]
    fn the_level_changes_while_running() {
        let text = logged(false, |level| {
            tracing::debug!("before");
            assert!(level.set(Level::DEBUG));
            tracing::debug!("between");
            assert!(level.set(Level::ERROR));
            tracing::warn!("after");
            let overridden = LogLevel { overridden: true, ..level.clone() };
            assert!(!overridden.set(Level::TRACE));
            tracing::warn!("after as well");
        });
        assert!(text.contains("between"), "{text}");
        assert!(!text.contains("before") && !text.contains("after"), "{text}");
    }

    #[test]
    fn levels_are_named_in_any_case_and_others_are_refused() {
        for name in LEVELS {
            assert_eq!(level(&name.to_uppercase()).unwrap().to_string().to_lowercase(), name);
        }
        let error = level("loud").unwrap_err();
        assert!(error.to_string().contains("\"loud\""), "{error}");
    }

    #[test]
    fn the_journal_is_meant_only_while_stderr_is_still_its_stream() {
        for (variable, is) in [
            ("8:4711", true),
            ("8:4712", false),
            ("9:4711", false),
            ("8:4711:1", false),
            ("8", false),
            ("", false),
        ] {
            assert_eq!(names_stream(variable, (8, 4711)), is, "{variable}");
        }
    }

    /// What a process that logs, panics in a thread and logs again writes to stderr.
    fn child_writes(variables: &[(&str, &str)]) -> String {
        let test = concat!(module_path!(), "::is_the_child").split_once("::").unwrap().1;
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]);
        for name in ["JOURNAL_STREAM", "NO_COLOR", LEVEL_VARIABLE] {
            command.env_remove(name);
        }
        command.env(CHILD, "1").envs(variables.iter().copied());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    const CHILD: &str = "CRAYFISH_TEST_LOG_CHILD";

    /// Does nothing but in the process that `child_writes` starts: the logger and the panic hook
    /// are the process's.
    #[test]
    fn is_the_child() {
        if std::env::var_os(CHILD).is_none() {
            return;
        }
        let level = start(Level::WARN).unwrap();
        assert!(start(Level::WARN).is_none(), "there is one logger");
        tracing::info!("below the level");
        let panicked = std::thread::spawn(|| panic!("first line\nsecond line")).join();
        assert!(panicked.is_err());
        level.set(Level::INFO);
        tracing::info!("above the level");
    }

    #[test]
    fn a_panic_is_one_line_with_its_place_and_the_level_can_be_raised() {
        let text = child_writes(&[]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].contains("ERROR crayfish::daemon::log: a task panicked"), "{text}");
        assert!(lines[0].contains("src/daemon/log.rs:"), "{text}");
        assert!(lines[0].contains("first line\\nsecond line"), "{text}");
        assert!(lines[1].ends_with(" above the level"), "{text}");
    }

    #[test]
    fn the_variable_overrides_the_configured_level_and_a_wrong_one_is_told() {
        let text = child_writes(&[(LEVEL_VARIABLE, "info")]);
        assert!(text.contains("below the level"), "{text}");
        let text = child_writes(&[(LEVEL_VARIABLE, "error")]);
        assert!(!text.contains("above the level"), "a reload does not undo the override: {text}");
        let text = child_writes(&[(LEVEL_VARIABLE, "loud")]);
        assert!(text.contains("\"loud\" is not a log level"), "{text}");
        assert!(!text.contains("below the level"), "{text}");
    }
}
