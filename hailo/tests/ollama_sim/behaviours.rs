//! O1 to O16.

use hailo::sim::{
    clock::Pace,
    log::{End, Event},
    ollama::{Model, Options},
    scenario::{Kind, Phase, Reply},
};
use serde_json::{Value, json};

use crate::client::{
    Client, Ended, LIMIT, QWEN, ask, call, chat, ends, hello, hold, instant, plan, prefills, quick,
    read_stream, saying, start, until, words,
};

const BUSY: &str = "server busy, please try again.  maximum pending requests exceeded";

#[test]
fn o01_the_head_leaves_with_the_first_token_and_lines_end_in_lf() {
    let running = saying(
        Options { prefill_tps: 0.01, ..quick() },
        vec![Reply::text("One two."), Reply::text("One two.")],
    );
    let mut waiting = Client::connect(running.addr());
    waiting.send("POST", "/api/chat", &hello().to_string());
    let in_prefill = |entries: &[hailo::sim::log::Entry]| {
        entries.iter().any(|entry| matches!(entry.event, Event::Prefill { .. }))
    };
    assert!(running.events().wait(LIMIT, in_prefill));
    assert!(waiting.is_silent(), "a byte came before the first token");
    waiting.leave();
    ends(&running, 1);

    let running = saying(instant(), vec![Reply::text("One two.")]);
    let mut client = Client::connect(running.addr());
    client.send("POST", "/api/chat", &hello().to_string());
    let head = client.head().unwrap();
    assert_eq!(head.status, 200);
    assert_eq!(head.header("content-type"), Some("application/x-ndjson"));
    assert!(head.header("date").is_some() && head.header("server").is_none(), "{head:?}");
    let (chunks, ended) = client.rest();
    assert_eq!(ended, Ended::Whole);
    assert_eq!(chunks.len(), 4, "three tokens and the last line");
    for chunk in &chunks {
        assert!(chunk.ends_with(b"}\n") && !chunk.ends_with(b"\r\n"));
        assert_eq!(chunk.iter().filter(|byte| **byte == b'\n').count(), 1);
    }
    let order: Vec<usize> = ["prefill", "head_sent", "generated"]
        .iter()
        .map(|name| {
            let name = format!("\"event\":\"{name}\"");
            let entries = running.log();
            let texts = entries.iter().map(|entry| serde_json::to_string(entry).unwrap());
            texts.enumerate().find(|(_, text)| text.contains(&name)).expect(&name).0
        })
        .collect();
    assert!(order.is_sorted(), "{order:?}");
}

#[test]
fn o02_metrics_are_whole_and_the_prompt_count_depends_on_the_release() {
    for (version, counts_cached) in
        [("0.12.6", false), ("0.29.0", false), ("0.30.0", true), ("0.33.0", true)]
    {
        let running = start(Options { version: version.into(), ..instant() });
        let first = chat(&running, &hello());
        let second = chat(&running, &hello());
        let done = first.done();
        for key in [
            "total_duration",
            "load_duration",
            "prompt_eval_count",
            "prompt_eval_duration",
            "eval_count",
            "eval_duration",
        ] {
            assert!(done[key].as_u64().is_some_and(|value| value > 0), "{version} {key}: {done}");
        }
        let tokens = first.lines.iter().filter(|line| line["done"] == false).count() as u64;
        assert_eq!(done["eval_count"].as_u64(), Some(tokens), "{version}");
        let whole = done["prompt_eval_count"].as_u64().unwrap();
        assert_eq!(whole, u64::from(running.state().prompt_tokens));
        let expected = if counts_cached { whole } else { 1 };
        assert_eq!(second.done()["prompt_eval_count"].as_u64(), Some(expected), "{version}");
    }
    let running = start(instant());
    let (_, loaded) = call(&running, "POST", "/api/chat", &json!({"model": QWEN, "messages": []}));
    assert!(loaded.get("eval_count").is_none(), "zeros are left out: {loaded}");
}

