//! A server with OpenAI's chat completions over server-sent events, as raw as the simulators: it
//! says the same words to everybody, and breaks where and how it is told.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hailo::sim::scenario::{At, Fault, Kind, Phase};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A running peer.
pub(super) struct OpenAiPeer {
    pub(super) url: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    inner: Mutex<Inner>,
    /// Rises when the faults are over: hangs end.
    epoch: tokio::sync::watch::Sender<u64>,
}

struct Inner {
    words: Vec<String>,
    /// Calls made instead of words when the request offers tools.
    calls: Vec<(String, String)>,
    finish: &'static str,
    /// What the usage says of the prompt; the truth if absent.
    counted: Option<u64>,
    faults: Vec<Fault>,
    bodies: Vec<Value>,
}

/// The answer is over before its end.
struct Over;

impl OpenAiPeer {
    pub(super) async fn start(words: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            inner: Mutex::new(Inner {
                words: words.iter().map(|word| (*word).to_owned()).collect(),
                calls: Vec::new(),
                finish: "stop",
                counted: None,
                faults: Vec::new(),
                bodies: Vec::new(),
            }),
            epoch: tokio::sync::watch::Sender::new(0),
        });
        let serving = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let shared = Arc::clone(&serving);
                tokio::spawn(async move {
                    let _ = serve(socket, &shared).await;
                });
            }
        });
        Self { url, shared, task }
    }

    /// Calls this tool from now on.
    pub(super) fn call(&self, name: &str, arguments: &str) {
        self.shared.inner.lock().unwrap().calls.push((name.to_owned(), arguments.to_owned()));
    }

    /// Ends answers with this reason.
    pub(super) fn finish(&self, reason: &'static str) {
        self.shared.inner.lock().unwrap().finish = reason;
    }

    /// Says that prompts had so many tokens.
    pub(super) fn count(&self, tokens: u64) {
        self.shared.inner.lock().unwrap().counted = Some(tokens);
    }

    pub(super) fn fault(&self, fault: Fault) {
        self.shared.inner.lock().unwrap().faults.push(fault);
    }

    pub(super) fn clear(&self) {
        self.shared.inner.lock().unwrap().faults.clear();
        self.shared.epoch.send_modify(|epoch| *epoch += 1);
    }

    /// Bodies of the requests for an answer.
    pub(super) fn bodies(&self) -> Vec<Value> {
        self.shared.inner.lock().unwrap().bodies.clone()
    }
}

impl Drop for OpenAiPeer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn take(&self, phase: Phase) -> Option<Kind> {
        let mut inner = self.inner.lock().unwrap();
        let at = inner.faults.iter().position(|fault| fault.phase == phase)?;
        let kind = inner.faults[at].kind.clone();
        if inner.faults[at].at != At::Every {
            inner.faults.remove(at);
        }
        Some(kind)
    }

    /// Does what is planned for this phase.
    async fn act(&self, phase: Phase, conn: &mut Conn) -> Result<(), Over> {
        let Some(kind) = self.take(phase) else { return Ok(()) };
        match kind {
            Kind::Reset | Kind::Crash => conn.socket.set_zero_linger().map_err(|_| Over)?,
            Kind::Close => {}
            Kind::Hang => {
                let mut epoch = self.epoch.subscribe();
                let mut byte = [0];
                tokio::select! {
                    _ = epoch.changed() => {}
                    _ = conn.socket.read(&mut byte) => {}
                }
            }
            Kind::Truncate if conn.head => conn.send("0\r\n\r\n").await?,
            Kind::Truncate => {}
            Kind::Garbage if conn.head => return conn.event("}not json{").await,
            Kind::Garbage | Kind::Slow(_) => return Ok(()),
            Kind::Stall(ms) => {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                return Ok(());
            }
            Kind::ErrorLine(text) if conn.head => {
                conn.event(&json!({"error": {"message": text}}).to_string()).await?;
                conn.send("0\r\n\r\n").await?;
            }
            Kind::ErrorLine(text) => conn.json(500, &json!({"error": {"message": text}})).await?,
            Kind::Status { .. } if conn.head => {}
            Kind::Status { code, text } => {
                conn.json(code, &json!({"error": {"message": text}})).await?;
            }
        }
        Err(Over)
    }
}

