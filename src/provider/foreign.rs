//! What model servers send, decoded as it would be on arrival; for the fuzz targets.

use super::backend::ChatDelta;
use super::fault::Fault;
use super::parse::Dialect;
use super::{ndjson, openai};

/// Decodes the body of a streamed answer that arrives in pieces of `step` bytes.
///
/// # Errors
/// The fault that the body is, after whatever was decoded before it.
pub fn decode(dialect: Dialect, body: &[u8], step: usize) -> Result<Vec<ChatDelta>, Fault> {
    match dialect {
        Dialect::OpenAi => openai::stream::decode(body, step),
        Dialect::Hailo | Dialect::Ollama => ndjson::decode(dialect, body, step),
    }
}
