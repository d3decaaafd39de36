//! What must never be shown.

use super::quick_hailo;
use crate::client::{get, request, send};
use crate::daemon::Setup;

const TOKEN: &str = "t0ken-pL4nTed-in-a-test";
const KEY: &str = "sk-pL4nTed-in-a-test";

#[test]
fn a_token_and_a_key_are_in_no_log_line_no_answer_and_no_verbs_output() {
    let hailo = quick_hailo();
    let setup = Setup::on_hailo(hailo.addr())
        .env("CRAYFISH_LOG", "trace")
        .env("KEY", KEY)
        .key("web_chat.auth_token", TOKEN)
        .key("openai.url", "http://127.0.0.1:1/v1")
        .key("openai.model", "some")
        .key("openai.api_key", "${KEY}")
        .key("hardware.reserve_backend", "openai");
    let mut daemon = setup.start();
    let mut heard = Vec::new();
    let json = "Content-Type: application/json\r\n";
    let sent = format!("{json}X-OCF-Token: {TOKEN}\r\n");
    let wrong = format!("{json}X-OCF-Token: {TOKEN}-not\r\n");
    for backend in ["hailo", "openai"] {
        let body = format!(r#"{{"message": "hello", "backend": "{backend}"}}"#);
        let reply = send(daemon.port, &request("POST", "/chat", &sent, body.as_bytes())).unwrap();
        assert_eq!(reply.status, 200, "{reply:?}");
        heard.push(reply.head.clone() + &reply.text());
        let reply = send(daemon.port, &request("POST", "/chat", &wrong, body.as_bytes())).unwrap();
        assert_eq!(reply.status, 401, "{reply:?}");
        heard.push(reply.head.clone() + &reply.text());
    }
    assert_eq!(get(daemon.port, "/state").status, 401, "the token is asked for");
    for path in ["/", "/state", "/history", "/healthz", "/none"] {
        let reply = send(daemon.port, &request("GET", path, &sent, b"")).unwrap();
        heard.push(reply.head.clone() + &reply.text());
    }
    let (config, state) = (setup.config().to_str().unwrap(), setup.state().to_str().unwrap());
    let verbs: [&[&str]; 4] = [
        &["check", "--config", config],
        &["check", "--config", config, "--effective"],
        &["status", "--state", state],
        &["status", "--json", "--state", state],
    ];
    for verb in verbs {
        let output = setup.run(verb);
        assert!(output.status.success(), "{verb:?}: {output:?}");
        heard.push(String::from_utf8_lossy(&output.stdout).into_owned());
        heard.push(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    // A reload that complains about the very lines that hold them.
    let logged = daemon.log.len();
    setup.write(&setup.text().replace(TOKEN, &format!("[{TOKEN}]")).replace("${KEY}", "${NONE}"));
    daemon.log.wait(logged, "config.refused");
    assert_eq!(daemon.stop(), 0);
    heard.extend(daemon.log.lines());
    heard.extend(daemon.notified.lines());
    assert!(heard.len() > 20);
    for text in heard {
        assert!(!text.contains(TOKEN) && !text.contains(KEY), "a secret was told: {text}");
    }
}
