use proptest::prelude::*;

use super::*;

#[test]
fn a_body_that_is_wrong_is_refused_by_name() {
    let type_of = |name, kind| BadRequest::WrongType(name, kind);
    let flag = "true or false";
    let table: [(&[u8], BadRequest); 19] = [
        (br#"[1]"#, BadRequest::NotObject),
        (br#""hi""#, BadRequest::NotObject),
        (br#"null"#, BadRequest::NotObject),
        (br#"{}"#, BadRequest::Missing("message")),
        (br#"{"session":"a"}"#, BadRequest::Missing("message")),
        (br#"{"message":12}"#, type_of("message", "a string")),
        (br#"{"message":["a","b"]}"#, type_of("message", "a string")),
        (br#"{"message":null}"#, type_of("message", "a string")),
        (br#"{"message":"x","emergency":"false"}"#, type_of("emergency", flag)),
        (br#"{"message":"x","emergency":0}"#, type_of("emergency", flag)),
        (br#"{"message":"x","stream":"yes"}"#, type_of("stream", flag)),
        (br#"{"message":"x","session":7}"#, type_of("session", "a string")),
        (br#"{"message":"x","backend":{}}"#, type_of("backend", "a string")),
        (br#"{"message":"x","sesion":"a"}"#, BadRequest::UnknownField("sesion".into())),
        (br#"{"Message":"x"}"#, BadRequest::UnknownField("Message".into())),
        (br#"{"message":"x","message":"y"}"#, BadRequest::Twice("message".into())),
        (b"{\"message\":\"\xff\"}", BadRequest::NotUtf8(12)),
        (b"\xff", BadRequest::NotUtf8(0)),
        // A surrogate smuggled in as UTF-8 is not UTF-8.
        (b"{\"message\":\"\xed\xa0\x80\"}", BadRequest::NotUtf8(12)),
    ];
    for (body, expected) in table {
        let text = String::from_utf8_lossy(body);
        assert_eq!(ChatBody::parse(body), Err(expected), "{text}");
    }
    let deep = "[".repeat(20_000);
    let not_json = [
        "",
        "hello",
        "{",
        r#"{"message":"x"} more"#,
        r#"{"message":"\ud800"}"#,
        r#"{"message":"\udc00 lonely"}"#,
        r#"{"message":"\ud800\u0041"}"#,
        "{\"message\":\"raw\u{1}\"}",
        &format!(r#"{{"message":{deep}"#),
    ];
    for body in not_json {
        let parsed = ChatBody::parse(body.as_bytes());
        assert!(matches!(parsed, Err(BadRequest::NotJson(_))), "{parsed:?}");
    }
}

#[test]
fn a_body_that_is_right_is_read() {
    let full = r#"{"message":"h\u00e9 \ud83e\udd9e\u0000","emergency":true,"session":"a:b",
        "backend":"ollama","stream":true,"id":"m-1"}"#;
    let expected = ChatBody {
        message: "hé 🦞\0".into(),
        session: Some("a:b".into()),
        backend: Some("ollama".into()),
        stream: true,
        id: Some("m-1".into()),
    };
    assert_eq!(ChatBody::parse(full.as_bytes()), Ok(expected));
    let bare = ChatBody { message: "hi".into(), ..ChatBody::default() };
    for body in [r#"{"message":"hi"}"#, r#" {"message":"hi","session":null,"stream":null} "#] {
        assert_eq!(ChatBody::parse(body.as_bytes()), Ok(bare.clone()));
    }
}

#[test]
fn an_object_with_a_great_many_members_is_refused() {
    let many: Vec<String> = (0..10_000).map(|n| format!(r#""f{n}":1"#)).collect();
    assert!(ChatBody::parse(format!("{{{}}}", many.join(",")).as_bytes()).is_err());
}

#[test]
fn a_cancel_names_a_session_or_none() {
    assert_eq!(cancel_session(b""), Ok(None));
    assert_eq!(cancel_session(b" \n"), Ok(None));
    assert_eq!(cancel_session(b"{}"), Ok(None));
    assert_eq!(cancel_session(br#"{"session":"a"}"#), Ok(Some("a".into())));
    assert_eq!(cancel_session(b"[1]"), Err(BadRequest::NotObject));
    assert_eq!(cancel_session(br#"{"id":"a"}"#), Err(BadRequest::UnknownField("id".into())));
}

#[test]
fn a_history_query_is_clamped_or_refused() {
    let asked = |limit, before, session: Option<&str>| {
        let lines = LinesQuery { limit, before };
        Ok(HistoryQuery { lines, session: session.map(Into::into) })
    };
    let ok = |limit, session| asked(limit, None, session);
    let not_turn = || Err(BadRequest::WrongParameter("before", "the number of a turn"));
    let not_number = || Err(BadRequest::WrongParameter("limit", "a whole number"));
    let not_text = || Err(BadRequest::WrongParameter("session", "text in UTF-8"));
    let table = [
        (None, ok(20, None)),
        (Some(""), ok(20, None)),
        (Some("limit=1"), ok(1, None)),
        (Some("limit=0"), ok(1, None)),
        (Some("limit=-5"), ok(1, None)),
        (Some("limit=201"), ok(200, None)),
        (Some("limit=99999999999999999999999999"), ok(200, None)),
        (Some("session=tg%3A1&limit=5"), ok(5, Some("tg:1"))),
        (Some("session=h%c3%a9"), ok(20, Some("hé"))),
        (Some("before=41&limit=5"), asked(5, Some(41), None)),
        (Some("before=99999999999999999999999999"), asked(20, Some(u64::MAX), None)),
        (Some("before="), not_turn()),
        (Some("before=-1"), not_turn()),
        (Some("before=now"), not_turn()),
        (Some("limit"), not_number()),
        (Some("limit=ten"), not_number()),
        (Some("limit=1e3"), not_number()),
        (Some("limit=+5"), not_number()),
        (Some("session=%"), not_text()),
        (Some("session=%4"), not_text()),
        (Some("session=%zz"), not_text()),
        (Some("session=%+4"), not_text()),
        (Some("session=%ff"), not_text()),
        (Some("lines=3"), Err(BadRequest::UnknownParameter("lines".into()))),
    ];
    for (query, expected) in table {
        assert_eq!(HistoryQuery::parse(query), expected, "{query:?}");
    }
}

#[test]
fn the_lines_of_a_named_session_are_asked_for_without_naming_it_again() {
    assert_eq!(lines(None), Ok(LinesQuery { limit: 200, before: None }));
    assert_eq!(lines(Some("limit=9&before=7")), Ok(LinesQuery { limit: 9, before: Some(7) }));
    assert_eq!(lines(Some("session=a")), Err(BadRequest::UnknownParameter("session".into())));
}

#[test]
fn a_message_id_is_as_strict_as_a_session_name() {
    for id in [r#""""#, r#""a b""#, r#""a\n""#, "7", &format!("{:?}", "x".repeat(65))] {
        let body = format!(r#"{{"message":"hi","id":{id}}}"#);
        let parsed = ChatBody::parse(body.as_bytes());
        assert!(matches!(parsed, Err(BadRequest::WrongType("id", _))), "{id}: {parsed:?}");
    }
}

#[test]
fn content_types_and_accepts_are_told_apart() {
    let json: [&[u8]; 3] =
        [b"application/json", b"Application/JSON; charset=utf-8", b" application/json ;x"];
    for kind in json {
        assert!(is_json(Some(kind)));
    }
    let other: [&[u8]; 5] =
        [b"", b"text/plain", b"application/jsonp", b"text/plain; application/json", b"\xff"];
    for kind in other {
        assert!(!is_json(Some(kind)));
    }
    assert!(!is_json(None));
    assert!(wants_lines("text/html, application/x-ndjson;q=0.9"));
    assert!(!wants_lines("*/*"));
}

proptest! {
    #[test]
    fn no_body_makes_the_parser_panic(body in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = ChatBody::parse(&body);
        let _ = cancel_session(&body);
    }

    #[test]
    fn any_message_arrives_as_it_was_sent(message in any::<String>()) {
        let body = serde_json::json!({ "message": message }).to_string();
        prop_assert_eq!(ChatBody::parse(body.as_bytes()).unwrap().message, message);
    }
}
