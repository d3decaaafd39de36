//! `crayfish trace`: what has happened, from the daemon's database.

use std::io::Write;
use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::Timestamp;

use super::clean::Clean;
use super::code;
use super::link::{Link, LinkError};
use super::place::{PlaceArgs, Places};
use crate::clock::{SystemClock, WallClock};
use crate::event::feed::Told;
use crate::limits::EVENTS_TOLD_MAX;
use crate::session::wire::{ClientFrame, ServerFrame};

/// Show what has happened
#[derive(Debug, Clone, Args)]
pub struct TraceArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Clone, Subcommand)]
enum What {
    Events(EventsArgs),
}

/// Faults, steps of the governor, stress, sleep, ends of turns, hours of beats
#[derive(Debug, Clone, Args)]
struct EventsArgs {
    /// How far back: a number and s, m, h or d
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = span)]
    since: Duration,
    /// Only kinds that begin so, e.g. governor or breaker.opened
    #[arg(long, value_name = "KIND", default_value = "")]
    kind: String,
    /// One JSON object a line instead of a table
    #[arg(long)]
    jsonl: bool,
    #[command(flatten)]
    place: PlaceArgs,
}

/// Runs the verb: 0, or 3 if no daemon answers.
pub(super) async fn run(args: &TraceArgs, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let What::Events(args) = &args.what;
    match events(args, out).await {
        Ok(()) => code::OK,
        Err(error) => {
            let _unread = writeln!(err, "{error}");
            code::UNREACHABLE
        }
    }
}

async fn events(args: &EventsArgs, out: &mut dyn Write) -> Result<(), LinkError> {
    let mut link = Link::open(&Places::of_process(&args.place)).await?;
    let back_ms = i64::try_from(args.since.as_millis()).unwrap_or(i64::MAX);
    let since_ms = SystemClock.now().as_millisecond().saturating_sub(back_ms);
    let mut after = 0;
    loop {
        let frame = ClientFrame::Events { since_ms, after };
        let told = link.request(&frame, |frame| match frame {
            ServerFrame::Events { events } => Some(events),
            _ => None,
        });
        let told = told.await?;
        for told in &told {
            after = told.id;
            if !told.kind.starts_with(&args.kind) {
                continue;
            }
            let line = if args.jsonl { json(told) } else { row(told) };
            // A reader that has gone away (`| head`) wants no more.
            if writeln!(out, "{line}").is_err() {
                return Ok(());
            }
        }
        if told.len() < EVENTS_TOLD_MAX {
            return Ok(());
        }
    }
}

fn json(told: &Told) -> String {
    // Strings, numbers and lists: writing them cannot fail.
    serde_json::to_string(told).unwrap_or_default()
}

fn row(told: &Told) -> String {
    let at = Timestamp::from_millisecond(told.at_ms).unwrap_or(Timestamp::UNIX_EPOCH);
    let at = at.strftime("%Y-%m-%d %H:%M:%SZ");
    let facts = match told.body.as_object() {
        None => String::new(),
        Some(fields) => {
            let facts = fields.iter().filter(|(_, value)| !value.is_null());
            let facts = facts.map(|(name, value)| match value.as_str() {
                Some(text) => format!("{name}: {text}"),
                None => format!("{name}: {value}"),
            });
            facts.collect::<Vec<_>>().join(", ")
        }
    };
    let line = format!("{at}  {:<5}  {:<22}  {facts}", told.severity, told.kind);
    Clean::text(line.trim_end())
}

/// Reads a span like `90s`, `30m`, `24h` or `7d`.
fn span(text: &str) -> Result<Duration, String> {
    let refused = || format!("{text:?} is not a time; write a number and s, m, h or d, e.g. 24h");
    let unit = text.chars().last().ok_or_else(refused)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(refused()),
    };
    let number: u64 = text[..text.len() - unit.len_utf8()].parse().map_err(|_| refused())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn spans_have_a_number_and_a_unit() {
        for (text, seconds) in [("90s", 90), ("30m", 1800), ("24h", 86_400), ("7d", 604_800)] {
            assert_eq!(span(text), Ok(Duration::from_secs(seconds)));
        }
        for wrong in ["", "h", "24", "-1h", "1.5h", "1w", "h24", "1µ", "99999999999999999999s"] {
            assert!(span(wrong).is_err(), "{wrong:?}");
        }
        assert!(span("18446744073709551615d").is_err());
    }

    #[test]
    fn a_row_has_time_severity_kind_and_facts_without_control_characters() {
        let told = Told {
            id: 7,
            at_ms: 1_796_047_500_000,
            group: "body".into(),
            severity: "warn".into(),
            kind: "governor.stepped".into(),
            body: json!({ "from": "full", "to": "short", "peak": null, "why": "hot\u{1b}[2J" }),
        };
        let row = row(&told);
        assert!(row.starts_with("2026-11-30 14:05:00Z  warn   governor.stepped        from: full"));
        assert!(row.contains("to: short") && !row.contains("peak") && !row.contains('\u{1b}'));
    }
}
