//! Folds a text into the form in which it is compared with lexicons (pure).
//!
//! People leave accents out, write with or without vowel signs, and use whatever quotation mark
//! their keyboard has. Lexicons are folded by the same function, so that both always agree.

use std::borrow::Cow;

/// Stands for every sign that ends a clause.
pub(super) const CLAUSE_END: char = '|';

/// Faces made of signs, and the faces that stand for them.
const FACES: [(&str, &str); 7] = [
    (":-)", "🙂"),
    (":)", "🙂"),
    (";)", "🙂"),
    (":D", "😃"),
    (":-(", "🙁"),
    (":(", "🙁"),
    ("<3", "❤"),
];

/// The text in lower case, without accents, with single spaces between words and clause ends, and
/// a space at both ends.
pub(super) fn text(raw: &str) -> String {
    let mut raw = Cow::Borrowed(raw);
    for (signs, face) in FACES {
        if raw.contains(signs) {
            raw = raw.replace(signs, face).into();
        }
    }
    let mut out = String::with_capacity(raw.len() + 2);
    out.push(' ');
    for letter in raw.chars() {
        fold(letter, &mut out);
    }
    space(&mut out);
    out
}

/// An entry of a lexicon, whose spaces are underscores.
pub(super) fn entry(raw: &str) -> Cow<'_, str> {
    // Most entries are as they should be, and a start should not copy thousands of them.
    let as_it_is = |letter| matches!(letter, 'a'..='z' | '\u{3040}'..='\u{9fff}' | '가'..='힣');
    if raw.chars().all(as_it_is) {
        return Cow::Borrowed(raw);
    }
    let mut out = String::with_capacity(raw.len());
    for letter in raw.chars() {
        match letter {
            '_' => out.push(' '),
            _ => fold(letter, &mut out),
        }
    }
    Cow::Owned(out)
}

fn fold(letter: char, out: &mut String) {
    match letter {
        // Full-width forms of the signs and letters of ASCII.
        '\u{ff01}'..='\u{ff5e}' => {
            let plain = char::from_u32(u32::from(letter) - 0xfee0).unwrap_or(' ');
            fold(plain, out);
        }
        'a'..='z' | '\u{3040}'..='\u{9fff}' => out.push(letter),
        '.' | ',' | ';' | ':' | '!' | '?' | '…' | '—' | '–' | '(' | ')' | '[' | ']' | '{' | '}'
        | '"' | '«' | '»' | '“' | '”' | '„' | '、' | '。' | '「' | '」' | '،' | '؛' | '؟' | '।'
        | '॥' | '\n' => {
            space(out);
            out.push(CLAUSE_END);
            out.push(' ');
        }
        // Joiners and variation selectors are between letters that belong together.
        '\u{200b}'..='\u{200f}' | '\u{fe00}'..='\u{fe0f}' => {}
        '\u{308}' => umlaut(out),
        '\u{303}' if out.ends_with('n') => {
            out.pop();
            out.push('ñ');
        }
        '\u{300}'..='\u{36f}' => {}
        // Arabic vowel signs and the stretching line.
        '\u{64b}'..='\u{652}' | '\u{670}' | '\u{640}' => {}
        // The dot below of Devanagari, which marks sounds borrowed from Persian and Arabic.
        '\u{93c}' => {}
        // The sign that takes a consonant's vowel away is no letter to Unicode, but part of a word.
        '\u{94d}' => out.push(letter),
        _ if letter.is_alphanumeric() => letter.to_lowercase().for_each(|lower| bare(lower, out)),
        '\u{2190}'..='\u{2bff}' | '\u{1f000}'..='\u{1faff}' => {
            space(out);
            out.push(letter);
            out.push(' ');
        }
        _ => space(out),
    }
}

/// A letter without the marks that writers leave out.
fn bare(letter: char, out: &mut String) {
    let plain = match letter {
        'à' | 'á' | 'â' | 'ã' | 'å' => 'a',
        'è' | 'é' | 'ê' | 'ë' => 'e',
        'ì' | 'í' | 'î' | 'ï' => 'i',
        'ò' | 'ó' | 'ô' | 'õ' => 'o',
        'ù' | 'ú' | 'û' => 'u',
        'ý' | 'ÿ' => 'y',
        'ç' => 'c',
        'ß' => return out.push_str("ss"),
        'œ' => return out.push_str("oe"),
        'æ' => return out.push_str("ae"),
        'أ' | 'إ' | 'آ' | 'ٱ' => 'ا',
        'ى' => 'ي',
        'ة' => 'ه',
        '\u{958}' => 'क',
        '\u{959}' => 'ख',
        '\u{95a}' => 'ग',
        '\u{95b}' => 'ज',
        '\u{95c}' => 'ड',
        '\u{95d}' => 'ढ',
        '\u{95e}' => 'फ',
        '\u{95f}' => 'य',
        '\u{901}' => '\u{902}',
        other => other,
    };
    out.push(plain);
}

/// Dots that came after their letter.
fn umlaut(out: &mut String) {
    let dotted = match out.pop() {
        Some('a') => 'ä',
        Some('o') => 'ö',
        Some('u') => 'ü',
        Some(other) => other,
        None => return,
    };
    out.push(dotted);
}

fn space(out: &mut String) {
    if !out.ends_with(' ') {
        out.push(' ');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_writers_leave_out_is_folded_away() {
        for (raw, folded) in [
            ("", " "),
            ("Don't, PLEASE!", " don t | please | "),
            ("Été où ça œuvre", " ete ou ca oeuvre "),
            ("schön schon Straße ñandú", " schön schon strasse ñandu "),
            ("scho\u{308}n man\u{303}ana cafe\u{301}", " schön mañana cafe "),
            ("سَعِيدٌ جدًّا، أنا", " سعيد جدا | انا "),
            ("ज़रूर हूँ।", " जरूर हूं | "),
            ("ＯＫ！好", " ok | 好 "),
            ("great😀:)", " great 😀 🙂 "),
            ("❤\u{fe0f}", " ❤ "),
        ] {
            assert_eq!(text(raw), folded, "{raw:?}");
        }
        assert_eq!(entry("_안_"), " 안 ");
        assert_eq!(entry("can't_wait"), "can t wait");
    }

    proptest::proptest! {
        #[test]
        fn folding_twice_changes_nothing_more(raw in ".{0,80}") {
            let once = text(&raw);
            let again = text(&once.replace(CLAUSE_END, "."));
            proptest::prop_assert_eq!(again, once);
        }
    }
}
