//! The reserve beside llama.cpp's server: the same file, two threads each, one after the other in
//! one run. Measured only where the rig of the peers is installed.
//!
//! Time by the clock says something on a quiet machine only; the processor's seconds of each
//! process are beside it, for a busy one. There two threads of llama.cpp's server wait for each
//! other at work, which their seconds include; `RESERVE_THREADS=1` compares without that.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Figure;
use crate::daemon::{Daemon, end, free_address};
use crate::wire::{self, Wire};

/// Each is measured so often in turn, and the best counts: what disturbs only makes slower.
const ROUNDS: usize = 3;
/// Threads of each, unless `RESERVE_THREADS` says otherwise.
const THREADS: &str = "2";
/// Loading takes a second, on a busy machine longer.
const LOADED_MAX: Duration = Duration::from_secs(60);
/// Tokens of an answer.
const ANSWER_TOKENS: u32 = 96;
/// Hundredths of a second, in which the kernel counts the processor's time.
const TICKS_PER_S: f64 = 100.0;

/// The rig.
struct Rig {
    python: PathBuf,
    model: PathBuf,
    threads: String,
}

/// llama.cpp's server.
struct Llama {
    child: Child,
    address: SocketAddr,
}

/// Seconds by the clock and of the processor.
#[derive(Clone, Copy)]
struct Spent {
    clock: f64,
    processor: f64,
}

/// For one token, while reading and while decoding.
#[derive(Clone, Copy)]
struct Pace {
    read: Spent,
    decode: Spent,
}

pub(crate) fn figures(program: &Path) -> Vec<Figure> {
    let [python, model] = ["RESERVE_PYTHON", "RESERVE_MODEL"].map(std::env::var_os);
    let (Some(python), Some(model)) = (python, model) else {
        println!("the reserve is not measured: `bash tests/peers/run` installs its peer");
        return vec![];
    };
    let threads = std::env::var("RESERVE_THREADS").unwrap_or_else(|_| THREADS.to_owned());
    let rig = Rig { python: python.into(), model: model.into(), threads };
    let daemon = Daemon::with_model(program, &rig.model, &rig.threads);
    daemon.until_online(LOADED_MAX);
    let model_bytes = std::fs::metadata(&rig.model).unwrap().len();
    let above = daemon.until_loaded(model_bytes, LOADED_MAX) - model_bytes;
    // Everybody shares the identity block; it is read once, here.
    ours(&daemon, "warm", "Hello!");
    let talked = daemon.resident_bytes().saturating_sub(model_bytes);
    println!("the reserve after its first answer: {} kB above its model", talked / 1000);
    let server = Llama::start(&rig);
    let (mut reserve, mut llama) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let text = text(round);
        let tokens = server.count(&text);
        let mine = ours(&daemon, &format!("round-{round}"), &text).of(tokens);
        let theirs = server.answer(&text).of(tokens);
        for (who, pace) in [("reserve", mine), ("llama.cpp", theirs)] {
            println!(
                "{who}, round {round}: {:.0} and {:.0} tokens/s, {:.1} and {:.1} processor ms each",
                1.0 / pace.read.clock,
                1.0 / pace.decode.clock,
                pace.read.processor * 1e3,
                pace.decode.processor * 1e3,
            );
        }
        reserve.push(mine);
        llama.push(theirs);
    }
    let ratio = |of: fn(&Pace) -> f64| best(&reserve, of) / best(&llama, of);
    let times = |name, measured, bound| Figure { name, measured, bound, unit: "times" };
    vec![
        Figure {
            name: "resident above the loaded reserve's model",
            measured: above as f64 / 1e6,
            bound: 14.0,
            unit: "MB",
        },
        times("reserve to llama.cpp, reading, clock", ratio(|p| p.read.clock), 1.0 / 0.35),
        times("reserve to llama.cpp, reading, processor", ratio(|p| p.read.processor), 1.0 / 0.35),
        times("reserve to llama.cpp, decoding, clock", ratio(|p| p.decode.clock), 1.0 / 0.7),
        times(
            "reserve to llama.cpp, decoding, processor",
            ratio(|p| p.decode.processor),
            1.0 / 0.7,
        ),
    ]
}

