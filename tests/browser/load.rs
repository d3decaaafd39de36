//! Loading: light, from one place. How fast it is `tests/bench` measures.

use serde_json::json;

use crate::page::visit;

#[tokio::test]
async fn a_page_costs_nothing_the_second_time() {
    visit("", |page| async move {
        page.open().await;
        page.until("performance.getEntriesByName('interactive').length").await;
        // Kept files are not asked for again, the page itself is and has not changed.
        page.connected().await;
        page.js("location.reload()").await;
        page.connected().await;
        let asked = page
            .js("performance.getEntriesByType('resource').filter((entry) => \
                 entry.name.includes('/assets/') && entry.transferSize > 0).length")
            .await;
        assert_eq!(asked, json!(0), "files that were asked for again");
        page
    })
    .await;
}
