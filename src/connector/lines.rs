//! Lines of a bounded length from a stream of bytes.
//!
//! # Invariants
//! - Never holds more than the bound and one read.
//! - A line that is too long costs its sender that line, not the connection.

use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes asked for at once: a message as people type them fits in one read.
const READ_BYTES: usize = 8 * 1024;

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A line without its end. Any bytes.
    Whole(Vec<u8>),
    /// A line beyond the bound; it was thrown away.
    TooLong,
}

/// Reads lines.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    reader: R,
    bytes: Vec<u8>,
    /// How much of `bytes` is known to hold no line end.
    seen: usize,
    max: usize,
    /// Throwing away the rest of a line that was too long.
    skipping: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Lines of at most `max` bytes.
    pub(crate) fn new(reader: R, max: usize) -> Self {
        Self { reader, bytes: Vec::new(), seen: 0, max, skipping: false }
    }

    /// The next line; `None` at the end of the stream. A last line without an end counts.
    ///
    /// # Errors
    /// The stream's.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped: what was read stays in `self`.
    pub(crate) async fn next(&mut self) -> std::io::Result<Option<Line>> {
        loop {
            if let Some(line) = self.take() {
                return Ok(Some(line));
            }
            self.bytes.reserve(READ_BYTES);
            if self.reader.read_buf(&mut self.bytes).await? == 0 {
                self.seen = 0;
                let rest = std::mem::take(&mut self.bytes);
                let line = (!rest.is_empty() && !self.skipping).then_some(Line::Whole(rest));
                self.skipping = false;
                return Ok(line);
            }
        }
    }

    /// A line out of what was read, if there is one.
    fn take(&mut self) -> Option<Line> {
        let fresh = self.bytes.get(self.seen..).unwrap_or_default();
        match fresh.iter().position(|&byte| byte == b'\n') {
            Some(at) => {
                let end = self.seen + at;
                let rest = self.bytes.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.bytes, rest);
                line.truncate(end);
                self.seen = 0;
                let too_long = std::mem::take(&mut self.skipping) || line.len() > self.max;
                Some(if too_long { Line::TooLong } else { Line::Whole(line) })
            }
            None if self.bytes.len() > self.max || self.skipping => {
                self.skipping = true;
                self.bytes.clear();
                self.bytes.shrink_to(READ_BYTES);
                self.seen = 0;
                None
            }
            None => {
                self.seen = self.bytes.len();
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt;

    use super::*;

    fn read_all(pieces: Vec<Vec<u8>>, max: usize) -> Vec<Line> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async move {
            let (mut near, far) = tokio::io::duplex(64);
            let write = async move {
                for piece in pieces {
                    near.write_all(&piece).await.unwrap();
                    near.flush().await.unwrap();
                    tokio::task::yield_now().await;
                }
            };
            let read = async move {
                let mut lines = Lines::new(far, max);
                let mut all = Vec::new();
                while let Some(line) = lines.next().await.unwrap() {
                    all.push(line);
                }
                all
            };
            tokio::join!(write, read).1
        })
    }

    #[test]
    fn a_line_that_is_too_long_costs_only_itself() {
        let long = vec![b'x'; 5000];
        let pieces = vec![b"one\n".to_vec(), long, b"\ntwo\n".to_vec(), b"three".to_vec()];
        let whole = |text: &str| Line::Whole(text.as_bytes().to_vec());
        assert_eq!(
            read_all(pieces, 100),
            [whole("one"), Line::TooLong, whole("two"), whole("three")]
        );
    }

    proptest! {
        #[test]
        fn any_split_of_the_bytes_gives_the_same_lines(
            text in "[ab\n]{0,200}",
            cuts in proptest::collection::vec(0usize..200, 0..6),
            max in 1usize..8,
        ) {
            let bytes = text.as_bytes();
            let mut pieces = Vec::new();
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.push(bytes.len());
            cuts.sort_unstable();
            let mut from = 0;
            for cut in cuts {
                pieces.push(bytes[from..cut].to_vec());
                from = cut;
            }
            let mut expected: Vec<_> = text.split('\n').map(|line| {
                if line.len() > max { Line::TooLong } else { Line::Whole(line.into()) }
            }).collect();
            // What follows the last line end is a line only if there is something, and one that
            // is too long has no end that would tell so.
            match text.rsplit('\n').next() {
                Some(last) if last.is_empty() || last.len() > max => { expected.pop(); }
                _ => {}
            }
            let got = read_all(pieces, max);
            let tail_long = text.rsplit('\n').next().is_some_and(|last| last.len() > max);
            if tail_long {
                // Whether the tail was seen to be too long before the end decides what it is.
                prop_assert_eq!(&got[..expected.len()], &expected[..]);
            } else {
                prop_assert_eq!(got, expected);
            }
        }
    }
}
