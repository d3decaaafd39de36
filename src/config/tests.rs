//! Tests that go through the whole configuration.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use proptest::prelude::*;

use super::check::{Checked, check, specs};
use super::document::document;
use super::env::FixedEnv;
use super::later::{LATER, OPAQUE, RENAMED};
use super::problem::{Problem, Severity};
use super::sections::hardware::Backend;
use super::sections::storage::JournalFsync;
use super::values::{Source, Values};
use super::{Config, ConfigError, load};

/// A text that must never be seen.
const PLANTED: &str = "pL4nTed-s3cret";

fn checked(text: &str) -> Checked {
    check(text.as_bytes(), Some(0o100_600), &FixedEnv::default())
}

/// The problems as `crayfish check` prints them, notes left out.
fn printed(text: &str) -> Vec<String> {
    let problems = checked(text).problems;
    let told = problems.iter().filter(|problem| problem.severity != Severity::Note);
    told.map(|problem| problem.in_file("c.yaml").to_string()).collect()
}

fn only(text: &str) -> String {
    let printed = printed(text);
    assert_eq!(printed.len(), 1, "{text}\n{printed:#?}");
    printed.into_iter().next().unwrap()
}

#[test]
fn every_default_passes_its_own_rule_and_is_documented() {
    for spec in specs() {
        let default = spec.default_value();
        let takes_null = spec.rule.takes_null();
        assert!(default != super::value::Value::Nothing || takes_null, "{}", spec.path);
        let text = document();
        let name = spec.path.split_once('.').unwrap().1;
        assert!(text.contains(&format!("\n  {name}: ")), "{name}");
        assert!(spec.doc.ends_with('.'), "{}: whole sentences", spec.path);
    }
}

#[test]
fn no_path_stands_twice_in_the_tables() {
    let mut paths: Vec<&str> = specs()
        .map(|spec| spec.path)
        .chain(LATER.iter().map(|later| later.path))
        .chain(RENAMED.iter().map(|renamed| renamed.old))
        .chain(OPAQUE.iter().copied())
        .collect();
    let count = paths.len();
    paths.sort_unstable();
    paths.dedup();
    assert_eq!(paths.len(), count);
    assert!(RENAMED.iter().all(|renamed| specs().any(|spec| spec.path == renamed.new)));
}

#[test]
fn the_document_gives_exactly_the_defaults() {
    let Checked { values, problems } = checked(&document());
    assert_eq!(problems, []);
    assert_eq!(Config::new(&values), Config::default());
    for line in values.effective() {
        assert!(matches!(line.source, Source::File { .. }), "{} is missing", line.path);
    }
    assert!(
        document()
            .lines()
            .filter(|line| !line.contains("https://"))
            .all(|l| l.chars().count() <= 96)
    );
}

#[test]
fn an_empty_file_is_all_defaults() {
    for text in ["", "\n", "# only a comment\n", "---\n", "{}", "\u{feff}", "~", "system: {}"] {
        let Checked { values, problems } = checked(text);
        assert_eq!(problems, [], "{text:?}");
        assert_eq!(values, Values::default());
    }
}

#[test]
fn byte_order_mark_and_carriage_returns_change_nothing() {
    let text = "\u{feff}system:\r\n  architect_name: \"Ada\"\r\nweb_chat:\r\n  port: 99999\r\n";
    let Checked { values, problems } = checked(text);
    assert_eq!(Config::new(&values).system.architect_name, "Ada");
    assert_eq!(problems.iter().map(|problem| problem.line).collect::<Vec<_>>(), [4]);
}