#[test]
fn o03_only_what_the_slot_does_not_hold_is_prefilled() {
    let system = words(200);
    let running = saying(instant(), vec![Reply::text("It is noon now.")]);
    let mut said = vec![("system", system.as_str()), ("user", "What time is it?")];
    let answer = chat(&running, &ask(&said)).text;
    assert_eq!(answer, "It is noon now.");
    said.extend([("assistant", answer.as_str()), ("user", "And where are you?")]);
    chat(&running, &ask(&said));
    let other = words(150);
    chat(&running, &ask(&[("system", "Another one."), ("user", &other)]));
    chat(&running, &ask(&said));
    let seen = prefills(&running);
    let (whole, none, ms) = seen[0];
    assert_eq!(none, 0);
    assert_eq!(ms, u64::from(whole) * 20, "50 tokens a second");
    let (fresh, cached, ms) = seen[1];
    assert!(fresh < 20 && cached > whole, "{seen:?}");
    assert_eq!(ms, u64::from(fresh) * 20);
    assert!(seen[2].1 <= 3, "a foreign prompt shares a marker at most: {seen:?}");
    assert!(seen[3].1 <= 3, "and has evicted the first: {seen:?}");
    let counters = running.state().counters;
    assert_eq!(counters.continuations, 1, "only the second went on where the first ended");
    assert_eq!(counters.forbidden, Default::default());

    // With two slots the foreign prompt takes the empty one.
    let running = start(Options { num_parallel: 2, ..instant() });
    chat(&running, &ask(&said));
    chat(&running, &ask(&[("user", &other)]));
    chat(&running, &ask(&said));
    assert_eq!(running.state().prefilled_tokens, 1);
    assert!(running.state().loaded[0].resident_tokens.iter().all(|tokens| *tokens > 0));
}

#[test]
fn o04_other_runner_options_load_the_model_again_and_others_do_not() {
    let running = start(instant());
    let with = |key: &str, value: Value| {
        let mut body = hello();
        body["options"][key] = value;
        chat(&running, &body).done();
        (running.state().loads, running.state().reloads)
    };
    assert_eq!(with("seed", json!(1)), (1, 0));
    assert_eq!(with("temperature", json!(0.1)), (1, 0));
    assert_eq!(with("num_ctx", json!(2048)), (2, 1));
    assert_eq!(with("num_thread", json!(3)), (3, 2));
    assert_eq!(with("num_thread", json!(3)), (3, 2), "the same again");
    assert_eq!(running.state().loaded[0].options["num_thread"], 3);
    assert_eq!(running.state().loaded.len(), 1);
}

#[test]
fn o05_requests_wait_for_the_slot_in_order_and_a_client_who_left_is_forgotten() {
    let running = saying(
        quick(),
        vec![Reply::text(&words(20)), Reply::text("Second."), Reply::text("Third.")],
    );
    hold(&running, 2);
    let send = || {
        let mut client = Client::connect(running.addr());
        client.send("POST", "/api/chat", &hello().to_string());
        client
    };
    let mut first = send();
    first.head().unwrap();
    first.line();
    let leaves = send();
    until("the second waits", || running.state().waiting == 1);
    let mut third = send();
    until("the third waits", || running.state().waiting == 2);
    assert!(leaves.is_silent() && third.is_silent());
    leaves.leave();
    until("the second is forgotten", || running.state().waiting == 1);
    first.leave();
    assert_eq!(read_stream(&mut third).text, "Second.", "no ghost took the script's next line");
    let seen = ends(&running, 3);
    assert_eq!(seen.iter().filter(|(end, _)| *end == End::Gone).count(), 2, "{seen:?}");
    assert_eq!(prefills(&running).len(), 2, "the one who left was never executed");
    assert_eq!(running.state().counters.overlapping, 2);

    // Many wait in the order in which they came.
    let names: Vec<String> = (0..8).map(|number| format!("Number{number}")).collect();
    let running = saying(quick(), names.iter().map(|name| Reply::text(name)).collect());
    hold(&running, 1);
    let mut clients = Vec::new();
    for count in 0..names.len() {
        let mut client = Client::connect(running.addr());
        client.send("POST", "/api/chat", &hello().to_string());
        clients.push(client);
        until("it is inside", || running.state().counters.generations == count as u64 + 1);
        until("it waits", || running.state().waiting == count);
    }
    let mut waiting = clients.split_off(1);
    clients.remove(0).leave();
    let said: Vec<String> = waiting.iter_mut().map(|client| read_stream(client).text).collect();
    assert_eq!(said, names[1..]);
}

