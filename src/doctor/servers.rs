//! The model servers, asked for the names of their models.

use std::time::Duration;

use futures_util::StreamExt;
use serde::Deserialize;

use crate::config::Config;
use crate::config::sections::hardware::Backend;
use crate::limits::{DOCTOR_ANSWER_BYTES_MAX, DOCTOR_ANSWER_MAX};
use crate::net::client::ReqwestHttp;
use crate::net::{Http, HttpRequest, Method};
use crate::provider::aliases;

/// How long a server on this machine may take to open a connection.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// A server, and what it said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Which.
    pub backend: Backend,
    /// Where it should be.
    pub url: String,
    /// The configured model.
    pub model: String,
    /// Names of its models, or why there are none.
    pub models: Result<Vec<String>, String>,
}

impl Server {
    /// Whether it has the model, under this name or another of the same.
    #[must_use]
    pub fn has_model(&self) -> bool {
        let names = aliases::aliases(&self.model);
        self.models.as_ref().is_ok_and(|offered| aliases::pick(&names, offered).is_some())
    }
}

#[derive(Deserialize)]
struct Tags {
    #[serde(default)]
    models: Vec<Tag>,
}

#[derive(Deserialize)]
struct Tag {
    name: String,
}

/// Asks those servers of the configuration that speak Ollama's language.
pub async fn ask(config: &Config) -> Vec<Server> {
    let http = ReqwestHttp::new();
    let hardware = &config.hardware;
    let mut servers = Vec::new();
    for backend in hardware.slots.iter() {
        let (url, model) = match backend {
            Backend::Hailo => (hardware.hailo_url.as_str(), &hardware.hailo_model),
            Backend::Ollama => (hardware.cpu_url.as_str(), &hardware.cpu_model),
            _ => continue,
        };
        let asked = tokio::time::timeout(DOCTOR_ANSWER_MAX, models(&http, url)).await;
        let models = asked.unwrap_or_else(|_| Err("it does not answer in time".to_owned()));
        servers.push(Server { backend, url: url.to_owned(), model: model.clone(), models });
    }
    servers
}

async fn models(http: &dyn Http, url: &str) -> Result<Vec<String>, String> {
    let request = HttpRequest {
        method: Method::Get,
        url: format!("{url}/api/tags"),
        body: None,
        bearer: None,
        connect_timeout: CONNECT_MAX,
    };
    let mut response = http.send(request).await.map_err(|error| error.to_string())?;
    let mut body = Vec::new();
    while let Some(piece) = response.body.next().await {
        body.extend(piece.map_err(|error| error.to_string())?);
        if body.len() > DOCTOR_ANSWER_BYTES_MAX {
            return Err("its list of models has no end".to_owned());
        }
    }
    if response.status != 200 {
        return Err(format!("it answers with status {}", response.status));
    }
    let tags: Tags =
        serde_json::from_slice(&body).map_err(|_| "it does not speak Ollama".to_owned())?;
    Ok(tags.models.into_iter().map(|tag| tag.name).collect())
}
