//! The program itself (pure).

use crate::config::problem::Severity as Weight;
use crate::doctor::facts::Daemon;
use crate::doctor::{Facts, Finding, Mend};

/// Bits by which other users reach into a directory.
const OTHERS: u32 = 0o077;

/// What the state directory should have.
const STATE_MODE: u32 = 0o700;

pub(super) fn configuration(facts: &Facts) -> Vec<Finding> {
    let why_fault = "the daemon does not start with it, and a running one keeps the old one";
    let fix = match &facts.config_path {
        Some(path) => format!("crayfish check --config {}", path.display()),
        None => "crayfish check".to_owned(),
    };
    if let Some(why_not) = &facts.config_unreadable {
        let what = format!("the configuration cannot be read: {why_not}");
        return vec![Finding::fault(what, why_fault).fix(fix)];
    }
    let shown = facts.config_path.as_ref().map(|path| path.display().to_string());
    let shown = shown.unwrap_or_default();
    let findings = facts.problems.iter().map(|problem| {
        let what = problem.in_file(&shown).to_string();
        let finding = match problem.severity {
            Weight::Error => Finding::fault(what, why_fault),
            Weight::Warning => Finding::warning(what, "probably it does not do what was meant"),
            Weight::Note => Finding::note(what, "worth knowing"),
        };
        finding.fix(fix.clone())
    });
    findings.collect()
}

pub(super) fn permissions(facts: &Facts) -> Vec<Finding> {
    let state = &facts.state;
    let mut found = Vec::new();
    let shown = state.path.display();
    let open = state.mode.filter(|mode| mode & OTHERS != 0);
    if let Some(mode) = open
        && !state.is_foreign
    {
        let what = format!("other users can look into {shown} (mode {mode:o})");
        let why = "all conversations are in there";
        let mut finding = Finding::warning(what, why).fix(format!("chmod 700 {shown}"));
        finding.mend = Some(Mend::Close { path: state.path.clone(), mode: STATE_MODE });
        found.push(finding);
    }
    if state.is_foreign {
        let what = format!("{shown} belongs to another user");
        let why = "what is in it cannot be judged, nor can this user talk to its daemon";
        found.push(Finding::note(what, why).fix("sudo -u crayfish crayfish doctor"));
    }
    found
}

pub(super) fn daemon(facts: &Facts) -> Vec<Finding> {
    match &facts.daemon {
        Daemon::NotRunning => {
            let why = "nobody answers, and nothing watches the machine";
            let fix = "sudo systemctl start crayfish, or in a terminal: crayfish run";
            vec![Finding::warning("crayfish is not running", why).fix(fix)]
        }
        Daemon::Silent(why_not) => {
            let why = "its own view of its backends and its database is missing here";
            let what = why_not.trim_end_matches('.').to_owned();
            vec![Finding::warning(what, why).fix("journalctl -u crayfish -n 50")]
        }
        Daemon::Answers(status, _) => {
            let why = "the daemon shows it to everybody who asks for its state";
            let notice = |text: &String| {
                Finding::warning(text.trim_end_matches('.'), why).fix("crayfish status")
            };
            status.notices.iter().map(notice).collect()
        }
    }
}

/// What the program noticed of its own faults; single answers that failed are none of these.
pub(super) fn faults(facts: &Facts) -> Vec<Finding> {
    let Daemon::Answers(_, told) = &facts.daemon else { return Vec::new() };
    let kinds = [
        ("task.failed", "a task of the daemon ended and was started again"),
        ("beat.stuck", "tasks of the daemon stood still"),
        ("store.degraded", "the database could not be written"),
        ("store.replaced", "a damaged database was set aside"),
        ("backend.hung", "a model server hung"),
    ];
    let mut found = Vec::new();
    for (kind, what) in kinds {
        let times = told.iter().filter(|told| told.kind == kind).count();
        if times > 0 {
            let often = if times == 1 { "once".to_owned() } else { format!("{times} times") };
            let what = format!("{what} ({often} in the last 24 hours)");
            let why = "it went on, but a fault that comes again has a cause";
            let fix = format!("crayfish trace events --kind {kind}");
            found.push(Finding::warning(what, why).fix(fix));
        }
    }
    found
}

pub(super) fn port(facts: &Facts) -> Vec<Finding> {
    let (Daemon::NotRunning, Some(address)) = (&facts.daemon, facts.web_address) else {
        return Vec::new();
    };
    let port = address.port();
    if port == 0 || !facts.listening.iter().any(|other| other.port() == port) {
        return Vec::new();
    }
    let why = "the page cannot be served while another program listens there";
    let fix = format!("sudo ss -ltnp 'sport = :{port}', then stop it or set web_chat.port");
    vec![Finding::fault(format!("port {port} is taken by another program"), why).fix(fix)]
}

pub(super) fn database(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Daemon::Answers(status, _) = &facts.daemon
        && !status.store_ok
    {
        let why = "what is said is kept in memory only, and lost with the power";
        let what = "the database cannot be written";
        found.push(Finding::fault(what, why).fix("crayfish trace events --kind store"));
    }
    let state = &facts.state;
    if state.database_sound == Some(false) {
        let what = format!("{}/crayfish.db is no database", state.path.display());
        let why = "at the next start it is set aside and a new one is begun";
        found.push(Finding::warning(what, why).fix("crayfish run"));
    }
    if !state.set_aside.is_empty() {
        let what = format!("damaged databases were set aside: {}", state.set_aside.join(", "));
        let why = "conversations are in there that the present database does not have";
        let first = state.path.join(&state.set_aside[0]);
        let fix = format!("sqlite3 {} .recover > recovered.sql", first.display());
        found.push(Finding::note(what, why).fix(fix));
    }
    found
}
