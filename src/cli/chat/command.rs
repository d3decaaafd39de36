//! What a typed line means (pure).

/// Shown by `/help`.
pub(super) const HELP: &str = "\
/history       the last lines of this conversation
/status        what the daemon does
/new           begin a conversation of its own
/sessions      the conversations there are
/session NAME  go on with that one; without a name the main one
/backend NAME  who answers from now on; without a name the configured order
/stop          stop what runs in this conversation
/quit          leave (also Ctrl-D)
Ctrl-C stops an answer. A line that begins with a space is sent as it is.";

/// A typed line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    Nothing,
    Say(String),
    Help,
    Quit,
    History,
    Status,
    New,
    Backend(Option<String>),
    Stop,
    Sessions,
    /// Absent is the main one.
    Session(Option<String>),
    /// Begins with a slash and is none of these.
    Unknown(String),
}

/// Reads a line. Only a single line that begins with a slash is a command: pasted text is text.
pub(super) fn parse(line: &str) -> Command {
    if line.trim().is_empty() {
        return Command::Nothing;
    }
    if !line.starts_with('/') || line.trim_end().contains('\n') {
        return Command::Say(line.to_owned());
    }
    let mut words = line.split_whitespace();
    let name = words.next().unwrap_or_default();
    let argument = words.next();
    match (name, argument) {
        ("/help" | "/?", None) => Command::Help,
        ("/quit" | "/exit", None) => Command::Quit,
        ("/history", None) => Command::History,
        ("/status", None) => Command::Status,
        ("/new", None) => Command::New,
        ("/stop", None) => Command::Stop,
        ("/sessions", None) => Command::Sessions,
        ("/session", _) if words.next().is_none() => Command::Session(argument.map(str::to_owned)),
        ("/backend", _) if words.next().is_none() => Command::Backend(argument.map(str::to_owned)),
        _ => Command::Unknown(name.chars().take(40).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_commands_or_words() {
        let say = |text: &str| Command::Say(text.to_owned());
        let unknown = |text: &str| Command::Unknown(text.to_owned());
        let table = [
            ("", Command::Nothing),
            (" \t", Command::Nothing),
            ("hello", say("hello")),
            ("a\n/quit", say("a\n/quit")),
            ("/usr/bin/x\nis what?", say("/usr/bin/x\nis what?")),
            (" /quit", say(" /quit")),
            ("/help", Command::Help),
            ("/quit ", Command::Quit),
            ("/history", Command::History),
            ("/sessions", Command::Sessions),
            ("/session", Command::Session(None)),
            ("/session work:1 ", Command::Session(Some("work:1".into()))),
            ("/session a b", unknown("/session")),
            ("/status", Command::Status),
            ("/new", Command::New),
            ("/stop", Command::Stop),
            ("/backend", Command::Backend(None)),
            ("/backend ollama", Command::Backend(Some("ollama".into()))),
            ("/backend a b", unknown("/backend")),
            ("/quit now", unknown("/quit")),
            ("/etc/passwd", unknown("/etc/passwd")),
            ("/", unknown("/")),
        ];
        for (line, expected) in table {
            assert_eq!(parse(line), expected, "{line:?}");
        }
    }
}
