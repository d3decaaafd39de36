//! Which route a request means (pure).

use hyper::Method;

use super::pages;

/// A route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// `GET /`: what there is.
    Welcome,
    /// `GET /healthz`: whether all is well.
    Health,
    /// `GET /state`: what is true now.
    State,
    /// `GET /history`: the last lines.
    History,
    /// `POST /chat`: a message.
    Chat,
    /// `POST /cancel`: stops the running turn.
    Cancel,
    /// `GET /assets/...`: a file of the page.
    Asset,
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

/// Paths, their routes, and the methods they take.
const ROUTES: [(&str, Route, &str); 6] = [
    ("/", Route::Welcome, READ),
    ("/healthz", Route::Health, READ),
    ("/state", Route::State, READ),
    ("/history", Route::History, READ),
    ("/chat", Route::Chat, WRITE),
    ("/cancel", Route::Cancel, WRITE),
];

/// The route of a path, which is compared byte for byte: no escapes, no trailing slash.
pub(super) fn route(method: &Method, path: &str) -> Result<Route, NoRoute> {
    let found = ROUTES.iter().find(|(known, ..)| *known == path);
    let asset = path.starts_with(pages::PREFIX).then_some(&("", Route::Asset, READ));
    let &(_, route, allow) = found.or(asset).ok_or(NoRoute::NotFound)?;
    let fits = match *method {
        Method::GET | Method::HEAD => allow == READ,
        Method::POST => allow == WRITE,
        _ => false,
    };
    if fits { Ok(route) } else { Err(NoRoute::WrongMethod { allow }) }
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
            ("GET", "/history", Ok(Route::History)),
            ("POST", "/chat", Ok(Route::Chat)),
            ("POST", "/cancel", Ok(Route::Cancel)),
            ("GET", "/assets/a/b.css", Ok(Route::Asset)),
            ("POST", "/assets/a/b.css", wrong("GET, HEAD")),
            ("GET", "/assets", Err(NoRoute::NotFound)),
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