fn best(paces: &[Pace], of: fn(&Pace) -> f64) -> f64 {
    paces.iter().map(of).fold(f64::MAX, f64::min)
}

/// Some 500 tokens, other ones every time: nobody has them in a cache.
fn text(round: usize) -> String {
    let mut text = format!("Round {round}. Tell me a very long story that begins like this. ");
    for line in 0..30 {
        text += &format!("On day {} the keeper of tower {round} saw a ship go by. ", line + round);
    }
    text
}

/// One answer, with the moments in between.
struct Answer {
    begun: (Instant, f64),
    first: (Instant, f64),
    ended: (Instant, f64),
    decoded: f64,
}

impl Answer {
    fn of(&self, read: f64) -> Pace {
        let spent = |from: (Instant, f64), to: (Instant, f64), tokens: f64| Spent {
            clock: (to.0 - from.0).as_secs_f64() / tokens,
            processor: (to.1 - from.1) / tokens,
        };
        Pace {
            read: spent(self.begun, self.first, read),
            decode: spent(self.first, self.ended, (self.decoded - 1.0).max(1.0)),
        }
    }
}

/// The processor's time that a process has used, in seconds.
fn processor_s(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    // After the name, which may have anything in it, the twelfth and thirteenth field.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks: f64 =
        fields.split_whitespace().skip(11).take(2).map(|field| field.parse::<f64>().unwrap()).sum();
    ticks / TICKS_PER_S
}

fn measured(
    server: SocketAddr,
    process: u32,
    request: &[u8],
    [first, last]: [&[u8]; 2],
) -> (Answer, String) {
    let now = || (Instant::now(), processor_s(process));
    let mut client = Wire::new(server);
    let begun = now();
    client.send(request);
    client.read_until(first);
    let first = now();
    client.read_until(last);
    let ended = now();
    (Answer { begun, first, ended, decoded: 0.0 }, client.heard())
}

/// The number after a name in JSON, the last one of that name.
fn number(heard: &str, name: &str) -> f64 {
    let (_, rest) = heard.rsplit_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{heard}"));
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

fn ours(daemon: &Daemon, session: &str, text: &str) -> Answer {
    let body = serde_json::json!({ "message": text, "session": session, "stream": true });
    let request = wire::post("/chat", &body.to_string());
    let marks: [&[u8]; 2] = [b"\"event\":\"delta\"", b"\"event\":\"done\""];
    let (answer, heard) = measured(daemon.http, daemon.process(), &request, marks);
    assert!(heard.contains("\"backend\":\"reserve\""), "{heard}");
    Answer { decoded: number(&heard, "tokens"), ..answer }
}

impl Llama {
    fn start(rig: &Rig) -> Self {
        let address = free_address();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/serve.py");
        let mut child = Command::new(&rig.python)
            .arg(script)
            .args([&address.port().to_string(), &rig.threads])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = format!("ready {}", address.port());
        assert!(lines.any(|line| line.unwrap() == ready), "the server ended before it was ready");
        Self { child, address }
    }

    /// How many tokens a text is.
    fn count(&self, text: &str) -> f64 {
        let body = serde_json::json!({ "content": text }).to_string();
        let answer = Wire::new(self.address).exchange(&wire::post("/tokenize", &body));
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let body: Value = serde_json::from_str(&body[body.find('{').unwrap()..]).unwrap();
        body["tokens"].as_array().unwrap().len() as f64
    }

    fn answer(&self, text: &str) -> Answer {
        let body = serde_json::json!({
            "prompt": text, "n_predict": ANSWER_TOKENS, "stream": true, "temperature": 0,
            "cache_prompt": false, "ignore_eos": true,
        });
        let request = wire::post("/completion", &body.to_string());
        let marks: [&[u8]; 2] = [b"\"content\"", b"\"predicted_n\""];
        let (answer, _) = measured(self.address, self.child.id(), &request, marks);
        Answer { decoded: ANSWER_TOKENS.into(), ..answer }
    }
}

impl Drop for Llama {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}
