//! From one conversation to another.

use super::{Chat, recover};
use crate::cli::link::LinkError;
use crate::session;
use crate::session::wire::{ClientFrame, ServerFrame, SessionInfo};

/// Lines told of a conversation that a person comes back to: what it was about.
const COMING_BACK_LINES: usize = 4;

impl Chat {
    pub(super) async fn sessions(&mut self) -> Result<String, LinkError> {
        let listed = |frame| match frame {
            ServerFrame::Sessions { sessions } => Some(sessions),
            _ => None,
        };
        let sessions = self.link().await?.request(&ClientFrame::Sessions, listed).await?;
        let here = self.session.as_deref().unwrap_or(session::MAIN);
        let lines: Vec<_> = sessions.iter().map(|known| in_list(known, here)).collect();
        Ok(if lines.is_empty() { "there are none yet".to_owned() } else { lines.join("\n") })
    }

    /// Goes on with another conversation, and tells what was last said in it.
    pub(super) async fn go_on_with(&mut self, name: Option<String>) -> Result<String, LinkError> {
        let session = name.clone();
        let lines = recover::history(self.link().await?, session, COMING_BACK_LINES).await?;
        self.last_turn = lines.last().map_or(0, |line| line.turn);
        let mut words = format!("now in {}", name.as_deref().unwrap_or(session::MAIN));
        if lines.is_empty() {
            words.push_str(", where nothing was said yet");
        }
        for line in &lines {
            words.push('\n');
            words.push_str(&self.told(line));
        }
        self.session = name;
        Ok(words)
    }
}

/// A conversation in a list; the one that goes on here has a star.
fn in_list(known: &SessionInfo, here: &str) -> String {
    let mark = if known.chat_id == here { '*' } else { ' ' };
    let day = known.updated_at.get(..16).unwrap_or(&known.updated_at).replace('T', " ");
    format!("{mark} {}  {}  {day}", known.chat_id, known.title)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_marks_the_conversation_that_goes_on() {
        let known = SessionInfo {
            chat_id: "work".into(),
            title: "The fence".into(),
            updated_at: "2026-11-30T14:05:07.123Z".into(),
        };
        assert_eq!(in_list(&known, "work"), "* work  The fence  2026-11-30 14:05");
        assert_eq!(in_list(&known, "main"), "  work  The fence  2026-11-30 14:05");
    }
}
