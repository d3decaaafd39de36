//! Which route a request means (pure).

use hyper::Method;

use super::pages;
use crate::session::wire::is_chat_id;

/// A route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route<'a> {
    /// `GET /`: what there is; with an upgrade, the WebSocket.
    Welcome,
    /// `GET /ws`: the WebSocket and nothing else.
    Socket,
    /// `GET /healthz`: whether all is well.
    Health,
    /// `GET /state`: what is true now.
    State,
    /// `GET /events`: what happens.
    Events,
    /// `GET /metrics`: the state for Prometheus.
    Metrics,
    /// `GET /history`: the last lines.
    History,
    /// `POST /chat`: a message.
    Chat,
    /// `POST /cancel`: stops the running turn.
    Cancel,
    /// `GET /assets/...`: a file of the page.
    Asset,
    /// `GET /api/health`: that this is alive, for CashCode's clients.
    Alive,
    /// `GET /sessions`: the conversations.
    Sessions,
    /// `PATCH` and `DELETE /sessions/ID`: one conversation.
    Session(&'a str),
    /// `GET /sessions/ID/messages`: what was said in it.
    Messages(&'a str),
}

/// Why there is no route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoRoute {
    /// No such path.
    NotFound,
    /// The path takes other methods.
    WrongMethod {
        /// Value of the `Allow` header.
        allow: &'static str,
    },
}

const READ: &str = "GET, HEAD";
const WRITE: &str = "POST";
const CHANGE: &str = "PATCH, DELETE";

/// Paths, their routes, and the methods they take.
const ROUTES: [(&str, Route<'_>, &str); 12] = [
    ("/", Route::Welcome, READ),
    ("/ws", Route::Socket, READ),
    ("/healthz", Route::Health, READ),
    ("/state", Route::State, READ),
    ("/events", Route::Events, READ),
    ("/metrics", Route::Metrics, READ),
    ("/history", Route::History, READ),
    ("/chat", Route::Chat, WRITE),
    ("/cancel", Route::Cancel, WRITE),
    ("/sessions", Route::Sessions, READ),
    ("/api/sessions", Route::Sessions, READ),
    ("/api/health", Route::Alive, READ),
];

/// The route of a path, which is compared byte for byte: no escapes, no trailing slash.
pub(super) fn route<'a>(method: &Method, path: &'a str) -> Result<Route<'a>, NoRoute> {
    let fixed = ROUTES.iter().find(|(known, ..)| *known == path);
    let fixed = fixed.map(|&(_, route, allow)| (route, allow));
    let asset = path.starts_with(pages::PREFIX).then_some((Route::Asset, READ));
    let found = fixed.or(asset).or_else(|| of_session(path));
    let (route, allow) = found.ok_or(NoRoute::NotFound)?;
    let fits = allow.split(", ").any(|known| known == method.as_str());
    if fits { Ok(route) } else { Err(NoRoute::WrongMethod { allow }) }
}

/// The routes of one session. What cannot be a session's name is no path: nothing like `..` gets
/// any further than this.
fn of_session(path: &str) -> Option<(Route<'_>, &'static str)> {
    let path = path.strip_prefix("/api").unwrap_or(path);
    let rest = path.strip_prefix("/sessions/")?;
    let (id, messages) = match rest.split_once('/') {
        None => (rest, false),
        Some((id, "messages")) => (id, true),
        Some(_) => return None,
    };
    if !is_chat_id(id) {
        return None;
    }
    Some(if messages { (Route::Messages(id), READ) } else { (Route::Session(id), CHANGE) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_methods_lead_to_their_routes() {
        let wrong = |allow| Err(NoRoute::WrongMethod { allow });
        let table = [
            ("GET", "/", Ok(Route::Welcome)),
            ("HEAD", "/", Ok(Route::Welcome)),
            ("GET", "/healthz", Ok(Route::Health)),
            ("GET", "/state", Ok(Route::State)),
            ("GET", "/events", Ok(Route::Events)),
            ("POST", "/events", wrong("GET, HEAD")),
            ("GET", "/metrics", Ok(Route::Metrics)),
            ("GET", "/history", Ok(Route::History)),
            ("POST", "/chat", Ok(Route::Chat)),
            ("POST", "/cancel", Ok(Route::Cancel)),
            ("GET", "/assets/a/b.css", Ok(Route::Asset)),
            ("POST", "/assets/a/b.css", wrong("GET, HEAD")),
            ("GET", "/assets", Err(NoRoute::NotFound)),
            ("GET", "/ws", Ok(Route::Socket)),
            ("GET", "/sessions", Ok(Route::Sessions)),
            ("GET", "/api/sessions", Ok(Route::Sessions)),
            ("GET", "/api/health", Ok(Route::Alive)),
            ("GET", "/sessions/a:b/messages", Ok(Route::Messages("a:b"))),
            ("GET", "/api/sessions/main/messages", Ok(Route::Messages("main"))),
            ("PATCH", "/sessions/main", Ok(Route::Session("main"))),
            ("DELETE", "/api/sessions/main", Ok(Route::Session("main"))),
            ("GET", "/sessions/main", wrong("PATCH, DELETE")),
            ("POST", "/sessions", wrong("GET, HEAD")),
            ("DELETE", "/sessions/%2e%2e", Err(NoRoute::NotFound)),
            ("DELETE", "/sessions/..", Err(NoRoute::NotFound)),
            ("DELETE", "/sessions/.", Err(NoRoute::NotFound)),
            ("DELETE", "/sessions/a%0a", Err(NoRoute::NotFound)),
            ("DELETE", "/sessions/", Err(NoRoute::NotFound)),
            ("GET", "/sessions/main/", Err(NoRoute::NotFound)),
            ("GET", "/sessions/main/messages/", Err(NoRoute::NotFound)),
            ("GET", "/api/state", Err(NoRoute::NotFound)),
            ("GET", "/chat", wrong("POST")),
            ("HEAD", "/chat", wrong("POST")),
            ("OPTIONS", "/chat", wrong("POST")),
            ("POST", "/state", wrong("GET, HEAD")),
            ("DELETE", "/history", wrong("GET, HEAD")),
            ("BREW", "/", wrong("GET, HEAD")),
            ("GET", "", Err(NoRoute::NotFound)),
            ("GET", "/chat/", Err(NoRoute::NotFound)),
            ("GET", "//state", Err(NoRoute::NotFound)),
            ("GET", "/%73tate", Err(NoRoute::NotFound)),
            ("GET", "/STATE", Err(NoRoute::NotFound)),
            ("OPTIONS", "*", Err(NoRoute::NotFound)),
        ];
        for (method, path, expected) in table {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            assert_eq!(route(&method, path), expected, "{method} {path}");
        }
    }
}
