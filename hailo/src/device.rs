//! Facts about the device which any user may read from sysfs and `/dev`, without opening it.
//!
//! Every function takes the root of the file system, so that a test can draw its own machine. All
//! facts are optional: a missing file is an answer, never an error.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// PCI vendor of Hailo, as sysfs prints it.
const PCI_VENDOR: &str = "0x1e60";
/// PCI device of the Hailo-10H, as sysfs prints it.
const PCI_DEVICE: &str = "0x45c4";
/// The kernel module has two names: the second is that of the 5.0 drivers.
const MODULES: [&str; 2] = ["hailo1x_pci", "hailo_pci"];

/// Classes in sysfs in which the drivers up to 5.2 and from 5.3 on put their devices.
const CLASSES: [&str; 2] = ["hailo_chardev", "hailo1x"];

/// What can be seen of a Hailo-10H from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The device nodes, `/dev/hailo0` with drivers up to 5.2 and `/dev/h1x-0` from 5.3 on, sorted.
    /// A service with a `/dev` of its own does not see them there; the driver's class in sysfs
    /// names them too.
    pub nodes: Vec<PathBuf>,
    /// Version of the loaded kernel module.
    pub driver_version: Option<String>,
    /// Bus address of the PCI function 1e60:45c4.
    pub pci_address: Option<String>,
    /// Speed of its link as the kernel prints it; `8.0 GT/s PCIe` is what the hat reaches.
    pub link_speed: Option<String>,
}

/// Collects the facts below `root` (`/` on a real machine).
#[must_use]
pub fn facts(root: &Path) -> Facts {
    let pci = pci_function(root);
    Facts {
        nodes: nodes(root),
        driver_version: MODULES
            .iter()
            .find_map(|module| line(&root.join("sys/module").join(module).join("version"))),
        link_speed: pci.as_ref().and_then(|path| line(&path.join("current_link_speed"))),
        pci_address: pci.as_deref().and_then(Path::file_name).map(lossy),
    }
}

/// Whether a node exists through which a server could use the device now.
///
/// The PCI function alone is not enough: without its driver nothing can run on it.
#[must_use]
pub fn present(root: &Path) -> bool {
    !nodes(root).is_empty()
}

fn nodes(root: &Path) -> Vec<PathBuf> {
    let dev = root.join("dev");
    let classes = CLASSES.iter().map(|class| root.join("sys/class").join(class));
    let mut found: Vec<PathBuf> = std::iter::once(dev.clone())
        .chain(classes)
        .flat_map(|directory| entries(&directory))
        .filter_map(|path| Some(dev.join(path.file_name().filter(|name| is_node(&lossy(name)))?)))
        .collect();
    found.sort();
    found.dedup();
    found
}

/// `hailo[0-9]*` and `h1x-*`. `hailo_something` is no device.
fn is_node(name: &str) -> bool {
    name.strip_prefix("hailo").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        || name.strip_prefix("h1x-").is_some_and(|rest| !rest.is_empty())
}

fn pci_function(root: &Path) -> Option<PathBuf> {
    let mut functions = entries(&root.join("sys/bus/pci/devices"));
    functions.sort();
    functions.into_iter().find(|path| {
        line(&path.join("vendor")).as_deref() == Some(PCI_VENDOR)
            && line(&path.join("device")).as_deref() == Some(PCI_DEVICE)
    })
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory)
        .map(|list| list.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default()
}

fn line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn lossy(name: &std::ffi::OsStr) -> String {
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Root(PathBuf);

    impl Root {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("hailo-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn file(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn an_empty_machine_has_no_device_and_no_facts() {
        let root = Root::new("empty");
        assert_eq!(facts(&root.0), Facts::default());
        assert!(!present(&root.0));
    }

    #[test]
    fn both_names_of_the_node_are_known_and_neighbours_are_not() {
        let root = Root::new("nodes");
        for name in ["hailo0", "h1x-0", "hailo_integrated", "hailo", "h1x-", "null"] {
            root.file(&format!("dev/{name}"), "");
        }
        let names: Vec<_> = facts(&root.0).nodes;
        assert_eq!(names, [root.0.join("dev/h1x-0"), root.0.join("dev/hailo0")]);
        assert!(present(&root.0));
    }

    #[test]
    fn a_node_that_only_sysfs_names_is_found_once() {
        let root = Root::new("class");
        root.file("dev/null", "");
        root.file("sys/class/hailo1x/h1x-0/device_id", "0001:01:00.0\n");
        assert_eq!(facts(&root.0).nodes, [root.0.join("dev/h1x-0")]);
        root.file("dev/h1x-0", "");
        assert_eq!(facts(&root.0).nodes.len(), 1);
    }

    #[test]
    fn the_pci_function_gives_address_and_link_and_the_module_its_version() {
        let root = Root::new("pci");
        let at = "sys/bus/pci/devices";
        root.file(&format!("{at}/0000:01:00.0/vendor"), "0x1e60\n");
        root.file(&format!("{at}/0000:01:00.0/device"), "0x2864\n");
        root.file(&format!("{at}/0001:01:00.0/vendor"), "0x1e60\n");
        root.file(&format!("{at}/0001:01:00.0/device"), "0x45c4\n");
        root.file(&format!("{at}/0001:01:00.0/current_link_speed"), "8.0 GT/s PCIe\n");
        root.file("sys/module/hailo1x_pci/version", "5.1.1\n");
        let facts = facts(&root.0);
        assert_eq!(facts.pci_address.as_deref(), Some("0001:01:00.0"));
        assert_eq!(facts.link_speed.as_deref(), Some("8.0 GT/s PCIe"));
        assert_eq!(facts.driver_version.as_deref(), Some("5.1.1"));
        assert!(!present(&root.0), "a function without a node cannot be used");
    }
}