#[test]
fn all_problems_are_told_at_once_with_their_lines() {
    let text = "\
hardware:
  npu_acceleration: maybe
  hailo_ollama_url: 127.0.0.1:8000
  cpu_context_tokens: 100
  primary_backend: vllm-cuda
system:
  timezone: Asia/Hong_Kon
web_chat:
  prot: 8765
  host: my-pi
openai:
  api_key: ${NOT_SET}
plugin:
  x: 1
";
    assert_eq!(
        printed(text),
        [
            "c.yaml:2: hardware.npu_acceleration: \"maybe\" is neither true nor false; \
             write true or false",
            "c.yaml:3: hardware.hailo_ollama_url: \"127.0.0.1:8000\" is not an http:// or \
             https:// URL; write e.g. http://127.0.0.1:8000",
            "c.yaml:4: hardware.cpu_context_tokens: 100 is out of range; \
             write a whole number, 512 to 131072 tokens",
            "c.yaml:5: hardware.primary_backend: \"vllm-cuda\" is not one of hailo, ollama, \
             openai, reserve; write null or hailo or ollama or openai or reserve",
            "c.yaml:7: system.timezone: \"Asia/Hong_Kon\" is not a time zone; did you mean \
             Asia/Hong_Kong?",
            "c.yaml:9: warning: web_chat.prot: unknown key; did you mean port?",
            "c.yaml:10: web_chat.host: \"my-pi\" is not an IP address; write 127.0.0.1 for this \
             machine only, or 0.0.0.0 for all networks",
            "c.yaml:12: openai.api_key: the environment variable NOT_SET is not set; set \
             NOT_SET, e.g. in the unit's EnvironmentFile, or remove the line",
            "c.yaml:13: warning: plugin: unknown section; did you mean plugins?",
        ]
    );
}

#[test]
fn each_rule_refuses_what_is_wrong() {
    for (line, part) in [
        ("web_chat: {port: 65536}", "65536 is out of range; write a whole number, 0 to 65535"),
        ("web_chat: {port: -1}", "out of range"),
        ("web_chat: {port: 8765.0}", "\"8765.0\" is not a whole number"),
        ("web_chat: {port: }", "has no value"),
        ("web_chat: {port: [1]}", "a list where one value is expected"),
        ("web_chat: {port: {a: 1}}", "keys where a value is expected"),
        ("web_chat: {allowed_hosts: pi}", "one value where a list is expected"),
        ("web_chat: {allowed_hosts: [\"a b\"]}", "does not hold a host name"),
        ("web_chat: {allowed_hosts: [[a]]}", "the list holds more than texts"),
        ("web_chat: 5", "keys are expected in this section"),
        ("web_chat: [enabled]", "keys are expected in this section"),
        ("provider: {job_margin_s: soon}", "\"soon\" is not a number"),
        ("provider: {job_margin_s: .nan}", "is not a number"),
        ("provider: {job_margin_s: NaN}", "is not a number"),
        ("provider: {job_margin_s: inf}", "is not a number"),
        (
            "provider: {job_margin_s: -5}",
            "-5 is out of range; write a number, 0.01 to 3600 seconds",
        ),
        ("provider: {job_margin_s: 0}", "out of range"),
        ("agent: {temperature: 2.5}", "2.5 is out of range; write null or a number, 0 to 2"),
        ("agent: {top_k: 0}", "0 is out of range; write null or a whole number, 1 to 1000 tokens"),
        ("memory: {stm_max_turns: 0}", "out of range; write a whole number, 1 to 200 turns"),
        ("system: {individual_designation: \"\"}", "is empty"),
        ("system: {individual_designation: \" \"}", "is empty"),
        ("system: {individual_designation: \"a\\nb\"}", "control character"),
        ("system: {timezone: Mars/Olympus}", "\"Mars/Olympus\" is not a time zone"),
        ("storage: {journal_fsync: alwayz}", "did you mean always?"),
        ("openai: {api_key: \" x\"}", "has a space at its start or end"),
        ("openai: {api_key: \"${\"}", "without \"}\""),
        ("- a", "sections are expected here"),
        ("just text", "sections are expected here"),
    ] {
        let problem = only(line);
        assert!(problem.contains(part), "{line}: {problem}");
        assert!(!problem.contains("warning"), "{line}: {problem}");
    }
}

#[test]
fn an_out_of_range_name_says_how_long_it_may_be() {
    let text = format!("system: {{architect_name: {}}}", "x".repeat(65));
    let problem = only(&text);
    assert!(problem.contains("has 65 bytes; at most 64 fit; shorten it"), "{problem}");
}

