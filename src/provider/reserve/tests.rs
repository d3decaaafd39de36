use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt;
use proptest::prelude::*;
use serde_json::json;

use super::gguf::{Head, Kind, ModelError};
use super::keeper::locked;
use super::kernel::{BLOCK, Quantised, Rows};
use super::model::{GivenUp, Model};
use super::sample::Chooser;
use super::shape::Shape;
use super::speaker::Speaker;
use super::vocabulary::Vocabulary;
use super::*;
use crate::provider::backend::{Done, DoneReason, Message, Role, Sampling};

fn model() -> (Model, Vocabulary) {
    let file = tiny::model();
    let head = Head::parse(&file).unwrap();
    let vocabulary = Vocabulary::read(&head, &file).unwrap();
    (Model::new(file, &head).unwrap(), vocabulary)
}

fn with_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work)
}

// === the file ===

#[test]
fn a_file_that_is_cut_anywhere_is_refused_and_nothing_panics() {
    let file = tiny::model();
    for end in (0..file.len()).step_by(97).chain([file.len() - 1]) {
        let read = Head::parse(&file[..end]).and_then(|head| {
            Vocabulary::read(&head, &file[..end])?;
            Model::new(file[..end].to_vec(), &head)
        });
        assert!(read.is_err(), "{end} bytes");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_head_with_broken_bytes_never_panics(
        breaks in prop::collection::vec((0usize..4000, any::<u8>()), 1..8),
    ) {
        let mut file = tiny::model();
        for (at, byte) in breaks {
            file[at] = byte;
        }
        if let Ok(head) = Head::parse(&file) {
            let _ = Vocabulary::read(&head, &file).map(|words| words.encode("hello world"));
            let _ = Model::new(file, &head);
        }
    }

    #[test]
    fn text_survives_its_tokens(text in any::<String>()) {
        let (model, words) = model();
        let tokens = words.encode(&text);
        let back: Vec<u8> = tokens.iter().flat_map(|t| words.decode(model.file(), *t)).collect();
        prop_assert_eq!(String::from_utf8(back).unwrap(), text);
    }
}

#[test]
fn what_is_not_run_is_refused_with_its_reason() {
    let file = tiny::model();
    for (from, to, says) in [
        (&b"llama"[..], &b"gemma"[..], "architecture"),
        (b"smollm", b"qwen22", "tokeniser"),
        (b"<|im_start|>", b"<|no_start|>", "ChatML"),
    ] {
        let at = file.windows(from.len()).position(|window| window == from).unwrap();
        let mut file = file.clone();
        file[at..at + to.len()].copy_from_slice(to);
        let refused = Speaker::new(file, 512, 512).err().unwrap();
        assert!(refused.to_string().contains(says), "{refused}");
    }
    let large = Speaker::new(file, 512, 0).err();
    assert!(matches!(large, Some(ModelError::TooLarge { .. }) | None), "{large:?}");
}

// === tokens ===

#[test]
fn pairs_merge_in_the_order_of_their_ranks_and_control_tokens_are_never_text() {
    let (model, words) = model();
    let spell = |text: &str| -> Vec<String> {
        let tokens = words.encode(text);
        let text = |token| String::from_utf8(words.decode(model.file(), token).collect()).unwrap();
        tokens.into_iter().map(text).collect()
    };
    assert_eq!(spell("hello world"), ["hello", " wor", "ld"]);
    assert_eq!(spell("12"), ["1", "2"]);
    assert_eq!(spell("hell's"), ["hell", "'", "s"]);
    let control = words.encode("<|im_end|>");
    assert!(!control.contains(&words.close), "{control:?}");
    assert_eq!(words.decode(model.file(), words.close).count(), 0);
}

// === arithmetic ===

#[test]
fn a_product_is_that_of_the_numbers_in_the_rows_for_every_kind() {
    let file = tiny::model();
    let head = Head::parse(&file).unwrap();
    let mut seen = Vec::new();
    for (name, tensor) in &head.tensors {
        if tensor.rows == 1 {
            continue;
        }
        seen.push(tensor.kind);
        let bytes = &file[tensor.place.clone()];
        let rows = Rows { kind: tensor.kind, columns: tensor.columns, bytes };
        let mut random = fastrand::Rng::with_seed(3);
        let vectors: Vec<f32> = (0..3 * tensor.columns).map(|_| random.f32() - 0.5).collect();
        let mut quantised = Quantised::default();
        quantised.fill(&vectors, tensor.columns);
        let mut out = vec![0.0; 3 * tensor.rows];
        rows.multiply(&quantised, &mut out);
        let mut row = vec![0.0; tensor.columns];
        for (index, products) in out.chunks_exact(3).enumerate() {
            rows.read(index, &mut row);
            for (vector, product) in vectors.chunks_exact(tensor.columns).zip(products) {
                let want: f32 = row.iter().zip(vector).map(|(a, b)| a * b).sum();
                let scale: f32 = row.iter().zip(vector).map(|(a, b)| (a * b).abs()).sum();
                assert!((want - product).abs() <= 0.02 * scale, "{name}: {want} {product}");
            }
        }
    }
    for kind in [Kind::F16, Kind::Q4_0, Kind::Q4_1, Kind::Q8_0] {
        assert!(seen.contains(&kind), "{kind:?} is not met");
    }
}

#[test]
fn half_precision_numbers_are_read_as_they_are() {
    for x in [0.0f32, 1.0, -2.5, 0.000_122_070_31, 65504.0, -0.333_251_95] {
        let bytes: Vec<u8> = tiny::half(x).repeat(BLOCK);
        let mut out = [0f32; BLOCK];
        Rows { kind: Kind::F16, columns: BLOCK, bytes: &bytes }.read(0, &mut out);
        assert_eq!(out, [x; BLOCK]);
    }
}

#[test]
fn tokens_read_together_or_one_by_one_by_any_number_of_threads_mean_the_same() {
    let tokens: Vec<u32> = (0..150).map(|i| i * 7 % 250).collect();
    let never = || false;
    let together = with_threads(1, || model().0.feed(&tokens, &never).unwrap());
    let apart = with_threads(3, || {
        let (mut model, _) = model();
        let mut logits = Vec::new();
        for token in &tokens {
            logits = model.feed(&[*token], &never).unwrap();
        }
        logits
    });
    assert_eq!(together, apart);
    assert!(together.iter().all(|logit| logit.is_finite()));
}

#[test]
fn what_is_taken_back_leaves_no_trace_and_giving_up_leaves_none_either() {
    with_threads(2, || {
        let never = || false;
        let (mut fresh, _) = model();
        let want = fresh.feed(&[5, 6, 7, 8], &never).unwrap();
        let (mut used, _) = model();
        used.feed(&[5, 6, 200, 201, 202], &never).unwrap();
        used.keep(2);
        assert_eq!(used.feed(&[7, 8], &never).unwrap(), want);
        used.keep(2);
        let asked = AtomicUsize::new(0);
        let soon = || asked.fetch_add(1, Ordering::Relaxed) >= 1;
        assert_eq!(used.feed(&[9, 9], &soon), Err(GivenUp));
        assert_eq!(used.fed(), [5, 6]);
        assert_eq!(used.feed(&[7, 8], &never).unwrap(), want);
    });
}

// === choosing ===

#[test]
fn the_coldest_choice_is_the_best_and_impossible_tokens_are_never_chosen() {
    let logits = [0.5, 3.0, f32::NEG_INFINITY, 2.9];
    let cold = Sampling { temperature: Some(0.0), ..Sampling::default() };
    assert_eq!(Chooser::new(cold, true).choose(&mut logits.clone(), &[1]), 1);
    assert_eq!(Chooser::new(cold, false).choose(&mut logits.clone(), &[1]), 3, "1 just came");
    let hot = Sampling { temperature: Some(5.0), top_p: Some(1.0), seed: Some(1), top_k: None };
    let mut chooser = Chooser::new(hot, false);
    let chosen: Vec<u32> = (0..200).map(|_| chooser.choose(&mut logits.clone(), &[])).collect();
    assert!([0, 1, 3].iter().all(|token| chosen.contains(token)), "{chosen:?}");
    assert!(!chosen.contains(&2));
    let mut again = Chooser::new(hot, false);
    assert!(chosen.iter().all(|token| again.choose(&mut logits.clone(), &[]) == *token));
}

/// What noise says when it is held to a schema.
fn held_to(schema: &serde_json::Value, seed: u64) -> String {
    let (model, words) = model();
    let mut shape = Shape::begin(schema).unwrap();
    let mut said = Vec::new();
    let mut random = fastrand::Rng::with_seed(seed);
    loop {
        let mut logits: Vec<f32> = (0..words.len()).map(|_| random.f32()).collect();
        shape.restrict(&mut logits, &words, model.file());
        let best = (0..).zip(logits).max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        assert!(best.1.is_finite(), "nothing may follow {:?}", String::from_utf8_lossy(&said));
        if best.0 == words.close {
            break;
        }
        let bytes: Vec<u8> = words.decode(model.file(), best.0).collect();
        said.extend(&bytes);
        if shape.take(&bytes) {
            break;
        }
    }
    String::from_utf8(said).unwrap()
}

#[test]
fn a_schema_leaves_only_what_follows_it() {
    let schema = json!({
        "type": "object",
        "properties": {
            "verdict": {"enum": ["ok", "not (ok)", 7, null]},
            "why": {"type": "string", "maxLength": 9},
            "facts": {
                "type": "array", "minItems": 1, "maxItems": 3,
                "items": {"type": ["integer", "boolean"], "description": "a fact"},
            },
            "none": {"type": "array", "maxItems": 0, "items": {"type": "null"}},
            "score": {"type": "integer", "minimum": -2, "maximum": 11},
            "share": {"anyOf": [{"type": "number"}, {"const": "a\"b"}]},
        },
        "required": ["verdict"],
        "additionalProperties": false,
    });
    for seed in 0..40 {
        let said = held_to(&schema, seed);
        let value: serde_json::Value = serde_json::from_str(&said).expect(&said);
        assert_eq!(value.as_object().unwrap().len(), 6, "{said}");
        assert!(
            schema["properties"]["verdict"]["enum"].as_array().unwrap().contains(&value["verdict"]),
            "{said}"
        );
        assert!(value["why"].as_str().unwrap().chars().count() <= 9, "{said}");
        let facts = value["facts"].as_array().unwrap();
        assert!((1..=3).contains(&facts.len()), "{said}");
        assert!(facts.iter().all(|fact| fact.is_i64() || fact.is_boolean()), "{said}");
        assert_eq!(value["none"], json!([]));
        assert!((-2..=11).contains(&value["score"].as_i64().unwrap()), "{said}");
        assert!(value["share"].is_number() || value["share"] == "a\"b", "{said}");
    }
    let said = held_to(&json!({"type": "integer"}), 1);
    assert!(said.parse::<i64>().is_ok(), "{said}");
}

#[test]
fn a_schema_that_cannot_be_kept_to_is_refused_with_its_reason() {
    let mut deep = json!({"type": "null"});
    for _ in 0..20 {
        deep = json!({"type": "array", "items": deep});
    }
    for (schema, says) in [
        (json!(true), "no schema"),
        (json!({}), "no type"),
        (json!({"type": "no such type"}), "no such type"),
        (json!({"type": "string", "pattern": "a+"}), "pattern"),
        (json!({"type": "string", "minLength": 5, "maxLength": 4}), "nothing"),
        (json!({"type": "array"}), "items"),
        (json!({"type": "integer", "minimum": 5}), "bounds"),
        (json!({"enum": []}), "choices"),
        (json!({"$ref": "#"}), "no type"),
        (deep, "deeply"),
        (
            json!({"type": "array", "maxItems": 1000, "items": {"type": "array", "maxItems": 1000,
            "items": {"type": "string", "maxLength": 1000}}}),
            "cannot be kept to",
        ),
    ] {
        let why = Shape::begin(&schema).err().unwrap();
        assert!(why.contains(says), "{schema}: {why}");
    }
}

// === the backend ===

fn config(file: Option<&Path>) -> ReserveConfig {
    let file = file.map(Path::to_owned);
    ReserveConfig {
        find: Arc::new(move || file.clone()),
        threads: 2,
        context_tokens: tiny::CONTEXT,
        answer_tokens_max: 40,
        memory_max_mb: 64,
        unload_after: Duration::ZERO,
    }
}

fn tiny_reserve() -> (Reserve, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tiny.gguf");
    std::fs::write(&file, tiny::model()).unwrap();
    (Reserve::new(config(Some(&file))), directory)
}

fn ask(turns: &[&str]) -> ChatRequest {
    let roles = [Role::User, Role::Assistant];
    let messages = turns.iter().enumerate();
    let messages =
        messages.map(|(i, text)| Message { role: roles[i % 2], content: (*text).into() });
    ChatRequest {
        messages: messages.collect(),
        num_predict: 100,
        prompt_tokens: 0,
        sampling: Sampling { temperature: Some(0.0), seed: Some(1), ..Sampling::default() },
        schema: None,
        tools: vec![],
    }
}

async fn answer(reserve: &Reserve, request: ChatRequest) -> Result<(String, Done), Fault> {
    let mut stream = reserve.chat(request).await?;
    let mut said = String::new();
    while let Some(delta) = stream.next().await {
        match delta? {
            ChatDelta::Text(text) => said.push_str(&text),
            ChatDelta::Done(done) => return Ok((said, done)),
            _ => {}
        }
    }
    panic!("it just ended");
}

#[tokio::test]
async fn an_answer_streams_has_its_bound_and_can_be_had_again() {
    let (reserve, _directory) = tiny_reserve();
    assert_eq!((reserve.name(), reserve.model().as_str()), ("reserve", "tiny"));
    assert_eq!(reserve.gives_way(), GivesWay::Never, "nothing is loaded");
    let first = answer(&reserve, ask(&["hello"])).await.unwrap();
    assert_eq!(first.1.reason, DoneReason::Length);
    assert_eq!(first.1.tokens, Some(40), "its own bound, not that of the request");
    assert_eq!(answer(&reserve, ask(&["hello"])).await.unwrap(), first);
    assert_eq!(reserve.gives_way(), GivesWay::After(Duration::ZERO));
    reserve.unload().await.unwrap();
    assert_eq!(reserve.gives_way(), GivesWay::Never);
    assert_eq!(answer(&reserve, ask(&["hello"])).await.unwrap(), first, "loaded again");
}

#[test]
fn a_second_turn_reads_only_its_own_tokens() {
    struct Ears(Mutex<String>);
    impl Listener for Ears {
        fn is_gone(&self) -> bool {
            false
        }
        fn hear(&self, delta: ChatDelta) {
            if let ChatDelta::Text(text) = delta {
                self.0.lock().unwrap().push_str(&text);
            }
        }
    }
    with_threads(2, || {
        let mut speaker = Speaker::new(tiny::model(), 512, 64).unwrap();
        let ears = Ears(Mutex::new(String::new()));
        let mut short = ask(&["hello world, hello world, hello world"]);
        short.num_predict = 4;
        let first = speaker.answer(&short, &ears).unwrap();
        assert!(first.read > 20, "{first:?}");
        let said = ears.0.lock().unwrap().clone();
        let mut next = ask(&["hello world, hello world, hello world", &said, "and?"]);
        next.num_predict = 1;
        let second = speaker.answer(&next, &ears).unwrap();
        // The marks around two messages, the word of the new one, and what the answer's own
        // tokens were spelled with otherwise.
        let own = "and?".len() + "user\n".len() + "assistant\n".len() + 6;
        assert!(second.read <= own + said.len(), "{second:?} of {own} and {said:?}");
        let other = speaker.answer(&ask(&["other"]), &ears).unwrap();
        assert!(other.read > 10);
    });
}

#[tokio::test]
async fn a_dropped_answer_frees_the_engine_at_once_and_a_schema_is_kept() {
    let (reserve, _directory) = tiny_reserve();
    let mut stream = reserve.chat(ask(&["hello"])).await.unwrap();
    assert!(matches!(stream.next().await, Some(Ok(ChatDelta::Head))));
    drop(stream);
    let mut request = ask(&["hello"]);
    request.schema = Some(json!({"enum": ["yes", "no"]}));
    let (said, done) = answer(&reserve, request.clone()).await.unwrap();
    assert!(said == "\"yes\"" || said == "\"no\"", "{said}");
    assert_eq!(done.reason, DoneReason::Stop);
    request.num_predict = 2;
    let cut = answer(&reserve, request).await.unwrap_err();
    assert_eq!(cut.class, Class::BadOutput, "a cut structure is no answer");
}

#[tokio::test]
async fn a_reserve_without_a_sound_file_says_what_is_missing() {
    let none = Reserve::new(config(None));
    assert_eq!(none.model(), "no model");
    for fault in [
        none.presence().await.unwrap_err(),
        none.load().await.unwrap_err(),
        answer(&none, ask(&["hello"])).await.unwrap_err(),
    ] {
        assert_eq!(fault.class, Class::ModelMissing);
        assert!(fault.detail.contains("crayfish model fetch"), "{fault}");
    }
    let (reserve, _directory) = tiny_reserve();
    let long = "hello ".repeat(400);
    let fault = answer(&reserve, ask(&[&long])).await.unwrap_err();
    assert_eq!(fault.class, Class::PrefillTimeout, "it does not fit");
}

#[tokio::test]
async fn a_damaged_file_is_told_and_a_sound_one_in_its_place_is_taken_up() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tiny.gguf");
    let reserve = Reserve::new(config(Some(&file)));
    std::fs::write(&file, &tiny::model()[..5000]).unwrap();
    assert!(reserve.presence().await.is_ok(), "nobody has looked into it yet");
    let fault = answer(&reserve, ask(&["hello"])).await.unwrap_err();
    assert_eq!(fault.class, Class::ModelMissing);
    assert!(fault.detail.contains("damaged") && fault.detail.contains("tiny.gguf"), "{fault}");
    assert_eq!(reserve.presence().await.unwrap_err(), fault, "it is known now");
    std::fs::write(&file, tiny::model()).unwrap();
    assert!(reserve.presence().await.is_ok());
    assert!(answer(&reserve, ask(&["hello"])).await.is_ok());
    std::fs::remove_file(&file).unwrap();
    let fault = answer(&reserve, ask(&["hello"])).await.unwrap_err();
    assert_eq!(fault.class, Class::ModelMissing, "what was removed answers no more");
}

