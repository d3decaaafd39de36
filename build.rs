//! Packs the page's files into the binary: each gzipped once here, so that a Pi never compresses,
//! with one name for them all that changes when any of them does.
//!
//! Writes `pages.rs` into `OUT_DIR`: the table that `src/http/pages.rs` includes.

use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use flate2::Compression;
use flate2::write::GzEncoder;

/// Where the page's files are.
const ASSETS: &str = "src/http/assets";

/// Stands for the name of the whole set in files that name others.
const PLACEHOLDER: &str = "{{assets}}";

#[expect(
    clippy::disallowed_methods,
    reason = "what cargo lost in a power cut it builds again; nobody reads half of it"
)]
fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join(ASSETS);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    writeln!(io::stdout(), "cargo::rerun-if-changed={ASSETS}")?;
    let mut paths = Vec::new();
    collect(&root, &root, &mut paths)?;
    paths.sort();
    let mut files = Vec::new();
    let mut hash = Fnv::new();
    for path in paths {
        let bytes = fs::read(root.join(&path))?;
        hash.add(path.as_bytes());
        hash.add(&bytes);
        files.push((path, bytes));
    }
    let name = format!("{:016x}", hash.0);
    let mut table = format!(
        "/// Names the set of files below.\npub(super) const SET: &str = \"{name}\";\n\
         const ASSETS: &[Asset] = &[\n"
    );
    for (number, (path, mut bytes)) in files.into_iter().enumerate() {
        let Some(kind) = content_type(&path) else { continue };
        if path == "index.html" {
            bytes = String::from_utf8(bytes)?.replace(PLACEHOLDER, &name).into_bytes();
        }
        let packed = out.join(format!("{number}.gz"));
        fs::write(&packed, gzip(&bytes)?)?;
        writeln!(
            table,
            "    Asset {{ path: {path:?}, content_type: {kind:?}, \
             gzip: include_bytes!({packed:?}) }},"
        )?;
    }
    table.push_str("];\n");
    fs::write(out.join("pages.rs"), table)?;
    Ok(())
}

/// The files below `dir`, from `root`, with `/`.
fn collect(root: &Path, dir: &Path, paths: &mut Vec<String>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(root, &path, paths)?;
        } else {
            paths.push(path.strip_prefix(root)?.to_string_lossy().replace('\\', "/"));
        }
    }
    Ok(())
}

/// What is not served (the list of kept libraries) has none.
fn content_type(path: &str) -> Option<&'static str> {
    match path.rsplit_once('.')?.1 {
        "html" => Some("text/html; charset=utf-8"),
        "js" => Some("text/javascript; charset=utf-8"),
        "css" => Some("text/css; charset=utf-8"),
        "svg" => Some("image/svg+xml"),
        _ => None,
    }
}

/// The same bytes for the same input: no name and no time in the header.
fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// FNV-1a: names a set of files that nobody tampers with; it guards against nothing.
struct Fnv(u64);

impl Fnv {
    const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        // The length keeps a name apart from the content that follows it.
        for &byte in bytes.len().to_le_bytes().iter().chain(bytes) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}
