//! `ollama-sim`: an Ollama to test against, without Ollama.

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use clap::Parser;
use hailo::sim::{
    clock::Pace,
    ollama::{self, Model, Options},
    scenario::Scenario,
};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
};

/// Exit code for a wrong scenario or option (`EX_CONFIG`).
const EX_CONFIG: u8 = 78;

/// Pause between two looks at the signals; shorter than anybody notices.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Simulates Ollama's wire behaviour and pace on a Raspberry Pi's CPU.
#[derive(Debug, Parser)]
#[command(name = "ollama-sim")]
struct Arguments {
    /// Port on 127.0.0.1.
    #[arg(long, default_value_t = 11434)]
    port: u16,
    /// Port of the control listener on 127.0.0.1; 0 takes any and prints it.
    #[arg(long, default_value_t = 0)]
    control_port: u16,
    /// Version to be, e.g. 0.12.6, 0.29.0 or 0.33.0; decides metrics and error texts.
    #[arg(long = "version", default_value = "0.33.0")]
    release: String,
    /// `published`, `instant`, or how many simulated seconds pass in a real one.
    #[arg(long, default_value = "published")]
    pace: Pace,
    /// JSON file with replies and faults.
    #[arg(long)]
    scenario: Option<PathBuf>,
    /// File to which the event log is appended as JSON lines.
    #[arg(long)]
    log: Option<PathBuf>,
    /// Seed of all chance; wins over the scenario's.
    #[arg(long)]
    seed: Option<u64>,
    /// `http://` address of a real model (Ollama or OpenAI-compatible) to take the words from.
    #[arg(long)]
    voice: Option<String>,
    /// Models on the simulated disk; the usual five when absent.
    #[arg(long = "model", num_args = 1..)]
    models: Vec<String>,
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let _ = writeln!(io::stderr(), "ollama-sim: {why}");
            ExitCode::from(EX_CONFIG)
        }
    }
}

fn run(arguments: Arguments) -> Result<(), String> {
    let scenario =
        arguments.scenario.as_deref().map(Scenario::read).transpose()?.unwrap_or_default();
    let mut options = Options {
        port: arguments.port,
        control_port: arguments.control_port,
        version: arguments.release,
        pace: arguments.pace,
        seed: arguments.seed,
        scenario,
        log: arguments.log,
        voice: arguments.voice,
        ..Options::default()
    };
    if !arguments.models.is_empty() {
        options.models = arguments.models.iter().map(|name| Model::named(name)).collect();
    }
    let signalled = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register(signal, Arc::clone(&signalled)).map_err(|error| error.to_string())?;
    }
    let port = options.port;
    let running = ollama::start(options).map_err(|error| format!("port {port}: {error}"))?;
    let (addr, control) = (running.addr(), running.control_addr());
    // A closed stdout is no reason not to run.
    let _ = writeln!(io::stdout(), "ollama-sim on http://{addr}, control on http://{control}");
    let _ = io::stdout().flush();
    while !signalled.load(Ordering::SeqCst) {
        thread::sleep(LOOK_EVERY);
    }
    running.stop();
    Ok(())
}
