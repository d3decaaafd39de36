//! `crayfish status`: what is true now, for a person or a program.

use std::fmt::Write as _;
use std::io::Write;

use clap::Args;

use super::clean::Clean;
use super::code;
use super::link::{Link, LinkError};
use super::place::{PlaceArgs, Places};
use super::{RESERVE, RESERVE_SPEAKS};
use crate::session::wire::{BackendStatus, ClientFrame, MoodStatus, ServerFrame, Status};

/// Show what the daemon does and what is degraded
#[derive(Debug, Clone, Default, Args)]
pub struct StatusArgs {
    /// One JSON object instead of a table
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    place: PlaceArgs,
}

/// Runs the verb: 0, or 3 if no daemon answers.
pub(super) async fn run(args: &StatusArgs, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let found = async {
        let mut link = Link::open(&Places::of_process(&args.place)).await?;
        ask(&mut link).await
    };
    let text = match found.await {
        Err(error) => {
            let _unread = writeln!(err, "{error}");
            return code::UNREACHABLE;
        }
        Ok(status) if args.json => json(&status),
        Ok(status) => table(&status),
    };
    // A reader that has gone away (`| head`) changes nothing.
    let _unread = out.write_all(text.as_bytes());
    code::OK
}

/// Asks the daemon.
pub(super) async fn ask(link: &mut Link) -> Result<Status, LinkError> {
    link.request(&ClientFrame::Status, |frame| match frame {
        ServerFrame::Status { status } => Some(*status),
        _ => None,
    })
    .await
}

fn json(status: &Status) -> String {
    // The type holds only what JSON can; an empty object would be the honest rest.
    let mut text = serde_json::to_string_pretty(status).unwrap_or_else(|_| "{}".to_owned());
    text.push('\n');
    text
}

/// A table for people.
pub(super) fn table(status: &Status) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:<10}{}", Clean::text(value));
    };
    row("agent", &format!("{} (crayfish {})", status.designation, status.version));
    let up = duration(status.uptime_s);
    row("up", &format!("{up}, process {}, {} turns running", status.pid, status.turns));
    let thinks = match (status.online, &status.last_error) {
        (true, _) => format!("online, {} answers", status.active_backend),
        (false, Some(error)) => format!("offline: {error}"),
        (false, None) => "offline".to_owned(),
    };
    row("inference", &thinks);
    row("database", if status.store_ok { "ok" } else { "cannot be written" });
    if let Some(mood) = &status.mood {
        row("mood", &feeling(mood));
    }
    for backend in &status.backends {
        row(&backend.slot, &line(backend));
    }
    if status.active_backend == RESERVE {
        row("notice", RESERVE_SPEAKS);
    }
    for notice in &status.notices {
        row("notice", notice);
    }
    text
}

fn line(backend: &BackendStatus) -> String {
    let mut line = format!("{} with {}, breaker {}", backend.name, backend.model, backend.breaker);
    if let Some(retry_in_s) = backend.retry_in_s {
        let _ = write!(line, ", next try in {retry_in_s:.0} s");
    }
    if let Some(rate) = backend.tokens_per_s {
        let _ = write!(line, ", {rate:.1} tokens/s");
    }
    if let Some(first_token_ms) = backend.first_token_ms {
        let _ = write!(line, ", first token after {:.1} s", first_token_ms / 1000.0);
    }
    if let (Some(half), Some(most)) = (backend.gap_p50_ms, backend.gap_p99_ms) {
        let _ = write!(line, ", gaps {half:.0} ms (99 of 100 within {most:.0} ms)");
    }
    if backend.degraded {
        line.push_str(" (much slower than it was)");
    }
    if let Some(error) = &backend.last_error {
        let _ = write!(line, ", last fault: {error}");
    }
    line
}

/// What is felt, then every channel.
fn feeling(mood: &MoodStatus) -> String {
    let felt = match mood.active_channel.as_str() {
        "none" => "at rest".to_owned(),
        channel => format!("{channel} (+{:.2})", mood.active_intensity),
    };
    format!(
        "{felt}: joy {:.2}, anger {:.2}, sorrow {:.2}, excitement {:.2}, calm {:.2}",
        mood.joy, mood.anger, mood.sorrow, mood.excitement, mood.calm
    )
}

/// Two units are enough for a person.
fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_what_is_degraded() {
        let status = Status {
            designation: "Crayfish".into(),
            version: "0.1.0".into(),
            pid: 42,
            uptime_s: 3700,
            last_error: Some("nobody listens\u{1b}[2J".into()),
            backends: vec![BackendStatus {
                name: "hailo".into(),
                slot: "primary".into(),
                model: "qwen2:1.5b".into(),
                breaker: "open".into(),
                retry_in_s: Some(12.4),
                last_error: Some("down".into()),
                tokens_per_s: Some(7.5),
                degraded: true,
                head_ms: Some(3.0),
                first_token_ms: Some(410.0),
                gap_p50_ms: Some(140.2),
                gap_p99_ms: Some(151.0),
            }],
            notices: vec!["the disk is full".into()],
            mood: Some(MoodStatus {
                joy: 0.2,
                sorrow: 0.15,
                calm: 0.52,
                active_channel: "sorrow".into(),
                active_intensity: 0.15,
                ..MoodStatus::default()
            }),
            ..Status::default()
        };
        let expected = "\
agent     Crayfish (crayfish 0.1.0)
up        1 h 1 min, process 42, 0 turns running
inference offline: nobody listens
database  cannot be written
mood      sorrow (+0.15): joy 0.20, anger 0.00, sorrow 0.15, excitement 0.00, calm 0.52
primary   hailo with qwen2:1.5b, breaker open, next try in 12 s, \
7.5 tokens/s, first token after 0.4 s, gaps 140 ms (99 of 100 within 151 ms) \
(much slower than it was), last fault: down
notice    the disk is full
";
        assert_eq!(table(&status), expected);
        let reserve = Status { active_backend: "reserve".into(), ..status };
        assert!(table(&reserve).contains("notice    a small reserve model answers"));
    }

    #[test]
    fn durations_have_two_units() {
        let table =
            [(0, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (3600, "1 h 0 min"), (90_000, "1 d 1 h")];
        for (seconds, text) in table {
            assert_eq!(duration(seconds), text);
        }
    }
}
