//! Where a client finds the daemon and keeps its own history.
//!
//! By the rules of `daemon::paths`: a named state means that daemon and no other, otherwise
//! systemd's directories, otherwise XDG's, and the packaged service is tried last.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use crate::daemon::paths::{Env, Paths, sockets_to_try};

/// What a person typed in `crayfish chat`, inside the state directory.
const TYPED_NAME: &str = "chat_history";

/// Which daemon is meant.
#[derive(Debug, Clone, Default, Args)]
pub struct PlaceArgs {
    /// Directory given to `crayfish run --state`
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

/// The places of one person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Places {
    /// Sockets to try, likeliest first.
    pub(super) sockets: Vec<PathBuf>,
    /// What was typed before, if there is a place for it.
    pub(super) typed: Option<PathBuf>,
}

impl Places {
    /// From the flag and the environment.
    pub(super) fn find(args: &PlaceArgs, var: &dyn Fn(&str) -> Option<OsString>) -> Self {
        let env = Env {
            state_flag: args.state.clone(),
            state_directory: var("STATE_DIRECTORY"),
            runtime_directory: var("RUNTIME_DIRECTORY"),
            xdg_state_home: var("XDG_STATE_HOME"),
            xdg_runtime_dir: var("XDG_RUNTIME_DIR"),
            home: var("HOME"),
        };
        let typed = Paths::choose(&env).ok().map(|paths| paths.state.join(TYPED_NAME));
        Self { sockets: sockets_to_try(&env), typed }
    }

    /// From the flag and this process's environment.
    pub(super) fn of_process(args: &PlaceArgs) -> Self {
        Self::find(args, &|name| std::env::var_os(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_state_means_that_daemon_and_no_other() {
        type Row<'a> = (Option<&'a str>, &'a [(&'a str, &'a str)], &'a [&'a str], Option<&'a str>);
        let table: [Row<'_>; 5] = [
            (
                Some("/s"),
                &[("XDG_RUNTIME_DIR", "/xr"), ("HOME", "/h")],
                &["/s/run/crayfish.sock"],
                Some("/s/chat_history"),
            ),
            (
                None,
                &[("XDG_RUNTIME_DIR", "/xr"), ("HOME", "/h")],
                &["/xr/crayfish/crayfish.sock", "/run/crayfish/crayfish.sock"],
                Some("/h/.local/state/crayfish/chat_history"),
            ),
            (
                None,
                &[("XDG_STATE_HOME", "/xs"), ("XDG_RUNTIME_DIR", "relative")],
                &["/xs/crayfish/run/crayfish.sock", "/run/crayfish/crayfish.sock"],
                Some("/xs/crayfish/chat_history"),
            ),
            (
                None,
                &[("RUNTIME_DIRECTORY", "/run/crayfish:/run/b"), ("STATE_DIRECTORY", "/s:/t")],
                &["/run/crayfish/crayfish.sock"],
                Some("/s/chat_history"),
            ),
            (None, &[], &["/run/crayfish/crayfish.sock"], None),
        ];
        for (state, env, sockets, typed) in table {
            let var = |name: &str| {
                env.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
            };
            let args = PlaceArgs { state: state.map(Into::into) };
            let expected = Places {
                sockets: sockets.iter().map(Into::into).collect(),
                typed: typed.map(Into::into),
            };
            assert_eq!(Places::find(&args, &var), expected, "{state:?} {env:?}");
        }
    }
}
