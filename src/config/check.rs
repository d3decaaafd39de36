//! From a file's bytes to checked values and every problem at once (pure).
//!
//! # Invariants
//! - A value that fails its rule leaves the key at its default and an error in the list.
//! - No message quotes a secret or what `${...}` was replaced by.

use std::collections::BTreeSet;

use super::cross;
use super::env::Env;
use super::key::Spec;
use super::later::{LATER, Later, OPAQUE, RENAMED, Renamed};
use super::node::{Entry, Kind, Node, parse};
use super::problem::{Problem, Severity};
use super::rule::{Rule, Wrong, nearest};
use super::secrets::Origin;
use super::sections::SECTIONS;
use super::value::Value;
use super::values::{Source, Values};
use crate::limits::CONFIG_PROBLEMS_MAX;

/// Permission bits that let others than the owner at a file.
const OTHERS: u32 = 0o077;

/// A file's values and problems.
#[derive(Debug, Clone)]
pub struct Checked {
    /// All values; a refused one is at its default.
    pub values: Values,
    /// Everything found, in the order of the file.
    pub problems: Vec<Problem>,
}

/// Checks a file's bytes. `mode` is the file's permission bits, where it is a file.
#[must_use]
pub fn check(bytes: &[u8], mode: Option<u32>, env: &dyn Env) -> Checked {
    let (root, problems) = parse(bytes);
    let mut walk = Walk {
        env,
        open_to_others: mode.is_some_and(|mode| mode & OTHERS != 0),
        mode: mode.unwrap_or(0),
        values: Values::default(),
        renamed: Vec::new(),
        problems,
    };
    walk.root(&root);
    walk.rename();
    let Walk { values, mut problems, .. } = walk;
    if problems.len() >= CONFIG_PROBLEMS_MAX {
        let says = format!("has more than {CONFIG_PROBLEMS_MAX} problems; the rest is not shown");
        problems.push(Problem::error("", 0, says, "is this the right file?"));
    }
    let bad: BTreeSet<&str> = problems
        .iter()
        .filter(|problem| problem.severity == Severity::Error)
        .map(|problem| problem.path.as_str())
        .collect();
    let crossed = cross::check(&values, &|path| !bad.contains(path));
    problems.extend(crossed);
    problems.sort_by_key(|problem| (problem.line == 0, problem.line));
    Checked { values, problems }
}

struct Walk<'a> {
    env: &'a dyn Env,
    open_to_others: bool,
    mode: u32,
    values: Values,
    renamed: Vec<(&'static Renamed, bool, usize)>,
    problems: Vec<Problem>,
}

