//! Frames as bytes, sound and unsound: what a fuzzing client of the protocol's conformance suites
//! tries, section by section.

use proptest::prelude::*;

use super::*;

const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;
const FIN: u8 = 0x80;

/// A masked frame as a client sends it.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = head(first, payload.len() as u64, true);
    let mask = [0x37, 0xfa, 0x21, 0x3d];
    bytes.extend(mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

/// The first bytes of a frame, up to its mask.
fn head(first: u8, length: u64, masked: bool) -> Vec<u8> {
    let mask = if masked { 0x80 } else { 0 };
    let mut bytes = vec![first];
    match length {
        0..126 => bytes.push(mask | length as u8),
        126..65_536 => {
            bytes.push(mask | 126);
            bytes.extend((length as u16).to_be_bytes());
        }
        _ => {
            bytes.push(mask | 127);
            bytes.extend(length.to_be_bytes());
        }
    }
    bytes
}

/// Opcode and payload of each whole frame a server sent.
fn frames(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut found = Vec::new();
    while let [first, second, rest @ ..] = bytes {
        assert_eq!(second & 0x80, 0, "a server does not mask");
        assert_eq!(first & 0xf0, FIN, "ours are whole and have no extension");
        let (length, rest) = match (second, rest) {
            (126, [a, b, rest @ ..]) => (usize::from(u16::from_be_bytes([*a, *b])), rest),
            // None of ours is that long here.
            (126 | 127, _) => break,
            (short, rest) => (usize::from(*short), rest),
        };
        // The rest of one that a reset has cut.
        let Some((payload, rest)) = rest.split_at_checked(length) else { break };
        found.push((first & 0xf, payload.to_vec()));
        bytes = rest;
    }
    found
}

async fn connect(house: &House) -> TcpStream {
    let mut stream = TcpStream::connect(house.at).await.unwrap();
    let request = "GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
        Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\n") {
        seen.push(stream.read_u8().await.unwrap());
    }
    assert!(seen.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&seen));
    stream
}

