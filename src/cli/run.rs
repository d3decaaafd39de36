//! `crayfish run`: the daemon.

use std::path::PathBuf;

use clap::Args;

use crate::daemon::Wish;

/// Run the daemon (also without a verb)
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct RunArgs {
    /// Configuration file [default: the first that is found]
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Directory of the database, soul.md and locks
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

impl RunArgs {
    /// What the daemon is asked for; `fetch` allows it to fetch a model without asking.
    pub(super) fn wish(self, fetch: bool) -> Wish {
        Wish { config: self.config, state: self.state, fetch }
    }
}
