//! A fuzzing client of the WebSocket: conversations made from a seed, sound ones with one unsound
//! end, and an oracle that knows what the protocol (RFC 6455) demands of the answer. The kinds are
//! those of the public conformance suites: framing, pings, reserved bits, opcodes, fragmentation,
//! UTF-8 by byte, the close handshake, limits. Every failure names its seed.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use serde_json::{Value, json};

use super::quick_hailo;
use crate::client::connect;
use crate::daemon::{Setup, wait_for};

const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;
const FIN: u8 = 0x80;

/// Largest message that is taken.
const MESSAGE_MAX: usize = 1024 * 1024;

/// Lengths at which the head of a frame changes, and their neighbours.
const LENGTHS: [usize; 9] = [20, 125, 126, 127, 128, 65_534, 65_535, 65_536, 65_537];

/// Bytes that are no UTF-8, each in another way.
const NOT_UTF8: [&[u8]; 9] = [
    b"\x80",
    b"\xbf",
    b"\xc0\xaf",
    b"\xe0\x80\xaf",
    b"\xed\xa0\x80",
    b"\xf0\x80\x80\xaf",
    b"\xf4\x90\x80\x80",
    b"\xfe",
    b"\xf8\x88\x80\x80\x80",
];

/// How a conversation ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ends {
    /// With a close frame of this code.
    Closed(u16),
    /// With a close frame that has no code.
    Bare,
    /// The client goes without a word; nothing is demanded but that the server lets go.
    Gone,
}

/// What is sent, and what must come back.
struct Talk {
    rng: fastrand::Rng,
    bytes: Vec<u8>,
    answers: Vec<Value>,
    pings: Vec<Vec<u8>>,
    kinds: Vec<&'static str>,
}

