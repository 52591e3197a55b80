//! Tests of the layer layouts: the ranges, the text, and every broken rule.

use proptest::prelude::*;

use super::{LayerLayout, LayerSizes};

fn sizes(n_layers: usize, num_stages: usize, num_chunks: usize) -> LayerSizes {
    LayerSizes {
        n_layers,
        num_stages,
        num_chunks,
    }
}

fn counts(layout: &LayerLayout) -> Vec<usize> {
    (0..layout.num_virtual_stages())
        .map(|virtual_stage| layout.range(virtual_stage).len())
        .collect()
}

#[test]
fn even_layouts_give_every_virtual_stage_the_same() {
    let layout = LayerLayout::even(sizes(12, 2, 3)).unwrap();
    assert_eq!(counts(&layout), [2; 6]);
    assert_eq!(layout.range(3), 6..8);
    assert_eq!(layout.ranges_of_stage(1).collect::<Vec<_>>(), [2..4, 6..8, 10..12]);
    assert_eq!(layout.to_string(), "Ett|(tt|)*4ttL");
    assert!(layout.has_embedding(0) && !layout.has_embedding(3));
    assert!(layout.has_head(5) && !layout.has_head(1));
    assert_eq!(
        (layout.num_layers(), layout.num_stages(), layout.num_chunks()),
        (12, 2, 3)
    );
}

#[test]
fn one_virtual_stage_has_everything() {
    let layout = LayerLayout::even(sizes(4, 1, 1)).unwrap();
    assert_eq!(layout.to_string(), "Et*4L");
    assert_eq!(layout.range(0), 0..4);
    assert!(layout.has_embedding(0) && layout.has_head(0));
}

#[test]
fn the_first_and_the_last_stage_may_have_their_own_numbers() {
    let layout = |n, p, v, first, last| LayerLayout::first_last(sizes(n, p, v), first, last).unwrap();
    assert_eq!(counts(&layout(10, 4, 1, Some(3), Some(1))), [3, 3, 3, 1]);
    assert_eq!(counts(&layout(10, 4, 1, Some(1), None)), [1, 3, 3, 3]);
    assert_eq!(counts(&layout(10, 4, 1, None, Some(4))), [2, 2, 2, 4]);
    assert_eq!(counts(&layout(5, 2, 1, Some(3), Some(2))), [3, 2]);
    assert_eq!(counts(&layout(8, 4, 1, None, None)), [2; 4]);
    // The numbers of a stage are divided over its chunks, and the layers go through the stages chunk by chunk.
    let interleaved = layout(14, 4, 2, Some(4), Some(2));
    assert_eq!(counts(&interleaved), [2, 2, 2, 1, 2, 2, 2, 1].map(|count: usize| count));
    assert_eq!(interleaved.ranges_of_stage(0).collect::<Vec<_>>(), [0..2, 7..9]);
    assert_eq!(interleaved.ranges_of_stage(3).collect::<Vec<_>>(), [6..7, 13..14]);
}

#[test]
fn layers_that_do_not_divide_are_errors_with_the_nearest_numbers() {
    let even = |n, p, v| LayerLayout::even(sizes(n, p, v)).unwrap_err().to_string();
    assert_eq!(
        even(13, 2, 3),
        "n_layers must be divisible by num_stages * num_chunks = 2 * 3 = 6, got 13; the nearest valid numbers of \
         layers are 12 and 18"
    );
    assert_eq!(even(0, 2, 3), "n_layers must be at least 1, got 0");
    assert_eq!(even(4, 0, 3), "num_stages must be at least 1, got 0");
    assert_eq!(even(4, 2, 0), "num_chunks must be at least 1, got 0");
    assert_eq!(
        even(4, usize::MAX, 2),
        "num_stages * num_chunks must be at most 1048576, got 18446744073709551615 * 2"
    );

    let error = |n, p, v, first, last| {
        LayerLayout::first_last(sizes(n, p, v), first, last)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        error(11, 4, 1, Some(3), Some(1)),
        "what the first (3) and the last stage (1) leave of n_layers = 11 must divide over the 2 other stages of 1 \
         chunks, at least 1 layer each; the nearest valid numbers of layers are 10 and 12"
    );
    assert_eq!(
        error(4, 4, 1, Some(3), None),
        "what the first (3) and the last stage (not given) leave of n_layers = 4 must divide over the 3 other stages \
         of 1 chunks, at least 1 layer each; the nearest valid numbers of layers are 6"
    );
    assert_eq!(
        error(7, 2, 1, Some(3), Some(3)),
        "what the first (3) and the last stage (3) leave of n_layers = 7 must divide over the 0 other stages of 1 \
         chunks, at least 1 layer each; the nearest valid numbers of layers are 6"
    );
    assert!(error(4, 3, 1, Some(2), Some(2)).ends_with("numbers of layers are 5"));
    assert!(error(4, 3, 1, Some(usize::MAX), Some(2)).contains("must divide over"));
    assert_eq!(
        error(14, 4, 2, Some(3), None),
        "the layers of the first stage must be divisible by num_chunks = 2, got 3; the nearest valid numbers are 2 and \
         4"
    );
    assert_eq!(
        error(8, 4, 1, None, Some(0)),
        "the number of layers of the last stage must be at least 1, got 0"
    );
    assert_eq!(
        error(8, 1, 1, Some(8), None),
        "layers for the first or the last stage need num_stages of at least 2, got 1"
    );
}

