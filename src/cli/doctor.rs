//! `crayfish doctor`: what is wrong, why it matters, and the command that helps.

use std::fmt::Write as _;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use self::npu::measure;
use super::clean::Clean;
use super::code;
use super::link::{Link, LinkError};
use super::place::{PlaceArgs, Places};
use crate::clock::{SystemClock, WallClock};
use crate::config::env::ProcessEnv;
use crate::config::{self, Config};
use crate::daemon::paths::{Env, Paths, SERVICE_STATE_DIR};
use crate::doctor::facts::Daemon;
use crate::doctor::npu::Report;
use crate::doctor::{Checked, Facts, Finding, Severity, examine, servers, worst};
use crate::model::Shelf;
use crate::session::wire::{ClientFrame, ServerFrame};

mod npu;

/// Exit code if the worst finding is a warning.
const EXIT_WARNING: u8 = 1;

/// Exit code if something does not work.
const EXIT_FAULT: u8 = 4;

/// How far back faults are told, in milliseconds.
const FAULTS_BACK_MS: i64 = 24 * 3600 * 1000;

/// Find what is wrong with the machine, its services and this program
#[derive(Debug, Clone, Default, Args)]
pub struct DoctorArgs {
    /// One JSON object instead of a text
    #[arg(long)]
    pub json: bool,
    /// Ask the NPU three short questions and measure its answers
    #[arg(long)]
    pub npu: bool,
    /// Mend what can be mended without harm, after asking
    #[arg(long, conflicts_with = "json")]
    pub fix: bool,
    /// Configuration file [default: the first that is found]
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    place: PlaceArgs,
}

/// All that was found, for programs.
#[derive(Debug, Serialize)]
struct Found {
    version: &'static str,
    worst: Option<Severity>,
    checks: Vec<Checked>,
    #[serde(skip_serializing_if = "Option::is_none")]
    npu: Option<Report>,
}

/// Runs the verb: 0 if there is nothing worse than a note, 1 for warnings, 4 for faults. `input` is
/// where a person says yes or no.
pub(super) async fn run(
    args: &DoctorArgs,
    input: &mut dyn BufRead,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> u8 {
    let facts = match gather(args).await {
        Ok(facts) => facts,
        Err(why) => {
            let _unread = writeln!(err, "crayfish: {why}");
            return code::FAILED;
        }
    };
    let checks = examine(&facts);
    let npu = match args.npu {
        true => Some(measure(&Places::of_process(&args.place), &facts.vitals).await),
        false => None,
    };
    let of_npu = npu.iter().flat_map(|report| &report.findings).map(|finding| finding.severity);
    let worst = worst(&checks).into_iter().chain(of_npu).max();
    let found = Found { version: env!("CARGO_PKG_VERSION"), worst, checks, npu };
    let text = if args.json { json(&found) } else { text(&found) };
    // A reader that has gone away changes nothing about the verdict.
    let _gone = out.write_all(text.as_bytes());
    if args.fix {
        mend(&found.checks, input, out);
    }
    match found.worst {
        Some(Severity::Fault) => EXIT_FAULT,
        Some(Severity::Warning) => EXIT_WARNING,
        Some(Severity::Note) | None => code::OK,
    }
}

/// Looks at everything.
async fn gather(args: &DoctorArgs) -> Result<Facts, String> {
    let (inspection, config_unreadable) = match config::inspect(args.config.as_deref(), &ProcessEnv)
    {
        Ok(inspection) => (Some(inspection), None),
        Err(error) => (None, Some(error.to_string())),
    };
    let config = inspection.as_ref().map(|found| Config::new(&found.values)).unwrap_or_default();
    let state = state_dir(args)?;
    let (config_path, problems) =
        inspection.map(|found| (found.path, found.problems)).unwrap_or_default();
    Ok(Facts {
        config_path,
        config_unreadable,
        problems,
        clock_plausible: Some(SystemClock.is_set()),
        web_address: config.web_chat.enabled.then_some(config.web_chat.address),
        servers: servers::ask(&config).await,
        has_reserve_model: config.reserve.enabled && Shelf::of(&state).in_use().is_some(),
        daemon: daemon(&Places::of_process(&args.place)).await,
        ..Facts::of_machine(&config.vitals.root, &state)
    })
}

/// The state of the daemon that is meant: this user's, or the service's if this user has none.
fn state_dir(args: &DoctorArgs) -> Result<PathBuf, String> {
    let own = Paths::choose(&Env::read(args.place.state.clone()));
    let own = own.map_err(|error| error.to_string())?.state;
    let service = Path::new(SERVICE_STATE_DIR);
    let is_named = args.place.state.is_some();
    Ok(if !is_named && !own.exists() && service.exists() { service.to_owned() } else { own })
}

/// What the daemon says of itself.
async fn daemon(places: &Places) -> Daemon {
    let asked = async {
        let mut link = Link::open(places).await?;
        let status = super::status::ask(&mut link).await?;
        let since_ms = SystemClock.now().as_millisecond().saturating_sub(FAULTS_BACK_MS);
        let events = ClientFrame::Events { since_ms, after: 0 };
        let told = link.request(&events, |frame| match frame {
            ServerFrame::Events { events } => Some(events),
            _ => None,
        });
        Ok::<_, LinkError>(Daemon::Answers(Box::new(status), told.await?))
    };
    match asked.await {
        Ok(answers) => answers,
        Err(LinkError::NotRunning(_)) => Daemon::NotRunning,
        Err(error) => Daemon::Silent(error.to_string()),
    }
}

fn json(found: &Found) -> String {
    // The type holds only what JSON can; an empty object would be the honest rest.
    let mut text = serde_json::to_string_pretty(found).unwrap_or_else(|_| "{}".to_owned());
    text.push('\n');
    text
}

/// The findings, worst first, and what was looked at.
fn text(found: &Found) -> String {
    let mut text = String::new();
    let of_npu = found.npu.iter().flat_map(|report| &report.findings);
    let mut findings: Vec<&Finding> =
        found.checks.iter().flat_map(|checked| &checked.findings).chain(of_npu).collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    for finding in &findings {
        let Finding { severity, what, why, fix, .. } = finding;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}: {}", severity.as_str(), Clean::text(what));
        let _ = writeln!(text, "    {why}");
        let _ = writeln!(text, "    {}\n", Clean::text(fix));
    }
    if let Some(report) = &found.npu {
        npu::table(&mut text, report);
    }
    let well = found.checks.iter().filter(|checked| checked.findings.is_empty());
    let well: Vec<_> = well.map(|checked| checked.check).collect();
    let _ =
        writeln!(text, "{} findings; nothing to say about: {}", findings.len(), well.join(", "));
    text
}

/// Asks for each finding that can be mended here, and does it.
fn mend(checks: &[Checked], input: &mut dyn BufRead, out: &mut dyn Write) {
    let findings = checks.iter().flat_map(|checked| &checked.findings);
    for finding in findings {
        let Some(mend) = &finding.mend else { continue };
        // Nobody reads it: then nobody says yes either.
        let _unread = write!(out, "{}\nrun now: {} [y/N] ", finding.what, finding.fix);
        let _unread = out.flush();
        let mut word = String::new();
        let said = input.read_line(&mut word).is_ok() && matches!(word.trim(), "y" | "Y" | "yes");
        let says = match said.then(|| mend.apply()) {
            None => "left as it is".to_owned(),
            Some(Ok(())) => "done".to_owned(),
            Some(Err(error)) => format!("it failed: {error}"),
        };
        let _unread = writeln!(out, "{says}");
    }
}