impl Talk {
    fn of(seed: u64) -> (Self, Ends) {
        let rng = fastrand::Rng::with_seed(seed);
        let mut talk = Self { rng, bytes: vec![], answers: vec![], pings: vec![], kinds: vec![] };
        for _ in 0..talk.rng.usize(..6) {
            talk.sound();
        }
        let ends = talk.end();
        (talk, ends)
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.rng.usize(..list.len())]
    }

    /// A masked frame.
    fn frame(&mut self, first: u8, payload: &[u8]) {
        self.head(first, payload.len() as u64, true);
        let mask: [u8; 4] = std::array::from_fn(|_| self.rng.u8(..));
        self.bytes.extend(mask);
        self.bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    }

    fn head(&mut self, first: u8, length: u64, masked: bool) {
        let mask = if masked { 0x80 } else { 0 };
        self.bytes.push(first);
        match length {
            0..126 => self.bytes.push(mask | length as u8),
            126..65_536 => {
                self.bytes.push(mask | 126);
                self.bytes.extend((length as u16).to_be_bytes());
            }
            _ => {
                self.bytes.push(mask | 127);
                self.bytes.extend(length.to_be_bytes());
            }
        }
    }

    /// Text of some characters of one to four bytes.
    fn text(&mut self, chars: usize) -> String {
        (0..chars)
            .map(|_| match self.rng.u8(..4) {
                0 => self.rng.char(' '..='~'),
                1 => self.rng.char('\u{80}'..='\u{7ff}'),
                2 => self.rng.char('\u{800}'..='\u{ffff}'),
                _ => self.rng.char('\u{10000}'..='\u{10ffff}'),
            })
            .collect()
    }

    /// A frame of our protocol that is answered with `pong`, of exactly so many bytes.
    fn padded(length: usize) -> Vec<u8> {
        let bare = r#"{"type":"ping","a":""}"#.len();
        let pad = "x".repeat(length.saturating_sub(bare));
        format!(r#"{{"type":"ping","a":"{pad}"}}"#).into_bytes()
    }

    fn sound(&mut self) {
        let kind = self.rng.u8(..7);
        match kind {
            0 => {
                self.kinds.push("framing");
                let length = self.pick(&LENGTHS);
                let opcode = if self.rng.bool() { TEXT } else { BINARY };
                self.frame(FIN | opcode, &Self::padded(length));
                self.answers.push(json!({"event": "pong"}));
            }
            1 => {
                self.kinds.push("ping");
                for _ in 0..self.rng.usize(1..4) {
                    self.ping();
                }
            }
            2 => {
                self.kinds.push("a pong that nobody asked for");
                let length = self.rng.usize(..126);
                let payload: Vec<u8> = (0..length).map(|_| self.rng.u8(..)).collect();
                self.frame(FIN | PONG, &payload);
            }
            3 | 4 => {
                self.kinds.push("fragments, cut inside characters, with pings between them");
                let chars = self.rng.usize(..90);
                let text = self.text(chars);
                let told: String = text.chars().take(64).collect();
                self.pieces(json!({ "type": text }).to_string().as_bytes());
                self.answers.push(json!(format!("unknown type: '{told}'")));
            }
            5 => {
                self.kinds.push("text that is no JSON");
                let chars = self.rng.usize(1..40);
                let text = format!("!{}", self.text(chars));
                self.pieces(text.as_bytes());
                self.answers.push(json!("typed JSON envelope required"));
            }
            _ => {
                self.kinds.push("bytes that are no text");
                let bytes = self.pick(&NOT_UTF8);
                self.frame(FIN | BINARY, bytes);
            }
        }
    }

    fn ping(&mut self) {
        let length = self.rng.usize(..126);
        let payload: Vec<u8> = (0..length).map(|_| self.rng.u8(..)).collect();
        self.frame(FIN | PING, &payload);
        self.pings.push(payload);
    }

    /// A text message in pieces of any size, empty ones too.
    fn pieces(&mut self, mut text: &[u8]) {
        let mut opcode = TEXT;
        loop {
            let (piece, rest) = text.split_at(self.rng.usize(..=text.len()));
            text = rest;
            if text.is_empty() && self.rng.bool() {
                self.frame(FIN | opcode, piece);
                return;
            }
            self.frame(opcode, piece);
            opcode = 0;
            if self.rng.u8(..4) == 0 {
                self.ping();
            }
        }
    }

    fn end(&mut self) -> Ends {
        let kind = self.rng.u8(..14);
        match kind {
            0 | 1 => return self.goodbye(),
            2 => {
                self.kinds.push("gone in the middle");
                let at = self.bytes.len();
                let length = self.rng.usize(1..4000);
                self.frame(FIN | TEXT, &Self::padded(length));
                let kept = self.rng.usize(at..self.bytes.len());
                self.bytes.truncate(kept);
                return Ends::Gone;
            }
            3 => {
                self.kinds.push("reserved bits");
                let bits = self.rng.u8(1..8) << 4;
                let opcode = self.pick(&[TEXT, BINARY, PING, PONG, CLOSE]);
                self.frame(FIN | bits | opcode, b"");
            }
            4 => {
                self.kinds.push("an opcode that is none");
                let opcode = self.pick(&[3, 4, 5, 6, 7, 0xb, 0xc, 0xd, 0xe, 0xf]);
                let first = if self.rng.bool() { FIN | opcode } else { opcode };
                self.frame(first, b"{}");
            }
            5 => {
                self.kinds.push("a control frame that is too long");
                let opcode = self.pick(&[PING, PONG, CLOSE]);
                let length = self.rng.usize(126..300);
                self.frame(FIN | opcode, &vec![b'x'; length]);
            }
            6 => {
                self.kinds.push("a control frame in pieces");
                let opcode = self.pick(&[PING, PONG, CLOSE]);
                self.frame(opcode, b"");
            }
            7 => {
                self.kinds.push("a piece of nothing");
                let first = if self.rng.bool() { FIN } else { 0 };
                self.frame(first, b"{}");
            }
            8 => {
                self.kinds.push("a message inside another");
                self.frame(TEXT, b"{");
                let opcode = self.pick(&[TEXT, BINARY]);
                self.frame(FIN | opcode, b"}");
            }
            9 => {
                self.kinds.push("a frame without a mask");
                self.head(FIN | TEXT, 2, false);
                self.bytes.extend(b"{}");
            }
            10 => return self.unsound_goodbye(),
            11 | 12 => return self.not_text(),
            _ => return self.too_long(),
        }
        Ends::Closed(1002)
    }

    fn goodbye(&mut self) -> Ends {
        self.kinds.push("a goodbye");
        if self.rng.u8(..4) == 0 {
            self.frame(FIN | CLOSE, b"");
            return Ends::Bare;
        }
        let codes = [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999];
        let code: u16 = self.pick(&codes);
        let reason = "é".repeat(self.rng.usize(..=61));
        self.frame(FIN | CLOSE, &[&code.to_be_bytes()[..], reason.as_bytes()].concat());
        Ends::Closed(code)
    }

    fn unsound_goodbye(&mut self) -> Ends {
        self.kinds.push("an unsound goodbye");
        if self.rng.u8(..3) == 0 {
            self.frame(FIN | CLOSE, b"\x03");
            return Ends::Closed(1002);
        }
        if self.rng.u8(..3) == 0 {
            let bad = self.pick(&NOT_UTF8);
            self.frame(FIN | CLOSE, &[&1000_u16.to_be_bytes()[..], b"so ", bad].concat());
            return Ends::Closed(1007);
        }
        let codes = [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535];
        let code: u16 = self.pick(&codes);
        self.frame(FIN | CLOSE, &code.to_be_bytes());
        Ends::Closed(1002)
    }

    fn not_text(&mut self) -> Ends {
        self.kinds.push("text that is none, at any byte");
        let chars = self.rng.usize(..20);
        let (before, after) = (self.text(chars), self.text(chars));
        let cut = self.rng.u8(..4) == 0;
        let bad: &[u8] = if cut { b"\xf0\x9f\xa6" } else { self.pick(&NOT_UTF8) };
        let whole = [before.as_bytes(), bad, if cut { b"" } else { after.as_bytes() }].concat();
        if cut {
            self.pieces(&whole);
        } else {
            // The rest of the message never comes: what is broken is told at once.
            let first = if self.rng.bool() { FIN | TEXT } else { TEXT };
            self.frame(first, &whole);
        }
        Ends::Closed(1007)
    }

    fn too_long(&mut self) -> Ends {
        self.kinds.push("a message that is too long");
        if self.rng.bool() {
            // Its head is enough.
            let length = self.pick(&[MESSAGE_MAX as u64 + 1, 1 << 32, u64::MAX >> 1]);
            self.head(FIN | TEXT, length, true);
            self.bytes.extend([0; 4]);
        } else {
            // As long as may be, and one byte more in a piece of its own.
            self.frame(TEXT, &Self::padded(MESSAGE_MAX));
            self.frame(FIN, b" ");
        }
        Ends::Closed(1009)
    }
}