#[test]
fn o06_a_full_load_queue_is_a_503_and_waiting_for_a_slot_is_not() {
    let running = start(Options { max_queue: 1, sd_mb_per_s: 0.001, ..quick() });
    let send = || {
        let mut client = Client::connect(running.addr());
        client.send("POST", "/api/chat", &hello().to_string());
        client
    };
    let loading = send();
    until("the first loads", || running.state().loads == 1);
    let queued = send();
    until("the second is queued", || running.state().queued == 2);
    assert_eq!(send().answer(), (503, json!({"error": BUSY})));
    loading.leave();
    until("the second loads", || running.state().loads == 2);
    queued.leave();
    until("an aborted load leaves nothing", || running.state().loaded.is_empty());

    let running = start(Options { max_queue: 0, ..quick() });
    hold(&running, 1);
    let send = || {
        let mut client = Client::connect(running.addr());
        client.send("POST", "/api/chat", &hello().to_string());
        client
    };
    let mut first = send();
    first.head().unwrap();
    let waiting: Vec<Client> = (1..4)
        .map(|count| {
            let client = send();
            until("one more waits", || running.state().waiting == count);
            client
        })
        .collect();
    first.leave();
    for mut client in waiting {
        assert_eq!(read_stream(&mut client).ended, Ended::Whole);
    }
}

#[test]
fn o07_an_error_has_its_status_before_the_first_token_and_is_the_last_line_after_it() {
    let running = start(instant());
    let boom = || Kind::Status { code: 500, text: "Boom <1>".into() };
    plan(&running, Phase::BeforeHead, boom());
    let mut client = Client::connect(running.addr());
    client.send("POST", "/api/chat", &hello().to_string());
    let head = client.head().unwrap();
    assert_eq!(head.status, 500);
    assert_eq!(head.header("content-type"), Some("application/json; charset=utf-8"));

    for kind in [boom(), Kind::ErrorLine("Boom <1>".into())] {
        plan(&running, Phase::Token(3), kind);
        let mut client = Client::connect(running.addr());
        client.send("POST", "/api/chat", &hello().to_string());
        let cut = read_stream(&mut client);
        assert_eq!((cut.status, cut.lines.len(), cut.ended), (200, 4, Ended::Whole));
        assert_eq!(cut.lines[3], json!({"error": "Boom <1>"}));
        // The body has ended properly, so the connection serves the next request.
        client.send("GET", "/", "");
        assert_eq!(client.head().unwrap().status, 200);
    }
    plan(&running, Phase::Token(3), boom());
    let mut gathered = hello();
    gathered["stream"] = json!(false);
    let answer = call(&running, "POST", "/api/chat", &gathered);
    assert_eq!(answer, (500, json!({"error": "Boom <1>"})), "nothing was sent before");
}

#[test]
fn o08_a_repeating_model_ends_its_stream_without_the_last_line() {
    let same = Reply { repeat: Some(" la".into()), times: Some(100), ..Reply::default() };
    let running = saying(instant(), vec![same.clone(), same, Reply::text("Fine.")]);
    let cut = chat(&running, &hello());
    assert_eq!((cut.status, cut.ended), (200, Ended::Whole));
    assert_eq!(cut.lines.len(), 31, "thirty repetitions of the first are borne");
    assert!(cut.lines.iter().all(|line| line["done"] == false));
    let mut gathered = hello();
    gathered["stream"] = json!(false);
    let (status, answer) = call(&running, "POST", "/api/chat", &gathered);
    assert_eq!((status, &answer["done"]), (200, &json!(false)), "{answer}");
    assert!(answer.get("done_reason").is_none(), "{answer}");
    assert_eq!(chat(&running, &hello()).text, "Fine.");
    plan(&running, Phase::BeforeDone, Kind::Truncate);
    let early = chat(&running, &hello());
    assert_eq!(early.ended, Ended::Whole);
    assert!(early.lines.iter().all(|line| line["done"] == false));
}

