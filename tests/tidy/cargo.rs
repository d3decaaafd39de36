//! What cargo is told.

use crate::source::{Tree, assert_finds, assert_tidy};

/// Packages of the whole workspace, tests and other platforms included: each is code that somebody
/// else may change, and seconds of every build. The last three came with a Raspberry Pi's pins and
/// sensors, and are built for it alone.
const PACKAGES_MAX: usize = 264;

/// Dependencies whose default features would bring in what this program must not have.
const WITHOUT_DEFAULTS: &[&str] = &["reqwest", "rustls", "tokio", "hyper", "rusqlite", "clap"];

fn problems(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    let lock = tree.text("Cargo.lock").unwrap_or_default();
    let packages = lock.lines().filter(|line| *line == "[[package]]").count();
    if packages > PACKAGES_MAX {
        found.push(format!("Cargo.lock: {packages} packages, at most {PACKAGES_MAX}"));
    }
    for manifest in ["Cargo.toml", "hailo/Cargo.toml"] {
        for (n, line) in tree.text(manifest).unwrap_or_default().lines().enumerate() {
            let name = line.split(" = ").next().unwrap_or_default();
            if WITHOUT_DEFAULTS.contains(&name) && !line.contains("default-features = false") {
                let n = n + 1;
                found.push(format!("{manifest}:{n}: {name} with its default features"));
            }
        }
    }
    let release = tree.text("Cargo.toml").unwrap_or_default();
    for (setting, why) in [
        ("panic = \"unwind\"", "the supervisor turns a panic into an outcome"),
        ("overflow-checks = true", "a wrapped number is a wrong one"),
    ] {
        if !release.contains(setting) {
            found.push(format!("Cargo.toml: [profile.release] lacks `{setting}`: {why}"));
        }
    }
    let library = tree.text("src/lib.rs").unwrap_or_default();
    for line in ["#![forbid(unsafe_code)]", "#[cfg(panic = \"abort\")]"] {
        if !library.contains(line) {
            found.push(format!("src/lib.rs: lacks `{line}`"));
        }
    }
    found
}

#[test]
fn the_manifests_keep_the_program_small_and_safe() {
    assert_tidy(&problems(Tree::here()));
}

#[test]
fn a_fat_or_unsafe_manifest_is_found() {
    let lock = "[[package]]\n".repeat(PACKAGES_MAX + 1);
    let tree = Tree::sample(&[
        ("Cargo.lock", &lock),
        ("Cargo.toml", "reqwest = \"1\"\n[profile.release]\npanic = \"unwind\"\n"),
        ("src/lib.rs", "#![forbid(unsafe_code)]\n"),
    ]);
    assert_finds(
        &problems(&tree),
        &["265 packages", "reqwest with its default", "overflow-checks", "#[cfg(panic"],
    );
}
