//! `crayfish doctor --npu`: three questions to the NPU, through the daemon, which alone may use it.

use std::fmt::Write as _;
use std::io;

use crate::cli::exchange::{self, End, Interrupts, Known, Show};
use crate::cli::link::Link;
use crate::cli::place::Places;
use crate::doctor::npu::{Answer, Report, judge};
use crate::limits::DOCTOR_NPU_ANSWER_MAX;
use crate::session::wire::{ClientFrame, Metadata};
use crate::snapshot::body::VitalSigns;

/// Two conversations of its own, so that the owner's is left alone: the change from one to the
/// other makes the server read all, the second question in the other nothing but itself.
const QUESTIONS: [(&str, &str); 3] = [
    ("npu-check-1", "Say one short sentence."),
    ("npu-check-2", "Count from one to ten."),
    ("npu-check-2", "And on to twenty."),
];

/// Answers are measured, not shown.
struct Unseen;

impl Show for Unseen {
    fn waiting(&mut self, _about_s: u32) -> io::Result<()> {
        Ok(())
    }

    fn words(&mut self, _text: &str) -> io::Result<()> {
        Ok(())
    }
}

/// Asks, and judges what comes.
pub(super) async fn measure(places: &Places, vitals: &VitalSigns) -> Report {
    let mut answers = Vec::new();
    let mut failed = None;
    for (chat_id, question) in QUESTIONS {
        let asked = tokio::time::timeout(DOCTOR_NPU_ANSWER_MAX, ask(places, chat_id, question));
        match asked.await {
            Ok(Ok(answer)) => answers.push(answer),
            Ok(Err(why)) => failed = Some(why),
            Err(_) => failed = Some("the answer did not come in time".to_owned()),
        }
        if failed.is_some() {
            break;
        }
    }
    judge(vitals, &answers, failed)
}

async fn ask(places: &Places, chat_id: &str, question: &str) -> Result<Answer, String> {
    let mut link = Link::open(places).await.map_err(|error| error.to_string())?;
    let message = ClientFrame::Message {
        chat_id: Some(chat_id.to_owned()),
        content: question.to_owned(),
        metadata: Metadata::for_backend(Some("hailo".to_owned())),
        id: None,
    };
    let mut known = Known::default();
    let mut interrupts = Interrupts::None;
    match exchange::exchange(&mut link, &message, &mut Unseen, &mut interrupts, &mut known).await {
        End::Done(done) => Ok(Answer {
            backend: done.backend,
            model: done.model,
            first_word_ms: done.first_word_ms,
            elapsed_ms: done.elapsed_ms,
            tokens: done.tokens,
        }),
        End::Failed { detail, .. } => Err(detail),
        End::Cancelled | End::Left => Err("somebody stopped the answer".to_owned()),
        End::Lost(error) => Err(error.to_string()),
        End::NoOutput(error) => Err(error.to_string()),
    }
}

/// The figures, for people.
pub(super) fn table(text: &mut String, report: &Report) {
    let unknown = || "unknown".to_owned();
    let word = |word: &Option<String>| word.clone().unwrap_or_else(unknown);
    let wait = |ms: Option<u64>| ms.map_or_else(unknown, |ms| format!("{ms} ms"));
    let rows = [
        ("node", word(&report.node)),
        ("driver", word(&report.driver)),
        ("firmware", format!("asked by: {}", report.other_versions)),
        ("link", word(&report.link)),
        ("model", word(&report.model)),
        ("first word, maybe with a load", wait(report.first_ms)),
        ("first word, new conversation", wait(report.fresh_ms)),
        ("first word, its continuation", wait(report.continued_ms)),
        (
            "continuation hit",
            match report.continued {
                Some(true) => "yes".to_owned(),
                Some(false) => "no".to_owned(),
                None => unknown(),
            },
        ),
        (
            "decode rate",
            report.tokens_per_s.map_or_else(unknown, |rate| format!("{rate:.1} tokens/s")),
        ),
    ];
    text.push_str("NPU\n");
    for (name, value) in rows {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "    {name:<31}{}", crate::cli::clean::Clean::text(&value));
    }
    text.push('\n');
}
