//! The one place that turns an error into sentences for a person (pure).
//!
//! First person, as the seed asks; what happened, what it means, what the person can do. The
//! second value is the stable word for programs.

use std::time::Duration;

use crate::provider::fault::Class;
use crate::provider::{Cause, ProviderError};

/// Why a turn has no complete answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnError {
    /// The provider could not answer.
    Provider(ProviderError),
    /// A fault of our own; the log has the details.
    Internal,
    /// The daemon went down while the turn ran.
    Interrupted,
}

/// The sentences, and the stable word.
#[must_use]
pub fn for_person(error: &TurnError) -> (String, &'static str) {
    match error {
        TurnError::Provider(error) => provider(error),
        TurnError::Internal => (
            "Something in me failed while I worked on that. It is in my log; please try again."
                .to_owned(),
            "internal",
        ),
        TurnError::Interrupted => {
            ("I was shut down while I was answering.".to_owned(), "interrupted")
        }
    }
}

/// The stable word that a log has, as ours; what another program wrote there is `internal`.
#[must_use]
pub fn known_code(code: &str) -> &'static str {
    const CODES: [&str; 8] = [
        "offline",
        "broke_off",
        "preempted",
        "overloaded",
        "too_late",
        "no_such_backend",
        "interrupted",
        "internal",
    ];
    CODES.iter().find(|known| **known == code).copied().unwrap_or("internal")
}

fn provider(error: &ProviderError) -> (String, &'static str) {
    match error {
        ProviderError::Offline { retry_after, causes } => offline(*retry_after, causes),
        ProviderError::BrokeOff(cause) => (
            format!("The answer broke off: {}. Ask again and I start afresh.", reason(cause)),
            "broke_off",
        ),
        ProviderError::Preempted => {
            ("I put this aside for something more important.".to_owned(), "preempted")
        }
        ProviderError::Overloaded => (
            "Too many questions wait for me already. Please try again in a moment.".to_owned(),
            "overloaded",
        ),
        ProviderError::TooLate => {
            ("I could not finish that in time. A shorter question may work.".to_owned(), "too_late")
        }
        ProviderError::NoSuchBackend(name) => {
            (format!("No backend is called \"{name}\" in my configuration."), "no_such_backend")
        }
    }
}

fn offline(retry_after: Duration, causes: &[Cause]) -> (String, &'static str) {
    if causes.is_empty() {
        let words = "I have no model to think with: the configuration names no backend. \
                     Set hardware.primary_backend.";
        return (words.to_owned(), "offline");
    }
    let reasons: Vec<String> =
        causes.iter().map(|cause| format!("{}: {}", cause.backend, reason(cause))).collect();
    let next = if retry_after == Duration::MAX {
        "Ask again once that is mended.".to_owned()
    } else {
        format!("I try again by myself in {}.", about(retry_after))
    };
    let words =
        format!("I cannot think right now: no model answers. {}. {next}", reasons.join("; "));
    (words, "offline")
}

/// What is wrong with one backend, with the fix where there is a known one.
fn reason(cause: &Cause) -> String {
    let detail = cause.detail.trim_end_matches('.');
    match cause.class {
        Some(Class::Down) => format!("its server is not running ({detail})"),
        Some(Class::Crashed) => format!("its server died ({detail})"),
        Some(Class::Wedged) => format!("its server hangs ({detail})"),
        Some(Class::DeviceBusy) => format!("another program holds the NPU ({detail})"),
        Some(Class::DeviceFault | Class::Poisoned) => format!("the NPU has a fault ({detail})"),
        Some(Class::PrefillTimeout) => "the question is too long for it".to_owned(),
        Some(Class::Truncated) => format!("its server stopped in the middle ({detail})"),
        Some(Class::Busy) => "its server is busy".to_owned(),
        Some(Class::Unauthorised) => format!("it refused my key ({detail}); see openai.api_key"),
        Some(Class::Unsupported(field)) => {
            format!("its model {} does not take {}", cause.model, field.as_str())
        }
        Some(Class::EmptyAnswer) => "it gave an empty answer".to_owned(),
        Some(Class::BadOutput) => "it gave garbage".to_owned(),
        Some(Class::ThinkOverrun) => "it thought and never came to an answer".to_owned(),
        Some(Class::ModelMissing | Class::OurBug | Class::ServerError | Class::Strained) | None => {
            detail.to_owned()
        }
    }
}

/// A duration as a person says it.
fn about(d: Duration) -> String {
    match d.as_secs_f32().ceil() {
        s if s <= 1.0 => "a moment".to_owned(),
        s if s < 90.0 => format!("{s:.0} s"),
        s => format!("{:.0} min", (s / 60.0).ceil()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(class: Option<Class>, detail: &str) -> Cause {
        Cause {
            backend: "hailo".to_owned(),
            model: "qwen2.5-instruct:1.5b".to_owned(),
            class,
            detail: detail.to_owned(),
        }
    }

    #[test]
    fn offline_says_why_for_each_backend_and_when_the_next_try_is() {
        let mut ollama =
            cause(Some(Class::ModelMissing), "Ollama does not have the model qwen2:1.5b.");
        ollama.backend = "ollama".to_owned();
        let error = TurnError::Provider(ProviderError::Offline {
            retry_after: Duration::from_secs(5),
            causes: vec![cause(Some(Class::Down), "127.0.0.1:8000 refuses connections"), ollama],
        });
        let (words, code) = for_person(&error);
        assert_eq!(code, "offline");
        assert_eq!(
            words,
            "I cannot think right now: no model answers. hailo: its server is not running \
             (127.0.0.1:8000 refuses connections); ollama: Ollama does not have the model \
             qwen2:1.5b. I try again by myself in 5 s."
        );
    }

    #[test]
    fn nothing_to_retry_promises_no_retry() {
        let error = TurnError::Provider(ProviderError::Offline {
            retry_after: Duration::MAX,
            causes: vec![cause(Some(Class::Unauthorised), "401")],
        });
        let (words, _) = for_person(&error);
        assert!(words.contains("openai.api_key") && words.ends_with("once that is mended."));
    }

    #[test]
    fn every_error_has_words_and_a_code_of_its_own() {
        let errors = [
            TurnError::Internal,
            TurnError::Interrupted,
            TurnError::Provider(ProviderError::Offline {
                retry_after: Duration::ZERO,
                causes: Vec::new(),
            }),
            TurnError::Provider(ProviderError::BrokeOff(cause(Some(Class::Truncated), "reset"))),
            TurnError::Provider(ProviderError::Preempted),
            TurnError::Provider(ProviderError::Overloaded),
            TurnError::Provider(ProviderError::TooLate),
            TurnError::Provider(ProviderError::NoSuchBackend("x".to_owned())),
        ];
        let codes: std::collections::BTreeSet<_> = errors.iter().map(|e| for_person(e).1).collect();
        assert_eq!(codes.len(), errors.len());
        for error in &errors {
            let (words, _) = for_person(error);
            assert!(words.len() > 20 && words.ends_with('.'), "{words}");
        }
    }

    #[test]
    fn durations_read_well() {
        for (ms, said) in [
            (0, "a moment"),
            (900, "a moment"),
            (4200, "5 s"),
            (89_000, "89 s"),
            (120_000, "2 min"),
        ] {
            assert_eq!(about(Duration::from_millis(ms)), said);
        }
    }
}
