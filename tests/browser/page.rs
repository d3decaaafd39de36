//! A person in front of the browser: looks, types, clicks, waits.

use std::future::Future;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use thirtyfour::{
    By, ChromiumLikeCapabilities, DesiredCapabilities, Key, LoggingPrefsLogLevel, WebDriver,
};
use tokio::time::Instant;

use crate::house::House;

/// Longer than anything a person would wait for.
const PATIENCE: Duration = Duration::from_secs(20);

/// Nothing of the browser's own: no profile, no updates, no calls home.
const FLAGS: [&str; 11] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=1280,900",
    "--force-device-scale-factor=1",
];

/// A browser with one window.
#[derive(Clone)]
pub(crate) struct Page {
    driver: WebDriver,
    url: String,
    house: Arc<Mutex<House>>,
}

/// As slow as a small model, so that there is time to look: tokens a second.
const PACE: &str = "4";

/// Starts the house and a browser, lets `person` do something, and ends both whatever happens.
pub(crate) async fn visit<F, D>(settings: &str, person: F)
where
    F: FnOnce(Page) -> D + Send + 'static,
    D: Future<Output = Page> + Send + 'static,
{
    visit_at(PACE, settings, person).await;
}

/// As [`visit`], with a model of another pace.
pub(crate) async fn visit_at<F, D>(pace: &str, settings: &str, person: F)
where
    F: FnOnce(Page) -> D + Send + 'static,
    D: Future<Output = Page> + Send + 'static,
{
    // The driver's client shares the daemon's features, which leave the choice to the program.
    #[cfg(feature = "tls")]
    let _ = rustls::crypto::ring::default_provider().install_default();
    let house = House::start(settings, pace);
    let profile = tempfile::tempdir().unwrap();
    let (chromedriver, port) = chromedriver();
    let driver = browser(port, &profile).await;
    let page = Page { driver, url: house.url(), house: Arc::new(Mutex::new(house)) };
    let driver = page.driver.clone();
    let done = tokio::spawn(async move { person(page).await.check().await }).await;
    let quit = driver.quit().await;
    drop(chromedriver);
    if let Err(failed) = done {
        std::panic::resume_unwind(failed.into_panic());
    }
    quit.unwrap();
}

/// A program that ends with its owner.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn chromedriver() -> (Running, u16) {
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
    (Running(child), port.expect("chromedriver says its port"))
}

async fn browser(port: u16, profile: &TempDir) -> WebDriver {
    let mut wanted = DesiredCapabilities::chrome();
    for flag in FLAGS {
        wanted.add_arg(flag).unwrap();
    }
    wanted.add_arg(&format!("--user-data-dir={}", profile.path().display())).unwrap();
    wanted.add_arg("--lang=en").unwrap();
    wanted.set_browser_log_level(LoggingPrefsLogLevel::All).unwrap();
    WebDriver::new(format!("http://127.0.0.1:{port}"), wanted).await.unwrap()
}

impl Page {
    /// Opens the page and waits until it is connected.
    pub(crate) async fn open(&self) {
        self.go().await;
        self.connected().await;
    }

    /// Opens the page.
    pub(crate) async fn go(&self) {
        self.driver.goto(self.url.as_str()).await.unwrap();
    }

