//! The scripts in `deploy/`, as far as they can run where tests run.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a script of `deploy/` with no programs but those in `path`.
fn script(name: &str, words: &[&str], path: Option<&Path>) -> Output {
    let mut command = Command::new("/bin/bash");
    command.arg(root().join("deploy").join(name)).args(words).stdin(Stdio::null());
    if let Some(path) = path {
        command.env("PATH", path);
    }
    command.output().unwrap()
}

#[test]
fn a_binary_for_another_machine_is_told_property_by_property() {
    let output = script("check-binary", &[env!("CARGO_BIN_EXE_crayfish")], None);
    let said = String::from_utf8_lossy(&output.stdout);
    // Only where tests run on the Pi's own kind of processor is this the right machine.
    let machine = if cfg!(target_arch = "aarch64") { "ok     machine" } else { "WRONG  machine" };
    assert!(said.contains(machine), "{said}");
    assert!(said.contains("asks for the C library 2."), "{said}");
    assert!(said.contains("bytes, at most"), "{said}");
    assert_eq!(output.status.success(), !said.contains("WRONG"), "{said}");
    let output = script("check-binary", &[root().join("README.md").to_str().unwrap()], None);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && said.contains("WRONG  machine"), "{said}");
}

#[test]
fn without_a_container_engine_the_build_names_the_other_way() {
    let dir = tempfile::tempdir().unwrap();
    for program in ["git", "dirname"] {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
        let place = String::from_utf8(found.unwrap().stdout).unwrap();
        std::os::unix::fs::symlink(place.trim(), dir.path().join(program)).unwrap();
    }
    let output = script("build", &[], Some(dir.path()));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{said}");
    assert!(said.contains("deploy/build --native"), "{said}");
    assert_eq!(script("build", &["--nativ"], None).status.code(), Some(64));
}

/// Keys that cross takes, of those that are used here; it warns of others and goes on without.
#[test]
fn the_configuration_of_cross_has_keys_that_cross_knows_and_files_that_exist() {
    let text = std::fs::read_to_string(root().join("cross.toml")).unwrap();
    let target = "target.aarch64-unknown-linux-gnu";
    let known: [(&str, &[&str]); 3] = [
        ("build", &["default-target"]),
        ("build.env", &["passthrough"]),
        (target, &["dockerfile"]),
    ];
    let mut section = String::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            assert!(known.iter().any(|(section, _)| *section == name), "[{name}]");
            name.clone_into(&mut section);
            continue;
        }
        let (key, _) = line.split_once(" = ").unwrap();
        let keys = known.iter().find(|(name, _)| *name == section).unwrap().1;
        assert!(keys.contains(&key), "[{section}] {key}");
    }
    let dockerfile = "deploy/container/aarch64.Dockerfile";
    assert!(text.contains(&format!("file = \"{dockerfile}\"")));
    let dockerfile = std::fs::read_to_string(root().join(dockerfile)).unwrap();
    assert!(dockerfile.contains("FROM debian:bookworm-slim"), "its C library is the oldest");
}
