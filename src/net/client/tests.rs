use futures_util::StreamExt;

use super::*;
use crate::net::peer::{Peer, Step, answer, chunk, end, head, nowhere};

fn post(url: &str) -> HttpRequest {
    HttpRequest {
        method: Method::Post,
        url: url.to_owned(),
        body: Some(b"{\"a\":1}".to_vec()),
        bearer: None,
        connect_timeout: Duration::from_secs(1),
    }
}

fn send(text: impl AsRef<[u8]>) -> Step {
    Step::Send(text.as_ref().to_vec())
}

/// The outcome of a request: the head's error, or the whole body, or the body's error.
async fn fetch(url: &str) -> (Option<u16>, Result<String, HttpError>) {
    match ReqwestHttp::new().send(post(url)).await {
        Err(error) => (None, Err(error)),
        Ok(mut response) => {
            let mut body = Vec::new();
            while let Some(piece) = response.body.next().await {
                match piece {
                    Ok(piece) => body.extend(piece),
                    Err(error) => return (Some(response.status), Err(error)),
                }
            }
            (Some(response.status), Ok(String::from_utf8_lossy(&body).into_owned()))
        }
    }
}

fn name(error: &HttpError) -> &'static str {
    match error {
        HttpError::Refused(_) => "refused",
        HttpError::NoAnswer(_) => "no answer",
        HttpError::Cut(_) => "cut",
        HttpError::Malformed(_) => "malformed",
        HttpError::Unsendable(_) => "unsendable",
    }
}

#[tokio::test]
async fn each_way_a_connection_fails_has_its_variant() {
    let flood = format!("HTTP/1.1 200 OK\r\n{}", "X-Flood: 1\r\n".repeat(5000));
    let huge = format!("HTTP/1.1 200 OK\r\nX-Huge: {}\r\n\r\n", "x".repeat(600_000));
    let begun = || head("application/x-ndjson");
    let table: Vec<(&str, Vec<Step>, &str)> = vec![
        ("EOF before the head", vec![], "no answer"),
        ("reset before the head", vec![Step::Reset], "no answer"),
        ("EOF inside the head", vec![send("HTTP/1.1 200 O")], "no answer"),
        ("garbage", vec![send("\x00\x01\x02 not HTTP\r\n\r\n")], "malformed"),
        ("another protocol", vec![send("SSH-2.0-OpenSSH_9.2\r\n\r\n")], "malformed"),
        ("too many headers", vec![send(flood)], "malformed"),
        ("a huge header", vec![send(huge)], "malformed"),
        ("reset inside the body", vec![begun(), chunk("a\n"), Step::Reset], "cut"),
        ("no terminal chunk", vec![begun(), chunk("a\n")], "cut"),
        ("EOF inside a chunk", vec![begun(), send("ff\r\nabc")], "cut"),
        ("a bad chunk size", vec![begun(), chunk("a\n"), send("zz\r\nabc\r\n")], "malformed"),
        (
            "EOF inside a body with a length",
            vec![send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")],
            "cut",
        ),
    ];
    for (case, script, want) in table {
        let peer = Peer::play(vec![script]).await;
        let (_, outcome) = fetch(&peer.url).await;
        let error = outcome.expect_err(case);
        assert_eq!(name(&error), want, "{case}: {error}");
    }
}

#[tokio::test]
async fn a_connection_that_ends_before_the_request_is_read_gave_no_answer() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let slams = tokio::spawn(async move {
        for reset in [false, true].into_iter().cycle() {
            let (socket, _) = listener.accept().await.unwrap();
            if reset {
                let now = Some(Duration::ZERO);
                rustix::net::sockopt::set_socket_linger(&socket, now).unwrap();
            }
        }
    });
    for _ in 0..20 {
        let (_, outcome) = fetch(&url).await;
        let error = outcome.unwrap_err();
        // A reset may overtake the connect's own success; then it counts as not opened.
        assert!(matches!(name(&error), "no answer" | "refused"), "{error}");
    }
    slams.abort();
}

#[tokio::test]
async fn nobody_listening_is_refused() {
    let (_, outcome) = fetch(&nowhere().await).await;
    let error = outcome.unwrap_err();
    assert_eq!(name(&error), "refused", "{error}");
    assert_eq!(error.to_string(), "cannot connect: nobody listens there");
}

#[tokio::test]
async fn a_host_that_never_accepts_is_refused_within_the_bound() {
    // A listener with a full backlog leaves further connections unanswered.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queue = Vec::new();
    for _ in 0..8 {
        queue.push(tokio::spawn(tokio::net::TcpStream::connect(address)));
    }
    let full = async {
        while queue.iter().filter(|one| one.is_finished()).count() < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), full).await.unwrap();
    let mut request = post(&format!("http://{address}"));
    request.connect_timeout = Duration::from_millis(200);
    let error = ReqwestHttp::new().send(request).await.err().unwrap();
    assert_eq!(name(&error), "refused", "{error}");
    for one in queue {
        one.abort();
    }
}

