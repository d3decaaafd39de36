//! Splitting streams into lines and events, pure: bytes in, text out.
//!
//! A body arrives in pieces that respect neither lines nor characters. The splitters here keep
//! the unfinished rest and hand out what is complete, so that any division of the same bytes gives
//! the same result. What a line means is the dialect's business (`provider`).
//!
//! # Invariants
//! - No more than `limits::STREAM_LINE_BYTES_MAX` bytes of one line are kept.
//! - Text is decoded only when it is complete, so a character is never cut; bytes that are not
//!   UTF-8 become U+FFFD.

use crate::limits::STREAM_LINE_BYTES_MAX;

/// A line exceeds its bound. The splitter hands out nothing more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a line is longer than {0} bytes")]
pub struct LineTooLong(pub usize);

/// Splits newline-delimited JSON. Lines end with LF or CR LF; blank lines are left out.
#[derive(Debug)]
pub struct Lines {
    rest: Vec<u8>,
    bytes_max: usize,
    broken: bool,
}

/// One server-sent event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SseItem {
    /// The event's data, its lines joined with LF.
    Data(String),
    /// `data: [DONE]`: the end of an OpenAI-compatible stream.
    Done,
}

/// Splits server-sent events. Lines end with CR, LF or CR LF; comments and the fields `event`,
/// `id` and `retry` are left out.
#[derive(Debug)]
pub struct Events {
    line: Vec<u8>,
    data: Option<String>,
    after_cr: bool,
    first_line: bool,
    bytes_max: usize,
    broken: bool,
}

// === impl Lines ===

impl Default for Lines {
    fn default() -> Self {
        Self::bounded(STREAM_LINE_BYTES_MAX)
    }
}

impl Lines {
    /// A splitter for lines of at most `bytes_max` bytes.
    #[must_use]
    pub fn bounded(bytes_max: usize) -> Self {
        Self { rest: Vec::new(), bytes_max, broken: false }
    }

    /// Takes the next piece of the body and appends the lines it completes to `out`.
    ///
    /// # Errors
    /// When a line exceeds the bound, after the lines before it were handed out.
    pub fn push(&mut self, piece: &[u8], out: &mut Vec<String>) -> Result<(), LineTooLong> {
        let mut piece = piece;
        while !self.broken {
            let Some(end) = piece.iter().position(|&byte| byte == b'\n') else {
                return self.keep(piece);
            };
            self.keep(&piece[..end])?;
            self.take(out);
            piece = &piece[end + 1..];
        }
        Err(LineTooLong(self.bytes_max))
    }

    /// Ends the body; a last line without an end counts as complete.
    pub fn finish(&mut self, out: &mut Vec<String>) {
        if !self.broken {
            self.take(out);
        }
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), LineTooLong> {
        keep(&mut self.rest, bytes, self.bytes_max).inspect_err(|_| self.broken = true)
    }

    fn take(&mut self, out: &mut Vec<String>) {
        let line = self.rest.strip_suffix(b"\r").unwrap_or(&self.rest);
        if !line.trim_ascii().is_empty() {
            out.push(String::from_utf8_lossy(line).into_owned());
        }
        self.rest.clear();
    }
}

// === impl Events ===

impl Default for Events {
    fn default() -> Self {
        Self::bounded(STREAM_LINE_BYTES_MAX)
    }
}

impl Events {
    /// A splitter for events of at most `bytes_max` bytes a line and in their data.
    #[must_use]
    pub fn bounded(bytes_max: usize) -> Self {
        Self {
            line: Vec::new(),
            data: None,
            after_cr: false,
            first_line: true,
            bytes_max,
            broken: false,
        }
    }

    /// Takes the next piece of the body and appends the events it completes to `out`.
    ///
    /// # Errors
    /// When a line or an event's data exceed the bound, after the events before were handed out.
    pub fn push(&mut self, piece: &[u8], out: &mut Vec<SseItem>) -> Result<(), LineTooLong> {
        let mut piece = piece;
        while !self.broken {
            if let Some((first, rest)) = piece.split_first()
                && self.after_cr
            {
                self.after_cr = false;
                if *first == b'\n' {
                    piece = rest;
                }
            }
            let Some(end) = piece.iter().position(|&byte| matches!(byte, b'\n' | b'\r')) else {
                let kept = keep(&mut self.line, piece, self.bytes_max);
                return kept.inspect_err(|_| self.broken = true);
            };
            let complete = keep(&mut self.line, &piece[..end], self.bytes_max)
                .and_then(|()| self.end_line(out));
            complete.inspect_err(|_| self.broken = true)?;
            self.after_cr = piece[end] == b'\r';
            piece = &piece[end + 1..];
        }
        Err(LineTooLong(self.bytes_max))
    }

    /// Ends the body; an event without its blank line counts as complete, because servers that
    /// close right after the last event are common.
    pub fn finish(&mut self, out: &mut Vec<SseItem>) {
        if !self.broken && self.end_line(out).is_ok() {
            self.dispatch(out);
        }
    }

