//! Pieces of text: whole characters, no stop sequence, nothing lost.

use burn_megatron_data::tokenizer::{ByteTokenizer, HuggingFaceTokenizer};
use proptest::prelude::*;

use super::*;

/// Where a character is not whole, or broken.
const REPLACEMENT: char = '\u{FFFD}';

fn stream(stop: &[&str], stop_tokens: &[&[u32]]) -> TextStream {
    let stop = stop.iter().map(|text| (*text).to_owned()).collect();
    let stop_tokens = stop_tokens.iter().map(|tokens| tokens.to_vec()).collect();
    TextStream::new(Arc::new(ByteTokenizer), stop, stop_tokens)
}

/// The pieces of a text's bytes, and whether it was stopped; what was held back comes last.
fn pieces(stream: &mut TextStream, tokens: impl IntoIterator<Item = u32>) -> (Vec<String>, bool) {
    let mut pieces = Vec::new();
    for token in tokens {
        let (piece, has_stopped) = stream.push(token);
        pieces.push(piece);
        if has_stopped {
            return (pieces, true);
        }
    }
    let (rest, has_stopped) = stream.finish();
    pieces.push(rest);
    (pieces, has_stopped)
}

#[test]
fn characters_come_whole() {
    let (pieces, _) = pieces(&mut stream(&[], &[]), "aé漢🙂z".bytes().map(u32::from));
    let pieces: Vec<&str> = pieces
        .iter()
        .map(String::as_str)
        .filter(|piece| !piece.is_empty())
        .collect();
    assert_eq!(pieces, ["a", "é", "漢", "🙂", "z"]);
}

#[test]
fn broken_bytes_do_not_hold_the_text_back() {
    let (pieces, _) = pieces(&mut stream(&[], &[]), [0xFF; 9].into_iter().chain([65]));
    let held = pieces[..9].concat().chars().count();
    assert_eq!(held, 6, "the last three may begin a character");
    assert_eq!(pieces.concat(), "\u{FFFD}".repeat(9) + "A");
}

#[test]
fn stop_texts_are_held_back_and_left_out() {
    let text = |stop: &[&str], text: &str| {
        let (pieces, has_stopped) = pieces(&mut stream(stop, &[]), text.bytes().map(u32::from));
        (pieces.concat(), has_stopped)
    };
    assert_eq!(text(&["\n\n"], "one\ntwo\n\nthree"), ("one\ntwo".into(), true));
    assert_eq!(text(&["END", "two"], "one two END"), ("one ".into(), true));
    // What only began is given at the end.
    assert_eq!(text(&["three"], "one thre"), ("one thre".into(), false));
    // The beginning of a stop text within another beginning.
    assert_eq!(text(&["aab"], "aaab"), ("a".into(), true));
    assert_eq!(text(&["🙂"], "x🙂"), ("x".into(), true));
}

#[test]
fn a_stop_text_that_ends_in_half_a_character_is_found_at_the_end() {
    let (pieces, has_stopped) = pieces(&mut stream(&["9\u{FFFD}"], &[]), [65, 57, 0xC3]);
    assert_eq!((pieces.concat().as_str(), has_stopped), ("A", true));
}

#[test]
fn stop_tokens_are_held_back_and_left_out() {
    let bytes = |text: &str| text.bytes().map(u32::from).collect::<Vec<_>>();
    let (found, has_stopped) = pieces(&mut stream(&[], &[&bytes("bc"), &[256]]), bytes("abbcd"));
    assert_eq!((found.concat().as_str(), has_stopped), ("ab", true));
    let (found, has_stopped) = pieces(&mut stream(&[], &[&bytes("bc")]), bytes("ab"));
    assert_eq!((found.concat().as_str(), has_stopped), ("ab", false));
}

/// A vocabulary of bytes that are decoded in runs, as Llama 2's, with an end of a turn.
fn byte_fallback() -> Arc<dyn Tokenizer> {
    let json = r#"{"version": "1.0",
        "added_tokens": [{"id": 5, "content": "<|eot_id|>", "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true}],
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {"type": "BPE", "merges": [],
            "vocab": {"a": 0, "b": 1, "<0x0A>": 2, "<0xBF>": 3, "<0x62>": 4, "<|eot_id|>": 5, "c": 6}}}"#;
    Arc::new(HuggingFaceTokenizer::from_json(json.as_bytes(), &[]).unwrap())
}

#[test]
fn bytes_of_a_run_and_special_tokens_end_a_text() {
    for (stop, tokens, expected, count) in [
        // Not before the run has ended, and nothing is lost after it.
        ("zz", &[0, 4, 3, 1, 2, 1][..], "a\u{FFFD}\u{FFFD}b\nb", 7),
        ("\n\n", &[0, 2, 2, 1], "a", 3),
        ("b", &[0, 4, 3, 1], "a", 2),
        ("<|eot_id|>", &[0, 1, 5, 1], "ab", 3),
        ("<|eot_id|>c", &[0, 1, 5, 0, 5, 6, 1], "aba", 6),
        ("b<|eot_id|>", &[0, 1, 5, 1], "a", 3),
    ] {
        let mut stream = TextStream::new(byte_fallback(), vec![stop.to_owned()], Vec::new());
        let (pieces, has_stopped) = pieces(&mut stream, tokens.iter().copied());
        assert_eq!((pieces.concat().as_str(), pieces.len()), (expected, count), "{stop:?}");
        assert_eq!(has_stopped, count <= tokens.len(), "{stop:?}");
    }
}

proptest! {
    #[test]
    fn pieces_are_the_text(tokens in prop::collection::vec(prop_oneof![
        3 => 97_u32..100,
        2 => 0x80_u32..0x100,
        1 => Just(256_u32),
        1 => Just(0xF0_u32),
    ], 0..60)) {
        let (pieces, has_stopped) = pieces(&mut stream(&[], &[]), tokens.clone());
        prop_assert!(!has_stopped);
        prop_assert_eq!(pieces.concat(), ByteTokenizer.decode(&tokens));
    }

    #[test]
    fn valid_text_is_never_replaced(text in "\\PC{0,20}") {
        let (pieces, _) = pieces(&mut stream(&[], &[]), text.bytes().map(u32::from));
        prop_assert_eq!(pieces.concat(), text.clone());
        let whole = text.chars().all(|c| c != REPLACEMENT);
        prop_assert!(!whole || pieces.iter().all(|piece| !piece.contains(REPLACEMENT)));
    }

    #[test]
    fn text_ends_before_the_first_stop(text in "[abc]{0,24}", stops in prop::collection::vec("[abc]{1,4}", 1..4)) {
        let names: Vec<&str> = stops.iter().map(String::as_str).collect();
        let (pieces, has_stopped) = pieces(&mut stream(&names, &[]), text.bytes().map(u32::from));
        // The stop text that is complete first, from where it begins; of several, the longest.
        let ends = (0..=text.len()).find_map(|end| {
            let ending = names.iter().filter(|stop| text[..end].ends_with(**stop)).map(|stop| end - stop.len());
            ending.min()
        });
        prop_assert_eq!(has_stopped, ends.is_some());
        prop_assert_eq!(pieces.concat(), &text[..ends.unwrap_or(text.len())]);
    }
}
