//! Keys of OpenCrayFish's configuration that this version knows but does not use, and keys that
//! have a new name (pure). Their presence must not keep an old file from starting.

use super::rule::Rule;

/// A key that has no effect yet.
#[derive(Debug, Clone, Copy)]
pub struct Later {
    /// Dotted path.
    pub path: &'static str,
    /// What it will be for.
    pub says: &'static str,
    /// What it accepts. A wrong value is a warning only, as nothing depends on it yet.
    pub rule: Rule,
}

/// A key that is read under another name.
#[derive(Debug, Clone, Copy)]
pub struct Renamed {
    /// The old path; its value is a switch.
    pub old: &'static str,
    /// The path that is set instead, unless the file has it too.
    pub new: &'static str,
    /// The new key's word for `true`.
    pub if_true: &'static str,
    /// The new key's word for `false`.
    pub if_false: &'static str,
}

/// Old names. OpenCrayFish's switch chose whether a flush of the journal waits for the disk; who
/// switched it on asked for the stricter way.
pub const RENAMED: &[Renamed] = &[Renamed {
    old: "system.journal_fsync_on_flush",
    new: "storage.journal_fsync",
    if_true: "always",
    if_false: "idle",
}];

/// Sections and subtrees that belong to others and are not looked into.
pub const OPAQUE: &[&str] = &["plugins", "skills.enabled"];

const COUNT: Rule = Rule::Whole { min: 0, max: 10_000, unit: "" };
const TEXT: Rule = Rule::Text { min: 0, max: 4096 };

/// Keys without effect.
pub const LATER: &[Later] = &[
    later("api_keys.telegram_token", "the Telegram bot's token", Rule::Secret),
    later("api_keys.telegram_user_id", "whom the Telegram bot answers", TEXT),
    later("tools.searxng_url", "a search engine", Rule::MaybeUrl),
    later("tools.web_search_triage_enabled", "asking whether a search is needed", Rule::Flag),
    later("tools.ltm_short_circuit_enabled", "answers from memory without a search", Rule::Flag),
    later("tools.ltm_short_circuit_min_score", "how good a memory must be for that", COUNT),
    later("memory.archive_path", "the readable archive", TEXT),
    later("memory.log_path", "daily logs", TEXT),
    later("reflection.enabled", "thinking about answers afterwards", Rule::Flag),
    later("reflection.reflect_on_user_turn", "the same, after a person's turns", Rule::Flag),
    later("reflection.reflect_on_proactive", "the same, after curiosity", Rule::Flag),
    later("proactive.stm_gap_extraction_enabled", "topics from conversations", Rule::Flag),
    later("proactive.max_candidates_per_cycle", "topics considered at once", COUNT),
    later("proactive.fallback_to_preferences", "topics from preferences", Rule::Flag),
    later("proactive.triage_known_token", "the word for a known topic", TEXT),
    later("proactive.refine_enabled", "a second look at research", Rule::Flag),
    later("cognition.enabled", "deliberation", Rule::Flag),
    later("cognition.max_subquestions", "questions a plan may have", COUNT),
    later("cognition.max_act_rounds", "rounds of a plan", COUNT),
    later("cognition.refine_enabled", "a second round", Rule::Flag),
    later("cognition.dispatch_answer_via_skill", "answers through a skill", Rule::Flag),
    later("cognition.web_search_skill", "the skill that searches", TEXT),
    later("web_chat.respect_sleep_metabolism", "no conversation during sleep", Rule::Flag),
    later("tasks.enabled", "recurring tasks", Rule::Flag),
    later("tasks.state_path", "where tasks are kept", TEXT),
    later("tasks.max_active_tasks", "tasks at once", COUNT),
    later("tasks.results_per_query", "results a task reports", COUNT),
    later(
        "tasks.min_interval_seconds",
        "shortest time between runs",
        Rule::Whole { min: 0, max: 31_536_000, unit: "seconds" },
    ),
    later(
        "tasks.tick_seconds",
        "how often due tasks are looked for",
        Rule::Whole { min: 1, max: 3600, unit: "seconds" },
    ),
    later(
        "skills.default_cost_tier_cap",
        "dearest skills offered",
        Rule::Choice(&["free", "cheap", "expensive"]),
    ),
    later("skills.auto_offline_filter", "hiding skills that need a network", Rule::Flag),
];

const fn later(path: &'static str, says: &'static str, rule: Rule) -> Later {
    Later { path, says, rule }
}
