//! Answers on the wire: Go's headers, NDJSON with LF in chunks, and a head that leaves only with
//! the first content.

use std::io;

use serde_json::Value;

use super::{
    answers::{self, End, Part},
    request::{Endpoint, Refusal},
};
use crate::sim::{clock, wire::Conn};

/// Content type of everything that is one JSON object.
const JSON: &str = "application/json; charset=utf-8";

/// Content type of a stream.
const NDJSON: &str = "application/x-ndjson";

/// Content type of gin's own texts.
const TEXT: &str = "text/plain; charset=utf-8";

/// Reason phrase of a status, as Go has it.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        _ => "Unknown",
    }
}

/// The `Date` header, from the wall clock.
fn date() -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.unwrap_or_default();
    let stamp = clock::stamp(now);
    let part = |from: usize, to: usize| stamp.get(from..to).unwrap_or_default();
    let weekday = usize::try_from(now.as_secs() / 86_400 % 7).unwrap_or(0);
    let month = part(5, 7).parse::<usize>().unwrap_or(1).clamp(1, 12);
    let (day, year, time) = (part(8, 10), part(0, 4), part(11, 19));
    format!("{}, {day} {} {year} {time} GMT", DAYS[weekday], MONTHS[month - 1])
}

/// Sends a whole answer. To a HEAD request only its head is sent.
fn whole(conn: &mut Conn, only_head: bool, status: u16, kind: &str, body: &str) -> io::Result<()> {
    let (date, length) = (date(), body.len().to_string());
    let headers = [("Content-Type", kind), ("Date", date.as_str())];
    if !only_head {
        return conn.write_answer(status, reason(status), &headers, body.as_bytes());
    }
    let headers = [headers[0], headers[1], ("Content-Length", length.as_str())];
    conn.write_head(status, reason(status), &headers)
}

/// Sends one JSON object.
pub(super) fn json(conn: &mut Conn, only_head: bool, status: u16, body: &str) -> io::Result<()> {
    whole(conn, only_head, status, JSON, body)
}

/// Sends a line of text.
pub(super) fn text(conn: &mut Conn, only_head: bool, status: u16, body: &str) -> io::Result<()> {
    whole(conn, only_head, status, TEXT, body)
}

/// Sends a status without a body, as gin's middleware does.
pub(super) fn bare(conn: &mut Conn, status: u16) -> io::Result<()> {
    let date = date();
    conn.write_answer(status, reason(status), &[("Date", &date)], b"")
}

/// The answer to one generation, streamed or gathered.
pub(super) struct Out<'c> {
    pub(super) conn: &'c mut Conn,
    endpoint: Endpoint,
    model: String,
    stream: bool,
    head_sent: bool,
    content: String,
    thinking: String,
    calls: Vec<Value>,
    /// Tokens given out.
    pub(super) sent: u32,
}

impl<'c> Out<'c> {
    pub(super) fn new(conn: &'c mut Conn, endpoint: Endpoint, model: &str, stream: bool) -> Self {
        Self {
            conn,
            endpoint,
            model: model.to_owned(),
            stream,
            head_sent: false,
            content: String::new(),
            thinking: String::new(),
            calls: Vec::new(),
            sent: 0,
        }
    }

    /// The text given out so far.
    pub(super) fn content(&self) -> &str {
        &self.content
    }

    /// Whether some of it was thinking.
    pub(super) fn has_thought(&self) -> bool {
        !self.thinking.is_empty()
    }

    /// Sends the head of a stream, once. Returns whether it was now.
    pub(super) fn head(&mut self) -> io::Result<bool> {
        if !self.stream || self.head_sent {
            return Ok(false);
        }
        self.head_sent = true;
        let date = date();
        let headers =
            [("Content-Type", NDJSON), ("Date", date.as_str()), ("Transfer-Encoding", "chunked")];
        self.conn.write_head(200, reason(200), &headers)?;
        Ok(true)
    }

    fn line(&mut self, text: &str) -> io::Result<()> {
        self.head()?;
        self.conn.write_chunk(format!("{text}\n").as_bytes())
    }

    /// Gives out a token. One whose bytes are held back (empty text) makes no line.
    pub(super) fn token(&mut self, text: &str, thinking: bool) -> io::Result<()> {
        self.sent += 1;
        if text.is_empty() {
            return Ok(());
        }
        let mut part = Part::default();
        if thinking {
            self.thinking.push_str(text);
            part.thinking = text;
        } else {
            self.content.push_str(text);
            part.content = text;
        }
        if !self.stream {
            return Ok(());
        }
        let line = answers::part(self.endpoint, &self.model, &part);
        self.line(&line)
    }

    /// Gives out a tool call.
    pub(super) fn call(&mut self, name: &str, arguments: &Value) -> io::Result<()> {
        let call = answers::tool_call(self.calls.len(), name, arguments);
        self.calls.push(call.clone());
        if !self.stream {
            return Ok(());
        }
        let part = Part { tool_calls: vec![call], ..Part::default() };
        let line = answers::part(self.endpoint, &self.model, &part);
        self.line(&line)
    }

    /// Sends a line that is no JSON (a stream only).
    pub(super) fn garbage(&mut self) -> io::Result<()> {
        if self.stream { self.line("\u{1}{\"model\":\"qwe\u{fffd}") } else { Ok(()) }
    }

    /// Ends the answer. Without an `end` a stream just stops, and a gathered answer says
    /// `"done":false`.
    pub(super) fn finish(&mut self, end: Option<End>) -> io::Result<()> {
        if self.stream {
            if end.is_some() {
                let line =
                    answers::part(self.endpoint, &self.model, &Part { end, ..Part::default() });
                self.line(&line)?;
            }
            self.head()?;
            return self.conn.write_last_chunk();
        }
        self.head_sent = true;
        let part = Part {
            content: &self.content,
            thinking: &self.thinking,
            tool_calls: self.calls.clone(),
            end,
        };
        let body = answers::part(self.endpoint, &self.model, &part);
        json(self.conn, false, 200, &body)
    }

    /// Ends the answer with an error: with its status as long as no head was sent, else as the
    /// last line under the 200 that is already out.
    pub(super) fn refuse(&mut self, refusal: &Refusal) -> io::Result<()> {
        let body = answers::error(&refusal.error);
        if self.head_sent {
            self.line(&body)?;
            return self.conn.write_last_chunk();
        }
        self.head_sent = true;
        json(self.conn, false, refusal.status, &body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_is_written_as_http_wants_it() {
        let date = date();
        assert_eq!(date.len(), 29, "{date}");
        assert!(date.ends_with(" GMT") && date.as_bytes()[3] == b',', "{date}");
    }
}
