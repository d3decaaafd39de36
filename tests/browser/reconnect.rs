//! The daemon goes and comes back; the page loses nothing and says nothing twice.

use thirtyfour::Key;

use crate::page::visit;

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
