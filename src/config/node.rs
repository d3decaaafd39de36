//! The text of a configuration file as a tree with lines (pure).
//!
//! # Invariants
//! - Any bytes give a tree, problems, or both; never a panic. Size and depth are bounded.
//! - The tree holds everything up to the first syntax error.
//!
//! # Absences
//! - No anchors, aliases, tags or second documents: a configuration that refers to itself is
//!   hard to read, and expansion has no bound. They are refused with a line.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use super::problem::Problem;
use crate::limits::{CONFIG_BYTES_MAX, CONFIG_DEPTH_MAX, CONFIG_PROBLEMS_MAX};

/// A node of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Line, from 1.
    pub line: usize,
    /// What it is.
    pub kind: Kind,
}

/// What a node is.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// `null`, `~` or nothing.
    Null,
    /// A text or number, not yet interpreted.
    Scalar(String),
    /// A list.
    List(Vec<Node>),
    /// A mapping in the file's order, duplicates left out.
    Map(Vec<Entry>),
}

/// A member of a mapping.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its name.
    pub key: String,
    /// The name's line.
    pub line: usize,
    /// Its value.
    pub node: Node,
}

/// Reads a file's bytes. An empty file is an empty mapping.
#[must_use]
pub fn parse(bytes: &[u8]) -> (Node, Vec<Problem>) {
    let nothing = Node { line: 1, kind: Kind::Map(Vec::new()) };
    if bytes.len() > CONFIG_BYTES_MAX {
        let says = format!("has {} bytes; at most {CONFIG_BYTES_MAX} are read", bytes.len());
        let problem = Problem::error("", 0, says, "is this the right file?");
        return (nothing, vec![problem]);
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text),
        Err(error) => {
            let line = 1 + bytes[..error.valid_up_to()].iter().filter(|b| **b == b'\n').count();
            let problem = Problem::error(
                "",
                line,
                "a byte here is not UTF-8",
                "save the file as UTF-8 (the line may hold an accented letter in another coding)",
            );
            return (nothing, vec![problem]);
        }
    };
    // The parser below is foreign code that indexes and unwraps; a hostile file must not be the
    // one that finds a mistake in it.
    let built = catch_unwind(AssertUnwindSafe(|| {
        let mut builder = Builder::default();
        builder.run(text);
        builder
    }));
    match built {
        Ok(builder) => {
            let root = builder.root.unwrap_or(nothing);
            (root, builder.problems)
        }
        Err(_) => {
            let problem = Problem::error("", 0, "is not YAML", "compare it with config.yaml");
            (nothing, vec![problem])
        }
    }
}

/// An unfinished list or mapping.
enum Open {
    List { line: usize, items: Vec<Node> },
    Map { line: usize, members: Members },
}

/// The members of an unfinished mapping.
#[derive(Default)]
struct Members {
    entries: Vec<Entry>,
    /// Lines of the names so far.
    lines: BTreeMap<String, usize>,
    /// A name that waits for its value.
    key: Option<(String, usize)>,
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    root: Option<Node>,
    problems: Vec<Problem>,
}

impl Members {
    /// Takes a name or a value, in turn.
    fn put(&mut self, node: Node) -> Option<Problem> {
        let Some((key, line)) = self.key.take() else {
            let (name, problem) = match node.kind {
                Kind::Scalar(name) => (name, None),
                _ => {
                    let fix = "write a name before the \":\"";
                    (String::new(), Some(Problem::error("", node.line, "not a name", fix)))
                }
            };
            self.key = Some((name, node.line));
            return problem;
        };
        if let Some(first) = self.lines.get(&key) {
            let says = format!("appears twice; first on line {first}");
            return Some(Problem::error(&key, line, says, "keep one of them"));
        }
        self.lines.insert(key.clone(), line);
        self.entries.push(Entry { key, line, node });
        None
    }
}

impl Builder {
    fn run(&mut self, text: &str) {
        for event in Parser::new_from_str(text) {
            let goes_on = match event {
                Ok((event, span)) => self.take(event, span),
                Err(error) => {
                    self.syntax(error.marker().line(), error.info(), text);
                    false
                }
            };
            if !goes_on {
                break;
            }
        }
        while let Some(open) = self.open.pop() {
            self.put(close(open));
        }
    }

    /// Takes one event; false ends the reading.
    fn take(&mut self, event: Event<'_>, span: Span) -> bool {
        let line = span.start.line();
        match event {
            Event::DocumentStart(_) if self.root.is_some() => {
                self.refuse(line, "a second document", "keep one; remove the line \"---\"");
                return false;
            }
            Event::Alias(_) => {
                self.refuse(line, "an alias (*name)", "write the value itself");
                self.put(Node { line, kind: Kind::Null });
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_marks(line, anchor, tag.is_some());
                let null = style == ScalarStyle::Plain
                    && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let kind = if null { Kind::Null } else { Kind::Scalar(text.into_owned()) };
                self.put(Node { line, kind });
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuse_marks(line, anchor, tag.is_some());
                self.open.push(Open::List { line, items: Vec::new() });
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_marks(line, anchor, tag.is_some());
                self.open.push(Open::Map { line, members: Members::default() });
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(open) = self.open.pop() {
                    self.put(close(open));
                }
            }
            _ => {}
        }
        if self.open.len() > CONFIG_DEPTH_MAX {
            self.refuse(line, "too many levels", "compare the file with config.yaml");
            return false;
        }
        self.problems.len() < CONFIG_PROBLEMS_MAX
    }

    /// Puts a finished node where it belongs.
    fn put(&mut self, node: Node) {
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Open::List { items, .. }) => items.push(node),
            Some(Open::Map { members, .. }) => {
                if let Some(mut problem) = members.put(node) {
                    problem.path = self.path_of(&problem.path);
                    self.problems.push(problem);
                }
            }
        }
    }

    /// The dotted path of a name in the innermost mapping.
    fn path_of(&self, name: &str) -> String {
        let outer = self.open.iter().filter_map(|open| match open {
            Open::Map { members, .. } => members.key.as_ref().map(|(key, _)| key.as_str()),
            Open::List { .. } => None,
        });
        outer.chain([name]).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(".")
    }

    fn refuse_marks(&mut self, line: usize, anchor: usize, tagged: bool) {
        if anchor > 0 {
            self.refuse(line, "an anchor (&name)", "remove it; write values where they are used");
        }
        if tagged {
            self.refuse(line, "a tag (!name)", "remove it; types follow from the keys");
        }
    }

    fn refuse(&mut self, line: usize, what: &str, fix: &str) {
        let says = format!("{what} is not supported here");
        self.problems.push(Problem::error("", line, says, fix));
    }

    fn syntax(&mut self, line: usize, info: &str, text: &str) {
        let here = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
        let indent = &here[..here.len() - here.trim_start().len()];
        let fix = if indent.contains('\t') {
            "indent with spaces; YAML allows no tabs"
        } else {
            "compare the line and the one above with config.yaml: indentation, quotes, \": \""
        };
        self.problems.push(Problem::error("", line, format!("not YAML: {info}"), fix));
    }
}

fn close(open: Open) -> Node {
    match open {
        Open::List { line, items } => Node { line, kind: Kind::List(items) },
        // A name without a value is the last thing before a syntax error, which was reported.
        Open::Map { line, members } => Node { line, kind: Kind::Map(members.entries) },
    }
}
