//! Chat templates: how messages become the one text which is counted and compared.

use crate::{
    model::{Model, Thinking},
    sim::{tokens, voice::Said},
};

/// What the server was asked to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Prompt {
    pub(super) messages: Vec<Said>,
    pub(super) tools: bool,
}

/// The rendered conversation with the opening of the answer; `None` for an empty one, on which the
/// templates fail because they read the first message.
pub(super) fn render(model: &Model, messages: &[Said]) -> Option<String> {
    let first = messages.first()?;
    let mut text = String::new();
    if first.role != "system" {
        text.push_str(&default_system(model));
    }
    for message in messages {
        text.push_str(&one(model, message));
    }
    text.push_str(&opening(model));
    Some(text)
}

/// Tokens of only the newest messages with the opening of the answer.
pub(super) fn tail_tokens(model: &Model, messages: &[Said]) -> u32 {
    let mut text: String = messages.iter().map(|message| one(model, message)).collect();
    text.push_str(&opening(model));
    tokens::count(&text)
}

fn one(model: &Model, message: &Said) -> String {
    let content = match (message.role.as_str(), model.thinking) {
        // Earlier thinking is dropped by these templates.
        ("assistant", Thinking::StartsInside | Thinking::Tagged) => message
            .content
            .split_once("</think>")
            .map_or(message.content.as_str(), |(_, rest)| rest.trim_start()),
        _ => message.content.as_str(),
    };
    if model.family == "llama" {
        format!("<|start_header_id|>{}<|end_header_id|>\n\n{content}<|eot_id|>", message.role)
    } else {
        format!("<|im_start|>{}\n{content}<|im_end|>\n", message.role)
    }
}

fn opening(model: &Model) -> String {
    let text = if model.family == "llama" {
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    } else {
        "<|im_start|>assistant\n"
    };
    let think = if model.thinking == Thinking::StartsInside { "<think>\n" } else { "" };
    format!("{text}{think}")
}

/// What the templates say when nobody else speaks first.
fn default_system(model: &Model) -> String {
    let content = if model.name.starts_with("qwen2.5") {
        "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    } else if model.name.starts_with("qwen2:") {
        "You are a helpful assistant."
    } else if model.family == "llama" {
        "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024"
    } else {
        return String::new();
    };
    one(model, &Said { role: "system".into(), content: content.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::published;

    fn said(role: &str, content: &str) -> Said {
        Said { role: role.into(), content: content.into() }
    }

    #[test]
    fn a_continued_conversation_starts_with_prompt_and_answer() {
        for name in ["qwen2.5:1.5b", "llama3.2:1b"] {
            let model = published(name).unwrap();
            let mut messages = vec![said("system", "Be brief."), said("user", "Hi.")];
            let first = render(model, &messages).unwrap() + "Hello!";
            messages.extend([said("assistant", "Hello!"), said("user", "Bye.")]);
            assert!(render(model, &messages).unwrap().starts_with(&first), "{name}");
        }
    }

    #[test]
    fn a_missing_system_message_is_filled_in_and_an_empty_list_fails() {
        let model = published("qwen2.5:1.5b").unwrap();
        assert!(render(model, &[said("user", "Hi")]).unwrap().contains("created by Alibaba"));
        assert_eq!(render(model, &[]), None);
    }

    #[test]
    fn thinking_leaves_the_history_and_opens_the_answer_where_the_model_does() {
        let model = published("deepseek_r1:1.5b").unwrap();
        let text = render(
            model,
            &[said("system", "s"), said("assistant", "hm\n</think>\n\nYes."), said("user", "?")],
        )
        .unwrap();
        assert!(!text.contains("hm"), "{text}");
        assert!(text.ends_with("<think>\n"), "{text}");
    }
}
