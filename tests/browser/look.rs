//! How it looks: at three widths, in both themes and languages, and to those who cannot see it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use thirtyfour::Key;

use crate::page::{Page, visit, visit_at};

const WIDTHS: [(u32, u32); 3] = [(360, 740), (768, 900), (1440, 900)];
const THEMES: [&str; 2] = ["light", "dark"];

/// Part of the pixels that may differ from the reference: fonts are rasterised a little
/// differently by every release. A line of text that moved by four pixels is 0.0027 of the widest
/// window and more of the others.
const DIFFERENCE_MAX: f64 = 0.0025;

/// What differs at every visit is not there, but keeps its place; the caret does not blink.
const STILL: &str = "(() => { const sheet = new CSSStyleSheet(); \
    sheet.replaceSync('[data-varies] { visibility: hidden } \
                       .who [data-varies] { display: none } \
                       * { caret-color: transparent !important }'); \
    document.adoptedStyleSheets = [sheet]; })()";

/// Compares two pictures: the part of the pixels of which a channel differs visibly, 1 if the
/// sizes do.
const COMPARE: &str = "(async () => { \
    const pixels = async (text) => { \
        const image = new Image(); \
        image.src = 'data:image/png;base64,' + text; await image.decode(); \
        const canvas = new OffscreenCanvas(image.width, image.height); \
        const context = canvas.getContext('2d'); context.drawImage(image, 0, 0); \
        return context.getImageData(0, 0, image.width, image.height); }; \
    const [a, b] = [await pixels('{A}'), await pixels('{B}')]; \
    if (a.width !== b.width || a.height !== b.height) return 1; \
    let differ = 0; \
    for (let at = 0; at < a.data.length; at += 4) { \
        if ([0, 1, 2].some((c) => Math.abs(a.data[at + c] - b.data[at + c]) > 40)) differ += 1; } \
    return differ / (a.data.length / 4); })()";

fn screens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/screens")
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let number =
            group.iter().chain(&[0, 0]).take(3).fold(0_usize, |n, &b| n << 8 | usize::from(b));
        for place in 0..4 {
            let digit = char::from(DIGITS[number >> (18 - 6 * place) & 63]);
            text.push(if place <= group.len() { digit } else { '=' });
        }
    }
    text
}

/// A picture of the window, under its name.
async fn picture(page: &Page, name: &str) -> (String, Vec<u8>) {
    page.js(STILL).await;
    page.wait_for(
        "document.fonts.ready.then(() => new Promise((drawn) => \
                   requestAnimationFrame(() => requestAnimationFrame(() => drawn(true)))))",
    )
    .await;
    (name.to_owned(), page.driver().screenshot_as_png().await.unwrap())
}