#[test]
fn unknown_keys_warn_and_name_the_nearest() {
    for (text, fix) in [
        ("hardware: {hailo_modle: x}", "did you mean hailo_model?"),
        ("hardware: {port: 1}", "this key belongs into the section web_chat"),
        ("system: {stm_max_turns: 1}", "this key belongs into the section memory"),
        ("port: 1", "this key belongs into the section web_chat"),
        ("hardwear: {}", "did you mean hardware?"),
        ("tasks: {tick_secs: 1}", "did you mean tick_seconds?"),
        ("quantum: {}", "config.yaml lists all sections"),
        ("log: {zzzzzzzzzzzz: 1}", "config.yaml lists all keys"),
        ("log:", "remove the line"),
    ] {
        let problem = only(text);
        assert!(problem.contains("warning") && problem.contains(fix), "{text}: {problem}");
    }
}

#[test]
fn contradictions_between_keys_are_found() {
    let openai = "openai: {url: \"http://127.0.0.1:1\", model: m}\n";
    for (text, part) in [
        ("hardware: {primary_backend: ollama, fallback_backend: ollama}", "stands in"),
        ("hardware: {primary_backend: openai}", "openai.url is not set"),
        ("hardware: {npu_acceleration: false, primary_backend: hailo}", "warning"),
        ("openai: {url: \"http://127.0.0.1:1\"}", "openai.model is not"),
        ("provider: {breaker_open_for_s: 200}", "longer than provider.breaker_open_max_s (120 s)"),
        ("web_chat: {host: 0.0.0.0}", "warning"),
        ("hardware: {thermal_limit_celsius: 70, thermal_release_celsius: 70}", "70 is not below"),
        ("governor: {cheap_below_limit: 9}", "9 is more than governor.short_below_limit (8)"),
        (
            "openai: {url: \"http://10.0.0.9/v1\", model: m, api_key: k}",
            "unencrypted over the network to 10.0.0.9",
        ),
    ] {
        let problem = only(text);
        assert!(problem.contains(part), "{text}: {problem}");
    }
    let fine = format!("{openai}hardware: {{reserve_backend: openai}}");
    assert_eq!(printed(&fine), [""; 0]);
    let refused_url = "openai: {url: nonsense}\nhardware: {primary_backend: openai}";
    assert!(only(refused_url).contains("openai.url"), "no second problem that follows from it");
}

#[test]
fn broken_yaml_is_told_with_its_line() {
    for (bytes, line, part) in [
        (&b"a:\n\tb: 1"[..], 2, "tab"),
        (b"system:\n  a: \"x\n", 0, "not YAML"),
        (b"system: {architect_name: *x}", 1, "not YAML"),
        (b"system: &a {architect_name: x}\nlog: *a", 1, "anchor"),
        (b"system: {architect_name: !!str x}", 1, "a tag"),
        (b"log: {level: info}\n---\nlog: {}", 2, "second document"),
        (b"log: {level: info, level: warn}", 1, "appears twice; first on line 1"),
        (b"log: {level: info}\nlog: {level: warn}", 2, "appears twice; first on line 1"),
        (b"system:\n  architect_name: \"J\xf6rg\"", 2, "not UTF-8"),
        (b"? [a]\n: b", 1, "not a name"),
        (b"log:\n  level: info\n  level: warn", 3, "log.level: appears twice; first on line 2"),
        (&[b'['; 40], 1, "too many levels"),
    ] {
        let problems = check(bytes, None, &FixedEnv::default()).problems;
        let shown = String::from_utf8_lossy(bytes);
        let is_it = |problem: &&Problem| {
            let text = problem.in_file("c").to_string();
            text.contains(part) && problem.severity == Severity::Error
        };
        let found = problems.iter().find(is_it);
        let found = found.unwrap_or_else(|| panic!("{shown}: {problems:#?}"));
        assert!(line == 0 || found.line == line, "{shown}: {found:?}");
    }
    let large = vec![b'#'; crate::limits::CONFIG_BYTES_MAX + 1];
    let problems = check(&large, None, &FixedEnv::default()).problems;
    assert!(problems[0].says.contains("at most"), "{problems:?}");
}