#[tokio::test]
async fn another_model_is_taken_up_when_it_is_chosen() {
    let directory = tempfile::tempdir().unwrap();
    let paths = ["a.gguf", "b.gguf"].map(|name| directory.path().join(name));
    for path in &paths {
        std::fs::write(path, tiny::model()).unwrap();
    }
    let chosen = Arc::new(Mutex::new(paths[0].clone()));
    let find = {
        let chosen = Arc::clone(&chosen);
        Arc::new(move || Some(locked(&chosen).clone()))
    };
    let reserve = Reserve::new(ReserveConfig { find, ..config(None) });
    assert!(answer(&reserve, ask(&["hello"])).await.is_ok());
    // As `crayfish model use b` and then `remove a` do.
    *locked(&chosen) = paths[1].clone();
    std::fs::remove_file(&paths[0]).unwrap();
    assert!(answer(&reserve, ask(&["hello"])).await.is_ok());
    assert_eq!(reserve.keeper.name(), "b");
}

#[tokio::test]
async fn a_strained_machine_loads_nothing_and_lets_go_of_what_is_loaded() {
    let (reserve, _directory) = tiny_reserve();
    reserve.strained(true);
    for fault in
        [reserve.load().await.unwrap_err(), answer(&reserve, ask(&["hello"])).await.unwrap_err()]
    {
        assert_eq!(fault.class, Class::Strained, "{fault}");
    }
    assert_eq!(reserve.gives_way(), GivesWay::Never, "nothing is loaded");
    reserve.strained(false);
    assert!(answer(&reserve, ask(&["hello"])).await.is_ok());
    reserve.strained(true);
    assert_eq!(reserve.gives_way(), GivesWay::Now);
    assert!(answer(&reserve, ask(&["hello"])).await.is_ok(), "what is loaded costs no load");
    reserve.unload().await.unwrap();
    assert!(answer(&reserve, ask(&["hello"])).await.is_err());
}