#[test]
fn texts_are_read_as_megatron_reads_them() {
    let parse = |n, p, v, text| LayerLayout::parse(sizes(n, p, v), text).unwrap();
    let layout = parse(62, 16, 2, "Et*3|(tt|)*29|tL");
    let mut expected = vec![2; 32];
    (expected[0], expected[30], expected[31]) = (3, 0, 1);
    assert_eq!(counts(&layout), expected);
    assert_eq!(layout.to_string(), "Et*3|(tt|)*29|tL");

    assert_eq!(
        counts(&parse(61, 4, 2, "E,t*3|(t*11,|)*5t*3|,L")),
        [3, 11, 11, 11, 11, 11, 3, 0]
    );
    assert_eq!(counts(&parse(3, 4, 1, "E|*2ttt|L")), [0, 0, 3, 0]);
    assert_eq!(counts(&parse(2, 1, 1, "(E)*1ttL")), [2]);
    // A layer belongs to one virtual stage, and the empty ones to no layer.
    let holes = parse(3, 4, 1, "Et||tt|L");
    assert_eq!(
        (0..3).map(|layer| holes.virtual_stage_of(layer)).collect::<Vec<_>>(),
        [0, 2, 2]
    );
}

#[test]
fn broken_texts_are_errors_that_name_the_place_and_the_rule() {
    let error = |text| LayerLayout::parse(sizes(4, 2, 1), text).unwrap_err().to_string();
    let embedding = "expected `E`, the embedding, at the beginning and nowhere else";
    for (text, position, problem) in [
        (
            "",
            1,
            "expected `E`, the embedding, at the beginning, got an empty layout",
        ),
        ("E*tt|ttL", 2, "expected a number after this `*`"),
        ("Et*0|ttL", 3, "expected a number of at least 1 after this `*`, got 0"),
        (
            "Et*99999999999999999999|L",
            3,
            "expected a number of at most 18446744073709551615, got a larger one",
        ),
        ("tt|ttL", 1, embedding),
        ("E*2tt|ttL", 1, embedding),
        ("Ett|EttL", 5, embedding),
        ("Ett|tt", 7, "expected `L`, the head and the loss, at the end"),
        ("Ett|ttLt", 8, "expected nothing after `L`, the head and the loss"),
        ("Ett|ttL*2", 7, "expected `L`, the head and the loss, once, got 2 times"),
        ("Ett|(ttL)*2", 6, "expected nothing after `L`, the head and the loss"),
        ("Ett|tttL", 7, "expected n_layers = 4 layers, got more"),
        (
            "E(t)*18446744073709551615|L",
            3,
            "expected n_layers = 4 layers, got more",
        ),
        ("E|t*18446744073709551615L", 3, "expected n_layers = 4 layers, got more"),
        ("Ett|tL", 7, "expected n_layers = 4 layers, got 3"),
        (
            "Ett|t|tL",
            6,
            "expected num_stages * num_chunks = 2 virtual stages, got more",
        ),
        (
            "Ettt(|)*18446744073709551615tL",
            6,
            "expected num_stages * num_chunks = 2 virtual stages, got more",
        ),
        (
            "Et|*18446744073709551615tttL",
            3,
            "expected num_stages * num_chunks = 2 virtual stages, got more",
        ),
        (
            "EttttL",
            7,
            "expected num_stages * num_chunks = 2 virtual stages, got 1",
        ),
        ("Ett|(tt", 5, "expected `)` after this `(`, got the end"),
        ("Ett|(t(t)*2)*2L", 7, "expected no group within a group"),
        ("Ett|()*2ttL", 5, "expected something to repeat in this group, got `()`"),
        ("Ett|(tt)L", 5, "expected `*` and a number after this group"),
    ] {
        assert_eq!(
            error(text),
            format!("layer layout, character {position}: {problem}"),
            "of {text}"
        );
    }
    for (text, position, found) in [("Ett|ttm", 7, 'm'), ("Ett| ttL", 5, ' '), ("Ett)|ttL", 4, ')')] {
        let expected = "expected `E` (embedding), `t` (layer), `L` (head and loss), `|`, `x*n` or `(...)*n`, got";
        assert_eq!(
            error(text),
            format!("layer layout, character {position}: {expected} `{found}`")
        );
    }
}

/// The text with every repetition written out.
fn written_out(counts: &[usize]) -> String {
    let stages: Vec<String> = counts.iter().map(|&count| "t".repeat(count)).collect();
    format!("E{}L", stages.join("|"))
}

proptest! {
    #[test]
    fn a_layout_is_read_as_it_is_printed(
        counts in proptest::collection::vec(prop_oneof![Just(2usize), 0usize..6], 1..20)
            .prop_filter("layers", |counts| {
            counts.iter().sum::<usize>() > 0
        }),
    ) {
        let sizes = sizes(counts.iter().sum(), counts.len(), 1);
        let layout = LayerLayout::parse(sizes, &written_out(&counts)).unwrap();
        prop_assert_eq!(self::counts(&layout), counts);
        prop_assert_eq!(LayerLayout::parse(sizes, &layout.to_string()).unwrap(), layout);
    }

    #[test]
    fn every_layer_is_in_one_virtual_stage(each in 1usize..5, p in 2usize..6, v in 1usize..4, first in 1usize..4) {
        let first = first * v;
        let layout = LayerLayout::first_last(sizes(first + each * v * (p - 1), p, v), Some(first), None).unwrap();
        let mut next = 0;
        for virtual_stage in 0..p * v {
            let range = layout.range(virtual_stage);
            prop_assert_eq!(range.start, next);
            prop_assert!(!range.is_empty());
            for layer in range.clone() {
                prop_assert_eq!(layout.virtual_stage_of(layer), virtual_stage);
            }
            next = range.end;
        }
        prop_assert_eq!(next, layout.num_layers());
    }

    #[test]
    fn no_text_makes_it_panic(text in "[EtL|()*,0-9x]{0,20}") {
        let _ = LayerLayout::parse(sizes(4, 2, 1), &text);
    }
}
