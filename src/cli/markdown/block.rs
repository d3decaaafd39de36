//! What the start of a line means (pure).

/// Deepest indentation under which bullets and headings are looked for, in spaces.
const INDENT_MAX: usize = 12;
/// Fewest marks of a fence, from CommonMark.
pub(super) const FENCE_MARKS: usize = 3;
/// Deepest heading, from CommonMark.
const HEADING_MAX: usize = 6;
/// Longest line after a fence's marks: a language and some options.
const INFO_MAX: usize = 80;

/// What a line's start means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// Not known yet.
    Unknown,
    Text,
    Table,
    Heading,
    /// So many spaces, then a bullet.
    Bullet(usize),
    /// A fence of these marks.
    Fence(char, usize),
    /// The open block's last line.
    FenceEnd,
    Code,
}

/// What the start of a line means.
pub(super) fn opening(line: &str, fence: Option<(char, usize)>) -> Opening {
    let body = line.trim_start_matches(' ');
    let spaces = line.len() - body.len();
    if let Some((mark, count)) = fence {
        return fence_end(body, spaces, mark, count);
    }
    let Some(first) = body.chars().next() else {
        return if spaces > INDENT_MAX { Opening::Text } else { Opening::Unknown };
    };
    let run = body.chars().take_while(|&c| c == first).count();
    let after = body.chars().nth(run);
    match first {
        '|' => Opening::Table,
        '#' if run <= HEADING_MAX => match after {
            None => Opening::Unknown,
            Some(' ') => Opening::Heading,
            Some(_) => Opening::Text,
        },
        '-' | '*' | '+' if run == 1 => match after {
            None => Opening::Unknown,
            Some(' ') => Opening::Bullet(spaces),
            Some(_) => Opening::Text,
        },
        '`' | '~' => {
            let info = body.get(run..).unwrap_or_default();
            if info.len() > INFO_MAX || (after.is_some() && run < FENCE_MARKS) {
                Opening::Text
            } else if info.contains('`') {
                // A span of code on one line.
                Opening::Text
            } else if info.ends_with('\n') {
                Opening::Fence(first, run)
            } else {
                Opening::Unknown
            }
        }
        _ => Opening::Text,
    }
}

/// Whether a line inside a block ends it.
fn fence_end(body: &str, spaces: usize, mark: char, count: usize) -> Opening {
    let run = body.chars().take_while(|&c| c == mark).count();
    let rest = body.get(run..).unwrap_or_default();
    if spaces > FENCE_MARKS || (!rest.is_empty() && run < count) {
        return Opening::Code;
    }
    match rest.trim_start_matches(' ') {
        "\n" => Opening::FenceEnd,
        "" if rest.len() <= INFO_MAX => Opening::Unknown,
        _ => Opening::Code,
    }
}
