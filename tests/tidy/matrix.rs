//! Who may call whom, as data.

use crate::source::{Source, Tree, assert_finds, assert_tidy};

/// A room and what it may import of the others; `room::part` allows just that part. `*` is all.
type Row = (&'static str, &'static [&'static str], &'static str);

/// Upwards from the leaves. A new room gets a row here before its first import.
const MATRIX: &[Row] = &[
    ("limits", &[], "a leaf: bounds depend on nothing"),
    ("config", &["limits"], "a leaf: settings are plain values that everybody may hold"),
    ("clock", &["limits"], "a door to the outside stands on leaves only"),
    ("event", &["limits"], "a door to the outside stands on leaves only"),
    ("snapshot", &["limits"], "a door to the outside stands on leaves only"),
    ("mood", &["limits", "config"], "pure: the mood is a function of what happened and when"),
    ("net", &["limits", "config", "clock", "event"], "a door knows bytes, not who sends them"),
    (
        "store",
        &["limits", "config", "clock", "event", "daemon::supervisor"],
        "a door keeps bytes, it does not know what they mean",
    ),
    ("process", &["limits"], "a door knows programs, not what they are good for"),
    (
        "model",
        &["limits", "config", "net", "store", "process"],
        "files and where they come from; who runs them is the provider's business",
    ),
    (
        "provider",
        &[
            "limits",
            "config",
            "clock",
            "event",
            "snapshot",
            "net",
            "store::file",
            "daemon::supervisor",
        ],
        "the provider knows messages, never persons: no agent, session or soul",
    ),
    (
        "vitals",
        &["limits", "config", "clock", "event", "snapshot"],
        "the body is read and judged here; what follows from it is done by others",
    ),
    (
        "soul",
        &["limits", "config", "clock", "event", "store", "provider::budget"],
        "the self does not know its turns; it only counts what its block costs",
    ),
    (
        "session",
        &["limits", "config", "clock", "event", "snapshot", "store", "provider", "soul"],
        "a session is a log and its views; who talks is the agent's business",
    ),
    (
        "agent",
        &[
            "limits",
            "config",
            "clock",
            "event",
            "snapshot",
            "store",
            "provider",
            "mood",
            "soul",
            "session",
            "daemon::supervisor",
            "daemon::tasks",
        ],
        "a turn is below the edges: it must not know through which door it came",
    ),
    ("http", EDGE, "an edge reaches the house through the agent's and the snapshot's handles"),
    ("connector", EDGE, "an edge reaches the house through the agent's and the snapshot's handles"),
    (
        "cli",
        &[
            "limits",
            "config",
            "clock",
            "snapshot",
            "event",
            "agent",
            "session",
            "daemon",
            "connector",
            "sim",
            "model",
        ],
        "a verb is a client or starts the daemon; it does not open the house's doors itself",
    ),
    ("daemon", &["*"], "the wiring constructs everything; but nobody is started from cli there"),
    ("sim", &["*"], "the simulation constructs a world around everything, in tests only"),
    ("main", &["cli"], "main maps argv to a verb and its result to a code"),
];

/// `daemon::supervisor` is a mechanism that lives in `daemon`: tasks are started through it.
const EDGE: &[&str] = &[
    "limits",
    "config",
    "clock",
    "event",
    "snapshot",
    "agent",
    "session::wire",
    "daemon::supervisor",
    "daemon::tasks",
];

/// The modules in `src/`, by their first segment.
fn rooms(tree: &Tree) -> Vec<String> {
    let mut rooms: Vec<String> =
        tree.product().filter_map(|source| source.module().into_iter().next()).collect();
    rooms.dedup();
    rooms
}

fn problems(tree: &Tree) -> Vec<String> {
    let rooms = rooms(tree);
    let mut found = Vec::new();
    for room in &rooms {
        if !MATRIX.iter().any(|(name, _, _)| name == room) {
            found.push(format!("src/{room}: no row in tests/tidy/matrix.rs says whom it may call"));
        }
    }
    for source in tree.product() {
        let module = source.module();
        let room = match module.first() {
            Some(room) => room.as_str(),
            None if source.path.ends_with("main.rs") => "main",
            None => continue,
        };
        let Some((_, may, why)) = MATRIX.iter().find(|(name, _, _)| *name == room) else {
            continue;
        };
        found.extend(strangers(source, room, may, &rooms, why));
    }
    found
}

fn strangers(
    source: &Source,
    room: &str,
    may: &[&str],
    rooms: &[String],
    why: &str,
) -> Vec<String> {
    let own = |path: &str| path == room || path.starts_with(&format!("{room}::"));
    let allowed = |path: &str| {
        may.iter().any(|may| {
            // The wiring may all but what stands above it.
            *may == "*" && !path.starts_with("cli") && !path.starts_with("main")
                || path == *may
                || path.starts_with(&format!("{may}::"))
        })
    };
    let mut found = Vec::new();
    for (line, path) in source.paths() {
        let inside = ["crate::", "crayfish::"].iter().find_map(|root| path.strip_prefix(root));
        let Some(inside) = inside else { continue };
        let first = inside.split("::").next().unwrap_or_default();
        if own(inside) || allowed(inside) || !rooms.iter().any(|room| room == first) {
            continue;
        }
        let place = &source.path;
        found.push(format!("{place}:{line}: {room} must not call {inside}: {why}"));
    }
    found
}

#[test]
fn calls_go_downwards_only() {
    assert_tidy(&problems(Tree::here()));
}

#[test]
fn every_row_is_about_a_room_that_exists() {
    let rooms = rooms(Tree::here());
    let dead: Vec<_> = MATRIX
        .iter()
        .filter(|(name, _, _)| *name != "main" && !rooms.iter().any(|room| room == name))
        .map(|(name, _, _)| format!("tests/tidy/matrix.rs: there is no room {name}"))
        .collect();
    assert_tidy(&dead);
}

#[test]
fn the_matrix_sees_a_call_upwards_however_it_is_written() {
    let tree = Tree::sample(&[
        (
            "src/lib.rs",
            "mod provider; mod session; mod http; mod store; mod gate; mod cli; mod daemon;",
        ),
        ("src/main.rs", "fn main() { crayfish::daemon::run() }"),
        ("src/cli.rs", ""),
        ("src/daemon.rs", "use crate::cli::X;\nuse crate::store::Y;"),
        ("src/gate.rs", ""),
        ("src/http.rs", "use crate::{session::{wire, log}, store};"),
        ("src/provider.rs", "use super::session::Log;\nfn f() { crate::session::g() }"),
        ("src/session.rs", "use crate::provider::P;\n#[cfg(test)]\nuse crate::http::H;"),
        ("src/store.rs", "// use crate::agent::A;"),
    ]);
    // One `mod` a line is the rule elsewhere; here the sample only needs the files.
    assert_finds(
        &problems(&tree),
        &[
            "src/gate: no row",
            "src/daemon.rs:1: daemon must not call cli::X",
            "src/http.rs:1: http must not call session::log",
            "src/http.rs:1: http must not call store",
            "src/main.rs:1: main must not call daemon::run",
            "src/provider.rs:1: provider must not call session::Log",
            "src/provider.rs:2: provider must not call session::g",
        ],
    );
}
