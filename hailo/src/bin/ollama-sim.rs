//! Simulator of Ollama.
fn main() {}