#[tokio::test]
async fn a_model_that_is_too_large_is_refused_before_it_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("large.gguf");
    // It has no bytes on the disk, and would be killed for its memory if it were read.
    std::fs::File::create(&file).unwrap().set_len(1 << 40).unwrap();
    let fault = Reserve::new(config(Some(&file))).load().await.unwrap_err();
    assert!(fault.detail.contains("needs 1099512 MB"), "{fault}");
    assert!(fault.detail.contains("reserve.memory_max_mb allows 64"), "{fault}");
}

#[test]
fn memory_that_is_not_there_is_not_taken() {
    let meminfo = "MemTotal:  4049428 kB\nMemFree:  100 kB\nMemAvailable:   400000 kB\n";
    assert_eq!(keeper::available_in(meminfo), Some(409));
    assert_eq!(keeper::available_in("MemTotal: 1 kB"), None);
    assert!(keeper::room_for(100, Some(409)).is_ok());
    assert!(keeper::room_for(100, None).is_ok(), "where the kernel does not say");
    let fault = keeper::room_for(300, Some(409)).unwrap_err();
    assert_eq!(fault.class, Class::Strained);
    assert!(fault.detail.contains("300 MB") && fault.detail.contains("409"), "{fault}");
}

// === the real model, where its file is at hand ===

