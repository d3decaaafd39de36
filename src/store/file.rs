//! Files beside the database: the instance lock, atomic replacement, the state directory.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

/// Name of the lock in the state directory.
const LOCK_NAME: &str = "lock";

/// Held while this process owns the state directory; released by the kernel when it ends.
#[derive(Debug)]
pub struct InstanceLock {
    /// The lock lives as long as this is open.
    _file: File,
}

/// Why the state directory could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has it.
    #[error("another crayfish{} uses {state_dir}", process(*.holder))]
    Held {
        /// The directory.
        state_dir: PathBuf,
        /// The other process, if the lock file says so.
        holder: Option<u32>,
    },
    /// The directory cannot be used.
    #[error("cannot lock {path}: {source}")]
    Io {
        /// The lock file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Creates the state directory with mode 0700, parents included; leaves an existing one alone.
///
/// # Errors
/// As the file system says.
pub fn create_state_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Locks the state directory for this process, creating it if necessary.
///
/// # Errors
/// `Held` if another process has it, `Io` if it cannot be used.
pub fn lock(state_dir: &Path) -> Result<InstanceLock, LockError> {
    let path = state_dir.join(LOCK_NAME);
    let io = |source| LockError::Io { path: path.clone(), source };
    create_state_dir(state_dir).map_err(io)?;
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(io)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut text = String::new();
            let read = (&file).take(32).read_to_string(&mut text);
            let holder = read.ok().and_then(|_| text.trim().parse().ok());
            return Err(LockError::Held { state_dir: state_dir.to_owned(), holder });
        }
        Err(errno) => return Err(io(errno.into())),
    }
    // The number is for the other's message only: a full disk must not keep us from starting.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(InstanceLock { _file: file })
}

/// Puts `bytes` in the place of the file, so that after a power cut either the old or the new
/// content is there, whole. An existing file's permissions are kept; a new one gets 0600.
///
/// # Errors
/// As the file system says; the old file is then unchanged.
pub fn replace_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or_else(|| io::Error::other("not a file's path"))?;
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(temporary);
    let written = write_whole(&temporary, path, bytes).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // What is left of the attempt; it may not even exist.
        let _ = fs::remove_file(&temporary);
        return written;
    }
    sync_dir_of(path)
}

/// Reads a whole file of at most this many bytes, into memory of just its size.
///
/// # Errors
/// As the file system says, and `FileTooLarge`.
pub fn read_whole(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let size = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    if size > bytes_max {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = vec![0; size];
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Reads a file that does not tell its size, as those of /proc, up to this many bytes.
///
/// # Errors
/// As the file system says.
pub fn read_unsized(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What tells a file from another one under the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Its size.
    pub bytes: u64,
    inode: u64,
    changed_at: (i64, i64),
}

/// A file's stamp.
///
/// # Errors
/// As the file system says.
pub fn stamp(path: &Path) -> io::Result<Stamp> {
    let found = fs::metadata(path)?;
    let changed_at = (found.mtime(), found.mtime_nsec());
    Ok(Stamp { bytes: found.len(), inode: found.ino(), changed_at })
}

/// Moves a complete file to its place, so that after a power cut it is there whole or not at all.
///
/// # Errors
/// As the file system says.
pub fn put_in_place(from: &Path, to: &Path) -> io::Result<()> {
    File::open(from)?.sync_all()?;
    fs::rename(from, to)?;
    sync_dir_of(to)
}

/// Brings the directory entry of a file onto the medium.
pub(super) fn sync_dir_of(path: &Path) -> io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(parent)?.sync_all()
}

/// The holder in a sentence, if it is known.
fn process(holder: Option<u32>) -> String {
    holder.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

fn write_whole(temporary: &Path, target: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(temporary)?;
    if let Ok(old) = fs::metadata(target) {
        let mode = old.permissions().mode() & 0o7777;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
    }
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lock_is_refused_and_names_the_holder() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("a/state");
        let held = lock(&state).unwrap();
        let mode = fs::metadata(&state).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o700);
        let refused = lock(&state).unwrap_err();
        let LockError::Held { holder, .. } = &refused else { panic!("{refused:?}") };
        assert_eq!(*holder, Some(std::process::id()));
        assert!(refused.to_string().contains(&std::process::id().to_string()), "{refused}");
        drop(held);
        lock(&state).unwrap();
    }

    #[test]
    fn a_replaced_file_keeps_its_mode_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("soul.md");
        replace_atomically(&path, b"one").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        replace_atomically(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_replacement_leaves_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        // A directory in the file's place cannot be renamed over.
        let path = dir.path().join("taken");
        fs::create_dir_all(path.join("inside")).unwrap();
        assert!(replace_atomically(&path, b"new").is_err());
        assert!(path.join("inside").is_dir());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
