//! The wire layer: the real client, from the agent down to its sockets, against the simulators
//! over loopback. Real sockets and real time; the simulators skip or shorten theirs.
//!
//! What must hold in every test is asserted where the test's parts are dropped: no forbidden
//! field, never two generations inside hailo-ollama, and every prompt within its context
//! (`servers`, `house`).

mod house;
mod openai_peer;
mod servers;

mod alone;
mod budget;
mod continuation;
mod ends;
mod heal;
mod matrix;
mod ollama;
mod storm;
