//! Ways to reach a person. So far there is one: the terminal, over a unix socket.

mod client;
#[cfg(any(test, feature = "sim"))]
pub mod foreign;
pub(crate) mod lines;
pub mod terminal;