#[test]
fn a_configuration_of_the_seed_loads() {
    let Checked { values, problems } = checked(SEED);
    let told: Vec<_> = problems.iter().filter(|p| p.severity != Severity::Note).collect();
    assert!(told.is_empty(), "{told:#?}");
    let config = Config::new(&values);
    assert_eq!(config.system.individual_designation, "Dave Minion");
    assert_eq!(config.system.timezone.name, "Asia/Hong_Kong");
    assert_eq!(config.system.idle_flush, Duration::from_secs(30));
    assert_eq!(config.hardware.hailo_url.as_str(), "http://127.0.0.1:8000");
    assert_eq!(config.hardware.cpu_model, "qwen2:1.5b");
    assert_eq!(config.hardware.slots.iter().collect::<Vec<_>>(), [Backend::Ollama]);
    assert_eq!(config.storage.journal_fsync, JournalFsync::Idle);
    assert_eq!(config.web_chat.address.to_string(), "127.0.0.1:8765");
    assert_eq!(config.web_chat.auth_token, None);
    for later in LATER {
        let known = problems.iter().any(|problem| problem.path == later.path);
        assert!(known, "{} is in the table, but not in the seed's file", later.path);
    }
}

#[test]
fn a_renamed_key_gives_way_to_its_new_name() {
    let config = |text| Config::new(&checked(text).values).storage.journal_fsync;
    assert_eq!(config("system: {journal_fsync_on_flush: true}"), JournalFsync::Always);
    assert_eq!(config("system: {journal_fsync_on_flush: false}"), JournalFsync::Idle);
    let both = "system: {journal_fsync_on_flush: true}\nstorage: {journal_fsync: idle}";
    assert_eq!(config(both), JournalFsync::Idle);
    assert!(only(both).contains("ignored, as storage.journal_fsync is given too"));
}

#[test]
fn a_wrong_value_without_effect_does_not_keep_the_program_from_starting() {
    let problem = only("tasks: {max_active_tasks: many}");
    assert!(problem.starts_with("c.yaml:1: warning"), "{problem}");
    assert!(problem.contains("\"many\" is not a whole number"), "{problem}");
}

#[test]
fn slots_follow_from_the_hardware_and_from_names() {
    let slots = |text: &str| {
        let text = format!("openai: {{url: \"http://h\", model: m}}\nhardware: {{{text}}}");
        let hardware = Config::new(&checked(&text).values).hardware;
        hardware.slots.iter().map(Backend::as_str).collect::<Vec<_>>().join(" ")
    };
    for (text, order) in [
        ("", "hailo ollama"),
        ("npu_acceleration: false", "ollama"),
        ("primary_backend: openai", "openai ollama"),
        ("reserve_backend: openai", "hailo ollama openai"),
        ("primary_backend: ollama", "ollama"),
        ("primary_backend: ollama, fallback_backend: hailo", "ollama hailo"),
        ("fallback_backend: openai", "hailo openai"),
        ("fallback_backend: openai, reserve_backend: ollama", "hailo openai ollama"),
        ("reserve_backend: ollama", "hailo ollama"),
        ("fallback_backend: hailo", "hailo"),
    ] {
        assert_eq!(slots(text), order, "{text}");
    }
}

#[test]
fn sources_and_effective_values_are_told() {
    let env = FixedEnv::default().with_var("NAME", "Ada").with_credential("key", PLANTED);
    let text = "system:\n  architect_name: ${NAME}\nopenai:\n  api_key: ${credential:key}\n";
    let values = check(text.as_bytes(), None, &env).values;
    let line = |path: &str| {
        let effective = values.effective();
        let found = effective.iter().find(|line| line.path == path).unwrap();
        format!("{} ({})", found.value, found.source)
    };
    assert_eq!(line("system.architect_name"), "\"Ada\" (line 2, ${NAME})");
    assert_eq!(line("openai.api_key"), "*** (line 4, ${credential:key})");
    assert_eq!(line("web_chat.port"), "8765 (default)");
}

#[test]
fn a_secret_that_refers_to_nothing_is_refused() {
    let env = FixedEnv::default().with_var("EMPTY", "");
    let problems = |text: &str| check(text.as_bytes(), None, &env).problems;
    let problem = &problems("web_chat: {auth_token: \"${EMPTY}\"}")[0];
    assert_eq!((problem.severity, problem.line), (Severity::Error, 1));
    assert!(problem.says.contains("is empty"), "{problem:?}");
    for none in ["\"\"", "null", "~", ""] {
        assert_eq!(problems(&format!("web_chat: {{auth_token: {none}}}")), []);
    }
}

