//! The commented default configuration, generated from the keys (pure). The `config.yaml` of the
//! repository is this text, byte for byte.

use super::key::{Reload, Spec};
use super::rule::Rule;
use super::sections::SECTIONS;
use super::values::show;

/// Longest line of the document, in characters.
const COLUMNS: usize = 96;

/// What stands above the first section.
const HEAD: &str = "\
Configuration of crayfish. Every key is here with its default; all may be left out. After a \
change run \"crayfish check\", which shows every mistake at once with its line, and then \
\"systemctl reload crayfish\", which says whether a restart is needed.

Texts may contain ${NAME} for an environment variable or ${credential:NAME} for a systemd \
credential; $${ stands for the characters themselves. Keep secrets out of this file that way, or \
make it readable by its owner only.";

/// The whole document.
#[must_use]
pub fn document() -> String {
    let mut text = String::new();
    for paragraph in HEAD.split("\n\n") {
        if !text.is_empty() {
            text.push_str("#\n");
        }
        comment(&mut text, 0, paragraph);
    }
    for section in SECTIONS {
        text.push('\n');
        comment(&mut text, 0, section.doc);
        text.push_str(&format!("{}:\n", section.name));
        for (at, key) in section.keys.iter().enumerate() {
            if at > 0 {
                text.push('\n');
            }
            let spec = key.spec();
            comment(&mut text, 2, spec.doc);
            comment(&mut text, 2, &facts(spec));
            let name = spec.path.split_once('.').map_or(spec.path, |(_, name)| name);
            text.push_str(&format!("  {name}: {}\n", show(&spec.default_value())));
        }
    }
    text
}

/// What is accepted, the default, and when a change takes effect, on one line.
fn facts(spec: &Spec) -> String {
    let accepts = match spec.rule {
        Rule::Flag => "true or false".into(),
        Rule::Whole { min, max, unit } => numbers(min, max, unit),
        Rule::MaybeWhole { min, max, unit } => format!("null or {}", numbers(min, max, unit)),
        Rule::Number { min, max, unit } => numbers(min, max, unit),
        Rule::MaybeNumber { min, max, unit } => format!("null or {}", numbers(min, max, unit)),
        Rule::Text { min: 0, max } => format!("text, up to {max} bytes"),
        Rule::Text { min, max } => format!("text, {min} to {max} bytes"),
        Rule::MaybeText { max } => format!("null or text, up to {max} bytes"),
        Rule::Choice(words) => words.join(", "),
        Rule::MaybeChoice(words) => format!("null, {}", words.join(", ")),
        Rule::TimeOfDay => "time of day, HH:MM".into(),
        Rule::Zone => "IANA name or system".into(),
        Rule::Url => "http:// or https:// URL".into(),
        Rule::MaybeUrl => "null or http:// or https:// URL".into(),
        Rule::Address => "IP address".into(),
        Rule::Hosts => "list of host names".into(),
        Rule::Path => "path".into(),
        Rule::Channels => "channels and numbers from -1 to 1".into(),
        Rule::Secret => "secret".into(),
    };
    let when = match spec.reload {
        Reload::Live => "live",
        Reload::Restart => "restart",
    };
    format!("[{accepts}; default {}; {when}]", show(&spec.default_value()))
}

fn numbers(min: impl std::fmt::Display, max: impl std::fmt::Display, unit: &str) -> String {
    if unit.is_empty() { format!("{min} to {max}") } else { format!("{min} to {max} {unit}") }
}

/// Adds a paragraph as comment lines, broken between words.
fn comment(text: &mut String, indent: usize, paragraph: &str) {
    let start = format!("{:indent$}#", "");
    let mut line = start.clone();
    for word in paragraph.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > COLUMNS {
            text.push_str(&line);
            text.push('\n');
            line.clone_from(&start);
        }
        line.push(' ');
        line.push_str(word);
    }
    text.push_str(&line);
    text.push('\n');
}
