//! The page in chromium: how soon it takes what is typed, and what the daemon weighs meanwhile.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use thirtyfour::{ChromiumLikeCapabilities, DesiredCapabilities, WebDriver};

use crate::daemon::{Daemon, Simulator};
use crate::{Figure, Programs};

/// Loads that are measured. The best of them is what the page costs; the others tell what else the
/// machine was doing.
const LOADS: usize = 15;
/// Longer than anything that is worth a figure.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

const SCRIPT: &str = r#"{"cycle": true, "replies": [{"text": "Two claws are better than one."}]}"#;

/// From the request for the page to the moment in which it takes what is typed.
const INTERACTIVE: &str = "return performance.getEntriesByName('interactive')[0].startTime - \
    performance.getEntriesByType('navigation')[0].requestStart";
const IS_INTERACTIVE: &str = "return performance.getEntriesByName('interactive').length > 0";
const IS_CONNECTED: &str = "return document.getElementById('chip')?.dataset.state === 'good'";
const SAY: &str = "document.getElementById('text').value = 'What has a crab?'; \
    document.getElementById('text').dispatchEvent(new Event('input')); \
    document.getElementById('composer').requestSubmit();";

/// chromedriver, ended with its owner.
struct Driver(Child);

impl Drop for Driver {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn figures(programs: &Programs) -> [Figure; 2] {
    // The driver's client shares the daemon's features, which leave the choice to the program.
    #[cfg(feature = "tls")]
    let _ = rustls::crypto::ring::default_provider().install_default();
    let simulator = Simulator::start(&programs.hailo_sim, "instant", SCRIPT);
    let daemon = Daemon::start(&programs.crayfish, Some(simulator.address));
    daemon.until_online(PATIENCE);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (interactive, resident) = runtime.block_on(measure(&daemon));
    let page = "resident with the page open";
    [
        Figure { name: "page interactive", measured: interactive, bound: 300.0, unit: "ms" },
        Figure { name: page, measured: resident as f64 / 1e6, bound: 14.0, unit: "MB" },
    ]
}

async fn measure(daemon: &Daemon) -> (f64, u64) {
    let profile = tempfile::tempdir().unwrap();
    let (driver, port) = chromedriver();
    let mut wanted = DesiredCapabilities::chrome();
    let profile_flag = format!("--user-data-dir={}", profile.path().display());
    let flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"];
    for flag in flags.into_iter().chain(["--disable-background-networking", &profile_flag]) {
        wanted.add_arg(flag).unwrap();
    }
    let browser = WebDriver::new(format!("http://127.0.0.1:{port}"), wanted).await.unwrap();
    browser.goto(format!("http://{}/", daemon.http)).await.unwrap();
    until(&browser, IS_CONNECTED).await;
    let mut loads = Vec::with_capacity(LOADS);
    for _ in 0..LOADS {
        browser.cdp().send_raw("Network.clearBrowserCache", serde_json::json!({})).await.unwrap();
        browser.refresh().await.unwrap();
        until(&browser, IS_INTERACTIVE).await;
        let took = browser.execute(INTERACTIVE, Vec::new()).await.unwrap();
        loads.push(took.json().as_f64().unwrap());
    }
    loads.sort_by(f64::total_cmp);
    println!("page interactive, {LOADS} loads: {loads:.0?} ms");
    for turns in 1..=3 {
        until(&browser, IS_CONNECTED).await;
        browser.execute(SAY, Vec::new()).await.unwrap();
        let answered =
            format!("return document.querySelectorAll('[data-outcome=done]').length === {turns}");
        until(&browser, &answered).await;
    }
    let resident = daemon.resident_bytes();
    browser.quit().await.unwrap();
    drop(driver);
    (loads[0], resident)
}

async fn until(browser: &WebDriver, condition: &str) {
    let began = Instant::now();
    while browser.execute(condition, Vec::new()).await.unwrap().json() != true {
        assert!(began.elapsed() < PATIENCE, "never true: {condition}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn chromedriver() -> (Driver, u16) {
    let mut child = Command::new("chromedriver")
        .arg("--port=0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("apt-get install chromium chromium-driver (tests/run tools does it)");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let port = lines.find_map(|line| {
        let line = line.unwrap();
        line.split("successfully on port ").nth(1)?.trim_end_matches('.').parse().ok()
    });
    // It goes on writing; nobody reads, and a full pipe must not stop it.
    std::thread::spawn(move || lines.for_each(drop));
    (Driver(child), port.expect("chromedriver says its port"))
}
