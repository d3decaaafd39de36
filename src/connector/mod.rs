//! Ways to reach a person. So far there is one: the terminal, over a unix socket.

mod client;
pub(crate) mod lines;
pub mod terminal;
