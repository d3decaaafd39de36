//! The views beside Talk: how one gets there, what they say, how they look.

use serde_json::json;
use thirtyfour::Key;

use crate::look::{THEMES, WIDTHS, compare, findings, picture, wide_as_the_window};
use crate::page::{Page, visit, visit_at};

const VIEWS: [&str; 4] = ["talk", "body", "mind", "feeds"];
const BOARDS: [&str; 3] = ["body", "mind", "feeds"];

/// A heart that beats every second and a governor that forgets as fast.
const QUICK: &str = "system:\n  pulse_interval_seconds: 1\n\
    governor:\n  window_seconds: 10\n  hold_seconds: 1\n";

/// Where the firmware's bits are in a recorded machine.
const BITS: &str = "sys/devices/platform/soc@107c000000/soc@107c000000:firmware/get_throttled";

/// The words of an element, as a person reads them.
async fn words(page: &Page, selector: &str) -> String {
    let text = format!("document.querySelector('{selector}').innerText");
    page.js(&text).await.as_str().unwrap().to_owned()
}

/// Goes to a view by its link.
async fn go(page: &Page, view: &str) {
    let place = VIEWS.iter().position(|each| *each == view).unwrap() + 1;
    page.click(&format!("#views a:nth-child({place})")).await;
    page.until(&format!("!document.getElementById('view-{view}').hidden")).await;
}

/// Goes to a view by its address, so that no pointer rests on anything.
async fn show(page: &Page, view: &str) {
    page.js(&format!("location.hash = '#/{view}'")).await;
    page.until(&format!("!document.getElementById('view-{view}').hidden")).await;
}

/// Waits until the governor's step on the Body is this one; its words.
async fn step(page: &Page, level: &str) -> String {
    let current = "#ladder [aria-current]";
    page.until(&format!("document.querySelector('{current}')?.dataset.level === '{level}'")).await;
    words(page, current).await
}

#[tokio::test]
async fn views_are_one_step_apart_by_finger_by_key_and_by_address() {
    visit("", |page| async move {
        page.size(360, 640).await;
        page.open().await;
        page.press("half a thought").await;
        for view in ["body", "mind", "feeds", "talk"] {
            go(&page, view).await;
            let shown = "[...document.querySelectorAll('.view')].filter((v) => !v.hidden) \
                         .map((v) => v.id)";
            assert_eq!(page.js(shown).await, json!([format!("view-{view}")]));
            let current = "document.querySelector('#views [aria-current=page]').textContent";
            let link = words(&page, "#views [aria-current=page]").await;
            assert_eq!(page.js(current).await, json!(link));
            wide_as_the_window(&page, view).await;
        }
        assert_eq!(page.js("document.getElementById('text').value").await, json!("half a thought"));
        assert_eq!(words(&page, "#title").await, "Main conversation");
        // By key.
        page.js("document.querySelector('#views a').focus()").await;
        page.press(&char::from(Key::Tab).to_string()).await;
        page.press(&char::from(Key::Enter).to_string()).await;
        page.until("!document.getElementById('view-body').hidden").await;
        assert_eq!(words(&page, "#title").await, "Body");
        // Back, and by address.
        page.js("history.back()").await;
        page.until("!document.getElementById('view-talk').hidden").await;
        page.js("location.hash = '#/mind'").await;
        page.until("!document.getElementById('view-mind').hidden").await;
        page.reload().await;
        page.connected().await;
        page.until("!document.getElementById('view-mind').hidden").await;
        page.js("location.hash = '#/nowhere'").await;
        assert_eq!(words(&page, "#title").await, "Mind");
        // What waited in the composer was kept; past everything else a step leads to it.
        page.js("document.querySelector('.skip').focus()").await;
        page.press(&char::from(Key::Enter).to_string()).await;
        page.until("document.activeElement.id === 'text'").await;
        assert_eq!(words(&page, "#title").await, "Main conversation");
        assert_eq!(page.js("document.getElementById('text').value").await, json!("half a thought"));
        page
    })
    .await;
}