fn open(port: u16) -> TcpStream {
    let mut stream = connect(port).unwrap();
    let request = "GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
        Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        seen.extend(byte);
    }
    assert!(seen.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&seen));
    stream
}

/// Opcode and payload of each frame the server sent.
fn frames(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut found = Vec::new();
    while let [first, second, rest @ ..] = bytes {
        assert_eq!(first & 0xf0, FIN, "a frame of the server's is whole and has no extension");
        assert_eq!(second & 0x80, 0, "a server does not mask");
        let (length, rest) = match (second, rest) {
            (126, [a, b, rest @ ..]) => (usize::from(u16::from_be_bytes([*a, *b])), rest),
            (126 | 127, _) => panic!("no answer here is that long"),
            (short, rest) => (usize::from(*short), rest),
        };
        let (payload, rest) = rest.split_at(length);
        found.push((first & 0xf, payload.to_vec()));
        bytes = rest;
    }
    found
}

/// Sends in writes of any size and reads what comes back, to the end.
fn held(port: u16, talk: &mut Talk, ends: Ends) -> Vec<(u8, Vec<u8>)> {
    let mut stream = open(port);
    let mut rest = &talk.bytes[..];
    let largest = [1, 7, 1500, usize::MAX][talk.rng.usize(..4)].min(rest.len().max(1));
    // A byte at a time only where there are few.
    let largest = if rest.len() > 20_000 { rest.len() } else { largest };
    while !rest.is_empty() {
        let (now, later) = rest.split_at(talk.rng.usize(1..=largest).min(rest.len()));
        // It may have closed before the end of what we send.
        if stream.write_all(now).is_err() {
            break;
        }
        rest = later;
    }
    if ends == Ends::Gone {
        stream.shutdown(Shutdown::Write).unwrap();
    }
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the server closes in time");
    frames(&answer)
}

