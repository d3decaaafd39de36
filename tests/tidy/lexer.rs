//! Takes Rust text apart as far as the rules need it: strings and comments out, test items out,
//! paths with their `use` groups spelled out.

use std::ops::Range;

/// `text` with the insides of comments, strings and characters blanked, byte for byte, so that
/// positions and lines stay.
pub(crate) fn code(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = skipped(bytes, at);
        match end {
            Some((inner, end)) => {
                out[inner].iter_mut().filter(|b| **b != b'\n').for_each(|b| *b = b' ');
                at = end;
            }
            None => at += 1,
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// If a comment or literal starts at `at`: what of it is to be blanked, and where it ends.
fn skipped(bytes: &[u8], at: usize) -> Option<(Range<usize>, usize)> {
    let rest = &bytes[at..];
    let word_before = at > 0 && is_word(bytes[at - 1]);
    match rest {
        [b'/', b'/', ..] => {
            let end = find(rest, b"\n").map_or(bytes.len(), |n| at + n);
            Some((at..end, end))
        }
        [b'/', b'*', ..] => {
            let end = block_comment_end(bytes, at);
            Some((at..end, end))
        }
        [b'"', ..] => Some(quoted(bytes, at, b'"')),
        [b'\'', b'\\', ..] => Some(quoted(bytes, at, b'\'')),
        [b'\'', first, ..] => {
            // A lifetime has no closing quote right after its first character.
            let length = char_length(*first);
            (bytes.get(at + 1 + length) == Some(&b'\''))
                .then(|| (at + 1..at + 1 + length, at + 2 + length))
        }
        [b'r' | b'b' | b'c', ..] if !word_before => raw(bytes, at),
        _ => None,
    }
}

fn raw(bytes: &[u8], at: usize) -> Option<(Range<usize>, usize)> {
    let mut open = at + 1;
    if bytes[at] != b'r' {
        if bytes.get(open) != Some(&b'r') {
            return None;
        }
        open += 1;
    }
    let hashes = bytes[open..].iter().take_while(|b| **b == b'#').count();
    if bytes.get(open + hashes) != Some(&b'"') {
        return None;
    }
    let start = open + hashes + 1;
    let close = [&b"\""[..], &vec![b'#'; hashes]].concat();
    let end = find(&bytes[start..], &close).map_or(bytes.len(), |n| start + n);
    Some((start..end, (end + close.len()).min(bytes.len())))
}

fn quoted(bytes: &[u8], at: usize, quote: u8) -> (Range<usize>, usize) {
    let mut end = at + 1;
    while end < bytes.len() && bytes[end] != quote {
        end += if bytes[end] == b'\\' { 2 } else { 1 };
    }
    let end = end.min(bytes.len());
    (at + 1..end, (end + 1).min(bytes.len()))
}

fn block_comment_end(bytes: &[u8], at: usize) -> usize {
    let (mut depth, mut end) = (0, at);
    while end < bytes.len() {
        match bytes[end..] {
            [b'/', b'*', ..] => (depth, end) = (depth + 1, end + 2),
            [b'*', b'/', ..] => (depth, end) = (depth - 1, end + 2),
            _ => end += 1,
        }
        if depth == 0 {
            break;
        }
    }
    end.min(bytes.len())
}

fn char_length(first: u8) -> usize {
    match first {
        0..0x80 => 1,
        0x80..0xe0 => 2,
        0xe0..0xf0 => 3,
        _ => 4,
    }
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}

pub(crate) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Where the items behind `#[cfg(test)]` and `#[cfg(any(test, ...))]` are, attributes included.
pub(crate) fn test_items(code: &str) -> Vec<Range<usize>> {
    let mut items: Vec<Range<usize>> = Vec::new();
    for mark in ["#[cfg(test)]", "#[cfg(any(test"] {
        for (start, _) in code.match_indices(mark) {
            items.push(start..item_end(code, attribute_end(code, start)));
        }
    }
    items
}

/// The end of the attribute that starts at `start`.
pub(crate) fn attribute_end(code: &str, start: usize) -> usize {
    let open = code[start..].find('[').map_or(start, |n| start + n);
    group_end(code, open)
}

/// The end of the group whose bracket is at `open`.
pub(crate) fn group_end(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (n, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return n + 1;
        }
    }
    code.len()
}

/// The end of the item that starts after `from`: its closing brace or its semicolon.
pub(crate) fn item_end(code: &str, from: usize) -> usize {
    let bytes = code.as_bytes();
    let mut at = from;
    while at < bytes.len() {
        match bytes[at] {
            b'(' | b'[' => at = group_end(code, at),
            b'{' => return group_end(code, at),
            b';' => return at + 1,
            _ => at += 1,
        }
    }
    code.len()
}

/// A path as written, `use` groups spelled out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PathUse {
    pub(crate) line: usize,
    pub(crate) path: String,
}