    /// The page's address.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The house behind the page. Not to be held while waiting for the browser.
    pub(crate) fn house(&self) -> MutexGuard<'_, House> {
        self.house.lock().unwrap()
    }

    /// The driver, for what is not here.
    pub(crate) fn driver(&self) -> &WebDriver {
        &self.driver
    }

    /// Loads the page again.
    pub(crate) async fn reload(&self) {
        self.driver.refresh().await.unwrap();
    }

    /// Waits until the daemon has told its state.
    pub(crate) async fn connected(&self) {
        let connected = "['good', 'spare'].includes(document.getElementById('chip').dataset.state)";
        self.until(connected).await;
    }

    /// Evaluates an expression.
    pub(crate) async fn js(&self, expression: &str) -> Value {
        let script = format!("return ({expression});");
        self.driver.execute(script, Vec::new()).await.unwrap().json().clone()
    }

    /// What a promise comes to.
    pub(crate) async fn wait_for(&self, promise: &str) -> Value {
        let script = format!(
            "const done = arguments[arguments.length - 1]; \
             ({promise}).then(done, (error) => done('failed: ' + error));"
        );
        self.driver.execute_async(script, Vec::new()).await.unwrap().json().clone()
    }

    /// Waits until an expression holds.
    pub(crate) async fn until(&self, expression: &str) {
        let began = Instant::now();
        while self.js(&format!("Boolean({expression})")).await != json!(true) {
            if began.elapsed() > PATIENCE {
                let seen = self.js("document.body.innerText").await;
                panic!("never true: {expression}\nthe page says: {seen}");
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }

    /// Presses keys, wherever the focus is.
    pub(crate) async fn press(&self, keys: &str) {
        self.driver.action_chain().send_keys(keys).perform().await.unwrap();
    }

    /// Presses a key while another is held.
    pub(crate) async fn press_with(&self, held: Key, key: &str) {
        let keys = self.driver.action_chain().key_down(held.clone()).send_keys(key).key_up(held);
        keys.perform().await.unwrap();
    }

    /// Clicks what a selector names, as soon as it is there and holds still.
    pub(crate) async fn click(&self, selector: &str) {
        let began = Instant::now();
        loop {
            let clicked = match self.driver.find(By::Css(selector)).await {
                Ok(found) => found.click().await,
                Err(absent) => Err(absent),
            };
            match clicked {
                Ok(()) => return,
                Err(error) => assert!(began.elapsed() < PATIENCE, "{selector}: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }

    /// Types a message and sends it.
    pub(crate) async fn say(&self, text: &str) {
        self.js("document.getElementById('text').focus()").await;
        self.press(text).await;
        self.press(&char::from(Key::Enter).to_string()).await;
    }

    /// Says something and waits for the end of the answer.
    pub(crate) async fn ask(&self, text: &str) {
        let turns = self.js("document.querySelectorAll('[data-turn]').length").await;
        self.say(text).await;
        self.until(&format!("document.querySelectorAll('[data-turn]').length > {turns}")).await;
        self.until(
            "document.querySelector('#column > .turn:last-child')?.dataset.outcome === 'done'",
        )
        .await;
    }

    /// Text of the last answer.
    pub(crate) async fn last_answer(&self) -> String {
        let words = "[...document.querySelectorAll('.words')].at(-1)?.textContent ?? ''";
        self.js(words).await.as_str().unwrap().to_owned()
    }

    /// What was said and answered in a session, as the daemon has it: `user: text`.
    pub(crate) async fn log(&self, session: &str) -> Vec<String> {
        let path = format!("/sessions/{session}/messages");
        let lines = self.wait_for(&format!("fetch('{path}').then((a) => a.json())")).await;
        let lines = lines["messages"].as_array().unwrap_or_else(|| panic!("{lines}")).clone();
        let text = |line: &Value| format!("{}: {}", line["role"], line["content"]);
        lines.iter().map(|line| text(line).replace('"', "")).collect()
    }

    /// Makes the window so wide and high, in pixels of the page.
    pub(crate) async fn size(&self, width: u32, height: u32) {
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
        });
        self.command("Emulation.setDeviceMetricsOverride", size).await;
    }

    /// The system's colours, without motion.
    pub(crate) async fn colours(&self, scheme: &str) {
        let features = json!([
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]);
        self.command("Emulation.setEmulatedMedia", json!({ "features": features })).await;
    }

    /// Runs a script before the page's own, from the next load on: it plays a network or a daemon
    /// that does what the real ones do too rarely.
    pub(crate) async fn before(&self, script: &str) {
        let source = json!({ "source": script });
        self.command("Page.addScriptToEvaluateOnNewDocument", source).await;
    }

    /// A command of the browser's own protocol.
    pub(crate) async fn command(&self, name: &str, parameters: Value) {
        self.driver.cdp().send_raw(name, parameters).await.unwrap();
    }

    /// What every visit must leave behind: only requests to the page's own origin, and nothing in
    /// the console that the page's policy refused or that failed in its scripts.
    async fn check(&self) {
        let foreign = self
            .js("performance.getEntriesByType('resource').map((entry) => entry.name) \
                 .filter((name) => !name.startsWith(location.origin + '/') && \
                         !name.startsWith(location.origin.replace('http', 'ws') + '/'))")
            .await;
        assert_eq!(foreign, json!([]), "requests to other origins");
        for entry in self.driver.browser_log().await.unwrap() {
            // That a daemon which was ended is not there is no fault of the page.
            let expected = ["ERR_CONNECTION", "WebSocket", "401 (Unauthorized)"];
            let known = expected.iter().any(|known| entry.message.contains(known));
            let policy = entry.message.contains("Content Security Policy");
            assert!(known && !policy, "in the console: {}", entry.message);
        }
    }
}