#[test]
fn a_secret_is_seen_nowhere() {
    let env = FixedEnv::default().with_var("KEY", PLANTED).with_credential("cred", PLANTED);
    let texts = [
        format!("openai: {{url: \"http://h\", model: m, api_key: {PLANTED}}}"),
        format!("openai: {{api_key: \" {PLANTED}\"}}"),
        format!("openai: {{api_key: \"{PLANTED}\\u0001\"}}"),
        format!("openai: {{api_key: \"{PLANTED}${{\"}}"),
        format!("openai: {{api_key: [{PLANTED}]}}"),
        format!("openai: {{api_key: {{a: {PLANTED}}}}}"),
        format!("web_chat: {{auth_token: {PLANTED}}}\nopenai: {{apikey: {PLANTED}}}"),
        format!("api_keys: {{telegram_token: {PLANTED}}}"),
        format!("hardware: {{hailo_ollama_url: \"http://me:{PLANTED}@h\"}}"),
        format!("hardware: {{hailo_ollama_url: \"ftp://me:{PLANTED}@h\"}}"),
        format!("openai: {{url: \"http://me:{PLANTED}@h/?a b\"}}"),
        "openai: {api_key: \"${KEY}\"}\nlog: {level: \"${KEY}\"}".into(),
        "openai: {url: \"${KEY}\", model: \"${credential:cred}\"}".into(),
        "web_chat: {host: \"${KEY}\", allowed_hosts: [\"${KEY} x\"]}".into(),
        "system: {timezone: \"${KEY}\", architect_name: \"${credential:cred}\"}".into(),
    ];
    for text in texts {
        let Checked { values, problems } = check(text.as_bytes(), Some(0o644), &env);
        let mut seen = format!("{problems:?} {values:?} {:?}", values.effective());
        for problem in &problems {
            seen.push_str(&problem.in_file("c").to_string());
        }
        seen.push_str(&format!("{:?}", super::reload::changes(&Values::default(), &values)));
        let config = Config::new(&values);
        seen.push_str(&format!("{:?} {:?}", config.openai, config.web_chat));
        // What a person put into a name by `${credential:...}` is used as a name.
        assert!(!seen.contains(PLANTED), "{text}: {seen}");
    }
}

#[test]
fn a_literal_secret_in_an_open_file_is_a_warning() {
    let text = format!("openai: {{api_key: {PLANTED}}}");
    let warned = |mode| {
        let problems = check(text.as_bytes(), mode, &FixedEnv::default()).problems;
        problems.iter().filter(|problem| problem.fix.contains("chmod 600")).count()
    };
    assert_eq!([0o644, 0o640, 0o604, 0o660].map(|mode| warned(Some(mode))), [1; 4]);
    assert_eq!([warned(Some(0o600)), warned(Some(0o400)), warned(None)], [0; 3]);
}

#[test]
fn files_are_looked_for_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path();
    let write = |name: &str, port: u16| {
        let path = base.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, format!("web_chat: {{port: {port}}}\n")).unwrap();
        path
    };
    let given = write("given.yaml", 1);
    let variable = write("variable.yaml", 2);
    write("xdg/crayfish/config.yaml", 3);
    write("home/.config/crayfish/config.yaml", 4);
    let text = |name: &str| base.join(name).to_str().unwrap().to_owned();
    let home = FixedEnv::default().with_var("HOME", &text("home"));
    let xdg = home.clone().with_var("XDG_CONFIG_HOME", &text("xdg"));
    let named = xdg.clone().with_var("CRAYFISH_CONFIG", variable.to_str().unwrap());
    let port = |path: Option<&std::path::Path>, env: &FixedEnv| {
        load(path, env).unwrap().config.web_chat.address.port()
    };
    assert_eq!(port(Some(&given), &named), 1);
    assert_eq!(port(None, &named), 2);
    assert_eq!(port(None, &xdg), 3);
    assert_eq!(port(None, &home), 4);
    let missing = load(Some(&base.join("none")), &named).unwrap_err().to_string();
    assert!(missing.contains("no such file") && missing.contains("--config"), "{missing}");
    let env = FixedEnv::default().with_var("CRAYFISH_CONFIG", &text("none"));
    assert!(load(None, &env).unwrap_err().to_string().contains("CRAYFISH_CONFIG"));
    assert!(matches!(load(Some(base), &env), Err(ConfigError::Unreadable { .. })));
}

