//! The simulator of the NPU with a real model's words.

use serde_json::json;

use crate::rig::{Daemon, Plan, Simulator, llama, slot};
use crate::wire::Frames;

/// So many times faster than the published pace: 35 tokens a second and more.
const PACE: f64 = 5.0;

#[test]
fn hailo_sim_speaks_a_real_models_words_at_its_own_pace() {
    let voice = format!("http://{}", llama());
    let simulator = Simulator::start(&["--pace", &PACE.to_string(), "--voice", &voice]);
    let daemon = Daemon::online(&Plan { hailo: simulator.address, ..Plan::of("hailo", 40) });
    let mut frames = Frames::over_http(daemon.http, "main", "What does a lighthouse keeper do?");
    let done = frames.end();
    assert_eq!((&done["event"], &done["backend"]), (&json!("done"), &json!("hailo")), "{done}");
    assert!(frames.pieces > 3, "{:?}", frames.text);
    let slot = slot(llama());
    let generated = slot["generated"].as_str().unwrap();
    assert!(generated.trim().starts_with(frames.text.trim()), "{generated:?}, {:?}", frames.text);

    let log = simulator.log();
    let of = |event: &str| log.iter().rfind(|entry| entry["event"] == event);
    assert_eq!(of("voice_failed"), None);
    let (first, last) = (of("first_token").unwrap(), of("generated").unwrap());
    assert_eq!(first["request"], last["request"]);
    let took = last["real_ms"].as_f64().unwrap() - first["real_ms"].as_f64().unwrap();
    // Never faster than planned: the first of the tokens came before the time began.
    let tokens = last["tokens"].as_f64().unwrap();
    let planned = last["decode_ms"].as_f64().unwrap() * (tokens - 1.0) / tokens / PACE;
    assert!(took >= planned * 0.9, "{tokens} tokens in {took} ms, {planned} ms are planned");
}
