//! Section `web_chat`: the HTTP interface (pure).

use std::net::{IpAddr, SocketAddr};

use crate::config::key::{AnyKey, Key};
use crate::config::secrets::Secret;
use crate::config::values::Values;

/// Whether there is one.
pub const ENABLED: Key<bool> = Key::flag("web_chat.enabled", true, "Whether to listen at all.");

/// Where it listens.
pub const HOST: Key<IpAddr> = Key::address(
    "web_chat.host",
    "127.0.0.1",
    "Address to listen on. 127.0.0.1 is this machine only, 0.0.0.0 every network.",
);

/// The port.
pub const PORT: Key<u16> =
    Key::port("web_chat.port", 8765, "Port to listen on; 0 takes any free one and logs it.");

/// The token.
pub const AUTH_TOKEN: Key<Option<Secret>> = Key::secret(
    "web_chat.auth_token",
    "Token that requests must carry in X-OCF-Token. Empty: none is asked for.",
);

/// Further host names.
pub const ALLOWED_HOSTS: Key<Vec<String>> = Key::hosts(
    "web_chat.allowed_hosts",
    "Names under which browsers may reach the interface, beside localhost and the address \
     above. Requests for any other name are refused, so that no web page can drive it.",
);

/// The section's keys.
pub const KEYS: &[&dyn AnyKey] = &[&ENABLED, &HOST, &PORT, &AUTH_TOKEN, &ALLOWED_HOSTS];

/// Settings of the section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebChat {
    /// Whether to listen.
    pub enabled: bool,
    /// Where; port 0 is any free one.
    pub address: SocketAddr,
    /// What requests must present.
    pub auth_token: Option<Secret>,
    /// Further accepted host names, lower case, without ports.
    pub allowed_hosts: Vec<String>,
}

impl WebChat {
    /// Builds the settings.
    #[must_use]
    pub fn new(values: &Values) -> Self {
        Self {
            enabled: values.get(&ENABLED),
            address: SocketAddr::new(values.get(&HOST), values.get(&PORT)),
            auth_token: values.get(&AUTH_TOKEN),
            allowed_hosts: values.get(&ALLOWED_HOSTS),
        }
    }
}
