//! `hailo-sim`: hailo-ollama without the device, true to its wire and its pace.

use std::{
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
use hailo::{
    model::Release,
    sim::{
        clock::Pace,
        hailo::{Options, start},
        scenario::Scenario,
    },
};
use signal_hook::{consts, flag};

/// The real server looks for its end this often.
const POLL: Duration = Duration::from_millis(200);
/// Longest wait for a running generation at the end; a service manager kills much earlier.
const DRAIN_MAX: Duration = Duration::from_secs(3600);

/// A simulator of hailo-ollama on 127.0.0.1
#[derive(Parser)]
#[command(name = "hailo-sim", version)]
struct Args {
    /// Release to be: v5_1_1, v5_3 or v5_4
    #[arg(long, default_value = "v5_1_1")]
    profile: Release,
    /// Speed: published, instant, or how many times faster than published
    #[arg(long, default_value = "published")]
    pace: Pace,
    /// A downloaded model; repeat for more. Without it all of the release are
    #[arg(long = "model", value_name = "NAME")]
    models: Vec<String>,
    /// Port of the server; 0 takes a free one
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// Port of the control listener; 0 takes a free one
    #[arg(long, default_value_t = 0)]
    control_port: u16,
    /// What is said and what goes wrong, as JSON
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// Append everything that happens to this file, as JSON lines
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Seed of all chance
    #[arg(long)]
    seed: Option<u64>,
    /// A real model that gives the words: http:// and an Ollama or OpenAI-compatible server
    #[arg(long, value_name = "URL")]
    voice: Option<String>,
    /// Another process holds the device
    #[arg(long)]
    held: bool,
    /// Do not count forbidden fields
    #[arg(long)]
    lenient: bool,
    /// Keep-alive in seconds of requests that name none; negative is for ever
    #[arg(long, default_value_t = 300, allow_hyphen_values = true)]
    keep_alive: i64,
    /// Seconds between a crash and the restart
    #[arg(long, default_value_t = 2.0)]
    restart: f64,
}

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            #[expect(clippy::print_stderr, reason = "a program says why it ends")]
            {
                eprintln!("hailo-sim: {text}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> Result<(), String> {
    let scenario = args.scenario.as_deref().map(Scenario::read).transpose()?.unwrap_or_default();
    let options = Options {
        release: args.profile,
        pace: args.pace,
        seed: args.seed,
        scenario,
        port: args.port,
        control_port: args.control_port,
        strict: !args.lenient,
        keep_alive_s: args.keep_alive,
        restart_s: args.restart,
        voice: args.voice,
        device_held: args.held,
        models: (!args.models.is_empty()).then_some(args.models),
        log: args.log,
        ..Options::default()
    };
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [consts::SIGTERM, consts::SIGINT] {
        // The second signal ends at once; the first only raises the flag.
        flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| format!("signals: {error}"))?;
    }
    let mut running = start(options).map_err(|error| error.to_string())?;
    #[expect(clippy::print_stdout, reason = "the one line a person or a test reads")]
    {
        println!(
            "hailo-sim {} on http://{} control http://{}",
            args.profile.name(),
            running.addr(),
            running.control_addr()
        );
    }
    while !stop.load(Ordering::SeqCst) {
        thread::sleep(POLL);
    }
    running.drain(DRAIN_MAX);
    running.stop();
    Ok(())
}
