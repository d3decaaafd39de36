//! The models on the card, and the bodies of the routes that list and describe them.

use std::{collections::BTreeSet, sync::Mutex};

use serde::Serialize;

use super::reply::json;
use crate::{
    model::{Model, Release, table},
    sim::{clock::stamp_now, server::lock},
};

#[derive(Debug)]
pub(super) struct Store {
    release: Release,
    downloaded: Mutex<BTreeSet<&'static str>>,
    /// All files came at once: when the simulator was started.
    modified_at: String,
}

#[derive(Serialize)]
struct Item {
    name: &'static str,
    model: &'static str,
    modified_at: String,
    size: u64,
    details: Details,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
}

#[derive(Serialize)]
struct Details {
    parent_model: &'static str,
    format: &'static str,
    family: &'static str,
    families: [&'static str; 1],
    parameter_size: &'static str,
    quantization_level: &'static str,
}

#[derive(Serialize)]
struct Models<T> {
    models: Vec<T>,
}

#[derive(Serialize)]
struct Show {
    license: &'static str,
    modelfile: &'static str,
    parameters: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    template: Option<&'static str>,
    details: Details,
    /// A string where others have an object.
    model_info: &'static str,
    modified_at: String,
}

impl Store {
    /// `names` are the downloaded ones; absent, all of the release.
    pub(super) fn new(release: Release, names: Option<&[String]>) -> Result<Self, String> {
        let known = |name: &String| {
            let row = table(release).iter().find(|row| row.name == name);
            row.map(|row| row.name).ok_or(format!("this release has no model {name:?}"))
        };
        let downloaded = match names {
            Some(names) => names.iter().map(known).collect::<Result<_, _>>()?,
            None => table(release).iter().map(|row| row.name).collect(),
        };
        let modified_at = stamp_now();
        Ok(Self { release, downloaded: Mutex::new(downloaded), modified_at })
    }

    /// A model with a manifest, downloaded or not.
    pub(super) fn manifest(&self, name: &str) -> Option<&'static Model> {
        table(self.release).iter().find(|row| row.name == name)
    }

    /// A downloaded model.
    pub(super) fn model(&self, name: &str) -> Option<&'static Model> {
        self.manifest(name).filter(|row| lock(&self.downloaded).contains(row.name))
    }

    pub(super) fn add(&self, model: &'static Model) {
        lock(&self.downloaded).insert(model.name);
    }

    pub(super) fn delete(&self, name: &str) -> bool {
        lock(&self.downloaded).remove(name)
    }

    /// `GET /api/tags`.
    pub(super) fn tags(&self) -> String {
        let here = |row: &&Model| self.model(row.name).is_some();
        let models = table(self.release).iter().filter(here);
        json(&Models { models: models.map(|row| self.item(row, None)).collect() })
    }

    /// `GET /hailo/v1/list`.
    pub(super) fn list(&self) -> String {
        json(&Models { models: table(self.release).iter().map(|row| row.name).collect() })
    }

    /// `GET /api/ps`, with the loaded model and its end.
    pub(super) fn ps(&self, loaded: Option<(&'static str, String)>) -> String {
        let item = loaded.and_then(|(name, expires_at)| {
            self.manifest(name).map(|row| self.item(row, Some(expires_at)))
        });
        json(&Models { models: item.into_iter().collect() })
    }

    /// `POST /api/show`.
    pub(super) fn show(&self, model: &'static Model) -> String {
        let old = self.release == Release::V5_1_1;
        json(&Show {
            license: "Apache License 2.0",
            modelfile: "",
            parameters: if old { "stop \"<|im_end|>\"" } else { "" },
            template: old.then_some("{% for message in messages %}{{ message }}{% endfor %}"),
            details: details(model),
            model_info: "",
            modified_at: self.modified_at.clone(),
        })
    }

    fn item(&self, row: &'static Model, expires_at: Option<String>) -> Item {
        Item {
            name: row.name,
            model: row.name,
            modified_at: self.modified_at.clone(),
            size: row.size_bytes,
            details: details(row),
            expires_at,
        }
    }
}

fn details(row: &'static Model) -> Details {
    Details {
        parent_model: "",
        format: "hef",
        family: row.family,
        families: [row.family],
        parameter_size: row.parameter_size,
        quantization_level: "Q4_0",
    }
}