#[tokio::test]
async fn every_step_of_the_governor_is_read_on_the_body() {
    visit_at("instant", QUICK, |page| async move {
        page.open().await;
        go(&page, "body").await;
        page.until("document.getElementById('pulse').dataset.pulse === 'alive'").await;
        assert!(step(&page, "full").await.contains("Everything is allowed."));
        page.until(
            "document.querySelector('[data-vital=temperature] .value')?.innerText === '48.3 °C'",
        )
        .await;
        page.house().play("pi5-under-voltage", &[(BITS, "50001")]);
        let short = step(&page, "short").await;
        assert!(short.contains("the supply's voltage is too low"), "{short}");
        assert_eq!(words(&page, "[data-vital=supply] .value").await, "voltage too low");
        page.house().play("pi5-under-voltage", &[]);
        let cheap = step(&page, "cheap").await;
        assert!(cheap.contains("the firmware slows the processor down"), "{cheap}");
        page.house().play("pi5-hot", &[]);
        let resting = step(&page, "no_model").await;
        assert!(resting.contains("75 °C is the limit"), "{resting}");
        page.until("document.getElementById('line-words').innerText.startsWith('Under stress')")
            .await;
        page.house().play("pi5-healthy", &[]);
        step(&page, "full").await;
        page.until("document.querySelector('#story [data-kind=\"stress.left\"]')").await;
        let story = words(&page, "#story").await;
        for told in ["to “Short”", "to “Cheap”", "to “No model”", "Stress began", "Stress is over"]
        {
            assert!(story.contains(told), "{told} in {story}");
        }
        page.until("document.querySelector('[data-chart=temperature] canvas')").await;
        let chart = "document.querySelector('[data-chart=temperature] [role=img]').ariaLabel";
        let chart = page.js(chart).await.as_str().unwrap().to_owned();
        assert!(chart.contains("to 81.7 °C, now 48.3 °C"), "{chart}");
        page
    })
    .await;
}

#[tokio::test]
async fn what_a_machine_does_not_tell_is_a_dash_with_its_reason_and_never_nought() {
    visit_at("instant", QUICK, |page| async move {
        page.house().play("empty", &[]);
        page.open().await;
        go(&page, "body").await;
        page.until("document.querySelector('[data-vital=temperature]').dataset.absent === 'true'")
            .await;
        let tiles = page
            .js("[...document.querySelectorAll('#tiles .tile')].map((tile) => \
                 [tile.dataset.vital, ...[...tile.querySelectorAll('dd')].map((d) => d.innerText)])")
            .await;
        for tile in tiles.as_array().unwrap() {
            let [_, value, note] = [0, 1, 2].map(|part| tile[part].as_str().unwrap());
            assert!(!value.starts_with('0'), "{tile}");
            assert!(value != "–" || !note.is_empty(), "a dash without a reason: {tile}");
        }
        assert_eq!(words(&page, "[data-vital=temperature] .note").await, "no sensor");
        page
    })
    .await;
}

#[tokio::test]
async fn a_heart_that_stands_is_stale_then_dead_and_so_is_a_lost_stream() {
    visit_at("instant", QUICK, |page| async move {
        page.open().await;
        go(&page, "body").await;
        let pulse =
            |word: &str| format!("document.getElementById('pulse-word').innerText === '{word}'");
        page.until(&pulse("ALIVE")).await;
        page.house().hold(true);
        page.until(&pulse("STALE")).await;
        page.until(&pulse("DEAD")).await;
        page.house().hold(false);
        page.until(&pulse("ALIVE")).await;
        page.house().kill();
        page.until(&pulse("DEAD")).await;
        page.house().run();
        page.until(&pulse("ALIVE")).await;
        page
    })
    .await;
}

