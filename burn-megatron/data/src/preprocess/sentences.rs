//! Where sentences end: rules for English that other languages with Latin letters can use, and the full stops of CJK
//! scripts.

use std::ops::Range;

/// What happens to white space between sentences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SentenceEnds {
    /// It belongs to no sentence.
    Trimmed,
    /// It belongs to the sentence before it (`--keep-newlines`).
    Kept,
}

/// Words before a full stop that end no sentence, in lower case.
const ABBREVIATIONS: &[&str] = &[
    "adj", "adm", "al", "apr", "approx", "art", "assn", "asst", "aug", "ave", "bldg", "blvd", "bros", "brig", "ca",
    "capt", "cf", "ch", "chap", "cmdr", "col", "comdr", "conf", "corp", "cpl", "dec", "dept", "dist", "dr", "ed",
    "eds", "eq", "eqs", "esp", "est", "etc", "ex", "feb", "fig", "figs", "fr", "ft", "gen", "gov", "hon", "hr", "hwy",
    "inc", "jan", "jr", "jul", "jun", "lt", "ltd", "maj", "mar", "messrs", "mfg", "mlle", "mme", "mr", "mrs", "ms",
    "msgr", "mt", "mtn", "no", "nos", "nov", "oct", "op", "ord", "para", "pers", "ph", "phd", "pl", "pp", "pres",
    "prof", "prop", "pt", "pvt", "rd", "ref", "refs", "rep", "reps", "rev", "rs", "sec", "sen", "sens", "sep", "sept",
    "sfc", "sgt", "sr", "st", "ste", "supt", "surg", "tab", "tel", "transl", "univ", "viz", "vol", "vols", "vs",
];

/// Appends where the sentences of a text are, in bytes. They are in order, not empty, and without white space at the
/// start.
///
/// A sentence ends after `.`, `!`, `?` or `…`, repeated or followed by closing quotes and brackets, before white space,
/// if what follows begins with no lower-case letter and, for a single full stop, the word before it is no abbreviation
/// ("Mr.", "e.g."), no initial ("J. Smith") and no number at the beginning of a line ("1. Introduction"). It also ends
/// after `。`, `！`, `？`, with nothing after them needed. Ends of lines end no sentence.
///
/// Megatron-LM uses NLTK's punkt, whose abbreviations and frequent first words of sentences were learnt from a corpus:
/// it ends sentences after "etc." or "p.m." where the next word often begins one, and before lower-case letters after
/// `!` and `?`. It also cuts documents of over a million characters first, wherever that is.
pub fn split_sentences(text: &str, ends: SentenceEnds, sentences: &mut Vec<Range<usize>>) {
    let mut start = skip_white_space(text, 0);
    let mut at = start;
    while at < text.len() {
        let Some(end) = candidate(text, &mut at) else { break };
        let next = skip_white_space(text, end);
        if next < text.len() && !is_end(text, start, end, next) {
            continue;
        }
        sentences.push(start..if ends == SentenceEnds::Kept { next } else { end });
        start = next;
        at = next;
    }
    let rest = match ends {
        SentenceEnds::Trimmed => start + text[start..].trim_end().len(),
        SentenceEnds::Kept => text.len(),
    };
    if start < rest {
        sentences.push(start..rest);
    }
}

/// Finds the next run of terminators with what closes after it, moves `at` to its end and returns that.
fn candidate(text: &str, at: &mut usize) -> Option<usize> {
    let found = text[*at..].find(is_terminator)?;
    let end = *at + found;
    let run = text[end..]
        .find(|c| !is_terminator(c))
        .map_or(text.len(), |length| end + length);
    let closed = text[run..]
        .find(|c| !is_closing(c))
        .map_or(text.len(), |length| run + length);
    *at = closed;
    Some(closed)
}

/// Decides whether the sentence from `start` ends at `end`, where the next text is at `next`.
fn is_end(text: &str, start: usize, end: usize, next: usize) -> bool {
    let terminated = text[start..end].trim_end_matches(is_closing);
    if terminated.ends_with(is_full_width) {
        return true;
    }
    if next == end {
        return false;
    }
    let following = text[next..].trim_start_matches(is_opening);
    if following.starts_with(char::is_lowercase) {
        return false;
    }
    let words = terminated.trim_end_matches(is_terminator);
    if &terminated[words.len()..] != "." {
        return true;
    }
    let word = words
        .rsplit(|c: char| c.is_whitespace() || is_opening(c))
        .next()
        .unwrap_or_default();
    let begins_line = text[..start + words.len() - word.len()]
        .trim_end_matches([' ', '\t'])
        .ends_with(['\n', '\r'])
        || words.len() == word.len();
    !(is_initial(word) || is_abbreviation(word) || begins_line && is_list_number(word))
}

