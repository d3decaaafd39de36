//! The daemon goes and comes back; the page loses nothing and says nothing twice.

use serde_json::json;
use thirtyfour::Key;

use crate::page::{visit, visit_at};

/// A socket that `window.cut` ends right behind the first message it sends, and whose frames go
/// through `window.mend`, which may change them or keep them back.
const SOCKET: &str = "window.WebSocket = class extends WebSocket { \
    send(data) { \
        super.send(data); \
        if (!window.cut || JSON.parse(data).type !== 'message') return; \
        window.cut = false; \
        this.close(); \
    } \
    set onmessage(then) { \
        super.onmessage = ({ data }) => { \
            const frame = (window.mend ?? ((same) => same))(JSON.parse(data)); \
            if (frame) then({ data: JSON.stringify(frame) }); \
        }; \
    } \
};";

const TURNS: &str = "document.querySelectorAll('[data-turn]').length";

#[tokio::test]
async fn a_restart_in_the_middle_of_an_answer_loses_nothing() {
    visit("", |page| async move {
        page.open().await;
        page.ask("Where does the thermometer go?").await;
        page.say("Please count").await;
        page.until(
            "[...document.querySelectorAll('.words')].at(-1).textContent.includes('and on to 2')",
        )
        .await;
        page.house().stop();
        page.until("document.getElementById('chip').dataset.state === 'bad'").await;
        let shown = page.last_answer().await;
        page.say("Said while away").await;
        page.until("document.querySelector('[data-kept]')").await;
        page.js("document.getElementById('text').focus()").await;
        page.press("A draft that is not").await;
        // The page is loaded again while nobody answers: the browser keeps what it has.
        page.house().run();
        page.reload().await;
        page.connected().await;
        page.until(&format!("{TURNS} === 3")).await;
        page.until(
            "[...document.querySelectorAll('[data-turn]')].at(-1).dataset.outcome === 'done'",
        )
        .await;
        let draft = page.js("document.getElementById('text').value").await;
        assert_eq!(draft, "A draft that is not");
        let log = page.log("main").await;
        assert_eq!(log.len(), 6, "{log:?}");
        let again = page.js("document.querySelectorAll('.words')[1].textContent").await;
        let again = again.as_str().unwrap().trim();
        assert!(again.starts_with(shown.trim()), "{shown:?} was shown, now {again:?}");
        assert_eq!(log.iter().filter(|line| line.ends_with("Said while away")).count(), 1);
        page
    })
    .await;
}

#[tokio::test]
async fn after_a_kill_the_page_comes_back_by_itself_with_all_that_was_shown() {
    visit("", |page| async move {
        page.open().await;
        page.say("Please count").await;
        page.until("document.querySelector('.words')?.textContent.includes('and on to 3')").await;
        page.house().kill();
        page.until("document.getElementById('chip').dataset.state === 'bad'").await;
        let shown = page.last_answer().await;
        page.say("First while away").await;
        page.say("Second while away").await;
        page.until("document.querySelectorAll('[data-kept]').length === 2").await;
        page.house().run();
        page.connected().await;
        page.until("document.querySelector('[data-outcome=interrupted]')").await;
        page.until("document.querySelectorAll('[data-outcome=done]').length === 2").await;
        let log = page.log("main").await;
        assert_eq!(log.len(), 6, "{log:?}");
        let said: Vec<_> = log.iter().filter(|line| line.starts_with("user")).collect();
        assert_eq!(said[1..], ["user: First while away", "user: Second while away"]);
        assert!(log[1].contains(shown.trim()), "{shown:?} was shown, kept {:?}", log[1]);
        let again = page.js("document.querySelector('.words').textContent").await;
        assert!(again.as_str().unwrap().starts_with(shown.trim()));
        page
    })
    .await;
}

#[tokio::test]
async fn a_draft_survives_a_reload_in_its_own_conversation() {
    visit("", |page| async move {
        page.open().await;
        page.press("For the first").await;
        page.press_with(Key::Shift, &char::from(Key::Enter).to_string()).await;
        page.press("with two lines").await;
        page.click("#new").await;
        page.until("document.getElementById('text').value === ''").await;
        page.press("For the second").await;
        page.reload().await;
        page.connected().await;
        page.until("document.getElementById('text').value === 'For the second'").await;
        page.js("location.hash = '#main'").await;
        page.until("document.getElementById('text').value === 'For the first\\nwith two lines'")
            .await;
        page
    })
    .await;
}