/// What the server says to these bytes after its greeting, until it closes.
async fn said(house: &House, pieces: &[&[u8]]) -> Vec<(u8, Vec<u8>)> {
    let mut stream = connect(house).await;
    for piece in pieces {
        // It may have closed before the end of what we send.
        if stream.write_all(piece).await.is_err() {
            break;
        }
    }
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut bytes));
    read.await.expect("it closes in time").unwrap();
    let mut said = frames(&bytes);
    assert!(said.remove(0).1.starts_with(br#"{"event":"ready""#));
    said
}

fn code(said: &[(u8, Vec<u8>)]) -> Option<u16> {
    match said.last() {
        Some((CLOSE, payload)) if payload.len() >= 2 => {
            Some(u16::from_be_bytes([payload[0], payload[1]]))
        }
        _ => None,
    }
}

#[tokio::test]
async fn what_the_protocol_forbids_ends_the_socket_with_its_code() {
    let house = house().await;
    let long = vec![b'x'; 126];
    let close =
        |code: u16, reason: &[u8]| frame(FIN | CLOSE, &[&code.to_be_bytes()[..], reason].concat());
    let mut table: Vec<(String, Vec<u8>, u16)> = vec![
        ("unmasked".into(), [head(FIN | TEXT, 2, false), b"{}".to_vec()].concat(), 1002),
        ("a long ping".into(), frame(FIN | PING, &long), 1002),
        ("a ping in pieces".into(), frame(PING, b""), 1002),
        ("a close in pieces".into(), frame(CLOSE, b""), 1002),
        ("a piece without a beginning".into(), frame(FIN, b"{}"), 1002),
        (
            "a message inside another".into(),
            [frame(TEXT, b"{"), frame(FIN | TEXT, b"}")].concat(),
            1002,
        ),
        ("a close of one byte".into(), frame(FIN | CLOSE, b"\x03"), 1002),
        ("text that is none".into(), frame(FIN | TEXT, b"\xce\xba\xe1\xbd\xb9\xed\xa0\x80"), 1007),
        ("cut text".into(), frame(FIN | TEXT, b"\xf0\x9f\xa6"), 1007),
        (
            "text that is none, in pieces".into(),
            [frame(TEXT, b"\xc3"), frame(FIN, b"\x28")].concat(),
            1007,
        ),
        // Its head is enough.
        ("too long".into(), [head(FIN | TEXT, 1024 * 1024 + 1, true), vec![0; 4]].concat(), 1009),
        (
            "absurdly long".into(),
            [head(FIN | BINARY, u64::MAX >> 1, true), vec![0; 4]].concat(),
            1009,
        ),
    ];
    for rsv in [0x10, 0x20, 0x40, 0x70] {
        table.push((format!("reserved bits {rsv:x}"), frame(FIN | rsv | TEXT, b"{}"), 1002));
        table.push((format!("reserved bits {rsv:x}"), frame(FIN | rsv | PING, b""), 1002));
    }
    for opcode in (0x3..=0x7).chain(0xb..=0xf) {
        table.push((format!("opcode {opcode:x}"), frame(FIN | opcode, b"{}"), 1002));
    }
    for bad in [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65_535] {
        table.push((format!("close {bad}"), close(bad, b""), 1002));
    }
    for (what, bytes, expected) in table {
        // In front of it something sound, which is still answered.
        let said = said(&house, &[&frame(FIN | TEXT, br#"{"type":"ping"}"#), &bytes]).await;
        assert_eq!(said[0], (TEXT, br#"{"event":"pong"}"#.to_vec()), "{what}");
        assert_eq!(code(&said), Some(expected), "{what}: {said:?}");
        assert_eq!(said.len(), 2, "{what}");
    }
}

#[tokio::test]
async fn a_message_in_pieces_that_grows_too_long_ends_the_socket() {
    let house = house().await;
    let piece = vec![b'x'; 300 * 1024];
    let pieces =
        [frame(TEXT, &piece), frame(0, &piece), frame(0, &piece), frame(0, &piece)].concat();
    assert_eq!(code(&said(&house, &[&pieces]).await), Some(1009));
}

#[tokio::test]
async fn a_goodbye_is_returned_with_its_code() {
    let house = house().await;
    for code_sent in [1000_u16, 1001, 1003, 1007, 1011, 3000, 3999, 4000, 4999] {
        let goodbye = frame(FIN | CLOSE, &[&code_sent.to_be_bytes()[..], b"bye"].concat());
        let said = said(&house, &[&goodbye, &frame(FIN | PING, b"after")]).await;
        assert_eq!(code(&said), Some(code_sent));
        assert_eq!(said.len(), 1, "nothing after the goodbye: {said:?}");
    }
    let said = said(&house, &[&frame(FIN | CLOSE, b"")]).await;
    assert!(matches!(said.as_slice(), [(CLOSE, _)]));
}

#[tokio::test]
async fn pieces_of_any_size_make_a_message_and_pings_come_between_them() {
    let house = house().await;
    let text = r#"{"type":"dance ❤ 螃蟹"}"#.as_bytes();
    for size in [1, 2, 3, 7, text.len()] {
        let mut bytes = Vec::new();
        let count = text.chunks(size).count();
        for (index, chunk) in text.chunks(size).enumerate() {
            let opcode = if index == 0 { TEXT } else { 0 };
            let fin = if index + 1 == count { FIN } else { 0 };
            bytes.extend(frame(fin | opcode, chunk));
            if index == 0 {
                bytes.extend(frame(FIN | PING, b"still there?"));
            }
        }
        bytes.extend(frame(FIN | CLOSE, &1000_u16.to_be_bytes()));
        // Byte by byte, as the slowest network would bring it.
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        let said = said(&house, &single).await;
        assert!(said.contains(&(PONG, b"still there?".to_vec())), "{size}: {said:?}");
        let answers: Vec<_> = said.iter().filter(|(opcode, _)| *opcode == TEXT).collect();
        let answer: Value = serde_json::from_slice(&answers[0].1).unwrap();
        assert_eq!(answer["detail"], "unknown type: 'dance ❤ 螃蟹'");
        assert_eq!((answers.len(), code(&said)), (1, Some(1000)));
    }
}

#[tokio::test]
async fn a_client_that_goes_in_the_middle_of_a_frame_leaves_nothing_behind() {
    let house = house().await;
    let whole = frame(FIN | TEXT, br#"{"type":"message","content":"never whole"}"#);
    for cut in 0..whole.len() {
        let mut stream = connect(&house).await;
        stream.write_all(&whole[..cut]).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        let read = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut rest));
        read.await.expect("it is left in time").unwrap();
    }
    assert!(house.fake.heard().is_empty());
}

fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let payload = prop_oneof![
        Just(br#"{"type":"ping"}"#.to_vec()),
        Just(br#"{"type":"message","content":"hi"}"#.to_vec()),
        proptest::collection::vec(any::<u8>(), 0..200),
    ];
    let first = prop_oneof![
        3 => Just(FIN | TEXT),
        1 => Just(TEXT),
        1 => Just(FIN),
        1 => Just(FIN | BINARY),
        1 => any::<u8>(),
    ];
    (first, payload).prop_map(|(first, payload)| frame(first, &payload))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn whatever_the_bytes_the_socket_ends_in_order_and_the_house_stands(
        sent in proptest::collection::vec(any_frame(), 0..12),
        noise in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let house = house().await;
            let mut stream = connect(&house).await;
            let bytes = [sent.concat(), noise].concat();
            // It may end in the middle of what we send.
            let _cut = stream.write_all(&bytes).await;
            let _gone = stream.shutdown().await;
            let mut answer = Vec::new();
            let read = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut answer)).await;
            // A reset is an end as well; what was said before is sound in any case.
            let _reset = read.expect("it ends in time");
            let said = frames(&answer);
            let goodbye = said.iter().position(|(opcode, _)| *opcode == CLOSE);
            assert!(goodbye.is_none_or(|at| at + 1 == said.len()), "after the goodbye: {said:?}");
            assert_eq!(house.page().await.ask(json!({"type": "ping"})).await["event"], "pong");
        });
    }
}
