//! The configuration from outside: the shipped document and the verb `check`.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crayfish::cli::check::{CheckArgs, run_in};
use crayfish::config::document::document;
use crayfish::config::env::FixedEnv;
use crayfish::config::{Config, load};

/// A file in which something is wrong on nearly every line.
const FAULTY: &str = include_str!("../golden/config/faulty.yaml");

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Compares with a file of the repository, or rewrites it if `UPDATE_GOLDEN` is set.
#[track_caller]
fn golden(path: &Path, text: &str) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, text).unwrap();
    }
    let stored = std::fs::read_to_string(path).unwrap();
    assert!(
        stored == text,
        "{} differs from what the program says; UPDATE_GOLDEN=1 rewrites it. Now:\n{text}",
        path.display()
    );
}

/// Runs the verb on a file with this text and gives its exit code and output, with the file's
/// path replaced by `config.yaml`.
fn check(text: &str, strict: bool, effective: bool, env: &FixedEnv) -> (u8, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.yaml");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let mut out = Vec::new();
    let args = CheckArgs { config: Some(path.clone()), strict, effective };
    let code = run_in(&args, env, &mut out);
    let out = String::from_utf8(out).unwrap();
    (code, out.replace(path.to_str().unwrap(), "config.yaml"))
}

#[test]
fn the_shipped_configuration_is_the_generated_document() {
    golden(&root().join("config.yaml"), &document());
}

#[test]
fn the_shipped_configuration_gives_the_defaults() {
    let loaded = load(Some(&root().join("config.yaml")), &FixedEnv::default()).unwrap();
    assert_eq!(*loaded.config, Config::default());
    assert_eq!(loaded.warnings, []);
}

#[test]
fn check_prints_like_a_compiler_and_refuses_errors() {
    let (code, out) = check(FAULTY, false, false, &FixedEnv::default());
    golden(&root().join("tests/golden/config/faulty.txt"), &out);
    assert_eq!(code, 78);
}

#[test]
fn warnings_refuse_only_if_strict() {
    let text = "web_chat:\n  prot: 1\n";
    let env = FixedEnv::default();
    assert_eq!(check(text, false, false, &env).0, 0);
    assert_eq!(check(text, true, false, &env).0, 78);
    let (code, out) = check("tasks: {enabled: true}", true, false, &env);
    assert_eq!(code, 0, "notes never refuse");
    assert!(out.ends_with("config.yaml: 1 note\n"), "{out}");
    assert_eq!(check("", true, false, &env), (0, "config.yaml: no problems\n".into()));
}

#[test]
fn effective_values_come_with_their_source_and_without_secrets() {
    let env = FixedEnv::default().with_var("KEY", "pL4nTed").with_var("NAME", "Ada");
    let text = "system:\n  architect_name: ${NAME}\nopenai:\n  api_key: ${KEY}\n\
                web_chat:\n  auth_token: pL4nTed\n";
    let (code, out) = check(text, false, true, &env);
    golden(&root().join("tests/golden/config/effective.txt"), &out);
    assert_eq!(code, 0);
    assert!(!out.contains("pL4nTed"));
}

#[test]
fn a_missing_file_is_refused_with_what_to_do() {
    let path = PathBuf::from("/nonexistent/config.yaml");
    let mut out = Vec::new();
    let args = CheckArgs { config: Some(path), ..CheckArgs::default() };
    assert_eq!(run_in(&args, &FixedEnv::default(), &mut out), 78);
    let out = String::from_utf8(out).unwrap();
    assert!(out.starts_with("/nonexistent/config.yaml: there is no such file; "), "{out}");
}