#[tokio::test]
async fn a_connection_lost_in_the_middle_of_a_send_neither_loses_nor_repeats_the_message() {
    visit("", |page| async move {
        page.before(SOCKET).await;
        page.open().await;
        page.js("window.cut = true").await;
        page.ask("Where does the thermometer go?").await;
        assert_eq!(page.js("window.cut").await, json!(false), "it was cut");
        assert_eq!(page.log("main").await.len(), 2);
        assert_eq!(page.js(TURNS).await, json!(1));
        assert!(page.last_answer().await.contains("both make it lie."));
        // The log does not tell of the message in time, so that it does go out again.
        page.js("window.mend = (frame) => { \
                 if (frame.event === 'taken') window.again = frame.again; \
                 if (frame.event === 'history') frame.turns.splice(2); \
                 return ['snapshot', 'user'].includes(frame.event) ? null : frame; }")
            .await;
        page.js("window.cut = true").await;
        page.ask("Hello").await;
        assert_eq!(page.js("window.again").await, json!(true), "it went out twice");
        let log = page.log("main").await;
        assert_eq!(log[2..], ["user: Hello", "assistant: Yes, I hear you."]);
        assert_eq!(page.js(TURNS).await, json!(2));
        assert_eq!(page.last_answer().await.trim(), "Yes, I hear you.");
        let said = page.js("[...document.querySelectorAll('.bubble')].at(-1).textContent").await;
        assert!(said.as_str().unwrap().ends_with("Hello"), "{said}");
        page
    })
    .await;
}

#[tokio::test]
async fn a_page_that_is_older_than_the_daemon_offers_to_load_again_and_keeps_the_draft() {
    visit("", |page| async move {
        page.before(SOCKET).await;
        page.open().await;
        let notice = "document.querySelector('[data-kind=renewed]')";
        assert_eq!(page.js(notice).await, json!(null), "it is of the daemon's own files");
        page.press("Half a thought").await;
        // The daemon comes back with other files, as after an upgrade.
        page.js("window.mend = (frame) => frame.event === 'ready' \
                 ? { ...frame, assets: '0123456789abcdef' } : frame")
            .await;
        page.house().kill();
        page.until("document.getElementById('chip').dataset.state === 'bad'").await;
        page.house().run();
        page.until(notice).await;
        page.connected().await;
        assert_eq!(page.js("document.getElementById('text').value").await, "Half a thought");
        page.click("[data-kind=renewed] button").await;
        page.until(&format!("!window.mend && !{notice}")).await;
        page.connected().await;
        assert_eq!(page.js("document.getElementById('text').value").await, "Half a thought");
        assert_eq!(page.js(notice).await, json!(null));
        page
    })
    .await;
}

#[tokio::test]
async fn what_was_said_long_ago_is_loaded_by_key_and_nothing_moves() {
    visit_at("instant", "", |page| async move {
        page.open().await;
        // Turn after turn, as a script would talk.
        page.wait_for(
            "(async () => { for (let n = 1; n <= 130; n += 1) { \
                 const body = JSON.stringify({ session: 'long', message: `Hello ${n}` }); \
                 const headers = { 'Content-Type': 'application/json' }; \
                 await fetch('/chat', { method: 'POST', headers, body }); } })()",
        )
        .await;
        page.js("location.hash = '#long'").await;
        page.until(&format!("{TURNS} === 100")).await;
        page.js("document.getElementById('thread').scrollTop = 0").await;
        page.until("document.querySelector('.earlier button')").await;
        page.until("!document.getElementById('latest').hidden").await;
        page.js("document.querySelector('.earlier button').focus()").await;
        let place = "Math.round(document.querySelector('[data-turn=\"31\"]') \
                     .getBoundingClientRect().top)";
        let before = page.js(place).await.as_i64().unwrap();
        page.press(&char::from(Key::Enter).to_string()).await;
        page.until(&format!("{TURNS} === 130")).await;
        page.until("!document.querySelector('.earlier')").await;
        let moved = page.js(place).await.as_i64().unwrap() - before;
        assert!(moved.abs() <= 1, "moved by {moved} pixels");
        let focus = page.js("document.activeElement.dataset.turn").await;
        assert_eq!(focus, json!("1"), "reading goes on from what came");
        page.until("document.getElementById('told').textContent.startsWith('30 ')").await;
        let order = page
            .js("[...document.querySelectorAll('[data-turn]')].map((t) => Number(t.dataset.turn))")
            .await;
        assert_eq!(order, json!((1..=130).collect::<Vec<_>>()));
        // It joins on: a lost connection takes none of it away.
        page.house().kill();
        page.until("document.getElementById('chip').dataset.state === 'bad'").await;
        page.house().run();
        page.connected().await;
        page.ask("Hello again").await;
        assert_eq!(page.js(TURNS).await, json!(131));
        page
    })
    .await;
}