/// A capital letter alone, or letters with full stops between them ("U.S", "e.g").
fn is_initial(word: &str) -> bool {
    !word.is_empty()
        && word != "I"
        && word.split('.').all(|part| {
            let mut letters = part.chars();
            matches!((letters.next(), letters.next()), (Some(letter), None) if letter.is_alphabetic())
        })
        && (word.contains('.') || word.chars().all(char::is_uppercase))
}

fn is_abbreviation(word: &str) -> bool {
    word.len() <= 6 && ABBREVIATIONS.contains(&word.to_lowercase().as_str())
}

/// "1", "2.3", "IV" is not one: it may be a name's.
fn is_list_number(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_digit() || c == '.')
}

fn skip_white_space(text: &str, at: usize) -> usize {
    text.len() - text[at..].trim_start().len()
}

fn is_terminator(c: char) -> bool {
    matches!(c, '.' | '!' | '?' | '…') || is_full_width(c)
}

fn is_full_width(c: char) -> bool {
    matches!(c, '。' | '！' | '？')
}

fn is_closing(c: char) -> bool {
    matches!(c, '"' | '\'' | ')' | ']' | '}' | '”' | '’' | '»' | '」' | '』' | '）')
}

fn is_opening(c: char) -> bool {
    matches!(c, '"' | '\'' | '(' | '[' | '{' | '“' | '‘' | '«' | '「' | '『' | '（')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(text: &str, ends: SentenceEnds) -> Vec<&str> {
        let mut sentences = vec![];
        split_sentences(text, ends, &mut sentences);
        sentences.into_iter().map(|sentence| &text[sentence]).collect()
    }

    #[test]
    fn sentences_end_at_terminators() {
        let text = " It rains. \"Does it?\" she asked. (Yes!)  Well… No... Then go! 天気。いい？はい\n";
        let expected = [
            "It rains.",
            "\"Does it?\" she asked.",
            "(Yes!)",
            "Well…",
            "No...",
            "Then go!",
            "天気。",
            "いい？",
            "はい",
        ];
        assert_eq!(split(text, SentenceEnds::Trimmed), expected);
    }

    #[test]
    fn abbreviations_initials_and_numbers_end_none() {
        let text = "Mr. J. R. Smith, e.g. Dr. Who of the U.S. Army, pays $3.50 (see Fig. 2.1) at St. Ives.\n\
            1. One. So am I. Done";
        let expected = [
            "Mr. J. R. Smith, e.g. Dr. Who of the U.S. Army, pays $3.50 (see Fig. 2.1) at St. Ives.",
            "1. One.",
            "So am I.",
            "Done",
        ];
        assert_eq!(split(text, SentenceEnds::Trimmed), expected);
        assert!(split(" \n\t ", SentenceEnds::Trimmed).is_empty());
    }

    #[test]
    fn lines_end_no_sentence_and_newlines_can_be_kept() {
        let text = "One line\nand another.\n\nNext.  ";
        assert_eq!(split(text, SentenceEnds::Trimmed), ["One line\nand another.", "Next."]);
        assert_eq!(
            split(text, SentenceEnds::Kept),
            ["One line\nand another.\n\n", "Next.  "]
        );
    }

    proptest! {
        #[test]
        fn kept_sentences_are_the_text_and_trimmed_ones_all_but_white_space(
            text in "([ \\n]|[a-cA-C]|Mr|[.!?…。\"()]|\\PC){0,40}",
        ) {
            prop_assert_eq!(split(&text, SentenceEnds::Kept).concat(), text.trim_start());
            let black = |text: &str| text.split_whitespace().collect::<String>();
            prop_assert_eq!(black(&split(&text, SentenceEnds::Trimmed).join(" ")), black(&text));
            prop_assert!(split(&text, SentenceEnds::Trimmed).iter().all(|sentence| !sentence.trim().is_empty()));
        }
    }
}
