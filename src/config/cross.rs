//! Checks that concern more than one key (pure).

use super::problem::Problem;
use super::sections::hardware::{self, Backend};
use super::sections::{governor, openai, provider, web_chat};
use super::values::Values;

/// Finds contradictions between keys. `sound` tells whether a key's own value was accepted;
/// contradictions with a default that stands in for a refused value are not worth telling.
pub(super) fn check(values: &Values, sound: &dyn Fn(&str) -> bool) -> Vec<Problem> {
    let mut problems = Vec::new();
    slots(values, sound, &mut problems);
    openai_server(values, sound, &mut problems);
    breaker(values, sound, &mut problems);
    doors(values, sound, &mut problems);
    body(values, sound, &mut problems);
    problems
}

fn slots(values: &Values, sound: &dyn Fn(&str) -> bool, problems: &mut Vec<Problem>) {
    let keys = [&hardware::PRIMARY, &hardware::FALLBACK, &hardware::RESERVE];
    let named: Vec<(&str, Backend)> = keys
        .iter()
        .filter_map(|key| Some((key.path(), Backend::from_word(values.get(*key)?)?)))
        .collect();
    for (at, (path, backend)) in named.iter().enumerate() {
        let line = values.line(path);
        if let Some((first, _)) = named[..at].iter().find(|(_, earlier)| earlier == backend) {
            let says = format!("{} stands in {first} already", backend.as_str());
            let fix = "name another backend, or write null";
            problems.push(Problem::error(path, line, says, fix));
        }
        let url = openai::URL.path();
        if *backend == Backend::Openai && sound(url) && values.get(&openai::URL).is_none() {
            let says = format!("names openai, but {url} is not set");
            let fix = format!("set {url}, or name another backend");
            problems.push(Problem::error(path, line, says, fix));
        }
        let npu = hardware::NPU.path();
        if *backend == Backend::Hailo && sound(npu) && !values.get(&hardware::NPU) {
            let says = format!("names hailo although {npu} is false; the name counts");
            let fix = format!("set {npu} to true, or name another backend");
            problems.push(Problem::error(path, line, says, fix).as_warning());
        }
    }
}

fn openai_server(values: &Values, sound: &dyn Fn(&str) -> bool, problems: &mut Vec<Problem>) {
    let (url_path, model) = (openai::URL.path(), openai::MODEL.path());
    let urls = [Some(values.get(&hardware::HAILO_URL)), Some(values.get(&hardware::CPU_URL))];
    let paths = [hardware::HAILO_URL.path(), hardware::CPU_URL.path(), url_path];
    for (url, path) in urls.into_iter().chain([values.get(&openai::URL)]).zip(paths) {
        if url.is_some_and(|url| url.is_tls()) && !cfg!(feature = "tls") {
            let says = "https is not part of this build";
            let fix = "use http://, or a build with the feature tls";
            problems.push(Problem::error(path, values.line(path), says, fix));
        }
    }
    let Some(url) = values.get(&openai::URL) else { return };
    if sound(model) && values.get(&openai::MODEL).is_none() {
        let says = format!("is set, but {model} is not");
        let fix = format!("set {model} to a model of that server");
        problems.push(Problem::error(url_path, values.line(url_path), says, fix));
    }
    if values.get(&openai::API_KEY).is_some() && !url.is_tls() && !url.is_loopback() {
        let path = openai::API_KEY.path();
        let says = format!("is sent unencrypted over the network to {}", url.host());
        let fix = "use an https:// URL";
        problems.push(Problem::error(path, values.line(path), says, fix).as_warning());
    }
}

fn breaker(values: &Values, sound: &dyn Fn(&str) -> bool, problems: &mut Vec<Problem>) {
    let (first, most) = (&provider::BREAKER_OPEN_FOR, &provider::BREAKER_OPEN_MAX);
    let (shortest, longest) = (values.get(first), values.get(most));
    if sound(first.path()) && sound(most.path()) && shortest > longest {
        let says = format!("is longer than {} ({} s)", most.path(), longest.as_secs_f64());
        let line = values.line(first.path()).max(values.line(most.path()));
        problems.push(Problem::error(first.path(), line, says, "swap the two values"));
    }
}

fn body(values: &Values, sound: &dyn Fn(&str) -> bool, problems: &mut Vec<Problem>) {
    let releases = [
        (&hardware::THERMAL_LIMIT, &hardware::THERMAL_RELEASE),
        (&hardware::RAM_LIMIT, &hardware::RAM_RELEASE),
    ];
    for (limit, release) in releases {
        let (limit_is, release_is) = (values.get(limit), values.get(release));
        let path = release.path();
        if sound(path) && sound(limit.path()) && release_is > 0.0 && release_is >= limit_is {
            let says = format!("{release_is} is not below {} ({limit_is})", limit.path());
            let fix = "write a smaller value, or 0 for 5 below the limit";
            problems.push(Problem::error(path, values.line(path), says, fix).as_warning());
        }
    }
    let ladder = [&governor::SHORT_BELOW, &governor::CHEAP_BELOW, &governor::NO_MODEL_BELOW];
    for (first, next) in ladder.iter().zip(&ladder[1..]) {
        let (first_is, next_is) = (values.get(*first), values.get(*next));
        if sound(first.path()) && sound(next.path()) && first_is < next_is {
            let says = format!("{next_is} is more than {} ({first_is})", first.path());
            let line = values.line(first.path()).max(values.line(next.path()));
            let fix = "the steps come in the order short, cheap, no_model";
            problems.push(Problem::error(next.path(), line, says, fix));
        }
    }
}

fn doors(values: &Values, sound: &dyn Fn(&str) -> bool, problems: &mut Vec<Problem>) {
    let host = web_chat::HOST.path();
    let address = values.get(&web_chat::HOST);
    let token = values.get(&web_chat::AUTH_TOKEN);
    let open = !address.is_loopback() && token.is_none() && values.get(&web_chat::ENABLED);
    if open && sound(web_chat::AUTH_TOKEN.path()) {
        let says = format!("{address} lets everyone on the network talk to the companion");
        let fix = format!("set {}, or write 127.0.0.1", web_chat::AUTH_TOKEN.path());
        problems.push(Problem::error(host, values.line(host), says, fix).as_warning());
    }
}
