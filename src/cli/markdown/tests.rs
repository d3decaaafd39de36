use proptest::prelude::*;

use super::span::SPAN_MAX;
use super::*;

fn whole(text: &str) -> String {
    let mut markdown = Markdown::new(true);
    let mut out = markdown.push(text);
    out.push_str(&markdown.finish());
    out
}

/// Styles as letters, so that the tables can be read.
fn readable(text: &str) -> String {
    let names = [
        (HEADING.on, "<h>"),
        (HEADING.off, "</h>"),
        (BOLD.on, "<b>"),
        (ITALIC.on, "<i>"),
        (ITALIC.off, "</i>"),
        (CODE.on, "<c>"),
        (CODE.off, "</c>"),
        (DIM.on, "<d>"),
        (BOLD.off, "</b>"),
    ];
    names.iter().fold(text.to_owned(), |text, (code, name)| text.replace(code, name))
}

#[test]
fn spans_are_styled() {
    let table = [
        ("a **bold** b", "a <b>bold</b> b"),
        ("a *soft* b", "a <i>soft</i> b"),
        ("_soft_ and __bold__", "<i>soft</i> and <b>bold</b>"),
        ("***both***", "<b><i>both</i></b>"),
        ("**a *b* c**", "<b>a <i>b</i> c</b>"),
        ("*a **b** c*", "<i>a <b>b</b> c</i>"),
        ("**run `ls`**!", "<b>run <c>ls</c></b>!"),
        ("`a * b * c`", "<c>a * b * c</c>"),
        ("``a ` b``", "<c>a ` b</c>"),
        ("(*x*)", "(<i>x</i>)"),
        ("这是**粗体**字", "这是<b>粗体</b>字"),
        ("**a**s", "<b>a</b>s"),
        ("**one** **two**", "<b>one</b> <b>two</b>"),
        ("| **x** | `y` |\n", "| **x** | `y` |\n"),
    ];
    for (text, expected) in table {
        assert_eq!(readable(&whole(text)), expected, "{text:?}");
    }
}

#[test]
fn marks_that_are_none_are_shown() {
    let same = [
        "5 * 3 = 15",
        "5*3*2",
        "2**3**4",
        "snake_case_name and __init",
        "*args and nothing more\nnext",
        "a ** b ** c",
        "**not closed\nnext** line",
        "a `tick\nb",
        "****",
        "***",
        "*",
        "\\*kept\\*",
        "#hashtag",
        "####### seven",
        "---\n",
        "+1 and -1",
        "1. first\n2) second\n",
        "> quoted",
        "[a](http://b_c_d)",
        "\n\n  \n",
        "",
    ];
    for text in same {
        assert_eq!(readable(&whole(text)), text, "{text:?}");
    }
}

#[test]
fn blocks_are_styled() {
    let table = [
        ("# One\ntext", "<h>One</h>\ntext"),
        ("### A **b** c\n", "<h>A <b>b</b><h> c</h>\n"),
        ("- one\n  * two\n+ three", "• one\n  • two\n• three"),
        ("- **x**: y", "• <b>x</b>: y"),
        (
            "```rust\nlet a = *b;\n\n# no\n```\nafter",
            "  <d>let a = *b;</b>\n\n  <d># no</b>\nafter",
        ),
        ("~~~\na ``` b\n~~~\n", "  <d>a ``` b</b>\n"),
        ("````\n```\nin\n````\nout", "  <d>```</b>\n  <d>in</b>\nout"),
        ("```\nnever closed", "  <d>never closed</b>"),
        ("```\ncode\n```", "  <d>code</b>\n"),
        ("```\n    ```\n```\n", "  <d>    ```</b>\n"),
        ("```one line```\n", "<c>one line</c>\n"),
    ];
    for (text, expected) in table {
        assert_eq!(readable(&whole(text)), expected, "{text:?}");
    }
}

#[test]
fn words_do_not_wait_for_what_cannot_be_a_mark() {
    let mut markdown = Markdown::new(true);
    assert_eq!(markdown.push("Hello"), "Hello");
    assert_eq!(markdown.push(" you **b"), " you ");
    assert_eq!(markdown.push("old** "), format!("{}bold{} ", BOLD.on, BOLD.off));
    let long = "word ".repeat(SPAN_MAX);
    assert!(markdown.push(&format!("*{long}")).len() > SPAN_MAX);
}

#[test]
fn plain_text_keeps_its_marks_and_loses_its_controls() {
    let mut markdown = Markdown::new(false);
    let shown = markdown.push("# a **b** \u{1b}[31m`c`\n```\nx\n") + markdown.finish().as_str();
    assert_eq!(shown, "# a **b** `c`\n```\nx\n");
}

/// Without our own styles.
fn unstyled(text: &str) -> String {
    let styles = [BOLD, ITALIC, CODE, DIM, HEADING];
    let codes = styles.iter().flat_map(|style| [style.on, style.off]);
    codes.fold(text.to_owned(), |text, code| text.replace(code, ""))
}

proptest! {
    #[test]
    fn any_split_gives_the_same_output(
        text in "([a1 *_`#|~\\-\n\u{1b}\\[]|\\*\\*|```\n|é){0,60}",
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let chars: Vec<char> = text.chars().collect();
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(chars.len() + 1)).collect();
        cuts.push(chars.len());
        cuts.sort_unstable();
        let mut markdown = Markdown::new(true);
        let mut out = String::new();
        let mut from = 0;
        for cut in cuts {
            let piece: String = chars[from..cut].iter().collect();
            out.push_str(&markdown.push(&piece));
            from = cut;
        }
        out.push_str(&markdown.finish());
        prop_assert_eq!(out, whole(&text));
    }

    #[test]
    fn nothing_of_the_text_controls_the_terminal(text in any::<String>()) {
        let shown = unstyled(&whole(&text));
        let harmless = |c: char| c == '\n' || c == '\t' || !c.is_control();
        prop_assert!(shown.chars().all(harmless), "{:?}", shown);
    }

    #[test]
    fn no_word_is_lost(text in "([a-c1 *_#|\\-\n(]|\\*\\*|`){0,80}") {
        // Three ticks at a line's start are a fence, whose language is not shown.
        prop_assume!(!text.contains("```"));
        let words = |text: &str| -> String {
            text.chars().filter(char::is_ascii_alphanumeric).collect()
        };
        prop_assert_eq!(words(&unstyled(&whole(&text))), words(&text));
    }

    #[test]
    fn styles_are_closed_at_the_end(text in "([a *_`#\n]|\\*\\*|```\n){0,60}") {
        let mut shown = whole(&text);
        shown.push('.');
        let (mut bold, mut italic, mut code) = (false, false, false);
        let mut rest = shown.as_str();
        while let Some(at) = rest.find('\u{1b}') {
            rest = &rest[at..];
            let end = rest.find('m').unwrap() + 1;
            match &rest[..end] {
                s if s == BOLD.on || s == DIM.on || s == HEADING.on => bold = true,
                s if s == BOLD.off || s == HEADING.off => bold = false,
                s if s == ITALIC.on => italic = true,
                s if s == ITALIC.off => italic = false,
                s if s == CODE.on => code = true,
                s if s == CODE.off => code = false,
                other => panic!("{other:?}"),
            }
            rest = &rest[end..];
        }
        prop_assert_eq!((bold, italic, code), (false, false, false), "{:?}", shown);
    }
}