#[test]
fn a_wrong_file_is_refused_and_a_strange_one_is_not() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let load_text = |text: &str| {
        std::fs::write(file.path(), text).unwrap();
        std::fs::set_permissions(file.path(), Permissions::from_mode(0o644)).unwrap();
        load(Some(file.path()), &FixedEnv::default())
    };
    let error = load_text("web_chat: {port: x}\nnew_section: {}\n").unwrap_err();
    let printed = error.to_string();
    assert_eq!(printed.lines().count(), 2, "{printed}");
    assert!(printed.contains(":1: web_chat.port: \"x\" is not"), "{printed}");
    let loaded = load_text("new_section: {}\ntasks: {enabled: true}\n").unwrap();
    assert_eq!(loaded.warnings.len(), 1, "no notes: {:?}", loaded.warnings);
    assert_eq!(loaded.path.as_deref(), Some(file.path()));
}

#[test]
fn a_reload_tells_live_changes_from_those_that_need_a_restart() {
    let old = checked("agent: {temperature: 0.5}\nopenai: {api_key: a}").values;
    let new = checked("\n\nweb_chat: {port: 1}\nagent: {temperature: 0.7}\nopenai: {api_key: b}");
    let changes = super::reload::changes(&old, &new.values);
    let told = |list: &[super::reload::Change]| {
        list.iter().map(|c| format!("{} {} {}", c.path, c.from, c.to)).collect::<Vec<_>>()
    };
    assert_eq!(told(&changes.live), ["agent.temperature 0.5 0.7"]);
    assert_eq!(told(&changes.restart), ["openai.api_key *** ***", "web_chat.port 8765 1"]);
    let moved = checked("# a line more\nagent: {temperature: 0.5}\nopenai: {api_key: a}").values;
    assert!(super::reload::changes(&old, &moved).is_empty());
}

#[test]
fn a_reload_keeps_what_needs_a_restart_and_a_bad_file_changes_nothing() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let env = FixedEnv::default();
    let write = |text: &str| std::fs::write(file.path(), text).unwrap();
    write("web_chat: {port: 1}\nagent: {top_k: 10}\nmemory: {stm_max_turns: 5}");
    let first = load(Some(file.path()), &env).unwrap();
    write("agent: {top_k: 20}\nweb_chat: {port: 2}\nlog: {level: debug}");
    let (second, changes) = first.reload(Some(file.path()), &env).unwrap();
    assert_eq!(second.config.web_chat.address.port(), 1);
    assert_eq!(second.config.agent.top_k, Some(20));
    assert_eq!(second.config.memory.stm_max_turns, 24, "a removed key is at its default again");
    assert_eq!(second.config.log.level, tracing::Level::DEBUG);
    assert_eq!((changes.live.len(), changes.restart.len()), (3, 1));
    assert_eq!(second.values.source("agent.top_k"), Source::File { line: 1 });
    write("agent: {top_k: x}");
    assert!(second.reload(Some(file.path()), &env).is_err());
    write("agent: {top_k: 20}\nweb_chat: {port: 2}\nlog: {level: debug}");
    let (_, again) = second.reload(Some(file.path()), &env).unwrap();
    assert_eq!(again.restart.len(), 1, "a pending restart is told each time");
    assert!(again.live.is_empty());
}

#[test]
fn no_edit_of_the_document_panics_and_each_cut_of_it_is_answered() {
    let text = document();
    for at in (0..text.len()).step_by(23).filter(|at| text.is_char_boundary(*at)) {
        let _ = checked(&text[..at]);
        for inserted in ["\t", "\"", "{", "[", ":", "- ", "&", "*", "\0", "? ", "%"] {
            if at % 5 == 0 {
                let _ = checked(&format!("{}{inserted}{}", &text[..at], &text[at..]));
            }
        }
    }
}

