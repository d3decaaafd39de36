//! Talking: words as they come, stop, again, copy.

use serde_json::json;

use crate::page::visit;

#[tokio::test]
async fn words_come_one_by_one_and_are_read_out_once_when_the_answer_is_whole() {
    visit("", |page| async move {
        page.open().await;
        page.js("(() => { window.heard = []; new MutationObserver(() => { \
                 const said = document.getElementById('said').textContent; \
                 if (said) window.heard.push(said); }) \
                 .observe(document.getElementById('said'), {childList: true}); })()")
            .await;
        page.js("(() => { window.seen = []; new MutationObserver(() => { \
                 window.seen.push(document.querySelector('.words')?.textContent.length ?? 0); }) \
                 .observe(document.getElementById('column'), \
                          {childList: true, subtree: true, characterData: true}); })()")
            .await;
        page.ask("Where does the thermometer go?").await;
        page.until("window.heard.length > 0").await;
        let answer = page.last_answer().await;
        assert!(answer.starts_with("Away from the window"), "{answer}");
        let steps = page.js("new Set(window.seen).size").await.as_u64().unwrap();
        assert!(steps > 5, "the words came in {steps} steps");
        let heard = page.js("window.heard").await;
        assert_eq!(heard.as_array().unwrap().len(), 1, "{heard}");
        assert!(heard[0].as_str().unwrap().contains("both make it lie."), "{heard}");
        let who = page.js("document.querySelector('.foot .who').textContent").await;
        assert!(who.as_str().unwrap().starts_with("hailo · qwen"), "{who}");
        page
    })
    .await;
}

#[tokio::test]
async fn an_answer_is_stopped_and_asked_for_again() {
    visit("", |page| async move {
        page.size(600, 400).await;
        page.open().await;
        page.say("Please count for me").await;
        page.until("document.querySelector('.words')?.textContent.includes('and on to 3')").await;
        page.click("#stop").await;
        page.until("document.querySelector('[data-outcome=cancelled]')").await;
        let shown = page.last_answer().await;
        page.until("document.getElementById('stop').hidden").await;
        assert!(page.log("main").await[1].contains(shown.trim()));
        page.click(".retry").await;
        page.until("document.querySelectorAll('[data-turn]').length === 2").await;
        let said = page.js("[...document.querySelectorAll('.bubble')].map((b) => b.textContent)");
        let said = said.await;
        assert_eq!(said[0], said[1]);
        page.until("document.querySelectorAll('.words')[1].textContent.includes('and on to 2')")
            .await;
        // While the person looks further up, nothing moves under their eyes.
        page.until(
            "document.getElementById('thread').scrollHeight > \
                    document.getElementById('thread').clientHeight + 100",
        )
        .await;
        page.js("document.getElementById('thread').scrollTop = 0").await;
        page.until("!document.getElementById('latest').hidden").await;
        let before = page.last_answer().await.len();
        page.until(&format!(
            "[...document.querySelectorAll('.words')].at(-1).textContent.length > {before}"
        ))
        .await;
        assert_eq!(page.js("document.getElementById('thread').scrollTop").await, json!(0));
        page.click("#latest").await;
        page.until("document.getElementById('latest').hidden").await;
        page.click("#stop").await;
        page.until("document.querySelectorAll('[data-outcome=cancelled]').length === 2").await;
        page
    })
    .await;
}

#[tokio::test]
async fn answers_and_code_are_copied_and_what_is_typed_meanwhile_waits_its_turn() {
    visit("", |page| async move {
        page.open().await;
        let origin = page.url().to_owned();
        let granted = json!({
            "origin": origin.trim_end_matches('/'),
            "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"],
        });
        page.command("Browser.grantPermissions", granted).await;
        page.ask("Tell me of the buffer").await;
        page.click(".copy").await;
        page.until("document.querySelector('.copy').textContent === 'Copied'").await;
        let copied = page.wait_for("navigator.clipboard.readText()").await;
        assert!(copied.as_str().unwrap().starts_with("A **ring buffer** keeps"), "{copied}");
        page.click(".copy-code").await;
        page.until("document.querySelector('.copy-code').textContent === 'Copied'").await;
        let copied = page.wait_for("navigator.clipboard.readText()").await;
        assert!(copied.as_str().unwrap().starts_with("struct Ring {\n"), "{copied}");
        page.until("document.querySelector('.code .hljs-keyword')").await;
        page.say("Please count now").await;
        page.until(
            "[...document.querySelectorAll('.words')].at(-1).textContent.includes('and on to 2')",
        )
        .await;
        page.say("And then?").await;
        page.until("document.querySelector('[data-kept]')").await;
        page.click("#stop").await;
        page.until("document.querySelectorAll('[data-outcome=done]').length === 2").await;
        assert_eq!(page.last_answer().await.trim(), "Yes, I hear you.");
        assert_eq!(page.log("main").await.len(), 6);
        page
    })
    .await;
}

#[tokio::test]
async fn what_a_model_says_is_text_and_never_runs() {
    visit("", |page| async move {
        page.open().await;
        page.ask("Give me markup").await;
        page.until("document.querySelector('.words strong')").await;
        assert!(page.last_answer().await.contains("<script>"), "tags are words");
        assert_ne!(page.js("document.title").await, json!("run"));
        let dangerous = "document.querySelectorAll('.words img, .words script, .words [onerror], \
                         .words a[href^=javascript]').length";
        assert_eq!(page.js(dangerous).await, json!(0));
        page
    })
    .await;
}