#[tokio::test]
async fn urls_that_cannot_be_sent_to_are_told_apart() {
    for url in ["", "no url", "ftp://127.0.0.1/", "http://"] {
        let (_, outcome) = fetch(url).await;
        assert_eq!(name(&outcome.unwrap_err()), "unsendable", "{url:?}");
    }
    let mut request = post("http://127.0.0.1:1");
    request.bearer = Some("a\nb".into());
    let error = ReqwestHttp::new().send(request).await.err().unwrap();
    assert_eq!(name(&error), "unsendable");
    assert!(!error.to_string().contains("a\nb"), "the key stays out of the message");
}

#[tokio::test]
async fn a_redirect_is_answered_as_it_is() {
    let there = Peer::play(vec![answer("200 OK", "text/plain", "there")]).await;
    let moved = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nLocation: {}\r\nContent-Length: 4\r\n\r\ngone",
        there.url
    );
    let peer = Peer::play(vec![vec![send(moved)]]).await;
    assert_eq!(fetch(&peer.url).await, (Some(307), Ok("gone".into())));
}

#[tokio::test]
async fn a_slow_head_and_a_megabyte_line_arrive_whole() {
    let line = "x".repeat(1 << 20);
    let script = vec![
        send("HTTP/1.1 200 OK\r\n"),
        Step::Pause(Duration::from_millis(20)),
        send("Transfer-Encoding: chunked\r\n\r\n"),
        chunk(&line),
        end(),
    ];
    let peer = Peer::play(vec![script]).await;
    assert_eq!(fetch(&peer.url).await, (Some(200), Ok(line)));
}

#[tokio::test]
async fn the_request_carries_few_headers_and_each_has_its_own_connection() {
    let reply = || answer("200 OK", "application/json", "{}");
    let mut peer = Peer::play(vec![reply(), reply()]).await;
    let http = ReqwestHttp::new();
    let url = peer.url.replace("127.0.0.1", "localhost") + "/api/chat";
    for bearer in [None, Some("key".to_owned())] {
        let request = HttpRequest { bearer: bearer.clone(), ..post(&url) };
        let mut response = http.send(request).await.unwrap();
        while response.body.next().await.is_some() {}
        let seen = peer.seen().await;
        let lower = seen.head.to_ascii_lowercase();
        assert!(seen.head.starts_with("POST /api/chat HTTP/1.1\r\n"), "{lower}");
        assert!(lower.len() < 512, "{lower}");
        assert!(lower.contains("\r\nhost: 127.0.0.1:"), "{lower}");
        assert!(lower.contains("\r\ncontent-type: application/json"), "{lower}");
        assert!(lower.contains("\r\ncontent-length: 7"), "{lower}");
        assert!(!lower.contains("accept-encoding"), "{lower}");
        assert_eq!(seen.head.contains("Bearer key"), bearer.is_some(), "{lower}");
        assert_eq!(seen.body, "{\"a\":1}");
    }
}

#[tokio::test]
async fn the_head_is_read_without_its_parameters() {
    let text = "HTTP/1.1 429 Slow Down\r\nContent-Type: Application/JSON; charset=utf-8\r\n\
                Retry-After: 7\r\nContent-Length: 0\r\n\r\n";
    let peer = Peer::play(vec![vec![send(text)]]).await;
    let response = ReqwestHttp::new().send(post(&peer.url)).await.unwrap();
    assert_eq!(response.status, 429);
    assert_eq!(response.content_type.as_deref(), Some("application/json"));
    assert_eq!(response.retry_after, Some(Duration::from_secs(7)));
}

#[tokio::test]
async fn dropping_the_future_or_the_body_closes_the_connection() {
    let mut peer = Peer::play(vec![
        vec![Step::AwaitClose],
        vec![head("application/x-ndjson"), chunk("a\n"), Step::AwaitClose],
    ])
    .await;
    let http = ReqwestHttp::new();
    {
        let waiting = http.send(post(&peer.url));
        tokio::select! {
            _ = waiting => panic!("nothing was answered"),
            _ = peer.seen() => {}
        }
    }
    peer.closed().await;
    let mut response = http.send(post(&peer.url)).await.unwrap();
    assert_eq!(response.body.next().await.unwrap().unwrap(), b"a\n");
    drop(response);
    peer.closed().await;
}

#[cfg(not(feature = "tls"))]
#[tokio::test]
async fn without_tls_an_https_url_is_unsendable() {
    let (_, outcome) = fetch("https://127.0.0.1:1").await;
    let error = outcome.unwrap_err();
    assert_eq!(name(&error), "unsendable");
    assert!(error.to_string().contains("TLS is not built in"), "{error}");
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn tls_state_is_built_only_for_https() {
    let http = ReqwestHttp::new();
    let kinds =
        || http.clients.lock().unwrap().iter().map(|(kind, _)| kind.tls).collect::<Vec<_>>();
    let plain = nowhere().await;
    assert!(http.send(post(&plain)).await.is_err());
    assert_eq!(kinds(), [false]);
    let peer = Peer::play(vec![vec![]]).await;
    let outcome = http.send(post(&peer.url.replace("http:", "https:"))).await;
    assert!(outcome.is_err(), "the peer speaks no TLS");
    assert!(kinds() == [false, true] || matches!(outcome, Err(HttpError::Unsendable(_))));
}