#[test]
fn o09_an_overlong_prompt_is_cut_silently_or_refused_as_asked() {
    let long = words(400);
    for (version, left) in [("0.33.0", 66), ("0.29.0", 128)] {
        let running = start(Options { version: version.into(), ..instant() });
        let mut body = ask(&[("system", "Keep me."), ("user", &long)]);
        body["options"]["num_ctx"] = json!(128);
        let (status, refusal) = call(&running, "POST", "/api/chat", &body);
        let text = refusal["error"].as_str().unwrap();
        let says = if version == "0.33.0" { "exceed_context_size_error" } else { "input length" };
        assert!(status == 400 && text.contains(says), "{refusal}");
        assert_eq!(running.state().truncated, 0);
        body.as_object_mut().unwrap().remove("truncate");
        body.as_object_mut().unwrap().remove("shift");
        let cut = chat(&running, &body);
        assert_eq!(cut.status, 200);
        assert_eq!(cut.done()["prompt_eval_count"], left, "{version}");
        assert_eq!(running.state().truncated, 1);
        assert_eq!(running.state().counters.forbidden["truncate"], 1);
    }
    // Whole old messages leave first, and the system message stays.
    let running = start(instant());
    let old = words(200);
    let mut body = ask(&[("system", "Keep me."), ("user", &old), ("user", "Newest.")]);
    body["options"]["num_ctx"] = json!(128);
    body["truncate"] = json!(true);
    chat(&running, &body).done();
    let short = ask(&[("system", "Keep me."), ("user", "Newest.")]);
    let tokens = running.state().prompt_tokens;
    chat(&running, &short);
    assert_eq!(running.state().prompt_tokens, tokens);
    // Without sliding, an answer that fills the context ends with "length".
    let mut body = hello();
    body["options"]["num_ctx"] = json!(24);
    let full = chat(&running, &body);
    assert_eq!(full.done()["done_reason"], "length");
    assert_eq!(
        u64::from(running.state().prompt_tokens) + full.done()["eval_count"].as_u64().unwrap(),
        24
    );
}

#[test]
fn o10_capable_models_think_unless_told_not_to_and_others_cannot() {
    let scripted = Reply { think: Some("Hm, hm.".into()), ..Reply::text("Yes.") };
    let running = saying(instant(), vec![scripted]);
    let asking = |model: &str, think: Value| {
        let mut body = hello();
        body["model"] = json!(model);
        body["think"] = think;
        body
    };
    let thought = chat(&running, &asking("qwen3:1.7b", Value::Null));
    assert_eq!((thought.thinking.as_str(), thought.text.as_str()), ("Hm, hm.", "Yes."));
    let first = &thought.lines[0];
    assert_eq!(first["message"]["content"], "", "content is empty while it thinks: {first}");
    for model in ["qwen3:1.7b", "deepseek-r1:1.5b"] {
        assert!(!chat(&running, &asking(model, json!(true))).thinking.is_empty());
        assert!(chat(&running, &asking(model, json!(false))).thinking.is_empty());
    }
    let refused = call(&running, "POST", "/api/chat", &asking(QWEN, json!(true)));
    assert_eq!(refused, (400, json!({"error": "\"qwen2.5:1.5b\" does not support thinking"})));
    assert!(chat(&running, &asking(QWEN, json!(false))).thinking.is_empty());
    assert_eq!(running.state().counters.forbidden["think"], 3);
}

#[test]
fn o11_wrong_requests_get_the_bodies_of_ollama() {
    let running = start(instant());
    let mut other = hello();
    other["model"] = json!("nope:1b");
    let mut typed = hello();
    typed["stream"] = json!("yes");
    let mut options = hello();
    options["options"]["num_ctx"] = json!("big");
    let mut tools = hello();
    tools["model"] = json!("qwen2:1.5b");
    tools["tools"] = json!([{"type": "function", "function": {"name": "now"}}]);
    let table = [
        (other.to_string(), 404, "model 'nope:1b' not found"),
        (json!({"messages": []}).to_string(), 400, "model is required"),
        (String::new(), 400, "missing request body"),
        ("{".to_owned(), 400, "unexpected EOF"),
        (
            typed.to_string(),
            400,
            "json: cannot unmarshal string into Go struct field ChatRequest.stream of type bool",
        ),
        (options.to_string(), 500, "option \"num_ctx\" must be of type integer"),
        (tools.to_string(), 400, "registry.ollama.ai/library/qwen2:1.5b does not support tools"),
    ];
    for (body, status, error) in table {
        let mut client = Client::connect(running.addr());
        client.send("POST", "/api/chat", &body);
        assert_eq!(client.answer(), (status, json!({"error": error})), "{body}");
        client.send("POST", "/api/chat", &hello().to_string());
        assert_eq!(client.head().unwrap().status, 200, "the connection goes on");
    }
}

