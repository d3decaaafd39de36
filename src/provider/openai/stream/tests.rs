use proptest::prelude::*;

use super::*;

/// Text, thinking, two interleaved calls, usage, both kinds of line ends, a comment.
const STREAM: &str = include_str!("completion.sse");

fn decode(pieces: &[&[u8]]) -> (Vec<ChatDelta>, Option<Fault>) {
    let mut decoder = Completion::default();
    let mut out = Vec::new();
    for piece in pieces {
        if let Err(fault) = decoder.piece(piece, &mut out) {
            return (out, Some(fault));
        }
    }
    let fault = decoder.end(&mut out).err();
    (out, fault)
}

fn call(id: &str, name: &str, arguments: &str) -> ChatDelta {
    ChatDelta::ToolCall { id: id.into(), name: name.into(), arguments: arguments.into() }
}

fn done(reason: DoneReason) -> ChatDelta {
    ChatDelta::Done(Done { reason, tokens: None, prompt_tokens: None })
}

#[test]
fn a_recorded_stream_gives_the_same_deltas_wherever_it_is_split() {
    let want = vec![
        ChatDelta::Thinking("hm".into()),
        ChatDelta::Text("天气 🦞".into()),
        call("a", "light", "{\"on\":true}"),
        call("call_2", "fan", "{}"),
        ChatDelta::Done(Done {
            reason: DoneReason::ToolCalls,
            tokens: Some(12),
            prompt_tokens: Some(26),
        }),
    ];
    let bytes = STREAM.as_bytes();
    for at in 0..=bytes.len() {
        let (got, fault) = decode(&[&bytes[..at], &bytes[at..]]);
        assert_eq!((&got, fault), (&want, None), "split at {at}");
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(decode(&single).0, want, "byte by byte");
}

#[test]
fn reasons_are_mapped() {
    let table = [
        ("\"stop\"", DoneReason::Stop),
        ("\"length\"", DoneReason::Length),
        ("\"tool_calls\"", DoneReason::Stop),
        ("\"content_filter\"", DoneReason::Stop),
    ];
    for (reason, want) in table {
        let stream = format!("data: {{\"choices\":[{{\"finish_reason\":{reason}}}]}}\n\n");
        assert_eq!(decode(&[stream.as_bytes()]), (vec![done(want)], None), "{reason}");
    }
    // A call under "stop", as half of the servers send it.
    let delta = r#"{"tool_calls":[{"function":{"name":"a"}}]}"#;
    let stream = format!(r#"data: {{"choices":[{{"delta":{delta},"finish_reason":"stop"}}]}}"#);
    let want = vec![call("call_1", "a", "{}"), done(DoneReason::ToolCalls)];
    assert_eq!(decode(&[stream.as_bytes()]), (want, None));
}

#[test]
fn a_stream_without_reason_or_end_is_not_complete() {
    let text = r#"{"choices":[{"delta":{"content":"a"}}]}"#;
    let (out, fault) = decode(&[format!("data: {text}\n\ndata: {{\"cho").as_bytes()]);
    assert_eq!((out, fault), (vec![ChatDelta::Text("a".into())], None));
}

#[test]
fn errors_garbage_and_calls_without_end_are_faults() {
    let endless: String = (0..=CALLS_MAX)
        .map(|i| {
            let call = format!("{{\"index\":{i},\"function\":{{\"name\":\"a\"}}}}");
            format!("data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{call}]}}}}]}}\n\n")
        })
        .collect();
    let table = [
        (r#"data: {"error":"x"}"#.to_owned() + "\n\n", Class::ServerError),
        (
            r#"data: {"error":{"message":"model 'x' not found"}}"#.to_owned() + "\n\n",
            Class::ModelMissing,
        ),
        ("data: <html>\n\n".to_owned(), Class::ServerError),
        (endless, Class::ServerError),
    ];
    for (stream, class) in table {
        assert_eq!(decode(&[stream.as_bytes()]).1.unwrap().class, class, "{stream}");
    }
}

proptest! {
    #[test]
    fn no_bytes_panic_and_nothing_follows_done(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut stream = STREAM.as_bytes().to_vec();
        stream.extend(&bytes);
        let (out, fault) = decode(&[&stream]);
        prop_assert!(matches!(out.last(), Some(ChatDelta::Done(_))) && fault.is_none());
        decode(&[&bytes]);
    }
}