    fn end_line(&mut self, out: &mut Vec<SseItem>) -> Result<(), LineTooLong> {
        let bytes = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&bytes);
        let mut line: &str = &text;
        if std::mem::replace(&mut self.first_line, false) {
            line = line.strip_prefix('\u{feff}').unwrap_or(line);
        }
        if line.is_empty() {
            self.dispatch(out);
            return Ok(());
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        if field == "data" {
            let value = value.strip_prefix(' ').unwrap_or(value);
            match &mut self.data {
                Some(data) if data.len() + 1 + value.len() > self.bytes_max => {
                    return Err(LineTooLong(self.bytes_max));
                }
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            }
        }
        Ok(())
    }

    fn dispatch(&mut self, out: &mut Vec<SseItem>) {
        if let Some(data) = self.data.take() {
            match data.trim() {
                "" => {}
                "[DONE]" => out.push(SseItem::Done),
                _ => out.push(SseItem::Data(data)),
            }
        }
    }
}

/// Appends to an unfinished line within its bound.
fn keep(rest: &mut Vec<u8>, bytes: &[u8], bytes_max: usize) -> Result<(), LineTooLong> {
    if rest.len() + bytes.len() > bytes_max {
        rest.clear();
        return Err(LineTooLong(bytes_max));
    }
    rest.extend_from_slice(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(pieces: &[&[u8]], bytes_max: usize) -> (Vec<String>, bool) {
        let mut splitter = Lines::bounded(bytes_max);
        let mut out = Vec::new();
        let broken = pieces.iter().any(|piece| splitter.push(piece, &mut out).is_err());
        splitter.finish(&mut out);
        (out, broken)
    }

    fn events(pieces: &[&[u8]], bytes_max: usize) -> (Vec<SseItem>, bool) {
        let mut splitter = Events::bounded(bytes_max);
        let mut out = Vec::new();
        let broken = pieces.iter().any(|piece| splitter.push(piece, &mut out).is_err());
        splitter.finish(&mut out);
        (out, broken)
    }

    fn data(text: &str) -> SseItem {
        SseItem::Data(text.into())
    }

    #[test]
    fn lines_end_with_lf_or_cr_lf_and_blank_ones_are_left_out() {
        let table: [(&[u8], &[&str]); 6] = [
            (b"a\nb\r\nc", &["a", "b", "c"]),
            (b"\n\r\n  \n", &[]),
            (b"", &[]),
            (b"a\rb\n", &["a\rb"]),
            ("\u{1f99e}\r\n".as_bytes(), &["\u{1f99e}"]),
            (b"\xff\n", &["\u{fffd}"]),
        ];
        for (bytes, want) in table {
            assert_eq!(lines(&[bytes], 64).0, want, "{bytes:?}");
        }
    }

    #[test]
    fn a_line_over_the_bound_breaks_the_stream_after_those_before_it() {
        assert_eq!(lines(&[b"12345678\n"], 8), (vec!["12345678".into()], false));
        assert_eq!(lines(&[b"ok\n123456789\nlost\n"], 8), (vec!["ok".into()], true));
        let mut splitter = Lines::bounded(4);
        assert!(splitter.push(b"12345", &mut Vec::new()).is_err());
        assert!(splitter.push(b"\n", &mut Vec::new()).is_err(), "broken for good");
    }

    #[test]
    fn events_follow_the_server_sent_events_format() {
        let table: [(&[u8], Vec<SseItem>); 8] = [
            (b"data: a\n\ndata:b\r\n\r\n", vec![data("a"), data("b")]),
            (b"data: a\rdata: b\r\r", vec![data("a\nb")]),
            (b": ping\n\nevent: x\nid: 1\nretry: 5\ndata: a\n\n", vec![data("a")]),
            (b"data: a\n\ndata: [DONE]\n\n", vec![data("a"), SseItem::Done]),
            (b"data: a", vec![data("a")]),
            (b"data\n\ndata:\n\n", vec![]),
            ("\u{feff}data: a\n\n".as_bytes(), vec![data("a")]),
            (b"data:  a\n\n", vec![data(" a")]),
        ];
        for (bytes, want) in table {
            assert_eq!(events(&[bytes], 64).0, want, "{bytes:?}");
        }
    }

    #[test]
    fn an_event_over_the_bound_breaks_the_stream() {
        assert!(events(&[b"data: 12345678"], 8).1);
        assert!(events(&[b"data: 1\ndata: 2\ndata: 3\ndata: 4\ndata: 5\n\n"], 8).1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        #[test]
        fn any_division_of_the_bytes_gives_the_same_lines_and_events(
            bytes in prop::collection::vec(
                prop_oneof![Just(b'\n'), Just(b'\r'), Just(b'a'), Just(b':'), any::<u8>()], 0..200),
            cuts in prop::collection::vec(0usize..200, 0..20),
            bytes_max in 1usize..40,
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(lines(&pieces, bytes_max), lines(&[&bytes], bytes_max));
            prop_assert_eq!(events(&pieces, bytes_max), events(&[&bytes], bytes_max));
        }

        #[test]
        fn lines_survive_a_round_trip(
            text in prop::collection::vec("[^\r\n\\s][^\r\n]{0,20}", 0..8),
        ) {
            let mut bytes = Vec::new();
            for line in &text {
                bytes.extend_from_slice(line.as_bytes());
                bytes.extend_from_slice(b"\r\n");
            }
            let (got, _) = lines(&[&bytes], 200);
            prop_assert_eq!(got, text);
        }
    }
}