#[test]
fn o12_keep_alive_is_understood_in_every_form_and_counts_from_the_end() {
    let running = start(instant());
    let load = |keep_alive: Value| {
        let body = json!({"model": QWEN, "messages": [], "keep_alive": keep_alive});
        let (status, answer) = call(&running, "POST", "/api/chat", &body);
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["done"], true);
        (answer["done_reason"].clone(), running.state().loaded.first().map(|l| l.expires_in_s))
    };
    assert_eq!(load(json!(-1)), (json!("load"), Some(None)));
    let (_, left) = load(json!("5m"));
    assert!(left.flatten().is_some_and(|left| (1.0..=300.0).contains(&left)), "{left:?}");
    let (_, left) = load(json!(30));
    assert!(left.flatten().is_some_and(|left| (1.0..=30.0).contains(&left)), "{left:?}");
    assert_eq!(load(json!(0)), (json!("unload"), None));
    let (_, prompt) = call(&running, "POST", "/api/generate", &json!({"model": QWEN}));
    assert_eq!((&prompt["done_reason"], &prompt["response"]), (&json!("load"), &json!("")));
    let wrong = json!({"model": QWEN, "messages": [], "keep_alive": "5"});
    let error = json!({"error": "time: missing unit in duration \"5\""});
    assert_eq!(call(&running, "POST", "/api/chat", &wrong), (400, error));

    let running = start(quick());
    hold(&running, 1);
    let mut body = hello();
    body["keep_alive"] = json!("20ms");
    let mut client = Client::connect(running.addr());
    client.send("POST", "/api/chat", &body.to_string());
    client.head().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(60));
    assert_eq!(running.state().loaded.len(), 1, "a used model does not expire");
    client.leave();
    until("an idle one does", || running.state().loaded.is_empty());
    chat(&running, &hello());
    assert_eq!(running.state().loads, 2);

    // A use takes the deadline of the last one away.
    let running = start(Options { pace: Pace::Factor(100.0), ..quick() });
    let load = json!({"model": QWEN, "messages": [], "keep_alive": 60,
        "options": {"num_ctx": 4096}});
    assert_eq!(call(&running, "POST", "/api/chat", &load).0, 200);
    hold(&running, 1);
    let mut client = Client::connect(running.addr());
    client.send("POST", "/api/chat", &hello().to_string());
    client.head().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(700));
    assert_eq!(running.state().loaded.len(), 1);
    client.leave();
}