#[test]
fn a_file_of_nothing_but_mistakes_is_refused_with_a_bounded_list() {
    use crate::limits::{CONFIG_BYTES_MAX, CONFIG_PROBLEMS_MAX};
    let unknown: String = (0..20_000).map(|at| format!("k{at}: 1\n")).collect();
    let repeated = ["[", "{", "- ", "a: ", "? ", "\"", "&a ", "!t ", "a: b\n", "? a\n", "[a, "]
        .map(|unit| unit.repeat(CONFIG_BYTES_MAX / unit.len()));
    for text in repeated.iter().chain([&unknown]) {
        let problems = checked(text).problems;
        assert!(problems.len() <= CONFIG_PROBLEMS_MAX + 1, "{}", problems.len());
        let refused = problems.iter().any(|problem| problem.severity == Severity::Error);
        assert!(refused, "what was not looked at must not pass");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let Checked { values, .. } = check(&bytes, None, &FixedEnv::default());
        let _ = Config::new(&values);
    }

    #[test]
    fn any_yaml_like_text_is_answered(
        text in "([a-c_.]{1,3}|[:#?{}\\[\\],&*!|>'\"%@`-]|\n|\t| |system|log|\\$\\{|é|~|---){0,60}"
    ) {
        let Checked { values, .. } = checked(&text);
        let _ = Config::new(&values);
    }

    #[test]
    fn any_value_of_any_key_is_accepted_or_refused_with_a_fix(
        at in 0..specs().count(), value in "\\PC{0,40}"
    ) {
        let path = specs().nth(at).unwrap().path;
        let (section, name) = path.split_once('.').unwrap();
        let quoted = serde_json::to_string(&value).unwrap();
        let Checked { values, problems } = checked(&format!("{section}:\n  {name}: {quoted}\n"));
        let _ = Config::new(&values);
        for problem in problems.iter().filter(|problem| problem.severity == Severity::Error) {
            prop_assert!(!problem.fix.is_empty(), "{problem:?}");
            prop_assert_eq!(problem.line, 2, "{:?}", problem);
        }
    }
}

/// A file with every key of the seed, with the seed's values.
const SEED: &str = r#"
system:
  individual_designation: "Dave Minion"
  timezone: "Asia/Hong_Kong"
  duty_start: "06:00"
  sleep_start: "02:00"
  architect_name: "Eason"
  architect_honorific: "Boss"
  pulse_interval_seconds: 30
  idle_proactive_minutes: 5
  idle_journal_flush_seconds: 30
  journal_fsync_on_flush: false
hardware:
  npu_acceleration: false
  hailo_ollama_url: "http://localhost:8000"
  hailo_model: "qwen2.5-instruct:1.5b"
  cpu_fallback_url: "http://localhost:11434"
  cpu_fallback_model: "qwen2:1.5b"
  thermal_limit_celsius: 75.0
  ram_limit_pct: 85.0
  thermal_release_celsius: 0.0
  ram_release_pct: 0.0
  vitals_cache_ttl_seconds: 5.0
  primary_backend: null
  fallback_backend: null
api_keys:
  telegram_token: "put-yours-here"
  telegram_user_id: "123456"
tools:
  searxng_url: "http://localhost:8080"
  web_search_triage_enabled: true
  ltm_short_circuit_enabled: true
  ltm_short_circuit_min_score: 2
memory:
  stm_max_turns: 12
  archive_path: "./memory/archive.md"
  log_path: "./logs/daily"
reflection:
  enabled: true
  reflect_on_user_turn: true
  reflect_on_proactive: true
proactive:
  stm_gap_extraction_enabled: true
  max_candidates_per_cycle: 3
  fallback_to_preferences: true
  triage_known_token: "YES"
  refine_enabled: true
cognition:
  enabled: true
  max_subquestions: 3
  max_act_rounds: 2
  refine_enabled: true
  dispatch_answer_via_skill: false
  web_search_skill: "research"
web_chat:
  enabled: true
  host: "127.0.0.1"
  port: 8765
  auth_token: ""
  respect_sleep_metabolism: true
tasks:
  enabled: true
  state_path: "state/tasks.yaml"
  max_active_tasks: 16
  results_per_query: 5
  min_interval_seconds: 300
  tick_seconds: 30
skills:
  default_cost_tier_cap: "expensive"
  auto_offline_filter: true
  enabled: {research: false}
plugins:
  mcp_bridge:
    servers:
      - name: docs
        url: "https://example.org/mcp"
  weather: {api_key: "${OWM_API_KEY}"}
"#;
