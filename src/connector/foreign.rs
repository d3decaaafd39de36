//! Bytes as a terminal's client may send them, for the fuzz targets.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use tokio::io::{AsyncRead, ReadBuf};

use super::lines::{Line, Lines};

/// Bytes that arrive in pieces.
struct Pieces<'a> {
    left: &'a [u8],
    step: usize,
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (piece, left) =
            self.left.split_at(self.step.min(self.left.len()).min(into.remaining()));
        into.put_slice(piece);
        self.left = left;
        Poll::Ready(Ok(()))
    }
}

/// The lines that these bytes are if they arrive in pieces of `step` bytes; none in the place of
/// a line of more than `max` bytes.
#[must_use]
pub fn lines(bytes: &[u8], step: usize, max: usize) -> Vec<Option<Vec<u8>>> {
    let mut lines = Lines::new(Pieces { left: bytes, step: step.max(1) }, max);
    let mut all = Vec::new();
    // Never waits: all bytes are here.
    while let Some(Ok(Some(line))) = lines.next().now_or_never() {
        all.push(match line {
            Line::Whole(line) => Some(line),
            Line::TooLong => None,
        });
    }
    all
}