/// With `CRAYFISH_MODEL` naming SmolLM2-135M-Instruct.Q4_1.gguf and an optimised profile
/// (`quick`; without optimisation a token takes a second). Else there is nothing to look at, and
/// the tests above have seen all but the model's own words.
#[tokio::test]
async fn the_real_model_has_its_tokens_says_sense_and_keeps_to_a_schema() {
    let Some(file) = std::env::var_os("CRAYFISH_MODEL") else { return };
    let bytes = std::fs::read(&file).unwrap();
    let head = Head::parse(&bytes).unwrap();
    let words = Vocabulary::read(&head, &bytes).unwrap();
    // As the llama.cpp server tokenises it.
    let keeper = "The old lighthouse keeper walked down to the shore every morning to look at";
    let want = [504, 1573, 33059, 40061, 13197, 1187, 288, 260, 10393, 897, 5738, 288];
    assert_eq!(words.encode(keeper)[..12], want);
    let reserve = Reserve::new(ReserveConfig {
        context_tokens: 2048,
        memory_max_mb: 512,
        ..config(Some(Path::new(&file)))
    });
    let (said, done) = answer(&reserve, ask(&["What is the capital of France?"])).await.unwrap();
    assert!(said.contains("Paris"), "{said}");
    assert!(done.prompt_tokens.is_some_and(|tokens| tokens < 40), "{done:?}");
    let mut request = ask(&["Is the sky blue? Answer as JSON."]);
    request.schema = Some(json!({
        "type": "object",
        "properties": {
            "verdict": {"enum": ["yes", "no"]},
            "why": {"type": "string", "maxLength": 60},
        },
        "required": ["verdict", "why"],
        "additionalProperties": false,
    }));
    let (said, _) = answer(&reserve, request).await.unwrap();
    let value: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert!(["yes", "no"].contains(&value["verdict"].as_str().unwrap()), "{said}");
}
