//! What a few short answers show of the NPU (pure).
//!
//! Three are asked for: one that may have to load the model, one that opens a conversation, and one
//! that continues it. The server reads a continuation's new words only; a conversation that is new
//! to it, all of them.
//!
//! # Absences
//! - No version of the firmware and of the library: only the vendor's tool reads them from the
//!   device, and nothing here starts it. The report names its command.

use serde::Serialize;

use super::Finding;
use crate::snapshot::body::VitalSigns;

/// What reads the versions that cannot be read here.
const IDENTIFY: &str = "hailortcli fw-control identify";

/// Shortest wait for a first word from which two of them can be compared, in milliseconds: one
/// chunk of prefill takes 320 on the fastest model.
const COMPARABLE_MS: u64 = 100;

/// A continuation's first word should come within this share of a new conversation's: one chunk of
/// prefill beside the three that the identity takes.
const CONTINUED_WITHIN: f64 = 0.75;

/// The slowest model that is published decodes this many tokens a second.
const TOKENS_PER_S_MIN: f64 = 2.5;

/// One answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// Who gave it.
    pub backend: String,
    /// With which model.
    pub model: String,
    /// From the question to its first word, in milliseconds.
    pub first_word_ms: u64,
    /// From the question to its end, in milliseconds.
    pub elapsed_ms: u64,
    /// Tokens decoded, where known.
    pub tokens: Option<u32>,
}

/// What is known of the NPU after that.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Report {
    /// Its node in `/dev`.
    pub node: Option<String>,
    /// Version of its driver.
    pub driver: Option<String>,
    /// Speed of its link.
    pub link: Option<String>,
    /// What tells the versions of firmware and library, which must be the driver's.
    pub other_versions: &'static str,
    /// The model that spoke.
    pub model: Option<String>,
    /// First word of the first answer, with a load if there was one, in milliseconds.
    pub first_ms: Option<u64>,
    /// First word in a conversation that was new to the server, in milliseconds.
    pub fresh_ms: Option<u64>,
    /// First word of its continuation, in milliseconds.
    pub continued_ms: Option<u64>,
    /// Whether the server went on where it was; unknown if both were too quick to tell.
    pub continued: Option<bool>,
    /// Decode rate of the last answer that had more than one token, in tokens a second.
    pub tokens_per_s: Option<f64>,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// Judges the answers. `failed` says why there are fewer than three.
#[must_use]
pub fn judge(vitals: &VitalSigns, answers: &[Answer], failed: Option<String>) -> Report {
    let first_word = |index: usize| answers.get(index).map(|answer| answer.first_word_ms);
    let (fresh_ms, continued_ms) = (first_word(1), first_word(2));
    let mut report = Report {
        node: vitals.npu_node.clone(),
        driver: vitals.npu_driver.clone(),
        link: vitals.npu_link.clone(),
        other_versions: IDENTIFY,
        model: answers.last().map(|answer| answer.model.clone()),
        first_ms: first_word(0),
        fresh_ms,
        continued_ms,
        continued: fresh_ms.zip(continued_ms).and_then(|(fresh, next)| continued(fresh, next)),
        tokens_per_s: answers.iter().rev().find_map(tokens_per_s),
        findings: Vec::new(),
    };
    report.findings.extend(failed.map(|why_not| {
        let why = "the NPU does not answer as it should";
        let fix = format!("journalctl -u hailo-ollama -n 50; {IDENTIFY}");
        Finding::fault(why_not.trim_end_matches('.'), why).fix(fix)
    }));
    if let Some(other) = answers.iter().find(|answer| answer.backend != "hailo") {
        let what = format!("{} answered in the NPU's place", other.backend);
        let why = "these figures are not the NPU's";
        report.findings.push(Finding::fault(what, why).fix("crayfish status"));
    }
    if report.continued == Some(false) {
        let what = "the server read the whole conversation again for its second question";
        let why = "each answer begins later the longer a conversation is; somebody else may have \
                   used the server in between";
        report.findings.push(Finding::warning(what, why).fix("crayfish doctor --npu"));
    }
    if let Some(rate) = report.tokens_per_s.filter(|rate| *rate < TOKENS_PER_S_MIN) {
        let what = format!("it decodes {rate:.1} tokens a second");
        let why = "that is slower than the slowest model on a device that is well";
        report.findings.push(Finding::warning(what, why).fix("crayfish doctor"));
    }
    report
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds of one answer")]
fn continued(fresh_ms: u64, next_ms: u64) -> Option<bool> {
    let comparable = fresh_ms >= COMPARABLE_MS;
    comparable.then_some((next_ms as f64) <= fresh_ms as f64 * CONTINUED_WITHIN)
}

/// The first token's wait is prefill, not decoding.
#[expect(clippy::cast_precision_loss, reason = "milliseconds of one answer")]
fn tokens_per_s(answer: &Answer) -> Option<f64> {
    let gaps = answer.tokens.filter(|tokens| *tokens > 1)? - 1;
    let decoding_ms = answer.elapsed_ms.checked_sub(answer.first_word_ms).filter(|ms| *ms > 0)?;
    Some(f64::from(gaps) * 1000.0 / decoding_ms as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;

    fn answer(first_word_ms: u64, elapsed_ms: u64) -> Answer {
        Answer {
            backend: "hailo".into(),
            model: "qwen2.5:1.5b".into(),
            first_word_ms,
            elapsed_ms,
            tokens: Some(15),
        }
    }

    fn judged(answers: &[Answer], failed: Option<&str>) -> Report {
        judge(&VitalSigns::default(), answers, failed.map(str::to_owned))
    }

    #[test]
    fn published_figures_are_well() {
        let report = judged(&[answer(9500, 11_600), answer(1110, 3110), answer(380, 2380)], None);
        assert_eq!((report.first_ms, report.fresh_ms), (Some(9500), Some(1110)));
        assert_eq!((report.continued_ms, report.continued), (Some(380), Some(true)));
        assert_eq!(report.tokens_per_s, Some(7.0));
        assert_eq!(report.findings, []);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let mut other = answer(400, 900);
        other.backend = "ollama".into();
        let table = [
            (judged(&[], Some("nobody listens.")), Severity::Fault, "nobody listens"),
            (judged(&[other], None), Severity::Fault, "ollama answered"),
            (
                judged(&[answer(400, 800), answer(1110, 1900), answer(1480, 2300)], None),
                Severity::Warning,
                "read the whole conversation again",
            ),
            (judged(&[answer(400, 14_400)], None), Severity::Warning, "decodes 1.0 tokens"),
        ];
        for (report, severity, words) in table {
            assert_eq!(report.findings.len(), 1, "{report:?}");
            assert_eq!(report.findings[0].severity, severity);
            assert!(report.findings[0].what.contains(words), "{report:?}");
        }
    }

    #[test]
    fn what_is_too_quick_to_tell_is_not_told() {
        let mut short = answer(3, 3);
        short.tokens = Some(1);
        let report = judged(&[short.clone(), short.clone(), short], None);
        assert_eq!((report.continued, report.tokens_per_s), (None, None));
        assert_eq!(report.findings, []);
    }
}
