//! Where state and sockets live: what the person said, what systemd gave, what XDG says.
//!
//! The choice is a function of the environment as a value; reading it and making directories are
//! apart from it.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::exit;
use crate::connector::terminal::SOCKET_NAME;

/// Directories hold conversations: for their owner only.
const DIRECTORY_MODE: u32 = 0o700;

/// Longest path of a Unix socket on Linux, in bytes: `sun_path` has 108, the last one is zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Where the packaged service has its state.
pub const SERVICE_STATE_DIR: &str = "/var/lib/crayfish";

/// Where the packaged service has its runtime directory; clients look there too.
const SERVICE_RUNTIME_DIR: &str = "/run/crayfish";

/// The part of the environment that matters here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Env {
    /// `--state`.
    pub state_flag: Option<PathBuf>,
    /// `$STATE_DIRECTORY`, from systemd.
    pub state_directory: Option<OsString>,
    /// `$RUNTIME_DIRECTORY`, from systemd.
    pub runtime_directory: Option<OsString>,
    /// `$XDG_STATE_HOME`.
    pub xdg_state_home: Option<OsString>,
    /// `$XDG_RUNTIME_DIR`.
    pub xdg_runtime_dir: Option<OsString>,
    /// `$HOME`.
    pub home: Option<OsString>,
}

impl Env {
    /// The process's environment.
    #[must_use]
    pub fn read(state_flag: Option<PathBuf>) -> Self {
        let var = std::env::var_os;
        Self {
            state_flag,
            state_directory: var("STATE_DIRECTORY"),
            runtime_directory: var("RUNTIME_DIRECTORY"),
            xdg_state_home: var("XDG_STATE_HOME"),
            xdg_runtime_dir: var("XDG_RUNTIME_DIR"),
            home: var("HOME"),
        }
    }
}

/// The chosen directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// Database, `soul.md`, locks.
    pub state: PathBuf,
    /// Sockets; may vanish at a reboot.
    pub runtime: PathBuf,
}

/// Why there is no place to live, with the way out.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// No variable and no flag says where.
    #[error(
        "no place for the state: neither --state nor STATE_DIRECTORY, XDG_STATE_HOME or HOME is \
         set; start with --state DIR"
    )]
    Nowhere,
    /// A directory cannot be made.
    #[error("{} cannot be created: {why}; create it, or choose another with --state DIR",
        place.display())]
    CannotCreate {
        /// The directory.
        place: PathBuf,
        /// The system's words.
        why: io::Error,
    },
    /// It is there and may not be written.
    #[error("{} may not be written: {why}; give it to the user who runs crayfish, \
        or choose another with --state DIR", place.display())]
    NotPermitted {
        /// The directory.
        place: PathBuf,
        /// The system's words.
        why: io::Error,
    },
    /// The socket's path would not fit.
    #[error(
        "{} is too long for a socket ({SOCKET_PATH_BYTES_MAX} bytes at most); choose a shorter \
         state directory with --state DIR, or set XDG_RUNTIME_DIR", place.display()
    )]
    TooLong {
        /// The path.
        place: PathBuf,
    },
}

impl PathError {
    /// The process's exit code.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Self::NotPermitted { .. } => exit::PERMISSION,
            Self::Nowhere | Self::CannotCreate { .. } | Self::TooLong { .. } => exit::CANNOT_CREATE,
        }
    }
}

impl Paths {
    /// Chooses. State: the flag, else systemd's, else `$XDG_STATE_HOME/crayfish`, else
    /// `~/.local/state/crayfish`. Runtime: systemd's, else `<state>/run` if the flag chose the
    /// state (two daemons must not share a socket), else `$XDG_RUNTIME_DIR/crayfish`, else
    /// `<state>/run`. XDG variables with relative paths are ignored, as XDG demands.
    ///
    /// # Errors
    /// `Nowhere`, or `TooLong` for the socket.
    pub fn choose(env: &Env) -> Result<Self, PathError> {
        let state = env
            .state_flag
            .clone()
            .or_else(|| first_of_list(env.state_directory.as_ref()))
            .or_else(|| Some(absolute(env.xdg_state_home.as_ref())?.join("crayfish")))
            .or_else(|| Some(absolute(env.home.as_ref())?.join(".local/state/crayfish")))
            .ok_or(PathError::Nowhere)?;
        let xdg = || match env.state_flag {
            Some(_) => None,
            None => Some(absolute(env.xdg_runtime_dir.as_ref())?.join("crayfish")),
        };
        let runtime = first_of_list(env.runtime_directory.as_ref())
            .or_else(xdg)
            .unwrap_or_else(|| state.join("run"));
        let paths = Self { state, runtime };
        let socket = paths.socket();
        match socket.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
            true => Err(PathError::TooLong { place: socket }),
            false => Ok(paths),
        }
    }

    /// The terminal socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.runtime.join(SOCKET_NAME)
    }

    /// Makes what is missing, and proves that the state can be written.
    ///
    /// # Errors
    /// `CannotCreate` or `NotPermitted`.
    pub fn prepare(&self) -> Result<(), PathError> {
        for place in [&self.state, &self.runtime] {
            prepare_directory(place)?;
        }
        Ok(())
    }
}