/// All paths with at least two segments, in `use` and in expressions.
pub(crate) fn paths(code: &str) -> Vec<PathUse> {
    let mut found = Vec::new();
    let (mut at, mut line) = (0, 1);
    let bytes = code.as_bytes();
    while at < bytes.len() {
        if !is_word(bytes[at]) {
            line += usize::from(bytes[at] == b'\n');
            at += 1;
            continue;
        }
        let end = word_end(code, at);
        if &code[at..end] == "use" {
            let stop = code[end..].find(';').map_or(code.len(), |n| end + n);
            let tree: String = code[end..stop].split_whitespace().collect::<Vec<_>>().join(" ");
            let mut spelled = Vec::new();
            spell("", &tree, &mut spelled);
            found.extend(spelled.into_iter().map(|path| PathUse { line, path }));
            line += code[at..stop].matches('\n').count();
            at = stop;
        } else {
            let mut path_end = end;
            while code[path_end..].starts_with("::")
                && bytes.get(path_end + 2).is_some_and(|b| is_word(*b))
            {
                path_end = word_end(code, path_end + 2);
            }
            if path_end > end {
                found.push(PathUse { line, path: code[at..path_end].to_owned() });
            }
            at = path_end;
        }
    }
    found
}

fn word_end(code: &str, at: usize) -> usize {
    code[at..].bytes().position(|b| !is_word(b)).map_or(code.len(), |n| at + n)
}

/// Spells a `use` tree out: `a::{b, c::{self, d as e}}` gives `a::b`, `a::c`, `a::c::d`.
fn spell(prefix: &str, tree: &str, out: &mut Vec<String>) {
    let tree = tree.trim();
    let join = |rest: &str| match (prefix, rest) {
        ("", rest) => rest.to_owned(),
        (prefix, "self") => prefix.to_owned(),
        (prefix, rest) => format!("{prefix}::{rest}"),
    };
    let Some(open) = tree.find('{') else {
        let path = tree.split(" as ").next().unwrap_or_default().trim();
        if !path.is_empty() {
            out.push(join(path));
        }
        return;
    };
    let head = tree[..open].trim_end().trim_end_matches("::");
    let inner_prefix = if head.is_empty() { prefix.to_owned() } else { join(head) };
    let inner = &tree[open + 1..tree.rfind('}').unwrap_or(tree.len())];
    let (mut depth, mut start) = (0_i32, 0);
    for (n, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                spell(&inner_prefix, &inner[start..n], out);
                start = n + 1;
            }
            _ => {}
        }
    }
    spell(&inner_prefix, &inner[start..], out);
}

/// The line, from 1, of a byte position.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text[..at].bytes().filter(|b| *b == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_lines_stay() {
        let text =
            "a // todo!()\nb(\"x\\\"y{\") /* c /* d */ e */ 'f' '\\'' &'g h r#\"i\"j\"# é'k'";
        let code = code(text);
        assert_eq!(code.len(), text.len());
        assert_eq!(line_of(&code, code.len()), 2);
        for gone in ["todo", "x", "y", "{", "c", "d", "e", "i", "j", "k"] {
            assert!(!code.contains(&format!(" {gone} ")) && !code.contains(gone), "{gone}: {code}");
        }
        assert!(code.contains("&'g h r#\""), "{code}");
    }

    #[test]
    fn test_items_end_where_they_end() {
        let code = "fn a() {}\n#[cfg(test)]\nmod t { fn b() { x(); } }\n\
            fn c() {}\n#[cfg(test)] mod d;\nfn e() {}";
        let spans = test_items(code);
        let texts: Vec<_> = spans.into_iter().map(|span| &code[span]).collect();
        assert_eq!(texts, ["#[cfg(test)]\nmod t { fn b() { x(); } }", "#[cfg(test)] mod d;"]);
    }

    #[test]
    fn use_groups_are_spelled_out() {
        let code =
            "use std::{fmt, time::{self, Instant as I}};\npub use a::*;\nlet x = b::c(d::e::f);";
        let found: Vec<_> = paths(code).into_iter().map(|p| (p.line, p.path)).collect();
        let expected = [
            (1, "std::fmt"),
            (1, "std::time"),
            (1, "std::time::Instant"),
            (2, "a::*"),
            (3, "b::c"),
            (3, "d::e::f"),
        ];
        let expected: Vec<_> =
            expected.iter().map(|(line, path)| (*line, (*path).to_owned())).collect();
        assert_eq!(found, expected);
    }
}
