//! The NPU, as far as anybody may see it from outside: `hailo::device` knows where to look.

use super::tree::Tree;

/// What is known of it.
#[derive(Debug, Default)]
pub(super) struct Npu {
    /// Whether a device can be used; absent where there is no `/dev` to look into.
    pub(super) present: Option<bool>,
    pub(super) node: Option<String>,
    pub(super) driver: Option<String>,
    pub(super) link: Option<String>,
}

/// Looks for it.
pub(super) fn read(tree: &Tree) -> Npu {
    if !tree.has("dev") {
        return Npu::default();
    }
    let facts = hailo::device::facts(tree.root());
    let name = |path: &std::path::PathBuf| Some(path.file_name()?.to_str()?.to_owned());
    Npu {
        present: Some(!facts.nodes.is_empty()),
        node: facts.nodes.first().and_then(name),
        driver: facts.driver_version,
        link: facts.link_speed,
    }
}
