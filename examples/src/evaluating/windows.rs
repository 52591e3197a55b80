//! Windows over a text that is longer than the model's positions: each token but the first is predicted in one of them.

use std::sync::Arc;

use super::sequence::Sequence;

/// Returns Megatron-LM's windows of `seq_length` tokens: each begins `advance` tokens after the one before, and
/// predicts what that one has not. The last window may be shorter.
pub(super) fn overlapping(tokens: &Arc<[u32]>, seq_length: usize, advance: usize) -> Vec<Sequence> {
    let targets = tokens.len().saturating_sub(1);
    let (mut windows, mut start, mut predicted) = (Vec::new(), 0, 0);
    while predicted < targets {
        let end = (start + seq_length).min(targets);
        windows.push(Sequence::new(tokens, start..end + 1, end - predicted));
        predicted = end;
        start += advance;
    }
    windows
}

/// Returns lm-evaluation-harness's windows: they do not overlap in what they predict, and the last one reaches back as
/// far as the model sees.
pub(super) fn rolling(tokens: &Arc<[u32]>, seq_length: usize) -> Vec<Sequence> {
    let targets = tokens.len().saturating_sub(1);
    let (mut windows, mut predicted) = (Vec::new(), 0);
    while predicted < targets {
        let end = (predicted + seq_length).min(targets);
        let start = end.saturating_sub(seq_length);
        windows.push(Sequence::new(tokens, start..end + 1, end - predicted));
        predicted = end;
    }
    windows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(length: u32) -> Arc<[u32]> {
        (0..length).collect()
    }

    /// What each window sees, and what it predicts: a token's number is its place.
    fn places(windows: &[Sequence]) -> Vec<(Vec<u32>, Vec<u32>)> {
        let scored = |window: &Sequence| {
            let targets = window.targets();
            targets[targets.len() - window.num_scored()..].to_vec()
        };
        let places = windows.iter().map(|window| (window.inputs().to_vec(), scored(window)));
        places.collect()
    }

    #[test]
    fn overlapping_windows_continue_the_predictions_of_those_before() {
        assert_eq!(
            places(&overlapping(&text(9), 4, 3)),
            [
                (vec![0, 1, 2, 3], vec![1, 2, 3, 4]),
                (vec![3, 4, 5, 6], vec![5, 6, 7]),
                (vec![6, 7], vec![8]),
            ]
        );
        assert_eq!(
            places(&overlapping(&text(6), 4, 4)),
            [(vec![0, 1, 2, 3], vec![1, 2, 3, 4]), (vec![4], vec![5])]
        );
    }

    #[test]
    fn the_last_rolling_window_reaches_back_as_far_as_the_model_sees() {
        assert_eq!(
            places(&rolling(&text(7), 4)),
            [(vec![0, 1, 2, 3], vec![1, 2, 3, 4]), (vec![2, 3, 4, 5], vec![5, 6]),]
        );
    }

    #[test]
    fn every_token_but_the_first_is_predicted_once_in_order() {
        for length in 0..40 {
            let expected: Vec<u32> = (1..length.max(1)).collect();
            let predicted = |windows: Vec<Sequence>| {
                let scored = places(&windows).into_iter().flat_map(|(_, scored)| scored);
                scored.collect::<Vec<_>>()
            };
            for seq_length in 1..9 {
                assert_eq!(predicted(rolling(&text(length), seq_length)), expected);
                for advance in 1..=seq_length {
                    assert_eq!(predicted(overlapping(&text(length), seq_length, advance)), expected);
                }
            }
        }
    }
}
