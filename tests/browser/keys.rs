//! Everything with the keyboard alone.

use serde_json::json;
use thirtyfour::Key;

use crate::page::visit;

fn key(key: Key) -> String {
    char::from(key).to_string()
}

const FOCUS: &str = "document.activeElement";

#[tokio::test]
async fn the_keyboard_is_enough() {
    visit("", |page| async move {
        page.open().await;
        assert_eq!(page.js(&format!("{FOCUS}.id")).await, json!("text"), "the message is first");
        page.press("Please count").await;
        page.press(&key(Key::Enter)).await;
        page.until("document.querySelector('.words')?.textContent.includes('and on to 2')").await;
        page.press(&key(Key::Escape)).await;
        page.until("document.querySelector('[data-outcome=cancelled]')").await;
        // To the list, a new chat from it, and back by the arrows.
        page.press_with(Key::Control, "k").await;
        page.until(&format!("{FOCUS}.getAttribute('aria-current') === 'true'")).await;
        page.press_with(Key::Shift, &key(Key::Tab)).await;
        page.until(&format!("{FOCUS}.id === 'new'")).await;
        page.press(&key(Key::Enter)).await;
        page.until(&format!("document.querySelector('.hello') && {FOCUS}.id === 'text'")).await;
        page.press("Hello").await;
        page.press(&key(Key::Enter)).await;
        page.until("document.querySelector('[data-outcome=done]')").await;
        page.until("document.querySelectorAll('.session').length === 2").await;
        page.press_with(Key::Control, "k").await;
        page.press(&key(Key::Down)).await;
        page.press(&key(Key::Enter)).await;
        page.until("document.querySelector('[data-outcome=cancelled]')").await;
        // Every stop of Tab is something with a name that can be seen.
        page.js("document.activeElement.blur()").await;
        let mut stops = Vec::new();
        for _ in 0..40 {
            page.press(&key(Key::Tab)).await;
            let stop = page
                .js("(() => { const e = document.activeElement, box = e.getBoundingClientRect(); \
                     const label = e.getAttribute('aria-label') || e.textContent; \
                     return { name: (label || e.labels?.[0]?.textContent || '').trim(), \
                              id: e.id || e.className || e.tagName, width: box.width }; })()")
                .await;
            // Between the last and the first there is the browser itself.
            if stop["id"] == "BODY" {
                continue;
            }
            assert!(stop["name"].as_str().is_some_and(|name| !name.is_empty()), "{stop}");
            assert!(stop["width"].as_f64().unwrap() > 0.0, "{stop}");
            stops.push(stop["id"].as_str().unwrap().to_owned());
            if stops.len() > 3 && stops.last() == stops.first() {
                break;
            }
        }
        for wanted in ["skip", "new", "theme", "language", "menu", "chip", "thread", "text"] {
            assert!(stops.iter().any(|stop| stop == wanted), "no Tab leads to {wanted}: {stops:?}");
        }
        page
    })
    .await;
}
