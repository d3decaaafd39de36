//! Simulator of hailo-ollama.
fn main() {}
