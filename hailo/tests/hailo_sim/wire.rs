//! What the bytes look like: H6 to H13, H22, H26.

use hailo::{
    model::Release::{self, V5_1_1, V5_3, V5_4},
    sim::{
        clock::Pace,
        log::{End, Event},
        scenario::{Kind, Phase, Reply},
    },
};
use serde_json::{Value, json};

use crate::client::{
    Call, Ending, ask, body, chat, fault, get, hello, loads, post, prefills, qwen, sim, wait_of,
    with, words,
};

#[test]
fn h06_the_head_leaves_before_prefill() {
    let running = sim(V5_1_1, vec![Reply::text("never said")]);
    running.fault(fault(Phase::AfterHead, Kind::Hang));
    let mut call = chat(&running, &hello(V5_1_1));
    assert!(call.head().unwrap().starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(call.is_silent());
    running.reset();
    assert_eq!(call.chunk(), Err(Ending::Eof));
    // And in a whole answer the head comes first, then prefill's time, then a token.
    let running = sim(V5_1_1, vec![Reply::text("said")]);
    assert_eq!(ask(&running, &hello(V5_1_1)).text(), "said");
    let head = wait_of(&running, 1, |event| matches!(event, Event::HeadSent { .. }));
    let token = wait_of(&running, 1, |event| *event == Event::FirstToken);
    assert!(head.seq < token.seq);
}

#[test]
fn h07_prefill_over_ten_seconds_is_cut_and_the_lock_is_kept_until_it_would_have_ended() {
    let running = sim(V5_1_1, vec![]);
    let load = json!({"model": "llama3.2:3b", "keep_alive": -1});
    assert_eq!(post(&running, "/api/chat", &load).json()["done_reason"], "load");
    // 7 chunks of 1.47 s.
    let long = words(500);
    let mut long = body("llama3.2:3b", &[("system", "Be brief."), ("user", &long)]);
    let answer = ask(&running, &long);
    assert_eq!((answer.status, answer.ending), (200, Ending::Eof));
    assert!(answer.chunks.is_empty());
    let at = |what: &dyn Fn(&Event) -> bool| wait_of(&running, 2, what).sim_ms;
    let taken = at(&|event| matches!(event, Event::LockTaken { .. }));
    let cut = at(&|event| matches!(event, Event::Ended { end: End::Cut, sent: 0 }));
    let freed = at(&|event| *event == Event::LockFreed);
    assert_eq!(prefills(&running)[0].3, 10_290);
    assert!(cut - taken >= 10_000.0, "{taken} {cut}");
    assert!(freed - taken >= 10_290.0, "{taken} {freed}");
    // Without a stream there is still a status to say it with.
    long["stream"] = json!(false);
    let answer = ask(&running, &long);
    assert_eq!(answer.status, 500);
    assert!(answer.body().contains("  - read failed!\n"), "{}", answer.body());
    // The same words are no problem for a faster model.
    let text = words(500);
    let fast = body(qwen(V5_1_1), &[("system", "Be brief."), ("user", &text)]);
    assert_eq!(ask(&running, &fast).lines().last().unwrap()["done"], true);
}

#[test]
fn h08_lines_end_with_crlf_one_a_chunk_escaped_and_with_nine_digits() {
    let reply = Reply { emoji: Some("🦞".into()), ..Reply::text(" says either/or über alles") };
    let running = sim(V5_1_1, vec![reply]);
    let answer = ask(&running, &hello(V5_1_1));
    assert_eq!(answer.header("Content-Type"), Some("application/x-ndjson"));
    assert_eq!(answer.header("Server"), Some("oatpp/1.4.0"));
    assert_eq!(answer.header("Connection"), Some("keep-alive"));
    assert_eq!(answer.ending, Ending::Complete);
    for chunk in &answer.chunks {
        let line = chunk.strip_suffix("\r\n").unwrap();
        assert!(!line.contains('\n') && line.is_ascii(), "{line}");
        let at = serde_json::from_str::<Value>(line).unwrap()["created_at"].clone();
        let digits: String = at
            .as_str()
            .unwrap()
            .chars()
            .map(|c| if c.is_ascii_digit() { '9' } else { c })
            .collect();
        assert_eq!(digits, "9999-99-99T99:99:99.999999999Z");
    }
    // The half emoji is an empty line, the second has it whole.
    assert!(answer.chunks[0].contains(r#""content":"""#));
    assert!(answer.chunks[1].contains(r#""content":"\uD83E\uDD9E""#), "{}", answer.chunks[1]);
    assert!(answer.body().contains(r"\/") && answer.body().contains(r"\u00FC"));
    assert_eq!(answer.text(), "🦞 says either/or über alles");
}

#[test]
fn h09_only_total_duration_and_eval_count_are_measured() {
    for (release, hidden) in [(V5_1_1, 0), (V5_3, 0), (V5_4, 1)] {
        let running =
            sim(release, vec![Reply::text("one two three"), Reply::text("one two three")]);
        let answer = ask(&running, &hello(release));
        let done = answer.lines().pop().unwrap();
        assert_eq!(done["eval_count"], 4);
        // Prefill 370 ms and the 4 tokens and their end at the published rate.
        assert!(done["total_duration"].as_u64().unwrap() > 800_000_000, "{done}");
        for absent in [
            "load_duration",
            "prompt_eval_count",
            "prompt_eval_duration",
            "eval_duration",
            "context",
        ] {
            assert!(done.get(absent).is_none(), "{absent}");
        }
        assert_eq!(done["message"]["content"], "");
        let mut body = hello(release);
        body["stream"] = json!(false);
        let whole = ask(&running, &body);
        assert_eq!(whole.header("Content-Type"), Some("application/json"));
        assert_eq!(whole.json()["message"]["content"], "one two three");
        assert_eq!(whole.json()["eval_count"], 4 + hidden, "{release:?}");
    }
}

#[test]
fn h10_an_unknown_model_is_200_with_an_error_in_the_old_release_and_404_in_newer_ones() {
    for (release, status) in [(V5_1_1, 200), (V5_3, 404), (V5_4, 404)] {
        let running = sim(release, vec![]);
        for path in ["/api/chat", "/api/generate", "/api/show", "/api/pull"] {
            let answer = post(&running, path, &json!({"model": "nope:7b", "prompt": "x"}));
            assert_eq!(answer.status, status, "{path}");
            assert_eq!(answer.body(), r#"{"error":"model 'nope:7b' not found"}"#, "{path}");
        }
        // A name of another release is unknown too.
        let other = if release == V5_1_1 { qwen(V5_4) } else { qwen(V5_1_1) };
        assert_eq!(post(&running, "/api/show", &json!({"model": other})).status, status);
    }
}

#[test]
fn h11_wrong_types_are_500_in_the_text_form_and_counted() {
    let refused = |release: Release, field: &str, value: Value| {
        let running = sim(release, vec![]);
        let mut body = hello(release);
        body[field] = value;
        let answer = ask(&running, &body);
        assert_eq!(answer.header("Connection").is_some_and(|c| c == "close"), answer.status == 500);
        (answer.status, running.state().counters.forbidden.get(field).copied())
    };
    for release in [V5_1_1, V5_3, V5_4] {
        assert_eq!(refused(release, "keep_alive", json!("5m")), (500, Some(1)));
        assert_eq!(refused(release, "format", json!({"type": "object"})), (500, Some(1)));
        assert_eq!(refused(release, "format", json!("json")), (200, Some(1)));
        assert_eq!(refused(release, "think", json!(false)), (200, Some(1)));
        assert_eq!(refused(release, "messages", json!("hello")).0, 500);
        assert_eq!(refused(release, "options", json!([])).0, 500);
    }
    assert_eq!(refused(V5_1_1, "tools", json!([])), (500, Some(1)));
    assert_eq!(refused(V5_4, "tools", json!([])), (200, Some(1)));
    // No content type at all is fine, a form is not.
    let running = sim(V5_1_1, vec![]);
    for (header, status) in
        [("", 200), ("Content-Type: application/x-www-form-urlencoded\r\n", 500)]
    {
        let body = json!({"model": qwen(V5_1_1)}).to_string();
        let request = format!(
            "POST /api/show HTTP/1.1\r\n{header}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = Call::raw(running.addr(), request.as_bytes()).answer().unwrap();
        assert_eq!(answer.status, status, "{header}");
        assert_eq!(answer.body().contains("No suitable mapper found"), status == 500);
    }
}

#[test]
fn h12_generate_ignores_system_template_and_raw() {
    let running = sim(V5_1_1, vec![Reply::text("one two"), Reply::text("one two")]);
    let plain = json!({"model": qwen(V5_1_1), "prompt": "Hello there.", "keep_alive": -1,
                       "options": {"num_predict": 9}});
    let mut dressed = plain.clone();
    dressed["system"] = json!("You are a pirate with a very long story to tell.");
    dressed["template"] = json!("{{ .Prompt }}");
    dressed["raw"] = json!(true);
    for body in [&plain, &dressed] {
        let answer = post(&running, "/api/generate", body);
        let lines = answer.lines();
        let text: String = lines.iter().filter_map(|line| line["response"].as_str()).collect();
        assert_eq!(text, "one two");
        assert!(lines[0].get("message").is_none());
    }
    let prefills = prefills(&running);
    assert_eq!(prefills[0].1, prefills[1].1);
    // An empty prompt is a prompt; an absent one is a load.
    let load = post(&running, "/api/generate", &json!({"model": qwen(V5_1_1)})).json();
    assert_eq!((&load["done_reason"], &load["response"]), (&json!("load"), &json!("")));
}

#[test]
fn h13_num_predict_gives_so_many_tokens_and_length() {
    let running = sim(V5_1_1, vec![Reply::text("one two three four five"), Reply::text("a b c")]);
    let mut body = hello(V5_1_1);
    body["options"]["num_predict"] = json!(3);
    let answer = ask(&running, &body);
    assert_eq!(answer.lines().len(), 4);
    let done = answer.lines().pop().unwrap();
    assert_eq!((&done["done_reason"], &done["eval_count"]), (&json!("length"), &json!(3)));
    assert!("one two three four five".starts_with(&answer.text()));
    // Nothing at all breaks the reader.
    body["options"]["num_predict"] = json!(0);
    let answer = ask(&running, &body);
    assert_eq!((answer.ending, answer.chunks.len()), (Ending::Eof, 0));
    assert_eq!(running.state().counters.forbidden["num_predict"], 1);
}

#[test]
fn h22_the_openai_route_refuses_to_stream_and_dates_in_nanoseconds() {
    for (release, status) in [(V5_1_1, 200), (V5_4, 400)] {
        let running = sim(release, vec![Reply::text("one two")]);
        let mut body = hello(release);
        let answer = post(&running, "/v1/chat/completions", &body);
        assert_eq!(answer.status, status);
        assert!(answer.json()["error"].as_str().unwrap().starts_with("streaming not supported"));
        body["stream"] = json!(false);
        let answer = post(&running, "/v1/chat/completions", &body).json();
        assert_eq!(answer["choices"][0]["message"]["content"], "one two");
        assert_eq!(answer["choices"][0]["finish_reason"], "stop");
        assert!(answer["created"].as_u64().unwrap() > 1_000_000_000_000_000_000);
        assert!(answer.get("usage").is_none());
        body["n"] = json!(2);
        assert!(post(&running, "/v1/chat/completions", &body).json()["error"].is_string());
    }
}

#[test]
fn h26_unknown_routes_and_oversized_heads_get_the_text_form_and_a_closed_connection() {
    let running = sim(V5_1_1, vec![]);
    for (method, path) in [
        ("POST", "/api/embed"),
        ("GET", "/v1/models"),
        ("GET", "/api/chat"),
        ("DELETE", "/api/tags"),
        ("PUT", "/"),
    ] {
        let answer = Call::send(running.addr(), method, path, "").answer().unwrap();
        assert_eq!(answer.status, 404, "{method} {path}");
        assert_eq!(answer.header("Connection"), Some("close"));
        assert_eq!(answer.header("Content-Type"), None);
        let body = answer.body();
        assert!(
            body.starts_with("server=oatpp/1.4.0\ncode=404\ndescription=Not Found\n"),
            "{body}"
        );
        assert!(body.contains(&format!("URL: '{path}'")), "{body}");
    }
    let head = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(5000));
    let answer = Call::raw(running.addr(), head.as_bytes()).answer().unwrap();
    assert_eq!((answer.status, answer.header("Connection")), (400, Some("close")));
    let root = get(&running, "/");
    assert_eq!(
        (root.body().as_str(), root.header("Content-Type")),
        ("hailo-ollama is running", None)
    );
    assert_eq!(get(&running, "/api/version").body(), r#"{"version":"0.5.1"}"#);
}

#[test]
fn the_instant_pace_keeps_the_wire() {
    let running = with(V5_3, |options| {
        options.pace = Pace::Instant;
        options.scenario.replies = vec![Reply::text("at once")];
    });
    assert_eq!(ask(&running, &hello(V5_3)).text(), "at once");
    assert_eq!(loads(&running), [5170]);
}