#[tokio::test]
async fn feeds_and_mind_tell_what_happens_as_it_happens() {
    visit_at("instant", "", |page| async move {
        page.open().await;
        page.ask("Where does the thermometer go?").await;
        go(&page, "mind").await;
        page.until("document.querySelector('#turns tbody tr')?.dataset.outcome === 'done'").await;
        page.until(
            "document.querySelector('[data-backend=hailo] [data-figure=first]')?.dataset.absent \
             === 'false'",
        )
        .await;
        let reused = words(&page, "[data-backend=hailo] [data-figure=prefix]").await;
        assert!(reused.contains("0 %") && reused.contains("tokens"), "{reused}");
        assert_eq!(words(&page, "[data-backend=hailo] [data-figure=lease] .value").await, "free");
        // The second prompt continues the first.
        go(&page, "talk").await;
        page.ask("And a second one?").await;
        go(&page, "mind").await;
        page.until("document.querySelectorAll('#turns tbody tr').length === 2").await;
        let part = "document.querySelector('[data-backend=hailo] [data-figure=prefix] .value')";
        page.until(&format!("parseInt({part}.innerText) > 0")).await;
        go(&page, "feeds").await;
        page.until(
            "document.getElementById('activity').innerText.includes('Turn 1 of main: done.')",
        )
        .await;
        // The one fault of this house: nobody listens where Ollama should be.
        page.until("document.getElementById('trouble').innerText.includes('ollama is not used')")
            .await;
        let severity = "document.querySelector('#trouble .happening').dataset.severity";
        assert_eq!(page.js(severity).await, json!("warn"));
        page
    })
    .await;
}

/// A page with the pinned feed; `calm` without any trouble.
async fn pinned(page: &Page) {
    page.command("Emulation.setTimezoneOverride", json!({ "timezoneId": "UTC" })).await;
    page.before(include_str!("pinned.js")).await;
    page.open().await;
}

#[tokio::test]
async fn boards_look_as_they_were_drawn() {
    visit("", |page| async move {
        page.size(1440, 900).await;
        pinned(&page).await;
        let mut pictures = Vec::new();
        for board in BOARDS {
            show(&page, board).await;
            for theme in THEMES {
                page.colours(theme).await;
                for (width, height) in WIDTHS {
                    page.size(width, height).await;
                    if board == "body" {
                        drawn(&page).await;
                    }
                    pictures.push(picture(&page, &format!("{board}-{width}-{theme}")).await);
                    wide_as_the_window(&page, board).await;
                }
            }
        }
        show(&page, "body").await;
        page.size(360, 2600).await;
        drawn(&page).await;
        pictures.push(picture(&page, "body-whole-360-dark").await);
        page.js("sessionStorage.setItem('calm', 'yes')").await;
        page.reload().await;
        page.connected().await;
        show(&page, "feeds").await;
        page.size(768, 900).await;
        page.until("document.getElementById('view-feeds').dataset.calm === 'true'").await;
        pictures.push(picture(&page, "feeds-calm-768-dark").await);
        compare(&page, pictures).await;
        page.open().await;
        page
    })
    .await;
}

/// Waits until all charts are as wide as their places and in the colours of the theme.
async fn drawn(page: &Page) {
    page.until(
        "[...document.querySelectorAll('.plot')].every((plot) => { \
             const width = plot.querySelector('.uplot')?.offsetWidth; \
             const ink = getComputedStyle(plot).getPropertyValue('--text').trim(); \
             return width === plot.clientWidth && plot.dataset.ink === ink; })",
    )
    .await;
}

#[tokio::test]
async fn boards_are_there_for_those_who_cannot_see_them() {
    visit("", |page| async move {
        page.size(1440, 900).await;
        pinned(&page).await;
        let mut found = Vec::new();
        for board in BOARDS {
            go(&page, board).await;
            for theme in THEMES {
                page.colours(theme).await;
                for width in [1440, 360] {
                    page.size(width, 900).await;
                    let all = findings(&page).await;
                    found.extend(all.iter().map(|line| format!("{board} {theme} {width}: {line}")));
                }
            }
        }
        assert!(found.is_empty(), "{}", found.join("\n"));
        page
    })
    .await;
}