/// What the protocol demands of the answer.
fn judge(talk: &Talk, ends: Ends, mut said: Vec<(u8, Vec<u8>)>) {
    assert!(said.remove(0).1.starts_with(br#"{"event":"ready""#));
    if let Some(at) = said.iter().position(|(opcode, _)| *opcode == CLOSE) {
        assert_eq!(at + 1, said.len(), "something after the goodbye");
        let (_, payload) = said.pop().unwrap();
        match ends {
            Ends::Closed(code) => {
                assert_eq!(payload.get(..2), Some(&code.to_be_bytes()[..]), "{payload:?}");
                assert!(std::str::from_utf8(&payload[2..]).is_ok());
            }
            Ends::Bare => assert!(payload.is_empty() || payload.starts_with(&[3, 232])),
            Ends::Gone => {}
        }
    } else {
        assert_eq!(ends, Ends::Gone, "no goodbye");
    }
    // Of several pings in a row the server may answer the last alone.
    let mut pings = talk.pings.iter();
    for (_, pong) in said.iter().filter(|(opcode, _)| *opcode == PONG) {
        assert!(pings.any(|ping| ping == pong), "a pong without a ping: {pong:?}");
    }
    if matches!(ends, Ends::Bare | Ends::Closed(1000)) {
        assert_eq!(pings.next(), None, "the last ping has no pong");
    }
    let answers: Vec<Value> = said
        .iter()
        .filter(|(opcode, _)| *opcode == TEXT)
        .map(|(_, text)| {
            let frame: Value = serde_json::from_slice(text).unwrap();
            if frame["event"] == "error" { frame["detail"].clone() } else { frame }
        })
        .collect();
    assert_eq!(answers, talk.answers);
}

#[test]
fn whatever_a_client_sends_is_answered_as_the_protocol_demands() {
    let hailo = quick_hailo();
    let daemon = Setup::on_hailo(hailo.addr()).start();
    let seeds = if std::env::var_os("CRAYFISH_FULL").is_some() { 20_000 } else { 600 };
    let before = daemon.descriptors();
    for seed in 0..seeds {
        let (mut talk, ends) = Talk::of(seed);
        let said = held(daemon.port, &mut talk, ends);
        let kinds = talk.kinds.join(", ");
        let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            judge(&talk, ends, said);
        }));
        assert!(judged.is_ok(), "seed {seed}: {kinds}; must end {ends:?}");
    }
    // The house stands, and nothing is left of all that.
    wait_for("every connection is let go", || (daemon.descriptors() <= before).then_some(()));
    let (mut last, ends) = {
        let rng = fastrand::Rng::with_seed(0);
        let mut talk = Talk { rng, bytes: vec![], answers: vec![], pings: vec![], kinds: vec![] };
        talk.frame(FIN | TEXT, &Talk::padded(MESSAGE_MAX));
        talk.answers.push(json!({"event": "pong"}));
        talk.frame(FIN | CLOSE, &1000_u16.to_be_bytes());
        (talk, Ends::Closed(1000))
    };
    let said = held(daemon.port, &mut last, ends);
    judge(&last, ends, said);
}