/// Holds pictures against the reference, or makes them the reference with `UPDATE_SCREENS=1`.
async fn compare(page: &Page, pictures: Vec<(String, Vec<u8>)>) {
    let update = std::env::var_os("UPDATE_SCREENS").is_some();
    let mut wrong = Vec::new();
    page.driver().goto("about:blank").await.unwrap();
    for (name, seen) in pictures {
        let path = screens().join(format!("{name}.png"));
        if update {
            std::fs::write(&path, seen).unwrap();
            continue;
        }
        let reference = std::fs::read(&path)
            .unwrap_or_else(|error| panic!("{name}: {error}; UPDATE_SCREENS=1 makes it"));
        let script = COMPARE.replace("{A}", &base64(&reference)).replace("{B}", &base64(&seen));
        let part = page.wait_for(&script).await.as_f64().unwrap();
        eprintln!("{name}: {:.3} % differ", part * 100.0);
        if part > DIFFERENCE_MAX {
            let kept = std::env::temp_dir().join(format!("{name}.png"));
            std::fs::write(&kept, seen).unwrap();
            wrong.push(format!("{name}: {:.2} % differ, see {}", part * 100.0, kept.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Two turns, so that there is something to see.
async fn talk(page: &Page) {
    page.ask("Where does the thermometer go?").await;
    page.ask("How do I keep readings in a buffer?").await;
    page.until("document.querySelector('.hljs-keyword')").await;
}

async fn wide_as_the_window(page: &Page, what: &str) {
    let wide = page
        .js("[document.documentElement, document.getElementById('thread')] \
             .map((e) => e.scrollWidth - e.clientWidth)")
        .await;
    assert_eq!(wide, json!([0, 0]), "{what}: something is wider than the window");
}

#[tokio::test]
async fn it_looks_as_it_was_drawn() {
    visit("", |page| async move {
        page.size(1440, 900).await;
        page.colours("light").await;
        page.open().await;
        let mut pictures = vec![picture(&page, "hello-1440-light").await];
        talk(&page).await;
        for theme in THEMES {
            page.colours(theme).await;
            for (width, height) in WIDTHS {
                page.size(width, height).await;
                pictures.push(picture(&page, &format!("chat-{width}-{theme}")).await);
                wide_as_the_window(&page, &format!("chat-{width}")).await;
            }
        }
        page.size(360, 740).await;
        page.click("#menu").await;
        page.until("document.getElementById('side').classList.contains('over')").await;
        pictures.push(picture(&page, "list-360-dark").await);
        page.press(&char::from(Key::Escape).to_string()).await;
        page.colours("light").await;
        page.size(768, 900).await;
        page.click("#chip").await;
        page.until("document.getElementById('about').open").await;
        pictures.push(picture(&page, "about-768-light").await);
        page.press(&char::from(Key::Escape).to_string()).await;
        compare(&page, pictures).await;
        page.open().await;
        page
    })
    .await;
}

#[tokio::test]
async fn both_languages_fit_a_small_phone_and_both_themes_can_be_chosen() {
    visit("", |page| async move {
        page.size(360, 640).await;
        page.colours("light").await;
        page.open().await;
        talk(&page).await;
        for language in ["en", "zh"] {
            let texts = page.js("document.body.innerText").await;
            assert_eq!(texts.as_str().unwrap().contains("重试"), language == "zh");
            assert_eq!(page.js("document.documentElement.lang").await, json!(language));
            wide_as_the_window(&page, language).await;
            page.click("#menu").await;
            page.until("document.getElementById('side').classList.contains('over')").await;
            wide_as_the_window(&page, language).await;
            page.click("#language").await;
            page.press(&char::from(Key::Escape).to_string()).await;
            page.until("!document.getElementById('side').classList.contains('over')").await;
        }
        // No key of the table reaches the screen.
        page.click("#menu").await;
        let ground = "getComputedStyle(document.body).backgroundColor";
        let light = page.js(ground).await;
        page.click("#theme").await;
        page.click("#theme").await;
        assert_eq!(page.js("document.documentElement.dataset.theme").await, json!("dark"));
        assert_ne!(page.js(ground).await, light);
        page.reload().await;
        page.connected().await;
        assert_eq!(page.js("document.documentElement.dataset.theme").await, json!("dark"));
        page
    })
    .await;
}

#[tokio::test]
async fn numbers_stand_to_the_right_lists_begin_where_they_say_and_words_run_their_own_way() {
    visit_at("instant", "", |page| async move {
        page.size(360, 640).await;
        page.open().await;
        page.ask("Make a table").await;
        page.until("document.querySelector('.words ol')").await;
        let style = |selector: &str, name: &str| {
            format!("getComputedStyle(document.querySelector('{selector}')).{name}")
        };
        assert_eq!(page.js(&style("td:last-child", "textAlign")).await, json!("end"));
        assert_eq!(page.js("document.querySelector('.words ol').start").await, json!(3));
        let direction = style(".words > :last-child", "direction");
        assert_eq!(page.js(&direction).await, json!("rtl"));
        assert_eq!(page.js(&style(".words > :first-child", "direction")).await, json!("ltr"));
        // Whatever is scrolled to, the page itself stays where it is.
        for number in 0..6 {
            page.ask(&format!("Hello {number}")).await;
        }
        page.js("document.querySelector('.words').scrollIntoView()").await;
        page.js("location.hash = '#main'").await;
        page.js("document.getElementById('main').scrollIntoView(false)").await;
        let moved = "[scrollX, scrollY, document.body.scrollTop]";
        assert_eq!(page.js(moved).await, json!([0, 0, 0]));
        let top = "document.querySelector('.bar').getBoundingClientRect().top";
        assert_eq!(page.js(top).await, json!(0));
        page
    })
    .await;
}

/// What axe finds, one line each.
async fn findings(page: &Page) -> Vec<String> {
    page.js(include_str!("vendor/axe.js").trim_end_matches(['\n', ';']).trim()).await;
    let found = page
        .wait_for(
            "axe.run(document, {resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa', \
                   'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']})",
        )
        .await;
    let violations = found["violations"].as_array().unwrap_or_else(|| panic!("{found}")).clone();
    let line = |rule: &Value| {
        let nodes = rule["nodes"].as_array().unwrap();
        let nodes: Vec<_> = nodes.iter().map(|n| n["html"].as_str().unwrap_or_default()).collect();
        format!("{}: {}", rule["id"], nodes.join(" | "))
    };
    violations.iter().map(line).collect()
}

#[tokio::test]
async fn nothing_stands_in_the_way_of_those_who_cannot_see_it() {
    visit("", |page| async move {
        page.size(1440, 900).await;
        page.open().await;
        talk(&page).await;
        let mut found = Vec::new();
        for theme in THEMES {
            page.colours(theme).await;
            page.size(1440, 900).await;
            found.extend(findings(&page).await);
            page.click("#chip").await;
            found.extend(findings(&page).await);
            page.press(&char::from(Key::Escape).to_string()).await;
            page.size(360, 740).await;
            page.click("#menu").await;
            page.until("document.getElementById('side').classList.contains('over')").await;
            found.extend(findings(&page).await);
            page.press(&char::from(Key::Escape).to_string()).await;
        }
        assert!(found.is_empty(), "{}", found.join("\n"));
        page
    })
    .await;
}
