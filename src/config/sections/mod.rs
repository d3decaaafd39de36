//! The sections of the configuration: their keys, and the settings built from them (pure).
//!
//! A section's file holds its keys as constants, `KEYS` in the order of the document, and one
//! struct built from checked values, which cannot fail.

pub mod agent;
pub mod events;
pub mod governor;
pub mod gpio;
pub mod hardware;
pub mod mood;
pub mod openai;
pub mod provider;
pub mod reserve;
pub mod storage;
pub mod system;
pub mod web_chat;

use super::key::AnyKey;

/// A section of the document.
pub struct Section {
    /// Its name in the file.
    pub name: &'static str,
    /// What it is about, for a person.
    pub doc: &'static str,
    /// Its keys, in the order of the document.
    pub keys: &'static [&'static dyn AnyKey],
}

/// All sections, in the order of the document: who, with what, how it talks, where it listens,
/// and last what hardly anybody changes.
pub const SECTIONS: &[Section] = &[
    Section {
        name: "system",
        doc: "Who the companion is, whom it serves, and its time of day.",
        keys: system::KEYS,
    },
    Section {
        name: "hardware",
        doc: "The model servers on this machine, which is asked first, and what the body bears.",
        keys: hardware::KEYS,
    },
    Section {
        name: "openai",
        doc: "A server with an OpenAI-compatible interface, for example llama.cpp on another \
              machine. Nothing is sent anywhere unless a URL is set.",
        keys: openai::KEYS,
    },
    Section {
        name: "web_chat",
        doc: "The HTTP interface: POST /chat, GET /state, GET /history, GET /healthz.",
        keys: web_chat::KEYS,
    },
    Section { name: "agent", doc: "How answers are made.", keys: agent::KEYS },
    Section {
        name: "memory",
        doc: "What the model sees of the conversation.",
        keys: agent::MEMORY_KEYS,
    },
    Section {
        name: "mood",
        doc: "How the companion feels: five channels from 0 to 1 (joy, anger, sorrow, excitement, \
              calm) that happenings add to and that come back to rest.",
        keys: mood::KEYS,
    },
    Section {
        name: "gpio",
        doc: "What is connected to the pins of a Raspberry Pi. A sensor or bus that is not there \
              costs one warning. On other machines nothing of it has an effect.",
        keys: gpio::KEYS,
    },
    Section {
        name: "provider",
        doc: "How long the model servers may take, and when one counts as broken. The values \
              fit a Raspberry Pi 5 with the AI HAT+ 2.",
        keys: provider::KEYS,
    },
    Section { name: "vitals", doc: "Where the vital signs are read.", keys: governor::VITALS_KEYS },
    Section {
        name: "governor",
        doc: "What is given up before the processor is too hot, and when.",
        keys: governor::KEYS,
    },
    Section {
        name: "events",
        doc: "How long what happened is kept in the database.",
        keys: events::KEYS,
    },
    Section {
        name: "reserve",
        doc: "A small model inside the program, for when no model server answers.",
        keys: reserve::KEYS,
    },
    Section {
        name: "model",
        doc: "The file of that model. \"crayfish model\" lists, fetches, chooses and removes.",
        keys: reserve::MODEL_KEYS,
    },
    Section { name: "storage", doc: "The database.", keys: storage::KEYS },
    Section { name: "log", doc: "The log.", keys: storage::LOG_KEYS },
];
