//! The model servers and the NPU (pure).

use std::net::{IpAddr, SocketAddr};

use crate::config::sections::hardware::Backend;
use crate::doctor::servers::Server;
use crate::doctor::{Facts, Finding};

/// Speed of the NPU's link on a Pi 5, as the kernel begins to print it.
const LINK: &str = "8.0 GT/s";

pub(super) fn reachable(facts: &Facts) -> Vec<Finding> {
    let silent = facts.servers.iter().filter_map(|server| {
        let why_not = server.models.as_ref().err()?;
        let (unit, why) = match server.backend {
            Backend::Hailo => ("hailo-ollama", "the NPU is not used"),
            _ => ("ollama", "nobody steps in where the NPU does not answer"),
        };
        let what = format!("{unit} does not answer on {}: {why_not}", server.url);
        let fix = format!("sudo systemctl enable --now {unit} && journalctl -u {unit} -n 20");
        Some(
            match server.backend {
                // A machine without the device has no use for its server.
                Backend::Hailo if facts.vitals.npu_present != Some(true) => {
                    Finding::note(what, why)
                }
                _ => Finding::warning(what, why),
            }
            .fix(fix),
        )
    });
    let mut found: Vec<Finding> = silent.collect();
    let all_silent = found.len() == facts.servers.len() && !facts.servers.is_empty();
    if all_silent && !facts.has_reserve_model {
        let why = "no question can be answered";
        let what = "no model server answers, and there is no model for the reserve";
        found.push(Finding::fault(what, why).fix("crayfish model fetch"));
    }
    found
}

pub(super) fn models(facts: &Facts) -> Vec<Finding> {
    let missing = facts.servers.iter().filter(|server| !server.has_model());
    let found = missing.filter_map(|server| {
        let offered = server.models.as_ref().ok()?;
        let model = &server.model;
        let offered = match offered.as_slice() {
            [] => "no model at all".to_owned(),
            names => names.join(", "),
        };
        let what = format!("{} has no {model}; it has {offered}", server.backend.as_str());
        let why = "it can answer only with the model that the configuration names";
        Some(Finding::warning(what, why).fix(pull(server)))
    });
    found.collect()
}

/// The command that fetches the model. `hailo-ollama` dies of faults in a pull that is streamed.
fn pull(server: &Server) -> String {
    let model = &server.model;
    match server.backend {
        Backend::Hailo => format!(
            "curl {}/api/pull -H 'Content-Type: application/json' -d \
             '{{\"model\":\"{model}\",\"stream\":false}}' && sudo systemctl restart hailo-ollama",
            server.url
        ),
        _ => format!("ollama pull {model}"),
    }
}

pub(super) fn binds(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    for server in &facts.servers {
        let Some(port) = port(&server.url) else { continue };
        let open = facts.listening.iter().find(|at| at.port() == port && is_open(**at));
        let Some(open) = open else { continue };
        let name = match server.backend {
            Backend::Hailo => "hailo-ollama",
            _ => "ollama",
        };
        let what = format!("{name} listens on {open}, for everybody in the network");
        let why = "it asks nobody who he is: anybody can use it, load models and delete them";
        found.push(Finding::warning(what, why).fix(close(server.backend, port)));
    }
    found
}

/// What binds the server to this machine.
fn close(backend: Backend, port: u16) -> String {
    match backend {
        // Releases before 5.3 read a file and no variable; the unit of this package sets both.
        Backend::Hailo => format!(
            "sudo systemctl disable --now hailo-ollama; stop any that was started by hand; with \
             release 5.3 or newer set OLLAMA_HOST=127.0.0.1:{port}, with an older one: sudo sed -i \
             's/0\\.0\\.0\\.0/127.0.0.1/' /etc/xdg/hailo-ollama/hailo-ollama.json; then sudo \
             systemctl enable --now hailo-ollama"
        ),
        _ => format!(
            "printf '[Service]\\nEnvironment=OLLAMA_HOST=127.0.0.1:{port}\\n' | sudo systemctl \
             edit --stdin ollama && sudo systemctl restart ollama"
        ),
    }
}

fn is_open(at: SocketAddr) -> bool {
    match at.ip() {
        IpAddr::V4(address) => !address.is_loopback(),
        IpAddr::V6(address) => !address.is_loopback(),
    }
}

/// The port of a URL of this machine; servers elsewhere are other people's business.
fn port(url: &str) -> Option<u16> {
    let rest = url.split_once("://")?.1;
    let authority = rest.split('/').next()?;
    let (host, port) = authority.rsplit_once(':')?;
    let address: IpAddr = host.trim_matches(['[', ']']).parse().ok()?;
    address.is_loopback().then(|| port.parse().ok())?
}

pub(super) fn npu(facts: &Facts) -> Vec<Finding> {
    let vitals = &facts.vitals;
    let uses_npu = facts.servers.iter().any(|server| server.backend == Backend::Hailo);
    if !uses_npu || vitals.npu_present.is_none() {
        return Vec::new();
    }
    let is_plugged = vitals.npu_link.is_some();
    if vitals.npu_present == Some(false) {
        let why = "answers come from the CPU";
        let finding = match is_plugged {
            true => Finding::warning("the NPU is plugged in but its driver is not loaded", why)
                .fix("sudo apt install dkms hailo-h10-all && sudo reboot"),
            false => Finding::note("there is no Hailo-10H in this machine", why)
                .fix("set hardware.npu_acceleration to false if there never will be one"),
        };
        return vec![finding];
    }
    let slow = vitals.npu_link.as_deref().filter(|link| !link.starts_with(LINK));
    let why = "models load more slowly over a slow link, which often is a loose cable";
    let finding = |link| {
        let what = format!("the NPU's link has {link} instead of {LINK}");
        Finding::warning(what, why).fix("reseat the flat cable; then: sudo lspci -d 1e60: -vv")
    };
    slow.map(finding).into_iter().collect()
}
