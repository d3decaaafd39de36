//! The list of conversations, and the token.

use serde_json::json;
use thirtyfour::Key;

use crate::page::visit;

#[tokio::test]
async fn conversations_are_begun_renamed_and_deleted() {
    visit("", |page| async move {
        page.open().await;
        page.ask("Where does the thermometer go?").await;
        page.click("#new").await;
        page.until("document.querySelector('.hello')").await;
        page.ask("Hello there").await;
        page.until("document.querySelectorAll('.session').length === 2").await;
        let titles = "[...document.querySelectorAll('.session b')].map((b) => b.textContent)";
        page.until(&format!("{titles}[0] === 'Hello there'")).await;
        page.click(".session[data-current] [data-act=rename]").await;
        page.press("A greeting").await;
        page.press(&char::from(Key::Enter).to_string()).await;
        page.until(&format!("{titles}[0] === 'A greeting'")).await;
        page.until("document.getElementById('title').textContent === 'A greeting'").await;
        page.reload().await;
        page.connected().await;
        page.until(&format!("{titles}[0] === 'A greeting'")).await;
        page.until("document.querySelector('.bubble')?.textContent.endsWith('Hello there')").await;
        // Keeping it is what Escape and Enter mean.
        page.click(".session[data-current] [data-act=delete]").await;
        page.until("document.getElementById('confirm').open").await;
        page.press(&char::from(Key::Enter).to_string()).await;
        page.until("!document.getElementById('confirm').open").await;
        assert_eq!(page.js("document.querySelectorAll('.session').length").await, json!(2));
        page.click(".session[data-current] [data-act=delete]").await;
        page.until("document.getElementById('confirm').open").await;
        page.click("#confirm .danger").await;
        page.until("document.querySelectorAll('.session').length === 1").await;
        page.until("document.querySelector('.bubble')?.textContent.includes('thermometer')").await;
        page
    })
    .await;
}

#[tokio::test]
async fn a_token_is_asked_for_kept_and_forgotten() {
    visit("  auth_token: open-sesame\n", |page| async move {
        page.go().await;
        page.until("document.getElementById('token').open").await;
        page.press("wrong").await;
        page.press(&char::from(Key::Enter).to_string()).await;
        page.until("document.getElementById('token-wrong').textContent").await;
        page.until("document.getElementById('token').open").await;
        page.js("document.getElementById('token-value').focus()").await;
        page.press("open-sesame").await;
        page.press(&char::from(Key::Enter).to_string()).await;
        page.connected().await;
        page.ask("Hello").await;
        page.reload().await;
        page.connected().await;
        page.click("#forget").await;
        page.until("document.getElementById('token').open").await;
        let kept = page.js("JSON.stringify(localStorage)").await;
        assert!(!kept.as_str().unwrap().contains("open-sesame"), "{kept}");
        // Nothing that is served tells the token.
        let served = page
            .wait_for(
                "Promise.all(performance.getEntriesByType('resource') \
                 .map((entry) => fetch(entry.name).then((answer) => answer.text()))) \
                 .then((texts) => texts.join(''))",
            )
            .await;
        assert!(!served.as_str().unwrap().contains("open-sesame"));
        page
    })
    .await;
}