#[test]
fn o13_a_schema_is_honoured_and_json_is_valid() {
    let running = start(instant());
    let mut body = hello();
    body["format"] = json!({"type": "object",
        "properties": {
            "verb": {"type": "string", "enum": ["SAY", "WAIT"]},
            "note": {"type": "string", "maxLength": 12},
            "count": {"type": "integer", "minimum": 2, "maximum": 3},
            "sure": {"type": "boolean"},
            "steps": {"type": "array", "minItems": 2, "items": {
                "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}
        },
        "required": ["verb", "note", "count", "sure", "steps"]});
    for seed in 0..20 {
        body["options"]["seed"] = json!(seed);
        let said = chat(&running, &body);
        let value: Value = serde_json::from_str(&said.text).expect(&said.text);
        assert!(["SAY", "WAIT"].contains(&value["verb"].as_str().unwrap()));
        assert!(value["note"].as_str().unwrap().len() <= 12);
        assert!((2..=3).contains(&value["count"].as_i64().unwrap()));
        assert!(value["sure"].is_boolean());
        assert!(value["steps"].as_array().unwrap().len() >= 2);
        assert!(value["steps"].as_array().unwrap().iter().all(|step| step["n"].is_i64()));
        assert_eq!(chat(&running, &body).text, said.text, "a seed repeats");
    }
    body["format"] = json!("json");
    let said = chat(&running, &body);
    assert!(serde_json::from_str::<Value>(&said.text).is_ok_and(|value| value.is_object()));
    body["options"]["num_predict"] = json!(3);
    let cut = chat(&running, &body);
    assert_eq!(cut.done()["done_reason"], "length");
    assert!(serde_json::from_str::<Value>(&cut.text).is_err(), "cut by the limit: {}", cut.text);

    // A grammar lets a scripted answer through only if it is JSON.
    let scripted = Reply { json: Some(json!({"verb": "SAY"})), ..Reply::default() };
    let running = saying(instant(), vec![Reply::text("Not JSON."), scripted]);
    let mut body = hello();
    body["format"] = json!("json");
    let said = chat(&running, &body).text;
    assert!(serde_json::from_str::<Value>(&said).is_ok(), "{said}");
    assert_eq!(chat(&running, &body).text, "{\"verb\":\"SAY\"}");
}

#[test]
fn o14_a_dead_runner_is_a_500_and_the_next_request_loads_again() {
    let running = start(instant());
    chat(&running, &hello()).done();
    let died = "llama-server process has terminated: signal: aborted";
    plan(&running, Phase::BeforeHead, Kind::Status { code: 500, text: died.into() });
    let answer = call(&running, "POST", "/api/chat", &hello());
    assert_eq!(answer, (500, json!({"error": died})));
    assert!(running.state().loaded.is_empty());
    chat(&running, &hello()).done();
    assert_eq!((running.state().loads, running.state().reloads), (2, 0));

    // In the middle of a stream.
    let running = saying(Options { decode_tps: 50.0, ..quick() }, vec![Reply::text(&words(400))]);
    let mut client = Client::connect(running.addr());
    client.send("POST", "/api/chat", &hello().to_string());
    client.head().unwrap();
    client.line();
    running.kill_runner(QWEN);
    let (chunks, ended) = client.rest();
    assert_eq!(ended, Ended::Whole);
    let last: Value = serde_json::from_slice(chunks.last().unwrap()).unwrap();
    assert!(last["error"].as_str().unwrap().contains("unexpectedly stopped"), "{last}");

    // Too little memory kills it while it loads, until there is more.
    let running = start(Options { ram_bytes: 1_000_000_000, ..instant() });
    let answer = call(&running, "POST", "/api/chat", &hello());
    let killed = json!({"error": "llama-server process has terminated: signal: killed"});
    assert_eq!(answer, (500, killed));
    assert_eq!((running.state().oom_kills, running.state().loaded.len()), (1, 0));
    running.set_ram(6_000_000_000);
    chat(&running, &hello()).done();
    // An idle model makes room for another one.
    running.set_ram(2_000_000_000);
    let mut other = hello();
    other["model"] = json!("qwen2:1.5b");
    chat(&running, &other).done();
    assert_eq!(running.state().loaded[0].model, "qwen2:1.5b");
    assert_eq!(running.state().loaded.len(), 1);
}

#[test]
fn o15_a_foreign_host_is_refused_without_a_body() {
    let running = start(instant());
    for host in ["evil.example", "8.8.8.8:11434"] {
        let mut client = Client::connect(running.addr());
        client.send_to_host(host, "GET", "/api/tags", "");
        let head = client.head().unwrap();
        assert_eq!((head.status, head.header("content-length")), (403, Some("0")), "{host}");
    }
    for host in ["localhost:11434", "127.0.0.1", "[::1]:1", "pi.local"] {
        let mut client = Client::connect(running.addr());
        client.send_to_host(host, "GET", "/api/tags", "");
        assert_eq!(client.answer().0, 200, "{host}");
    }
}

#[test]
fn o16_a_cancelled_answer_stops_before_its_next_token() {
    let running = saying(quick(), vec![Reply::text(&words(300)), Reply::text("Next.")]);
    // From the second token on one token takes two seconds.
    plan(&running, Phase::Token(2), Kind::Slow(0.001));
    let mut client = Client::connect(running.addr());
    client.send("POST", "/api/chat", &hello().to_string());
    client.head().unwrap();
    client.line();
    client.line();
    client.leave();
    assert_eq!(ends(&running, 1), [(End::Gone, 2)]);
    let held = running.state().loaded[0].resident_tokens[0];
    running.reset();
    assert_eq!(chat(&running, &hello()).status, 200);
    assert_eq!(running.state().prefilled_tokens, 1, "the prompt is still cached of {held}");

    // The same while the prompt is being computed: what was done is kept.
    let running = start(Options { prefill_tps: 1000.0, ..quick() });
    let long = words(2000);
    let mut client = Client::connect(running.addr());
    client.send("POST", "/api/chat", &ask(&[("user", &long)]).to_string());
    until("prefill began", || running.state().prefilled_tokens > 0);
    client.leave();
    assert_eq!(ends(&running, 1), [(End::Gone, 0)]);
    let state = running.state();
    assert!(state.loaded[0].resident_tokens[0] < state.prompt_tokens as usize, "{state:?}");
    let model = Model::named(QWEN);
    assert_eq!(state.loaded[0].model, model.name);
}