struct Conn {
    socket: TcpStream,
    head: bool,
}

impl Conn {
    async fn send(&mut self, text: &str) -> Result<(), Over> {
        self.socket.write_all(text.as_bytes()).await.map_err(|_| Over)
    }

    async fn event(&mut self, data: &str) -> Result<(), Over> {
        let text = format!("data: {data}\n\n");
        self.send(&format!("{:x}\r\n{text}\r\n", text.len())).await
    }

    async fn delta(&mut self, delta: Value, finish: Option<&str>) -> Result<(), Over> {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        self.event(&json!({"choices": [choice]}).to_string()).await
    }

    async fn json(&mut self, status: u16, body: &Value) -> Result<(), Over> {
        let body = body.to_string();
        let length = body.len();
        self.send(&format!(
            "HTTP/1.1 {status} As planned\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        ))
        .await
    }

    /// Request line and body.
    async fn request(&mut self) -> Result<(String, String), Over> {
        let mut bytes = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&bytes);
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| {
                    let (name, value) = line.split_once(':')?;
                    name.eq_ignore_ascii_case("content-length")
                        .then(|| value.trim().parse().ok())?
                });
                if body.len() >= length.unwrap_or(0) {
                    let line = head.lines().next().unwrap_or_default();
                    return Ok((line.to_owned(), body.to_owned()));
                }
            }
            let mut piece = [0; 8192];
            match self.socket.read(&mut piece).await {
                Ok(0) | Err(_) => return Err(Over),
                Ok(read) => bytes.extend_from_slice(&piece[..read]),
            }
        }
    }
}

async fn serve(socket: TcpStream, shared: &Shared) -> Result<(), Over> {
    let mut conn = Conn { socket, head: false };
    let (line, body) = conn.request().await?;
    if line.starts_with("GET /v1/models ") {
        return conn.json(200, &json!({"data": [{"id": "peer", "owned_by": "tests"}]})).await;
    }
    if !line.starts_with("POST /v1/chat/completions ") {
        return conn.json(404, &json!({"error": {"message": "no such path"}})).await;
    }
    let body: Value = serde_json::from_str(&body).map_err(|_| Over)?;
    shared.inner.lock().unwrap().bodies.push(body.clone());
    shared.act(Phase::BeforeHead, &mut conn).await?;
    conn.send(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
    )
    .await?;
    conn.head = true;
    shared.act(Phase::AfterHead, &mut conn).await?;
    speak(shared, &mut conn, &body).await?;
    shared.act(Phase::BeforeDone, &mut conn).await?;
    let (finish, counted) = {
        let inner = shared.inner.lock().unwrap();
        (inner.finish, inner.counted)
    };
    conn.delta(json!({}), Some(finish)).await?;
    let counted = counted.unwrap_or(body.to_string().len() as u64 / 4);
    let usage = json!({"prompt_tokens": counted, "completion_tokens": 8});
    conn.event(&json!({"choices": [], "usage": usage}).to_string()).await?;
    conn.event("[DONE]").await?;
    conn.send("0\r\n\r\n").await
}

/// Words, or the calls of tools that were offered, each call in two pieces.
async fn speak(shared: &Shared, conn: &mut Conn, body: &Value) -> Result<(), Over> {
    let (words, calls) = {
        let inner = shared.inner.lock().unwrap();
        (inner.words.clone(), inner.calls.clone())
    };
    if body.get("tools").is_some() && !calls.is_empty() {
        for (index, (name, arguments)) in calls.iter().enumerate() {
            let (first, second) = arguments.split_at(arguments.len() / 2);
            let id = format!("call_{index}");
            let call = json!({"index": index, "id": id, "type": "function",
                "function": {"name": name, "arguments": first}});
            conn.delta(json!({"tool_calls": [call]}), None).await?;
            let rest = json!({"index": index, "function": {"arguments": second}});
            conn.delta(json!({"tool_calls": [rest]}), None).await?;
        }
        return Ok(());
    }
    for (sent, word) in (1..).zip(&words) {
        conn.delta(json!({"content": word}), None).await?;
        shared.act(Phase::Token(sent), conn).await?;
    }
    Ok(())
}
