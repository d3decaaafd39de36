use proptest::prelude::*;

use super::*;

/// As hailo-ollama 5.1.1 sends it: CR LF, escapes, nine digits of time, few figures.
const HAILO: &str = include_str!("hailo.ndjson");

/// As Ollama sends it: LF, raw UTF-8, thinking, a native call, all figures.
const OLLAMA: &str = include_str!("ollama.ndjson");

fn decode(dialect: Dialect, pieces: &[&[u8]]) -> (Vec<ChatDelta>, Option<Fault>) {
    let mut decoder = Ndjson::new(dialect);
    let mut out = Vec::new();
    for piece in pieces {
        if let Err(fault) = decoder.piece(piece, &mut out) {
            return (out, Some(fault));
        }
    }
    let fault = decoder.end(&mut out).err();
    (out, fault)
}

fn text(text: &str) -> ChatDelta {
    ChatDelta::Text(text.into())
}

fn done(reason: DoneReason, tokens: Option<u32>, prompt_tokens: Option<u32>) -> ChatDelta {
    ChatDelta::Done(Done { reason, tokens, prompt_tokens })
}

#[test]
fn recorded_streams_give_the_same_deltas_wherever_they_are_split() {
    let hailo = vec![text("Sure"), text(" 🦞 天气 a/b\n"), done(DoneReason::Stop, Some(27), None)];
    let ollama = vec![
        ChatDelta::Thinking("hm".into()),
        text("天气 🦞"),
        ChatDelta::ToolCall {
            id: "call_1".into(),
            name: "light".into(),
            arguments: r#"{"on":true}"#.into(),
        },
        text("!"),
        done(DoneReason::Length, Some(12), Some(26)),
    ];
    for (dialect, stream, want) in
        [(Dialect::Hailo, HAILO, hailo), (Dialect::Ollama, OLLAMA, ollama)]
    {
        let bytes = stream.as_bytes();
        for at in 0..=bytes.len() {
            let (got, fault) = decode(dialect, &[&bytes[..at], &bytes[at..]]);
            assert_eq!((&got, fault), (&want, None), "split at {at}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(decode(dialect, &single).0, want, "byte by byte");
    }
}

#[test]
fn unusual_lines_are_read_with_patience() {
    let table: [(&str, Vec<ChatDelta>); 8] = [
        ("\n\r\n", vec![]),
        (r#"{"message":{"content":null},"done":false}"#, vec![]),
        (r#"{"message":null,"new":1,"model_info":""}"#, vec![]),
        (
            r#"{"message":{"content":"last"},"done":true,"done_reason":"unheard"}"#,
            vec![text("last"), done(DoneReason::Stop, None, None)],
        ),
        ("{\"done\":true}\n{\"error\":\"late\"}\n", vec![done(DoneReason::Stop, None, None)]),
        (r#"{"done":true,"eval_count":-1}"#, vec![done(DoneReason::Stop, None, None)]),
        (r#"{"message":{"content":"\ud83e"}}"#, vec![text("\u{fffd}")]),
        (r#"{"message":{"content":"half"#, vec![]),
    ];
    for (stream, want) in table {
        assert_eq!(decode(Dialect::Hailo, &[stream.as_bytes()]), (want, None), "{stream}");
    }
}

#[test]
fn errors_and_garbage_are_faults_after_what_came_before() {
    let table = [
        (r#"{"error":"model 'x' not found"}"#, Class::ModelMissing),
        (r#"{"error":"unexpected EOF"}"#, Class::ServerError),
        ("<html>", Class::ServerError),
        ("[1]", Class::ServerError),
        ("\"text\"", Class::ServerError),
    ];
    for (line, class) in table {
        let stream = format!("{{\"message\":{{\"content\":\"a\"}}}}\n{line}\n");
        let (out, fault) = decode(Dialect::Ollama, &[stream.as_bytes()]);
        assert_eq!(out, [text("a")]);
        assert_eq!(fault.unwrap().class, class, "{line}");
    }
    let endless = vec![b'x'; crate::limits::STREAM_LINE_BYTES_MAX + 1];
    assert_eq!(decode(Dialect::Ollama, &[&endless]).1.unwrap().class, Class::ServerError);
}

#[test]
fn tool_calls_keep_their_id_and_end_with_their_own_reason() {
    let calls = r#"{"id":"x","function":{"name":"a","arguments":"{}"}},
        {"function":{"name":"b"}},{"function":{}}"#
        .replace('\n', "");
    let stream =
        format!(r#"{{"message":{{"tool_calls":[{calls}]}},"done":true,"done_reason":"stop"}}"#);
    let call = |id: &str, name: &str| ChatDelta::ToolCall {
        id: id.into(),
        name: name.into(),
        arguments: "{}".into(),
    };
    let want = vec![call("x", "a"), call("call_2", "b"), done(DoneReason::ToolCalls, None, None)];
    assert_eq!(decode(Dialect::Ollama, &[stream.as_bytes()]), (want, None));
}

proptest! {
    #[test]
    fn no_bytes_panic_and_nothing_follows_done(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut stream = OLLAMA.as_bytes().to_vec();
        stream.extend(&bytes);
        let (out, fault) = decode(Dialect::Ollama, &[&stream]);
        prop_assert!(matches!(out.last(), Some(ChatDelta::Done(_))) && fault.is_none());
        decode(Dialect::Hailo, &[&bytes]);
    }
}