impl Walk<'_> {
    fn root(&mut self, root: &Node) {
        match &root.kind {
            Kind::Null => {}
            Kind::Map(entries) => entries.iter().for_each(|entry| self.section(entry)),
            Kind::Scalar(_) | Kind::List(_) => self.problems.push(Problem::error(
                "",
                root.line,
                "sections are expected here, e.g. \"hardware:\"",
                "compare the file with config.yaml",
            )),
        }
    }

    fn section(&mut self, entry: &Entry) {
        let name = entry.key.as_str();
        if OPAQUE.contains(&name) || self.problems.len() >= CONFIG_PROBLEMS_MAX {
            return;
        }
        if !section_names().any(|known| known == name) {
            let fix = suggest_section(name);
            self.unknown(name, entry.line, "unknown section", fix);
            return;
        }
        match &entry.node.kind {
            Kind::Map(entries) => {
                for member in entries {
                    if self.problems.len() >= CONFIG_PROBLEMS_MAX {
                        return;
                    }
                    self.member(&format!("{name}.{}", member.key), member);
                }
            }
            Kind::Null => {
                let says = "the section is empty, so all its keys have their defaults";
                let fix = "indent its keys below it, or remove the line";
                self.problems.push(Problem::error(name, entry.line, says, fix).as_warning());
            }
            Kind::Scalar(_) | Kind::List(_) => {
                let says = "keys are expected in this section";
                let fix = format!("write \"{name}:\" alone on the line and indent keys below it");
                self.problems.push(Problem::error(name, entry.line, says, fix));
            }
        }
    }

    fn member(&mut self, path: &str, entry: &Entry) {
        if OPAQUE.contains(&path) {
            return;
        }
        if let Some(spec) = specs().find(|spec| spec.path == path) {
            match self.read(&spec.rule, &entry.node) {
                Ok((value, origin)) => {
                    self.warn_of_open_secret(spec.path, &value, &origin, entry.line);
                    self.values.set(spec.path, value, source(origin, entry.line));
                }
                Err(Wrong { says, fix }) => {
                    self.problems.push(Problem::error(path, entry.line, says, fix));
                }
            }
        } else if let Some(renamed) = RENAMED.iter().find(|renamed| renamed.old == path) {
            match self.read(&Rule::Flag, &entry.node) {
                Ok((value, _)) => {
                    self.renamed.push((renamed, value == Value::Flag(true), entry.line));
                }
                Err(Wrong { says, fix }) => {
                    self.problems.push(Problem::error(path, entry.line, says, fix));
                }
            }
        } else if let Some(later) = LATER.iter().find(|later| later.path == path) {
            self.later(later, entry);
        } else {
            let fix = suggest_key(path);
            self.unknown(path, entry.line, "unknown key", fix);
        }
    }

    fn later(&mut self, later: &Later, entry: &Entry) {
        let Later { path, says, rule } = *later;
        if entry.node.kind == Kind::Null {
            return;
        }
        match self.read(&rule, &entry.node) {
            Ok((value, origin)) => {
                self.warn_of_open_secret(path, &value, &origin, entry.line);
                let says = format!("known ({says}), but without effect in this version");
                self.problems.push(Problem::error(path, entry.line, says, "").as_note());
            }
            Err(Wrong { says, fix }) => {
                let says = format!("{says} (without effect in this version)");
                self.problems.push(Problem::error(path, entry.line, says, fix).as_warning());
            }
        }
    }

    /// Carries renamed keys over, once it is known which of the new ones the file has.
    fn rename(&mut self) {
        for (renamed, flag, line) in std::mem::take(&mut self.renamed) {
            let Renamed { old, new, if_true, if_false } = *renamed;
            let word = if flag { if_true } else { if_false };
            if self.values.is_set(new) {
                let says = format!("ignored, as {new} is given too");
                let fix = "remove this line";
                self.problems.push(Problem::error(old, line, says, fix).as_warning());
                continue;
            }
            self.values.set(new, Value::Word(word), Source::File { line });
            let says = format!("read as {new}: {word}");
            let fix = "this still works; the new name says more";
            self.problems.push(Problem::error(old, line, says, fix).as_note());
        }
    }

    fn read(&self, rule: &Rule, node: &Node) -> Result<(Value, Origin), Wrong> {
        match &node.kind {
            Kind::Null if rule.takes_null() => Ok((rule.nothing(), Origin::Literal)),
            Kind::Null => Err(Wrong::new("has no value", format!("{}, or remove it", rule.hint()))),
            Kind::Scalar(raw) => rule.read(raw, self.env),
            Kind::List(nodes) => {
                let scalar = |node: &'_ Node| match &node.kind {
                    Kind::Scalar(raw) => Some(raw.clone()),
                    _ => None,
                };
                let raws: Option<Vec<String>> = nodes.iter().map(scalar).collect();
                match raws {
                    Some(raws) => {
                        let raws: Vec<&str> = raws.iter().map(String::as_str).collect();
                        rule.read_list(&raws, self.env)
                    }
                    None => Err(Wrong::new("the list holds more than texts", rule.hint())),
                }
            }
            Kind::Map(_) => Err(Wrong::new("keys where a value is expected", rule.hint())),
        }
    }

    fn warn_of_open_secret(&mut self, path: &str, value: &Value, origin: &Origin, line: usize) {
        let literal = matches!(value, Value::Secret(secret) if !secret.is_empty());
        if literal && *origin == Origin::Literal && self.open_to_others {
            let says = format!(
                "a secret in a file that others can read or change (mode {:o})",
                self.mode & 0o777
            );
            let fix = "chmod 600 the file, or write ${NAME} or ${credential:NAME}";
            self.problems.push(Problem::error(path, line, says, fix).as_warning());
        }
    }

    fn unknown(&mut self, path: &str, line: usize, what: &str, fix: String) {
        let shown: String = path.chars().filter(|c| !c.is_control()).take(80).collect();
        self.problems.push(Problem::error(&shown, line, what, fix).as_warning());
    }
}

fn source(origin: Origin, line: usize) -> Source {
    match origin {
        Origin::Literal => Source::File { line },
        Origin::Environment(name) => Source::Environment { name, line },
        Origin::Credential(name) => Source::Credential { name, line },
    }
}

/// All keys that have an effect.
pub(super) fn specs() -> impl Iterator<Item = &'static Spec> {
    SECTIONS.iter().flat_map(|section| section.keys).map(|key| key.spec())
}

/// All paths that are not unknown.
fn known_paths() -> impl Iterator<Item = &'static str> {
    specs()
        .map(|spec| spec.path)
        .chain(RENAMED.iter().map(|renamed| renamed.old))
        .chain(LATER.iter().map(|later| later.path))
}

fn section_names() -> impl Iterator<Item = &'static str> {
    known_paths().chain(OPAQUE.iter().copied()).map(|path| split(path).0)
}

fn split(path: &str) -> (&str, &str) {
    path.split_once('.').unwrap_or((path, ""))
}

fn suggest_section(name: &str) -> String {
    if let Some(path) = known_paths().find(|path| split(path).1 == name) {
        return format!("this key belongs into the section {}", split(path).0);
    }
    match nearest(name, section_names()) {
        Some(section) => format!("did you mean {section}?"),
        None => "config.yaml lists all sections; remove it, or see whether it is misspelt".into(),
    }
}

fn suggest_key(path: &str) -> String {
    let (section, name) = split(path);
    if let Some(known) = known_paths().find(|known| split(known).1 == name) {
        return format!("this key belongs into the section {}", split(known).0);
    }
    let siblings = known_paths().filter(|known| split(known).0 == section);
    if let Some(sibling) = nearest(name, siblings.map(|known| split(known).1)) {
        return format!("did you mean {sibling}?");
    }
    match nearest(path, known_paths()) {
        Some(known) => format!("did you mean {known}?"),
        None => "config.yaml lists all keys; remove the line, or see whether it is misspelt".into(),
    }
}