/// Sockets on which a daemon of this environment may listen, likeliest first: for clients, which
/// are started from a shell while the daemon may be a service.
#[must_use]
pub fn sockets_to_try(env: &Env) -> Vec<PathBuf> {
    let own = Paths::choose(env).map(|paths| paths.socket()).ok();
    // A person who named a state means that one and no other.
    let service =
        env.state_flag.is_none().then(|| Path::new(SERVICE_RUNTIME_DIR).join(SOCKET_NAME));
    let mut places: Vec<PathBuf> = own.into_iter().chain(service).collect();
    places.dedup();
    places
}

fn prepare_directory(place: &Path) -> Result<(), PathError> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(DIRECTORY_MODE);
    builder.create(place).map_err(|why| match why.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            PathError::NotPermitted { place: place.to_owned(), why }
        }
        _ => PathError::CannotCreate { place: place.to_owned(), why },
    })?;
    let may = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    rustix::fs::access(place, may)
        .map_err(|why| PathError::NotPermitted { place: place.to_owned(), why: why.into() })
}

/// systemd lists several directories with colons; the first is ours.
fn first_of_list(list: Option<&OsString>) -> Option<PathBuf> {
    std::env::split_paths(list?).next().filter(|first| first.is_absolute())
}

fn absolute(path: Option<&OsString>) -> Option<PathBuf> {
    path.map(PathBuf::from).filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(flag: &str, state: &str, runtime: &str, xdg: [&str; 2], home: &str) -> Env {
        let var = |text: &str| (!text.is_empty()).then(|| OsString::from(text));
        Env {
            state_flag: var(flag).map(PathBuf::from),
            state_directory: var(state),
            runtime_directory: var(runtime),
            xdg_state_home: var(xdg[0]),
            xdg_runtime_dir: var(xdg[1]),
            home: var(home),
        }
    }

    #[test]
    fn the_flag_goes_before_systemd_before_xdg_before_home() {
        let both = ["/xs", "/xr"];
        let table = [
            (env("/f", "/s", "/r", both, "/h"), "/f", "/r"),
            (env("/f", "", "", both, "/h"), "/f", "/f/run"),
            (env("rel", "", "", both, "/h"), "rel", "rel/run"),
            (env("", "/s:/s2", "/r:/r2", both, "/h"), "/s", "/r"),
            (env("", "", "", both, "/h"), "/xs/crayfish", "/xr/crayfish"),
            (
                env("", "", "", ["xs", "xr"], "/h"),
                "/h/.local/state/crayfish",
                "/h/.local/state/crayfish/run",
            ),
            (env("", "", "", ["", "/xr"], "/h"), "/h/.local/state/crayfish", "/xr/crayfish"),
        ];
        for (env, state, runtime) in table {
            let paths = Paths::choose(&env).unwrap();
            assert_eq!((paths.state, paths.runtime), (state.into(), runtime.into()), "{env:?}");
        }
    }

    #[test]
    fn an_empty_environment_is_refused_with_the_way_out() {
        let error = Paths::choose(&Env::default()).unwrap_err();
        assert_eq!(error.code(), 73);
        assert!(error.to_string().contains("--state DIR"), "{error}");
    }

    #[test]
    fn a_socket_path_that_does_not_fit_is_refused_before_anything_is_made() {
        let long = format!("/{}", "d".repeat(90));
        let error = Paths::choose(&env(&long, "", "", ["", ""], "")).unwrap_err();
        assert!(matches!(error, PathError::TooLong { .. }), "{error}");
        assert_eq!(error.code(), 73);
    }

    #[test]
    fn a_client_tries_the_service_unless_a_state_was_named() {
        let own = env("", "", "", ["", "/xr"], "/h");
        let expected: [PathBuf; 2] =
            ["/xr/crayfish/crayfish.sock".into(), "/run/crayfish/crayfish.sock".into()];
        assert_eq!(sockets_to_try(&own), expected);
        let named = env("/f", "", "", ["", "/xr"], "/h");
        assert_eq!(sockets_to_try(&named), [PathBuf::from("/f/run/crayfish.sock")]);
        assert_eq!(sockets_to_try(&Env::default()), expected[1..]);
    }

    #[test]
    fn missing_directories_are_made_for_the_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("a/b");
        let paths = Paths { runtime: state.join("run"), state };
        paths.prepare().unwrap();
        paths.prepare().unwrap();
        let mode = std::fs::metadata(&paths.runtime).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, DIRECTORY_MODE);
    }

    #[test]
    fn a_file_in_the_way_is_named_with_the_fix() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        std::fs::write(&state, "").unwrap();
        let error = Paths { runtime: state.join("run"), state }.prepare().unwrap_err();
        assert_eq!(error.code(), 73);
        let text = error.to_string();
        assert!(text.contains("state cannot be created"), "{text}");
        assert!(text.contains("--state DIR"), "{text}");
    }

    #[test]
    fn a_place_that_may_not_be_written_is_77() {
        // /proc refuses new directories to everybody, root included.
        let state = PathBuf::from("/proc/self/crayfish");
        let error = Paths { runtime: state.clone(), state }.prepare().unwrap_err();
        assert!(matches!(error.code(), 73 | 77), "{error}");
        let why = io::Error::from(io::ErrorKind::PermissionDenied);
        assert_eq!(PathError::NotPermitted { place: "/x".into(), why }.code(), 77);
    }
}
