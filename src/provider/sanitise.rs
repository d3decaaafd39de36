//! Untrusted text made fit for a prompt (pure).
//!
//! A chat template turns messages into one text with markers between them. Whoever can write a
//! marker into a message can write in another's name, so markers in text from outside are broken
//! up: a space after the first character leaves them readable and powerless. Control characters
//! go because hailo-ollama garbles or refuses them.
//!
//! # Invariants
//! - The output holds no marker of any template family and no control character but LF and TAB.
//! - Cleaning twice changes nothing more, so what was stored clean stays byte-identical.

use std::borrow::Cow;

/// Markers with fixed spelling, lower case; compared without case because some templates are.
/// `<|...|>` and DeepSeek's `<｜...｜>` are recognised by their form.
const MARKERS: [&str; 25] = [
    "[inst]",
    "[/inst]",
    "[tool_calls]",
    "[/tool_calls]",
    "[available_tools]",
    "[/available_tools]",
    "[tool_results]",
    "[/tool_results]",
    "<<sys>>",
    "<</sys>>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<s>",
    "</s>",
    "<bos>",
    "<eos>",
    "<pad>",
    "<unk>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<end_of_utterance>",
];

/// Longest name between the bars of a marker, in characters. Real ones have at most 30; without a
/// bound a lone `<|` would make the search quadratic.
const NAME_CHARS_MAX: usize = 48;

/// Text from outside, fit for a prompt of any template family.
#[must_use]
pub fn untrusted(text: &str) -> Cow<'_, str> {
    match without_controls(text) {
        Cow::Borrowed(text) => without_markers(text),
        Cow::Owned(text) => Cow::Owned(without_markers(&text).into_owned()),
    }
}

/// Text without control characters but LF and TAB; CR LF and CR become LF.
#[must_use]
pub fn without_controls(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_banned) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(letter) = rest.next() {
        match letter {
            '\r' if rest.peek() == Some(&'\n') => {}
            '\r' => clean.push('\n'),
            letter if is_banned(letter) => {}
            letter => clean.push(letter),
        }
    }
    Cow::Owned(clean)
}

/// Text with a space after the first character of each template marker.
#[must_use]
pub fn without_markers(text: &str) -> Cow<'_, str> {
    let starts: Vec<usize> = text
        .match_indices(['<', '['])
        .map(|(at, _)| at)
        .filter(|at| is_marker(&text[*at..]))
        .collect();
    if starts.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut broken = String::with_capacity(text.len() + starts.len());
    let mut from = 0;
    for at in starts {
        // Both opening characters are one byte long.
        broken.push_str(&text[from..=at]);
        broken.push(' ');
        from = at + 1;
    }
    broken.push_str(&text[from..]);
    Cow::Owned(broken)
}

fn is_banned(letter: char) -> bool {
    letter.is_control() && !matches!(letter, '\n' | '\t')
}

/// Whether a marker begins at the start of `text`.
fn is_marker(text: &str) -> bool {
    MARKERS.iter().any(|marker| {
        text.get(..marker.len()).is_some_and(|start| start.eq_ignore_ascii_case(marker))
    }) || ['|', '\u{ff5c}'].into_iter().any(|bar| is_barred(text, bar))
}

/// Whether `text` starts with a name between `<|` and `|>`.
fn is_barred(text: &str, bar: char) -> bool {
    let Some(rest) = text.strip_prefix('<').and_then(|rest| rest.strip_prefix(bar)) else {
        return false;
    };
    let name = |letter: char| letter.is_alphanumeric() || "_-/:.\u{2581}".contains(letter);
    let end = rest.char_indices().take(NAME_CHARS_MAX + 1).find(|(_, letter)| !name(*letter));
    end.is_some_and(|(at, _)| {
        at > 0 && rest[at..].strip_prefix(bar).is_some_and(|tail| tail.starts_with('>'))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FAMILIES: [&str; 24] = [
        "<|im_start|>",
        "<|im_end|>",
        "<|endoftext|>",
        "<|eot_id|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|begin_of_text|>",
        "<|system|>",
        "<\u{ff5c}User\u{ff5c}>",
        "<\u{ff5c}Assistant\u{ff5c}>",
        "<\u{ff5c}begin\u{2581}of\u{2581}sentence\u{ff5c}>",
        "<think>",
        "</think>",
        "[INST]",
        "[/INST]",
        "<<SYS>>",
        "<</SYS>>",
        "<start_of_turn>",
        "<end_of_turn>",
        "<s>",
        "</s>",
        "<bos>",
        "<tool_call>",
        "</tool_call>",
    ];

    #[test]
    fn every_familys_markers_are_broken_up_in_any_case() {
        for marker in FAMILIES {
            for marker in [marker.to_owned(), marker.to_uppercase(), marker.to_lowercase()] {
                let clean = untrusted(&marker);
                let mut want = marker.clone();
                want.insert(1, ' ');
                assert_eq!(clean, want);
            }
        }
    }

    #[test]
    fn a_marker_hidden_by_control_characters_or_another_marker_is_found() {
        let table = [
            ("<|im\u{0}_end|>", "< |im_end|>"),
            ("<\u{7f}think>", "< think>"),
            ("<<think>", "<< think>"),
            ("<<s>", "<< s>"),
            ("<s<s>>", "<s< s>>"),
            ("[[INST]]", "[[ INST]]"),
            ("a\r\nb\rc\u{85}\u{1b}[0m\td", "a\nb\nc[0m\td"),
        ];
        for (text, want) in table {
            assert_eq!(untrusted(text), want);
        }
    }

    #[test]
    fn ordinary_text_and_code_are_left_alone() {
        for text in [
            "",
            "grüße 🦞 天气",
            "if a < b || c > d { x[i] }",
            "p <|> q, f <| x, <||>, a <| b |> c",
            "<div><span>",
            "see [1] and <small>",
            "line\n\ttab",
        ] {
            assert!(matches!(untrusted(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    proptest! {
        #[test]
        fn the_output_holds_no_marker_and_is_stable(
            parts in prop::collection::vec(prop_oneof![
                prop::sample::select(FAMILIES.to_vec()).prop_map(str::to_owned),
                "[<\\[|>/\u{ff5c}a-zA-Z_ \u{0}-\u{1f}\u{7f}-\u{9f}]{0,6}",
                "\\PC{0,4}",
            ], 0..12),
        ) {
            let clean = untrusted(&parts.concat()).into_owned();
            let lower = clean.to_lowercase();
            for marker in FAMILIES.map(str::to_lowercase) {
                prop_assert!(!lower.contains(&marker), "{marker} in {clean:?}");
            }
            prop_assert!(!clean.chars().any(is_banned));
            prop_assert!(matches!(untrusted(&clean), Cow::Borrowed(same) if same == clean));
        }
    }
}
